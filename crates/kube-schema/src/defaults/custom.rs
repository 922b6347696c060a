//! Defaults of custom kinds: the `default` that a structural schema states at a position. A null where the schema allows none counts
//! as absent.

use serde_json::Value;

use crate::structural::Structural;

/// Fills in stated defaults and drops nulls that mean absence.
pub(super) fn apply(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, child) in &schema.properties {
                if schema.is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let is_forbidden_null = map.get(name).is_some_and(Value::is_null) && !child.nullable;
                if is_forbidden_null {
                    map.remove(name);
                }
                if let Some(default) = &child.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, child) in map.iter_mut() {
                if let Some(child_schema) = schema.properties.get(name) {
                    apply(child_schema, child);
                } else if let Some(values) = schema.additional_properties.as_deref() {
                    if child.is_null() && !values.nullable && values.default.is_some() {
                        *child = values.default.clone().unwrap_or(Value::Null);
                    }
                    apply(values, child);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = schema.items.as_deref() else { return };
            for item in list {
                if item.is_null() && !items.nullable && items.default.is_some() {
                    *item = items.default.clone().unwrap_or(Value::Null);
                }
                apply(items, item);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_filled_in_at_every_level() {
        let schema = Structural::parse_root(&json!({"type": "object", "properties": {"spec": {"type": "object", "default": {},
            "properties": {"size": {"type": "integer", "default": 3}, "null": {"type": "string", "nullable": true, "default": "x"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}}}}}}));
        let mut value = json!({"metadata": {}});
        apply(&schema, &mut value);
        assert_eq!(value, json!({"metadata": {}, "spec": {"size": 3, "null": "x"}}));
        let mut value = json!({"spec": {"size": null, "null": null, "list": [{}, {"p": "UDP"}]}});
        apply(&schema, &mut value);
        assert_eq!(value, json!({"spec": {"size": 3, "null": null, "list": [{"p": "TCP"}, {"p": "UDP"}]}}));
    }
}
