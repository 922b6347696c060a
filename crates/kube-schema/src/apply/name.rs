//! Names of field managers.

use crate::limits;

/// What is wrong with a `fieldManager` parameter: a 422 of `PatchOptions` (or its like) with this cause at `fieldManager`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldManagerFault {
    /// `FieldValueTooLong`.
    TooLong,
    /// `FieldValueInvalid`.
    NotPrintable,
}

/// Checks a `fieldManager` parameter.
pub fn check_field_manager(name: &str) -> Vec<FieldManagerFault> {
    let mut out = Vec::new();
    if name.len() > limits::FIELD_MANAGER_CHARS_MAX {
        out.push(FieldManagerFault::TooLong);
    }
    if !name.chars().all(is_printable) {
        out.push(FieldManagerFault::NotPrintable);
    }
    out
}

/// The manager of an ordinary write: the parameter, or what the user agent says before its first slash.
pub fn manager_or_user_agent(manager: &str, user_agent: &str) -> String {
    if !manager.is_empty() {
        return manager.to_owned();
    }
    let mut out = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printable(*c)) {
        if out.len() + c.len_utf8() > limits::FIELD_MANAGER_CHARS_MAX {
            break;
        }
        out.push(c);
    }
    out
}

/// Letters, marks, numbers, punctuation, symbols and the plain space.
fn is_printable(c: char) -> bool {
    let is_format = matches!(u32::from(c), 0xad | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xe000..=0xf8ff);
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_name_the_manager() {
        assert_eq!(manager_or_user_agent("me", "kubectl/v1.36"), "me");
        assert_eq!(manager_or_user_agent("", "kubectl/v1.36 (linux/amd64)"), "kubectl");
        assert_eq!(manager_or_user_agent("", "a\u{7}b c"), "ab c");
        assert_eq!(manager_or_user_agent("", &"é".repeat(100)).len(), 128);
    }

    #[test]
    fn names_are_printable_and_short() {
        assert_eq!(check_field_manager("alpha"), []);
        assert_eq!(check_field_manager("bad\nname"), [FieldManagerFault::NotPrintable]);
        assert_eq!(check_field_manager(&"x".repeat(129)), [FieldManagerFault::TooLong]);
    }
}
