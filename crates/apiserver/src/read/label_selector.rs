//! Label selectors in their text form: `a=b,c!=d,e in (f,g),h,!i,j>1`.

use crate::error::{ApiError, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

/// All requirements have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<(String, Rule)>);

impl LabelSelector {
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|(key, rule)| match (rule, get(key)) {
            (Rule::In(values), Some(v)) => values.iter().any(|x| x == v),
            (Rule::NotIn(values), Some(v)) => !values.iter().any(|x| x == v),
            (Rule::NotIn(_) | Rule::Absent, None) | (Rule::Exists, Some(_)) => true,
            (Rule::Greater(n), Some(v)) => v.parse::<i64>().is_ok_and(|v| v > *n),
            (Rule::Less(n), Some(v)) => v.parse::<i64>().is_ok_and(|v| v < *n),
            _ => false,
        })
    }

    pub fn parse(text: &str) -> Result<LabelSelector> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, after) = requirement(rest).ok_or_else(|| unparsable(text))?;
            rules.push(rule);
            rest = after.trim_start();
            if rest.is_empty() {
                break;
            }
            rest = rest.strip_prefix(',').ok_or_else(|| unparsable(text))?.trim_start();
            if rest.is_empty() {
                return Err(unparsable(text));
            }
        }
        Ok(LabelSelector(rules))
    }
}

fn unparsable(text: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {text:?} is not a label selector"))
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))).unwrap_or(text.len());
    text.split_at(end)
}

fn requirement(text: &str) -> Option<((String, Rule), &str)> {
    if let Some(rest) = text.strip_prefix('!') {
        let (key, rest) = key(rest.trim_start())?;
        return Some(((key, Rule::Absent), rest));
    }
    let (key, rest) = key(text)?;
    let rest = rest.trim_start();
    let value_after = |prefix: &str| rest.strip_prefix(prefix).map(|r| word(r.trim_start()));
    for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((value, rest)) = value_after(operator) {
            let values = vec![valid_value(value)?];
            return Some(((key, if negated { Rule::NotIn(values) } else { Rule::In(values) }), rest));
        }
    }
    if let Some((value, rest)) = value_after(">") {
        return Some(((key, Rule::Greater(value.parse().ok()?)), rest));
    }
    if let Some((value, rest)) = value_after("<") {
        return Some(((key, Rule::Less(value.parse().ok()?)), rest));
    }
    match word(rest) {
        ("in", rest) => set(rest).map(|(values, rest)| ((key, Rule::In(values)), rest)),
        ("notin", rest) => set(rest).map(|(values, rest)| ((key, Rule::NotIn(values)), rest)),
        ("", rest) => Some(((key, Rule::Exists), rest)),
        _ => None,
    }
}

fn key(text: &str) -> Option<(String, &str)> {
    let (key, rest) = word(text);
    let name = key.rsplit('/').next()?;
    let is_name = !name.is_empty()
        && name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    (is_name && key.matches('/').count() <= 1).then(|| (key.to_owned(), rest))
}

fn valid_value(value: &str) -> Option<String> {
    let is_value = value.len() <= 63
        && !value.contains('/')
        && (value.is_empty()
            || (value.starts_with(|c: char| c.is_ascii_alphanumeric()) && value.ends_with(|c: char| c.is_ascii_alphanumeric())));
    is_value.then(|| value.to_owned())
}

fn set(text: &str) -> Option<(Vec<String>, &str)> {
    let (inside, rest) = text.trim_start().strip_prefix('(')?.split_once(')')?;
    let values: Option<Vec<String>> = inside.split(',').map(|v| valid_value(v.trim())).collect();
    Some((values?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let get = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        LabelSelector::parse(selector).unwrap().matches(get)
    }

    #[test]
    fn each_operator_selects_what_it_says() {
        let labels = [("a", "b"), ("n", "5"), ("x.io/y", "")];
        for yes in
            ["", "a=b", "a==b", "a!=c", "z!=c", "a in (b,c)", "a notin (c)", "z notin (c)", "a", "!z", "n>4,n<6", "x.io/y="]
        {
            assert!(selects(yes, &labels), "{yes}");
        }
        for no in ["a=c", "a!=b", "a in (c)", "a notin (b)", "z", "!a", "n>5", "z in (b)"] {
            assert!(!selects(no, &labels), "{no}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a in (", "a,,b", "=b", "a=b,", "a b", "-a=b", "a=-"] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().code, 400, "{text}");
        }
    }
}
