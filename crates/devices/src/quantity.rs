//! Kubernetes quantities as whole numbers.

/// The whole number that `text` stands for, by the API convention's suffixes; `None` if it is malformed, not whole, or
/// beyond 64 bits.
pub fn whole(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(digits_end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let mantissa: i128 = if whole.is_empty() && fraction.is_empty() { 0 } else { format!("0{whole}{fraction}").parse().ok()? };
    let (factor, mut exponent) = scale(suffix)?;
    exponent -= i32::try_from(fraction.len()).ok()?;
    let mut value = mantissa.checked_mul(factor)?;
    for _ in 0..exponent.unsigned_abs() {
        if exponent > 0 {
            value = value.checked_mul(10)?;
        } else if value % 10 == 0 {
            value /= 10;
        } else {
            return None;
        }
    }
    i64::try_from(if negative { -value } else { value }).ok()
}

/// Binary factor and decimal exponent of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Beyond this no 64-bit value is left, and the loop above must stay short.
            if exponent.abs() > 40 {
                return None;
            }
            (1, exponent)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn suffixes_scale_and_fractions_must_vanish() {
        let cases = [
            ("4000", Some(4000)),
            ("4k", Some(4000)),
            ("4Ki", Some(4096)),
            ("0.5Ki", Some(512)),
            ("4e3", Some(4000)),
            ("4000m", Some(4)),
            ("1.50k", Some(1500)),
            ("-1", Some(-1)),
            ("0", Some(0)),
            ("1500m", None),
            ("0.3", None),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("ten", None),
            ("1e99", None),
            ("9E", Some(9_000_000_000_000_000_000)),
            ("10E", None),
        ];
        for (text, expected) in cases {
            assert_eq!(whole(text), expected, "{text}");
        }
    }
}
