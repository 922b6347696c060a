//! Lists that are sets or maps: their elements are unique.

use serde_json::{Map, Value};

use super::super::error::FieldError;
use super::child_path;
use crate::schema::ListType;
use crate::structural::Structural;

/// The keys that tell elements of a map list apart, defaults of the schema filled in.
fn key_of(schema: &Structural, item: &Value) -> Map<String, Value> {
    schema
        .list_map_keys
        .iter()
        .filter_map(|key| {
            let default = || schema.items.as_deref().and_then(|i| i.properties.get(key)).and_then(|p| p.default.clone());
            item.get(key).cloned().or_else(default).map(|v| (key.clone(), v))
        })
        .collect()
}

/// The element of the old list that an element stands for; only elements of map lists have one.
pub(super) fn correlated<'a>(schema: &Structural, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    if schema.list_type != Some(ListType::Map) {
        return None;
    }
    let key = key_of(schema, item);
    old?.as_array()?.iter().find(|o| key_of(schema, o) == key)
}

/// Reports repeated elements at and below a position.
pub(super) fn check(schema: &Structural, path: &str, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    match value {
        Value::Array(list) => {
            duplicates(schema, path, list, errors);
            if let Some(items) = schema.items.as_deref() {
                for (index, item) in list.iter().enumerate() {
                    check(items, &format!("{path}[{index}]"), item, correlated(schema, item, old), errors);
                }
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                if let Some(child) = schema.properties.get(key).or(schema.additional_properties.as_deref()) {
                    check(child, &child_path(path, key), item, old.and_then(|o| o.get(key)), errors);
                }
            }
        }
        _ => {}
    }
}

fn duplicates(schema: &Structural, path: &str, list: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::BTreeSet::new();
    match schema.list_type {
        Some(ListType::Set) => {
            for (index, item) in list.iter().enumerate() {
                if !seen.insert(item.to_string()) {
                    errors.push(FieldError::duplicate(format!("{path}[{index}]"), item.clone()));
                }
            }
        }
        Some(ListType::Map) => {
            for (index, item) in list.iter().enumerate() {
                let place = format!("{path}[{index}]");
                if !item.is_object() {
                    errors.push(FieldError::invalid(place, item.clone(), "must be an object for an array of list-type map"));
                    continue;
                }
                let key = Value::Object(key_of(schema, item));
                if !seen.insert(key.to_string()) {
                    errors.push(FieldError::duplicate(place, key));
                }
            }
        }
        _ => {}
    }
}
