//! Field selectors: equality on the few fields that a kind's row names.

use std::borrow::Cow;

use serde_json::Value;

use super::SelectorError;
use crate::registry::{ResourceDef, SchemaSource};
use crate::table::{Kind, Node};

/// One equality or inequality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub label: String,
    pub value: String,
    pub is_equal: bool,
    paths: Vec<String>,
    /// What stands for an absent value: empty text, `0` or `false`.
    absent: &'static str,
}

/// A field selector that a kind supports.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// Splits at unescaped commas; `\,`, `\=` and `\\` are escapes.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut is_escaped = false;
    for c in text.chars() {
        if c == ',' && !is_escaped {
            terms.push(String::new());
            continue;
        }
        is_escaped = c == '\\' && !is_escaped;
        if let Some(last) = terms.last_mut() {
            last.push(c);
        }
    }
    terms
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                _ => return Err(SelectorError(format!("invalid field selector: invalid escape sequence: {text}"))),
            },
            '=' => return Err(SelectorError(format!("invalid field selector: unescaped character in value: {text}"))),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// What an absent value at a path reads as.
fn absent_value(def: &ResourceDef, path: &str) -> &'static str {
    let SchemaSource::BuiltIn(root) = &def.schema else { return "" };
    let node = path.split('.').try_fold(*root, |node: Node, key| match key.parse::<usize>() {
        Ok(_) => node.element(),
        Err(_) => node.built_in_field(key),
    });
    match node.map(Node::kind) {
        Some(Kind::Boolean) => "false",
        Some(Kind::Int32 | Kind::Int64) => "0",
        _ => "",
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<Cow<'a, str>> {
    let value = path.split('.').try_fold(object, |value, key| match key.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index),
        _ => value.get(key),
    })?;
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(value.to_string())),
        _ => None,
    }
}

impl FieldTerm {
    fn parse(def: &ResourceDef, text: &str) -> Result<FieldTerm, SelectorError> {
        let split = [("!=", false), ("==", true), ("=", true)]
            .into_iter()
            .filter_map(|(token, is_equal)| text.find(token).map(|at| (at, token, is_equal)))
            .min_by_key(|(at, token, _)| (*at, std::cmp::Reverse(token.len())));
        let Some((at, token, is_equal)) = split else {
            return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{text}'")));
        };
        let label = text[..at].trim();
        let value = unescape(text[at + token.len()..].trim())?;
        let Some(field) = def.strategy.selectable_field(label) else {
            return Err(SelectorError(format!("field label not supported: {label}")));
        };
        let absent = field.paths.first().map_or("", |path| absent_value(def, path));
        Ok(FieldTerm { label: label.to_owned(), value, is_equal, paths: field.paths.clone(), absent })
    }

    fn matches(&self, object: &Value) -> bool {
        let found = self.paths.iter().find_map(|path| at(object, path)).unwrap_or(Cow::Borrowed(self.absent));
        (found == self.value) == self.is_equal
    }
}

impl FieldSelector {
    /// Parses `a=b,c!=d` for a kind; a field that the kind does not offer is refused.
    pub fn parse(def: &ResourceDef, text: &str) -> Result<FieldSelector, SelectorError> {
        let terms = split_terms(text);
        let terms = terms.iter().map(|t| t.trim()).filter(|t| !t.is_empty());
        Ok(FieldSelector { terms: terms.map(|t| FieldTerm::parse(def, t)).collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|t| t.matches(object))
    }

    /// The value that a field must be equal to, if the selector demands one (`metadata.name` makes a list a get).
    pub fn required_value(&self, label: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.is_equal && t.label == label).map(|t| t.value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn matches(plural: &str, selector: &str, object: &Value) -> bool {
        let registry = Registry::builtin();
        FieldSelector::parse(registry.get("", "v1", plural).unwrap(), selector).unwrap().matches(object)
    }

    #[test]
    fn pods_match_by_their_fields() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}]}});
        for (selector, wanted) in [
            ("metadata.name=p", true),
            ("spec.nodeName=a,status.phase!=Failed", true),
            ("spec.nodeName==b", false),
            ("spec.hostNetwork=false", true),
            ("status.podIP=1.2.3.4", true),
            ("status.nominatedNodeName=", true),
            ("", true),
        ] {
            assert_eq!(matches("pods", selector, &pod), wanted, "{selector}");
        }
        assert!(matches("nodes", "spec.unschedulable=false", &json!({"metadata": {"name": "n"}})));
        let event = json!({"reportingComponent": "k", "source": {}});
        assert!(matches("events", "source=k", &event));
    }

    #[test]
    fn what_a_kind_does_not_offer_is_refused() {
        let registry = Registry::builtin();
        let pods = registry.get("", "v1", "pods").unwrap();
        for selector in ["spec.foo=1", "metadata.name", "metadata.name=a=b", "metadata.labels.a=b"] {
            assert!(FieldSelector::parse(pods, selector).is_err(), "{selector}");
        }
        assert!(FieldSelector::parse(pods, "metadata.name=a\\,b").is_ok());
    }
}
