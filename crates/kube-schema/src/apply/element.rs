//! One step of a path into an object, its order and its text.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// Selects a child of a container.
///
/// The order is the canonical one of `FieldsV1`: fields by name, then list-map keys, then set values, then indices; numbers compare
/// by value, whatever their notation.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// `f:NAME`: a field of an object, or a key of a map.
    Field(String),
    /// `k:{..}`: the element of a list whose key fields have these values; sorted by name.
    Key(Vec<(String, Value)>),
    /// `v:VALUE`: the element of a set.
    Value(Value),
    /// `i:N`: an element of an atomic list. Read, never written by us.
    Index(i64),
}

impl PathElement {
    pub fn field(name: impl Into<String>) -> Self {
        PathElement::Field(name.into())
    }

    /// Reads the text of `FieldsV1`. `Ok(None)` is a kind of element that is not known: a later version may write it.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let malformed = |why: &str| format!("invalid path element {text:?}: {why}");
        let (kind, rest) = match text.as_bytes() {
            [kind, b':', ..] => (*kind, &text[2..]),
            _ => return Err(malformed("missing colon")),
        };
        let json = || serde_json::from_str::<Value>(rest).map_err(|e| malformed(&e.to_string()));
        match kind {
            b'f' => Ok(Some(PathElement::Field(rest.to_owned()))),
            b'v' => Ok(Some(PathElement::Value(json()?))),
            b'k' => match json()? {
                Value::Object(map) => {
                    let mut fields: Vec<(String, Value)> = map.into_iter().collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    Ok(Some(PathElement::Key(fields)))
                }
                _ => Err(malformed("a key must be an object")),
            },
            b'i' => rest.parse().map(|i| Some(PathElement::Index(i))).map_err(|_| malformed("an index must be an integer")),
            _ => Ok(None),
        }
    }

    /// The text of `FieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            PathElement::Field(name) => format!("f:{name}"),
            PathElement::Key(fields) => {
                let mut out = String::from("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&json_text(&Value::String(name.clone())));
                    out.push(':');
                    out.push_str(&json_text(value));
                }
                out.push('}');
                out
            }
            PathElement::Value(value) => format!("v:{}", json_text(value)),
            PathElement::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// Compact JSON that is safe inside HTML, as Go writes it.
pub(super) fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Total order of JSON values: numbers by value, before strings, booleans, lists, objects and null.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    fn rank(v: &Value) -> u8 {
        match v {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i128(), y.as_i128()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or_default().total_cmp(&y.as_f64().unwrap_or_default()),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            x.iter().zip(y).map(|(x, y)| compare_values(x, y)).find(|o| o.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let mut left: Vec<_> = x.iter().collect();
            let mut right: Vec<_> = y.iter().collect();
            left.sort_by_key(|(k, _)| *k);
            right.sort_by_key(|(k, _)| *k);
            left.iter()
                .zip(&right)
                .map(|(l, r)| l.0.cmp(r.0).then_with(|| compare_values(l.1, r.1)))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same to apply: `1` and `1.0` are.
pub fn same_value(a: &Value, b: &Value) -> bool {
    a == b || compare_values(a, b).is_eq()
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Value(a), PathElement::Value(b)) => compare_values(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => a
                .iter()
                .zip(b)
                .map(|(x, y)| x.0.cmp(&y.0).then_with(|| compare_values(&x.1, &y.1)))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len())),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// The form that conflicts show: `.spec.containers[name="c"].image`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if index > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={value}]"),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_round_trips_and_orders_by_value() {
        for text in ["f:a", "f:", "f:a/b.c", r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"v:"x""#, "v:10", "v:true", "i:3"] {
            let element = PathElement::parse(text).expect("parse").expect("known");
            assert_eq!(element.encode(), text);
        }
        let nine = PathElement::Value(json!(9));
        assert!(nine < PathElement::Value(json!(10)));
        assert_eq!(PathElement::Value(json!(1)), PathElement::Value(json!(1.0)));
        assert!(
            PathElement::field("z") < PathElement::Key(vec![]) && PathElement::Key(vec![]) < nine && nine < PathElement::Index(0)
        );
    }

    #[test]
    fn unknown_kinds_are_none_and_malformed_text_is_an_error() {
        assert_eq!(PathElement::parse("x:abc"), Ok(None));
        for text in ["", "f", "name", "k:[]", "k:{", "v:", "i:x"] {
            assert!(PathElement::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_written_html_safe() {
        let element = PathElement::Key(vec![("name".to_owned(), json!("a<b"))]);
        assert_eq!(element.encode(), "k:{\"name\":\"a\\u003cb\"}");
        assert_eq!(PathElement::parse(&element.encode()), Ok(Some(element.clone())));
        assert_eq!(element.to_string(), "[name=\"a<b\"]");
    }
}
