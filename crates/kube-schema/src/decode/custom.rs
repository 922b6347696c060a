//! The walk over a custom object: drops what its structural schema does not name. Types are judged by validation, not here,
//! except for what the machinery itself reads: the object's and embedded objects' metadata.

use serde_json::{Map, Value};

use super::built_in::Walk;
use super::{DecodeError, object};
use crate::limits;
use crate::structural::Structural;
use crate::table;

/// Prunes a whole object; without a schema everything but malformed metadata is kept. Returns the unknown fields' paths too.
pub(super) fn prune(schema: Option<&Structural>, value: Value) -> Result<(Value, Vec<String>), DecodeError> {
    let mut walk = Prune { path: String::new(), unknown: Vec::new() };
    let mut map = object(value, "map[string]interface {}")?;
    walk.metadata(&mut map)?;
    if let Some(schema) = schema {
        walk.object(schema, &mut map)?;
    }
    Ok((Value::Object(map), walk.unknown))
}

struct Prune {
    path: String,
    unknown: Vec<String>,
}

impl Prune {
    fn within<T>(&mut self, segment: &str, run: impl FnOnce(&mut Prune) -> T) -> T {
        let length = self.path.len();
        if length > 0 && !segment.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(segment);
        let out = run(self);
        self.path.truncate(length);
        out
    }

    /// `metadata` is an ObjectMeta whatever the schema says.
    fn metadata(&mut self, map: &mut Map<String, Value>) -> Result<(), DecodeError> {
        let (Some(value), Some(node)) = (map.remove("metadata"), table::object_meta()) else { return Ok(()) };
        let path = if self.path.is_empty() { "metadata".to_owned() } else { format!("{}.metadata", self.path) };
        let mut walk = Walk::at(&path);
        let decoded = walk.root(node, value)?;
        self.unknown.append(&mut walk.unknown);
        map.insert("metadata".to_owned(), decoded);
        Ok(())
    }

    fn object(&mut self, schema: &Structural, map: &mut Map<String, Value>) -> Result<(), DecodeError> {
        let has_meta = schema.is_root || schema.embedded_resource;
        if has_meta && !schema.is_root {
            self.metadata(map)?;
        }
        let mut removed = Vec::new();
        for (key, value) in map.iter_mut() {
            if has_meta && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            if let Some(child) = schema.properties.get(key).or(schema.additional_properties.as_deref()) {
                self.within(key, |w| w.value(child, value))?;
            } else if !schema.preserves_unknown_fields() {
                removed.push(key.clone());
            }
        }
        for key in removed {
            map.remove(&key);
            if self.unknown.len() < limits::STRICT_ERRORS_MAX {
                self.unknown.push(if self.path.is_empty() { key } else { format!("{}.{key}", self.path) });
            }
        }
        Ok(())
    }

    fn value(&mut self, schema: &Structural, value: &mut Value) -> Result<(), DecodeError> {
        match value {
            Value::Object(map) => self.object(schema, map),
            Value::Array(list) => {
                let Some(items) = schema.items.as_deref() else { return Ok(()) };
                for (index, item) in list.iter_mut().enumerate() {
                    self.within(&format!("[{index}]"), |w| w.value(items, item))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_named_and_preserved_fields_stay() {
        let schema = Structural::parse_root(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"x": {"type": "string"}}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}}));
        let value = json!({"apiVersion": "e/v1", "kind": "W", "metadata": {"name": "n", "what": 1}, "top": 1, "spec": {
            "list": [{"a": "x", "b": 1}], "free": {"y": 1, "known": {"x": "1", "z": 2}}, "map": {"k": "v"}, "gone": 1}});
        let (value, mut unknown) = prune(Some(&schema), value).unwrap();
        unknown.sort();
        assert_eq!(unknown, ["metadata.what", "spec.free.known.z", "spec.gone", "spec.list[0].b", "top"]);
        assert_eq!(value["spec"], json!({"list": [{"a": "x"}], "free": {"y": 1, "known": {"x": "1"}}, "map": {"k": "v"}}));
    }
}
