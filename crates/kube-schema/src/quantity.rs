//! `resource.Quantity`: fixed-point numbers with a suffix, kept in a canonical text form.
//!
//! Rules (API conventions, "Quantities"): precision ends at nano and is rounded away from zero there; values are capped at
//! ±(2⁶³−1); the canonical form has the largest suffix that leaves an integer, in the family that was written (binary, decimal or
//! exponent); binary numbers below 1024 are written as decimal ones.

use std::cmp::Ordering;
use std::fmt;

/// The family of suffixes a quantity was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// A parsed quantity. Equality and order are those of the value, whatever the format.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// The value in units of 10⁻⁹.
    nano: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
const NANO_MAX: i128 = (i64::MAX as i128) * NANO;

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 7] = [("", 0), ("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// Text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

fn divide_away_from_zero(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 { quotient } else { quotient + value.signum() }
}

enum Scale {
    Ten(i32),
    Two(u32),
}

fn parse_suffix(suffix: &str) -> Option<(Scale, Format)> {
    if let Some((_, bits)) = BINARY.iter().find(|(s, bits)| *bits > 0 && *s == suffix) {
        return Some((Scale::Two(*bits), Format::Binary));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Ten(*exponent), Format::Decimal));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    digits.parse::<i32>().ok().map(|exponent| (Scale::Ten(exponent), Format::Exponent))
}

impl Quantity {
    /// Parses the text form; the empty text is not a quantity.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_negative = text.starts_with('-');
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if number.is_empty() || number == "." || fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        let is_suffix = |c: char| "eEinumkKMGTP".contains(c) || c.is_ascii_digit() || c == '-' || c == '+';
        if !suffix.chars().all(is_suffix) {
            return Err(QuantityError::Format);
        }
        let (scale, format) = parse_suffix(suffix).ok_or(QuantityError::Suffix)?;
        let magnitude = Self::scaled(whole, fraction, &scale).unwrap_or(NANO_MAX).min(NANO_MAX);
        Ok(Quantity { nano: if is_negative { -magnitude } else { magnitude }, format })
    }

    /// The magnitude in nano units; `None` when it is beyond any bound.
    fn scaled(whole: &str, fraction: &str, scale: &Scale) -> Option<i128> {
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some(0);
        }
        // Digits past the 30th cannot matter beside a nano of the cap, except that they round up.
        let kept = digits.len().min(30);
        let dropped = (digits.len() - kept) as i32;
        let mut value: i128 = digits[..kept].parse().ok()?;
        if digits[kept..].contains(|c| c != '0') {
            value += 1;
        }
        let mut exponent = 9 - fraction.len() as i32 + dropped;
        match scale {
            Scale::Ten(e) => exponent = exponent.checked_add(*e)?,
            Scale::Two(bits) => value = value.checked_mul(1_i128 << bits)?,
        }
        if exponent >= 0 {
            return value.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?);
        }
        Some(10_i128.checked_pow(exponent.unsigned_abs()).map_or(1, |by| divide_away_from_zero(value, by)))
    }

    /// A whole number of units.
    pub fn from_units(units: i64, format: Format) -> Quantity {
        Quantity { nano: i128::from(units) * NANO, format }
    }

    /// The value in units of 10⁻⁹.
    pub fn nano(self) -> i128 {
        self.nano
    }

    /// The value in whole units, rounded away from zero (`Value()` of the Go type).
    pub fn units(self) -> i64 {
        i64::try_from(divide_away_from_zero(self.nano, NANO)).unwrap_or(i64::MAX)
    }

    /// The value in thousandths, rounded away from zero (`MilliValue()` of the Go type).
    pub fn milli(self) -> i64 {
        i64::try_from(divide_away_from_zero(self.nano, NANO / 1000)).unwrap_or(i64::MAX)
    }

    pub fn format(self) -> Format {
        self.format
    }

    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Sum in this quantity's format; a zero takes the other's.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nano: (self.nano + other.nano).clamp(-NANO_MAX, NANO_MAX), format }
    }

    /// Difference in this quantity's format; a zero takes the other's.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.plus(Quantity { nano: -other.nano, format: other.format })
    }

    fn write_decimal(self, f: &mut fmt::Formatter<'_>, is_exponent: bool) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let (mut value, mut exponent) = (self.nano, -9);
        while exponent < 18 && value % 1000 == 0 {
            value /= 1000;
            exponent += 3;
        }
        if is_exponent {
            return if exponent == 0 { write!(f, "{value}") } else { write!(f, "{value}e{exponent}") };
        }
        let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
        write!(f, "{value}{suffix}")
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            Format::Binary if self.nano.abs() >= 1024 * NANO => {
                let mut value = divide_away_from_zero(self.nano, NANO);
                let mut step = 0;
                while step + 1 < BINARY.len() && value % 1024 == 0 {
                    value /= 1024;
                    step += 1;
                }
                write!(f, "{value}{}", BINARY[step].0)
            }
            Format::Exponent => self.write_decimal(f, true),
            Format::Binary | Format::Decimal => self.write_decimal(f, false),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).map_or_else(|e| format!("{e:?}"), |q| q.to_string())
    }

    #[test]
    fn canonical_forms() {
        for (text, wanted) in [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("100Ki", "100Ki"),
            ("512", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e1", "120"),
            ("2E", "2E"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-3", "-3"),
            (".5", "500m"),
            ("1.", "1"),
            ("0.0000000001", "1n"),
            ("99999999999999999999", "9223372036854775807"),
            ("0.1Ki", "102400m"),
        ] {
            assert_eq!(canonical(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity() {
        for text in ["", "x", "1x", "1 Gi", "--1", ".", "1..2"] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::Format), "{text}");
        }
        for text in ["1KiB", "1ki", "1mm", "1e"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_keeps_the_format() {
        let sum = Quantity::parse("1Gi").unwrap().plus(Quantity::parse("512Mi").unwrap());
        assert_eq!(sum.to_string(), "1536Mi");
        assert_eq!(sum.minus(Quantity::parse("1Gi").unwrap()).to_string(), "512Mi");
        assert!(Quantity::parse("1").unwrap() == Quantity::parse("1000m").unwrap());
    }
}
