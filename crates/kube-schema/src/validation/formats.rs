//! Formats of texts, by the word that rows use. Each gives the sentences of what is wrong.

use std::net::IpAddr;

use super::names::{self, length_text, pattern_text};

type Format = fn(&str) -> Vec<String>;

/// The rule of a format.
pub fn find(name: &str) -> Option<Format> {
    Some(match name {
        "label" => names::dns_label,
        "subdomain" => names::dns_subdomain,
        "dns1035" => names::dns_1035_label,
        "qualified" => names::qualified_name,
        "labelvalue" => names::label_value,
        "segment" => |text| names::path_segment(text, false),
        "portname" => port_name,
        "configkey" => config_key,
        "envname" => env_name,
        "header" => header_name,
        "ip" => ip,
        "cidr" => cidr,
        "strictip" => strict_ip,
        "strictcidr" => strict_cidr,
        "notlocal" => reachable_ip,
        "percent" => percent,
        "nobacksteps" => no_backsteps,
        "descending" => descending_path,
        "localpath" => local_path,
        "absolute" => absolute_path,
        "lowersubdomain" => |text| names::dns_subdomain(&text.to_lowercase()),
        "lowerqualified" => |text| names::qualified_name(&text.to_lowercase()),
        "wildcard" => wildcard_subdomain,
        "trimmed" => trimmed,
        _ => return None,
    })
}

fn one(text: impl Into<String>) -> Vec<String> {
    vec![text.into()]
}

/// IANA service names.
pub fn port_name(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > 15 {
        out.push(length_text(15));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        out.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        out.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        out.push("must not begin or end with a hyphen".to_owned());
    }
    out
}

/// A key of a ConfigMap or Secret: it becomes a file name.
pub fn config_key(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > names::SUBDOMAIN_CHARS_MAX {
        out.push(length_text(names::SUBDOMAIN_CHARS_MAX));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        out.push(pattern_text(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => out.push("must not be '.'".to_owned()),
        ".." => out.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => out.push("must not start with '..'".to_owned()),
        _ => {}
    }
    out
}

/// A name of an environment variable, by the relaxed rule.
pub fn env_name(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.is_empty() {
        out.push("environment variable name must be non-empty".to_owned());
    }
    if text.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        out.push("a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned());
    }
    out
}

/// A name of an HTTP header.
pub fn header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
    one(pattern_text(message, "[-A-Za-z0-9]+", &["X-Header-Name"]))
}

/// An address as old fields take it: leading zeros are fine.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let plain: Vec<String> = text
        .split('.')
        .map(|part| {
            let kept = part.trim_start_matches('0');
            if kept.is_empty() && !part.is_empty() { "0".to_owned() } else { kept.to_owned() }
        })
        .collect();
    if plain.len() == 4 { plain.join(".").parse().ok() } else { None }
}

fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip(address)?;
    let length: u8 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

/// An address without surprises; canonical form is not demanded.
pub fn ip(text: &str) -> Vec<String> {
    let Some(address) = parse_ip(text) else {
        return one("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    };
    if text.parse::<IpAddr>().is_err() {
        return one("must not have leading 0s");
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return one("must not be an IPv4-mapped IPv6 address");
    }
    Vec::new()
}

/// An address as new fields take it: canonical.
pub fn strict_ip(text: &str) -> Vec<String> {
    let out = ip(text);
    match parse_ip(text) {
        Some(address) if out.is_empty() && address.to_string() != text => {
            one(format!("must be in canonical form (\"{address}\")"))
        }
        _ => out,
    }
}

/// A block without surprises; canonical form is not demanded.
pub fn cidr(text: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr(text) else {
        return one("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    };
    let written = text.split_once('/').unwrap_or((text, ""));
    if written.0.parse::<IpAddr>().is_err() || written.1 != length.to_string() {
        return one("must not have leading 0s in IP or prefix length");
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return one("must not have an IPv4-mapped IPv6 address");
    }
    let beyond = match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    if length < 128 && beyond << length != 0 {
        return one("must not have bits set beyond the prefix length");
    }
    Vec::new()
}

/// A block as new fields take it: canonical.
pub fn strict_cidr(text: &str) -> Vec<String> {
    let out = cidr(text);
    let canonical = parse_cidr(text).map(|(address, length)| format!("{address}/{length}"));
    match canonical {
        Some(canonical) if out.is_empty() && canonical != text => one(format!("must be in canonical form (\"{canonical}\")")),
        _ => out,
    }
}

/// An address that an endpoint may have.
pub fn reachable_ip(text: &str) -> Vec<String> {
    let Some(address) = parse_ip(text) else { return one("must be a valid IP address") };
    let mut out = Vec::new();
    if address.is_unspecified() {
        out.push(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        out.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if is_link_local {
        out.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if is_link_local_multicast {
        out.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    out
}

/// `1%`.
pub fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    let message = "a valid percent string must be a numeric string followed by an ending '%'";
    one(pattern_text(message, "[0-9]+%", &["1%", "93%"]))
}

/// A path that does not climb.
pub fn no_backsteps(text: &str) -> Vec<String> {
    if text.split('/').any(|part| part == "..") { one("must not contain '..'") } else { Vec::new() }
}

/// A relative path that does not climb.
pub fn descending_path(text: &str) -> Vec<String> {
    let mut out = if text.starts_with('/') { one("must be a relative path") } else { Vec::new() };
    out.extend(no_backsteps(text));
    out
}

/// A relative path whose first part no reserved name can be.
pub fn local_path(text: &str) -> Vec<String> {
    let mut out = descending_path(text);
    if text.starts_with("..") && !text.starts_with("../") {
        out.push("must not start with '..'".to_owned());
    }
    out
}

fn absolute_path(text: &str) -> Vec<String> {
    if text.starts_with('/') { Vec::new() } else { one("must be an absolute path") }
}

fn trimmed(text: &str) -> Vec<String> {
    if text.trim() == text { Vec::new() } else { one("must not have leading or trailing whitespace") }
}

/// `*.example.com`.
pub fn wildcard_subdomain(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > names::SUBDOMAIN_CHARS_MAX {
        out.push(length_text(names::SUBDOMAIN_CHARS_MAX));
    }
    if text.strip_prefix("*.").is_none_or(|rest| !names::dns_subdomain(rest).is_empty()) {
        out.push(pattern_text(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            "\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["*.example.com"],
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(ip("10.0.0.01"), ["must not have leading 0s"]);
        assert!(ip("2001:DB8::1").is_empty() && !strict_ip("2001:DB8::1").is_empty());
        assert!(!ip("10.0.0").is_empty());
        assert!(!ip("10.0.0.256").is_empty());
        assert!(strict_cidr("10.0.0.0/8").is_empty());
        assert_eq!(strict_cidr("10.0.0.1/8"), ["must not have bits set beyond the prefix length"]);
        assert!(!reachable_ip("127.0.0.1").is_empty());
        assert!(reachable_ip("10.0.0.1").is_empty());
    }

    #[test]
    fn paths_and_names() {
        assert!(port_name("http-1").is_empty());
        assert_eq!(port_name("1"), ["must contain at least one letter (a-z)"]);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(local_path("/a/../b"), ["must be a relative path", "must not contain '..'"]);
        assert_eq!(local_path("..a"), ["must not start with '..'"]);
        assert!(percent("10%").is_empty() && !percent("%").is_empty());
    }
}
