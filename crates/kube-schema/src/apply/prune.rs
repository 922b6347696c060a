//! Taking fields out of a value, and the set operations that need the schema.

use serde_json::{Map, Value};

use super::element::PathElement;
use super::set::FieldSet;
use super::types::{Form, Type};
use crate::schema::Schema;

/// Removes the members of a set from an object. What becomes empty stays, empty.
pub fn remove_fields(schema: Schema<'_>, object: Value, fields: &FieldSet) -> Value {
    remove(Type::Of(schema), object, fields)
}

fn remove(ty: Type<'_>, value: Value, fields: &FieldSet) -> Value {
    match (ty.form(Some(&value)), value) {
        (Form::Map, Value::Object(map)) => {
            let mut out = Map::new();
            for (name, value) in map {
                if let Some(value) =
                    remove_below(ty.member_or_deduced(&name).0, value, fields.children.get(&PathElement::field(&name)))
                {
                    out.insert(name, value);
                }
            }
            Value::Object(out)
        }
        (Form::List(list), Value::Array(items)) => {
            let keep = |item: Value| match list.element(&item) {
                Ok(element) => remove_below(list.items, item, fields.children.get(&element)),
                Err(_) => Some(item),
            };
            Value::Array(items.into_iter().filter_map(keep).collect())
        }
        // Below what is owned as a whole nothing can be taken out alone: it is emptied.
        (_, Value::Object(_)) => Value::Object(Map::new()),
        (_, Value::Array(_)) => Value::Array(Vec::new()),
        (_, scalar) => scalar,
    }
}

fn remove_below(ty: Type<'_>, value: Value, fields: Option<&FieldSet>) -> Option<Value> {
    match fields {
        Some(set) if set.is_member => None,
        Some(set) if !set.children.is_empty() => Some(remove(ty, value, set)),
        _ => Some(value),
    }
}

/// Makes every named field that leads to members a member itself. The sets of configurations leave such parents out, which would let
/// them be removed from below the members.
pub(super) fn add_named_parents(ty: Option<Type<'_>>, set: &mut FieldSet) {
    for (element, child) in &mut set.children {
        let below = ty.and_then(|t| t.child(element));
        let named = matches!(below, Some((_, true)));
        add_named_parents(below.map(|(t, _)| t), child);
        child.is_member |= named && !child.children.is_empty();
    }
}

/// Brings a set that was written under an older schema in line with what is atomic now: a manager of parts owns the whole.
pub(super) fn follow_schema(ty: Type<'_>, set: &mut FieldSet) {
    for (element, child) in &mut set.children {
        let Some((below, _)) = ty.child(element) else { continue };
        match below.is_atomic() {
            Some(true) if !child.children.is_empty() => *child = FieldSet::member(),
            Some(true) => {}
            Some(false) => follow_schema(below, child),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structural::Structural;
    use serde_json::json;

    fn schema() -> Structural {
        Structural::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                    "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer"}}}},
            }},
        }}))
    }

    fn set(json: Value) -> FieldSet {
        FieldSet::from_json(&json).expect("fields")
    }

    #[test]
    fn members_go_and_what_they_leave_stays_empty() {
        let schema = schema();
        let object = json!({"spec": {"map": {"a": "1"}, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}});
        let gone = set(
            json!({"f:spec": {"f:map": {"f:a": {}}, "f:list": {"k:{\"n\":\"x\"}": {".": {}}, "k:{\"n\":\"y\"}": {"f:v": {}}}}}),
        );
        assert_eq!(remove_fields(Schema::Custom(&schema), object, &gone), json!({"spec": {"map": {}, "list": [{"n": "y"}]}}));
    }

    #[test]
    fn parents_that_are_fields_become_members() {
        let schema = schema();
        let mut fields = set(json!({"f:spec": {"f:map": {"f:a": {}}, "f:list": {"k:{\"n\":\"x\"}": {"f:v": {}}}}}));
        add_named_parents(Some(Type::Of(Schema::Custom(&schema))), &mut fields);
        assert_eq!(
            fields.to_json(),
            json!({"f:spec": {".": {}, "f:map": {".": {}, "f:a": {}}, "f:list": {".": {}, "k:{\"n\":\"x\"}": {"f:v": {}}}}})
        );
    }

    #[test]
    fn owners_of_parts_own_what_became_atomic() {
        let schema = schema();
        let mut fields = set(json!({"f:spec": {"f:whole": {".": {}, "f:a": {}}, "f:map": {"f:a": {}}}}));
        follow_schema(Type::Of(Schema::Custom(&schema)), &mut fields);
        assert_eq!(fields.to_json(), json!({"f:spec": {"f:whole": {}, "f:map": {"f:a": {}}}}));
    }
}
