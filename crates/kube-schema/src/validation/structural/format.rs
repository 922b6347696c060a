//! The string formats that a custom schema may ask for. An unknown format accepts everything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::names;
use crate::timestamp;

/// Whether text is of a format.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format.replace('-', "").to_lowercase().as_str() {
        "datetime" => timestamp::parse_time(text).is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "hostname" => text.len() <= names::SUBDOMAIN_CHARS_MAX && text.split('.').all(is_host_label),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !host.contains('@')),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "byte" => STANDARD.decode(text).is_ok(),
        "hexcolor" => is_hex_color(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "k8sshortname" => names::dns_label(text).is_empty(),
        "k8slongname" => names::dns_subdomain(text).is_empty(),
        _ => true,
    }
}

fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= names::LABEL_CHARS_MAX
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let bits_max = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|b| b <= bits_max)
    })
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_uri(text: &str) -> bool {
    let is_clean = !text.chars().any(|c| c.is_control() || c == ' ');
    let has_scheme = text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    });
    is_clean && (has_scheme || text.starts_with('/'))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32 && plain.bytes().all(|b| b.is_ascii_hexdigit()) && version.is_none_or(|v| plain.chars().nth(12) == Some(v))
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Go's duration text (`1h30m`, `1.5s`, `-2us`, `0`), and the words with spaces that the format allows besides (`3 days`).
pub(crate) fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 20] = [
        "ns", "us", "µs", "ms", "s", "m", "h", "nano", "micro", "milli", "sec", "second", "min", "minute", "hour", "d", "day",
        "w", "week", "hr",
    ];
    let mut rest = text.trim().strip_prefix(['-', '+']).unwrap_or(text.trim());
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if number == 0 || rest[..number].parse::<f64>().is_err() {
            return false;
        }
        rest = rest[number..].trim_start();
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == ' ').unwrap_or(rest.len());
        let name = &rest[..unit];
        if !UNITS.contains(&name) && !name.strip_suffix('s').is_some_and(|n| UNITS.contains(&n)) {
            return false;
        }
        rest = rest[unit..].trim_start();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        for (format, good, bad) in [
            ("date-time", "2024-01-01T00:00:00Z", "2024-01-01"),
            ("date", "2024-01-31", "2024-02-31"),
            ("duration", "1h30m", "soon"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:11:22:aa:bb:cc", "00:11"),
            ("hostname", "a.example", "-a"),
            ("uri", "https://a/b", "a b"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("byte", "eA==", "%"),
        ] {
            assert!(fits(format, good), "{format} {good}");
            assert!(!fits(format, bad), "{format} {bad}");
        }
        assert!(fits("unheard-of", "anything"));
    }
}
