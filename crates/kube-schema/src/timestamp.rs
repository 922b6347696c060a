//! Times as the API writes them: RFC 3339 in UTC, with seconds (`Time`) or microseconds (`MicroTime`).

use jiff::Timestamp;
use jiff::fmt::strtime;

/// Text that is no RFC 3339 time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parsing time {text:?} as {layout:?}: cannot parse")]
pub struct TimeError {
    text: String,
    layout: &'static str,
}

const TIME_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_TIME_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Fraction digits of the strict form `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`; `None` if the text is not of it.
fn fraction_digits(text: &str) -> Option<usize> {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let fits = |shape: &[u8], bytes: &[u8]| {
        shape.len() == bytes.len() && shape.iter().zip(bytes).all(|(s, b)| if *s == b'd' { b.is_ascii_digit() } else { s == b })
    };
    if bytes.len() < SHAPE.len() || !fits(SHAPE, &bytes[..SHAPE.len()]) {
        return None;
    }
    let mut rest = &bytes[SHAPE.len()..];
    let mut digits = 0;
    if rest.first() == Some(&b'.') {
        digits = rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        rest = &rest[digits + 1..];
    }
    (rest == b"Z" || fits(b"+dd:dd", rest) || fits(b"-dd:dd", rest)).then_some(digits)
}

/// Parses a `Time`; a fraction is accepted and, as upstream does, kept only until the value is written.
pub fn parse_time(text: &str) -> Result<Timestamp, TimeError> {
    let error = || TimeError { text: text.to_owned(), layout: TIME_LAYOUT };
    fraction_digits(text).ok_or_else(error)?;
    text.parse().map_err(|_| error())
}

/// Parses a `MicroTime`, which must have exactly six digits of fraction.
pub fn parse_micro_time(text: &str) -> Result<Timestamp, TimeError> {
    let error = || TimeError { text: text.to_owned(), layout: MICRO_TIME_LAYOUT };
    if fraction_digits(text) != Some(6) {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}

/// Writes a `Time`.
pub fn format_time(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", time).unwrap_or_default()
}

/// Writes a `MicroTime`.
pub fn format_micro_time(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%S.%6fZ", time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_normalised_to_utc() {
        let write = |t: &str| parse_time(t).map(format_time);
        assert_eq!(write("2024-03-01T12:00:00+02:00").unwrap(), "2024-03-01T10:00:00Z");
        assert_eq!(write("2024-03-01T12:00:00.9Z").unwrap(), "2024-03-01T12:00:00Z");
        assert!(write("2024-03-01 12:00:00Z").is_err());
        assert!(write("2024-03-01").is_err());
        assert!(write("2024-13-01T12:00:00Z").is_err());
    }

    #[test]
    fn micro_times_have_six_digits() {
        let write = |t: &str| parse_micro_time(t).map(format_micro_time);
        assert_eq!(write("2024-03-01T12:00:00.000120Z").unwrap(), "2024-03-01T12:00:00.000120Z");
        assert!(write("2024-03-01T12:00:00Z").is_err());
    }
}
