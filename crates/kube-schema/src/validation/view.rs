//! Short readings of JSON values: what is absent reads as the zero value, as a Go struct would have it.

use serde_json::{Map, Value};

/// What stands for everything that is not there.
pub static NULL: Value = Value::Null;

/// The value at dotted fields; null if there is none.
pub fn at<'a>(value: &'a Value, fields: &str) -> &'a Value {
    fields.split('.').try_fold(value, |v, field| v.get(field)).unwrap_or(&NULL)
}

pub fn text<'a>(value: &'a Value, fields: &str) -> &'a str {
    at(value, fields).as_str().unwrap_or_default()
}

pub fn list<'a>(value: &'a Value, fields: &str) -> &'a [Value] {
    at(value, fields).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The texts of a list.
pub fn texts<'a>(value: &'a Value, fields: &str) -> Vec<&'a str> {
    list(value, fields).iter().filter_map(Value::as_str).collect()
}

pub fn map<'a>(value: &'a Value, fields: &str) -> Option<&'a Map<String, Value>> {
    at(value, fields).as_object()
}

/// Key and value of a map's entries, by key.
pub fn entries<'a>(value: &'a Value, fields: &str) -> Vec<(&'a str, &'a Value)> {
    let mut out: Vec<_> = map(value, fields).into_iter().flatten().map(|(k, v)| (k.as_str(), v)).collect();
    out.sort_by_key(|(k, _)| *k);
    out
}

pub fn int(value: &Value, fields: &str) -> i64 {
    at(value, fields).as_i64().unwrap_or_default()
}

pub fn maybe_int(value: &Value, fields: &str) -> Option<i64> {
    at(value, fields).as_i64()
}

pub fn flag(value: &Value, fields: &str) -> bool {
    at(value, fields).as_bool().unwrap_or_default()
}

/// Whether the fields hold anything but null.
pub fn has(value: &Value, fields: &str) -> bool {
    !at(value, fields).is_null()
}

/// Null, or a text, list or map without content.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Zero as Go has it, besides what is empty.
fn is_zero(value: &Value) -> bool {
    is_empty(value) || *value == Value::Bool(false) || value.as_i64() == Some(0)
}

/// Semantic equality: what is absent equals what is zero.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.iter().all(|(k, v)| same(v, y.get(k).unwrap_or(&NULL))) && y.iter().all(|(k, v)| x.contains_key(k) || is_zero(v))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(v, w)| same(v, w)),
        _ => a == b || (is_zero(a) && is_zero(b) && (a.is_null() || b.is_null())),
    }
}

/// A copy with one field set to what another object has there.
pub fn with_field_of(value: &mut Value, other: &Value, fields: &str) {
    let (parent, field) = fields.rsplit_once('.').unwrap_or(("", fields));
    let pointer = if parent.is_empty() { String::new() } else { format!("/{}", parent.replace('.', "/")) };
    let Some(Value::Object(target)) = value.pointer_mut(&pointer) else { return };
    match at(other, fields) {
        Value::Null => target.remove(field),
        found => target.insert(field.to_owned(), found.clone()),
    };
}
