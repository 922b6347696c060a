//! Kubernetes quantities as integers.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A quantity in billionths, the finest unit that the syntax can express exactly.
fn nano(text: &str) -> Option<i128> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (negative, number) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits past the ninth round up, as the API does.
    let kept = &fraction[..fraction.len().min(9)];
    let mut parts: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    parts *= 10i128.pow(9 - kept.len() as u32);
    if fraction.len() > 9 && fraction[9..].bytes().any(|b| b != b'0') {
        parts += 1;
    }
    let value = whole.checked_mul(1_000_000_000)?.checked_add(parts)?;
    let value = if negative { -value } else { value };
    let binary = |power: u32| value.checked_mul(1024i128.pow(power));
    let decimal = |power: i32| {
        if power >= 0 {
            value.checked_mul(10i128.checked_pow(power as u32)?)
        } else {
            Some(ceil_div(value, 10i128.checked_pow(power.unsigned_abs())?))
        }
    };
    match suffix {
        "" => Some(value),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

fn ceil_div(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

fn clamp(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The quantity in whole units, rounded up; 0 for a quantity that does not parse.
pub fn units(quantity: &Quantity) -> i64 {
    nano(&quantity.0).map_or(0, |n| clamp(ceil_div(n, 1_000_000_000)))
}

/// The quantity in thousandths, rounded up; 0 for a quantity that does not parse.
pub fn milli(quantity: &Quantity) -> i64 {
    nano(&quantity.0).map_or(0, |n| clamp(ceil_div(n, 1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_and_rounding_follow_the_api() {
        let u = |s: &str| units(&Quantity(s.into()));
        let m = |s: &str| milli(&Quantity(s.into()));
        assert_eq!((u("1"), u("1Ki"), u("1.5Gi"), u("2k"), u("1e3"), u("12E2")), (1, 1024, 1610612736, 2000, 1000, 1200));
        assert_eq!((m("250m"), m("0.1"), m("2"), m("1u")), (250, 100, 2000, 1));
        assert_eq!((u("100m"), u(""), u("x"), u("-1"), u("9999Ei")), (1, 0, 0, -1, i64::MAX));
    }
}
