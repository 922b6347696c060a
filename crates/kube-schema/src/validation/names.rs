//! Syntax of names. Each check gives the texts of what is wrong, none if nothing is.

use std::net::IpAddr;

use crate::registry::NameRule;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

pub const LABEL_CHARS_MAX: usize = 63;
pub const SUBDOMAIN_CHARS_MAX: usize = 253;

/// The sentence for text that does not match a pattern.
pub fn pattern_text(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{pattern}')");
    }
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// The sentence for text that is too long.
pub fn length_text(chars_max: usize) -> String {
    format!("must be no more than {chars_max} characters")
}

/// The same where keys and values of labels are judged.
fn byte_length_text(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} bytes")
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&a), Some(&z)) if is_lower_alphanumeric(a) && is_lower_alphanumeric(z))
        && bytes.iter().all(|&b| is_lower_alphanumeric(b) || b == b'-')
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// RFC 1123 label.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > LABEL_CHARS_MAX {
        out.push(length_text(LABEL_CHARS_MAX));
    }
    if !is_label(text) {
        let message = if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            pattern_text(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        };
        out.push(message);
    }
    out
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// RFC 1123 subdomain.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > SUBDOMAIN_CHARS_MAX {
        out.push(length_text(SUBDOMAIN_CHARS_MAX));
    }
    if !is_subdomain(text) {
        out.push(pattern_text(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    out
}

/// RFC 1035 label.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > LABEL_CHARS_MAX {
        out.push(length_text(LABEL_CHARS_MAX));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        out.push(pattern_text(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    out
}

/// A key of a label: a name, with a DNS subdomain and a slash before it if it is not the cluster's own.
pub fn qualified_name(text: &str) -> Vec<String> {
    const MESSAGE: &str =
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut out = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                out.push("prefix part must be non-empty".to_owned());
            } else {
                out.extend(dns_subdomain(prefix).into_iter().map(|m| format!("prefix part {m}")));
            }
            name
        }
        _ => {
            let text = pattern_text(&format!("a qualified name {MESSAGE}"), QUALIFIED, &EXAMPLES);
            return vec![format!("{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
        }
    };
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_CHARS_MAX {
        out.push(format!("name part {}", byte_length_text(LABEL_CHARS_MAX)));
    }
    if !is_qualified(name) {
        out.push(format!("name part {}", pattern_text(MESSAGE, QUALIFIED, &EXAMPLES)));
    }
    out
}

/// The value of a label; may be empty.
pub fn label_value(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > LABEL_CHARS_MAX {
        out.push(byte_length_text(LABEL_CHARS_MAX));
    }
    if !text.is_empty() && !is_qualified(text) {
        out.push(pattern_text(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    out
}

/// What may stand in a URL path.
pub fn path_segment(text: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

fn ip_address(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Err(_) => vec!["must be a valid IP address".to_owned()],
        Ok(address) if address.to_string() != text => vec!["must be in canonical form".to_owned()],
        Ok(_) => Vec::new(),
    }
}

/// Checks a name by a kind's rule; a prefix (`generateName`) may end in a dash.
pub fn by_rule(rule: NameRule, text: &str, is_prefix: bool) -> Vec<String> {
    let masked;
    let mut name = text;
    if is_prefix && text.len() > 1 && text.ends_with('-') {
        let kept: String = text.chars().take(text.chars().count() - 2).collect();
        masked = kept + "a";
        name = &masked;
    }
    match rule {
        NameRule::Subdomain => dns_subdomain(name),
        NameRule::Label => dns_label(name),
        NameRule::Dns1035 => dns_1035_label(name),
        NameRule::PathSegment => path_segment(text, is_prefix),
        NameRule::IpAddress => ip_address(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_rule() {
        let ok = |rule, text: &str| by_rule(rule, text, false).is_empty();
        assert!(ok(NameRule::Subdomain, "a.b-c.1"));
        assert!(!ok(NameRule::Subdomain, "A"));
        assert!(!ok(NameRule::Subdomain, "a..b"));
        assert!(!ok(NameRule::Subdomain, &"a".repeat(254)));
        assert!(!ok(NameRule::Label, "a.b"));
        assert!(!ok(NameRule::Dns1035, "1a"));
        assert!(ok(NameRule::PathSegment, "system:node"));
        assert!(!ok(NameRule::PathSegment, "a/b"));
        assert!(by_rule(NameRule::Subdomain, "web-", true).is_empty());
        assert!(ok(NameRule::IpAddress, "10.0.0.1"));
        assert!(!ok(NameRule::IpAddress, "10.0.0.01"));
    }

    #[test]
    fn texts_are_upstreams() {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
            with an alphanumeric character (e.g. 'example.com', regex used for validation is \
            '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        assert_eq!(dns_subdomain("X"), [text]);
    }

    #[test]
    fn label_keys_and_values() {
        assert!(qualified_name("a.io/My_Name.1").is_empty());
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert!(!qualified_name("a/b/c").is_empty());
        assert!(!qualified_name("-a").is_empty());
        assert!(label_value("").is_empty());
        assert!(!label_value("a b").is_empty());
    }
}
