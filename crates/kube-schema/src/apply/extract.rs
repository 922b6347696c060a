//! The set of fields that a value states, and whether it fits its type.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use serde_json::Value;

use super::set::FieldSet;
use super::types::{Form, ListForm, Type};
use crate::schema::{Schema, Shape};

/// The fields that an object states under its schema: what a server-side apply of it owns.
pub fn field_set(schema: Schema<'_>, object: &Value) -> Result<FieldSet, String> {
    let mut out = stated(Type::Of(schema), object)?;
    out.is_member = false;
    Ok(out)
}

pub(super) fn stated(ty: Type<'_>, value: &Value) -> Result<FieldSet, String> {
    match ty.form(Some(value)) {
        Form::Leaf => Ok(FieldSet::member()),
        Form::Map => {
            let mut out = FieldSet::new();
            let Value::Object(map) = value else { return Ok(out) };
            for (name, value) in map {
                let (member, named) = ty.member_or_deduced(name);
                let mut child = stated(member, value)?;
                let is_empty = value.is_null() || value.as_object().is_some_and(|m| m.is_empty());
                // Keys of a map are owned, fields of a struct only if nothing below them can be.
                child.is_member |= is_empty || !named;
                if !child.is_empty() {
                    out.children.insert(super::element::PathElement::field(name), child);
                }
            }
            Ok(out)
        }
        Form::List(list) => stated_elements(&list, value),
    }
}

fn stated_elements(list: &ListForm<'_>, value: &Value) -> Result<FieldSet, String> {
    let mut out = FieldSet::new();
    for item in value.as_array().into_iter().flatten() {
        match out.children.entry(list.element(item)?) {
            // Equal elements are owned together, as one.
            Entry::Occupied(mut slot) => *slot.get_mut() = FieldSet::member(),
            Entry::Vacant(slot) => {
                let mut child = stated(list.items, item)?;
                child.is_member = true;
                slot.insert(child);
            }
        }
    }
    Ok(out)
}

/// Checks that a value fits its type, as a configuration to apply must. The error names the path.
pub(super) fn check(ty: Type<'_>, value: &Value) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    if let Type::Of(schema) = ty {
        check_shape(schema, value)?;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let (member, _) = ty.member(name).ok_or_else(|| format!(".{name}: the schema has no such field"))?;
                check(member, value).map_err(|e| format!(".{name}{}", separated(&e)))?;
            }
        }
        Value::Array(items) => check_items(ty, value, items)?,
        _ => {}
    }
    Ok(())
}

fn check_items(ty: Type<'_>, value: &Value, items: &[Value]) -> Result<(), String> {
    let list = match ty.form(Some(value)) {
        Form::List(list) => Some(list),
        _ => None,
    };
    let item_type = match (&list, ty) {
        (Some(list), _) => list.items,
        (None, Type::Of(schema)) => schema.items().map_or(Type::Untyped, Type::Of),
        (None, _) => Type::Untyped,
    };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let place = match &list {
            None => format!("[{index}]"),
            Some(list) => {
                let element = list.element(item).map_err(|e| format!(": element {index}: {e}"))?;
                let text = element.to_string();
                if !seen.insert(element) {
                    return Err(format!(": two elements with key {text}"));
                }
                text
            }
        };
        check(item_type, item).map_err(|e| format!("{place}{}", separated(&e)))?;
    }
    Ok(())
}

/// Joins a path and what follows it: more path, or a colon and the reason.
fn separated(rest: &str) -> String {
    if rest.starts_with(['.', '[', ':']) { rest.to_owned() } else { format!(": {rest}") }
}

fn check_shape(schema: Schema<'_>, value: &Value) -> Result<(), String> {
    let free_text = matches!(schema, Schema::Custom(node) if !node.format.is_empty() && node.format != "byte");
    let fits = match schema.shape() {
        Shape::Struct | Shape::Map => value.is_object(),
        Shape::List => value.is_array(),
        Shape::String if free_text => !value.is_object() && !value.is_array(),
        Shape::String | Shape::Bytes | Shape::Duration => value.is_string(),
        Shape::Int32 | Shape::Int64 | Shape::Number => value.is_number(),
        Shape::Boolean => value.is_boolean(),
        Shape::IntOrString | Shape::Quantity | Shape::Time | Shape::MicroTime => !value.is_object() && !value.is_array(),
        Shape::Any => true,
    };
    if fits { Ok(()) } else { Err(format!(": {value} does not fit the type {:?}", schema.shape())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structural::Structural;
    use crate::table;
    use serde_json::json;

    fn pod() -> Schema<'static> {
        Schema::BuiltIn(table::type_of_kind("", "v1", "Pod").expect("kind"))
    }

    #[test]
    fn structs_are_not_owned_but_map_keys_and_list_elements_are() {
        let set = field_set(
            pod(),
            &json!({
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [{"name": "c", "image": "x", "args": ["1"], "resources": {}}],
                    "nodeSelector": {"k": "v"},
                },
            }),
        );
        assert_eq!(
            set.map(|s| s.to_json()),
            Ok(json!({
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
                    "f:nodeSelector": {},
                },
            }))
        );
    }

    #[test]
    fn repeated_elements_are_one() {
        let env = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A"}]}]}});
        let set = field_set(pod(), &env).map(|s| s.to_json());
        assert_eq!(
            set.map(|s| s["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:env"].clone()),
            Ok(json!({"k:{\"name\":\"A\"}": {}}))
        );
        assert!(check(Type::Of(pod()), &env).is_err_and(|e| e.starts_with(".spec.containers[name=\"c\"].env")));
    }

    #[test]
    fn free_objects_are_owned_member_by_member() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "list": {"type": "array", "items": {"type": "string"}},
        }}));
        let object = json!({"spec": {"a": {"b": 1, "c": [1]}}, "tags": ["x", "y"], "list": ["z"]});
        assert_eq!(
            field_set(Schema::Custom(&schema), &object).map(|s| s.to_json()),
            Ok(json!({
                "f:spec": {"f:a": {".": {}, "f:b": {}, "f:c": {}}},
                "f:tags": {"v:\"x\"": {}, "v:\"y\"": {}},
                "f:list": {},
            }))
        );
    }

    #[test]
    fn configurations_must_fit() {
        for (object, path) in [
            (json!({"nope": 1}), ".nope"),
            (json!({"spec": {"containers": {}}}), ".spec.containers"),
            (json!({"spec": {"hostNetwork": "yes"}}), ".spec.hostNetwork"),
            (json!({"spec": {"containers": [{"name": "c", "x": 1}]}}), ".spec.containers[name=\"c\"].x"),
        ] {
            assert!(check(Type::Of(pod()), &object).is_err_and(|e| e.starts_with(&format!("{path}:"))), "{object}");
        }
        assert_eq!(check(Type::Of(pod()), &json!({"spec": {"priority": null, "containers": []}})), Ok(()));
    }
}
