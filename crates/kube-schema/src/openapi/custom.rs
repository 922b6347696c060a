//! Definitions of custom kinds.

use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Schemas, gvk};
use crate::registry::{ResourceDef, SchemaSource};
use crate::structural::Structural;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// `stable.example.com`, `v1`, `CronTab` → `com.example.stable.v1.CronTab`.
pub(super) fn type_name(group: &str, version: &str, kind: &str) -> String {
    let mut segments: Vec<&str> = group.split('.').rev().collect();
    segments.extend([version, kind]);
    segments.join(".")
}

pub(super) fn structural(def: &ResourceDef) -> Option<&Structural> {
    match &def.schema {
        SchemaSource::Custom(schema) => Some(schema),
        _ => None,
    }
}

/// The schema as its author wrote it.
pub(super) fn to_json(schema: &Structural) -> Value {
    let mut out = schema.raw.as_object().cloned().unwrap_or_default();
    if !schema.properties.is_empty() {
        let properties: Map<String, Value> = schema.properties.iter().map(|(k, v)| (k.clone(), to_json(v))).collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if let Some(items) = &schema.items {
        out.insert("items".to_owned(), to_json(items));
    }
    if let Some(values) = &schema.additional_properties {
        out.insert("additionalProperties".to_owned(), to_json(values));
    } else if schema.any_additional {
        out.insert("additionalProperties".to_owned(), true.into());
    }
    Value::Object(out)
}

/// Version 2 knows less: what it cannot say is dropped, and below it everything is open.
fn downgraded(value: Value) -> Value {
    let Value::Object(mut map) = value else { return value };
    for key in
        ["oneOf", "anyOf", "allOf", "not", "nullable", "default", "x-kubernetes-validations", "x-kubernetes-embedded-resource"]
    {
        map.remove(key);
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        map.remove("items");
        map.remove("properties");
    }
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        map.remove("type");
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let properties: Map<String, Value> = properties.into_iter().map(|(k, v)| (k, downgraded(v))).collect();
        map.insert("properties".to_owned(), Value::Object(properties));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(value) = map.remove(key) {
            map.insert(key.to_owned(), downgraded(value));
        }
    }
    Value::Object(map)
}

/// Adds the definitions of a custom kind and its list.
pub(super) fn add(def: &ResourceDef, schemas: &mut Schemas) {
    if !def.is_custom() {
        return;
    }
    let name = type_name(&def.group, &def.version, &def.kind);
    let text = json!({"type": "string"});
    let mut schema = structural(def).map_or_else(|| json!({"type": "object"}), to_json);
    if schemas.dialect() == Dialect::V2 {
        schema = downgraded(schema);
    }
    let meta = wrapped(schemas, "ObjectMeta");
    let list_meta = wrapped(schemas, "ListMeta");
    if let Some(map) = schema.as_object_mut() {
        map.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(&def.group, &def.version, &def.kind)]));
        let is_open = structural(def).is_none_or(|s| s.preserve_unknown);
        let properties = map.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut()
            && (!is_open || schemas.dialect() == Dialect::V3)
        {
            properties.insert("apiVersion".to_owned(), text.clone());
            properties.insert("kind".to_owned(), text.clone());
            properties.insert("metadata".to_owned(), meta);
        }
    }
    schemas.add(&name, schema);
    let items = schemas.reference(&name);
    let list = json!({"type": "object", "required": ["items"],
        "properties": {"apiVersion": text, "kind": text, "metadata": list_meta, "items": {"type": "array", "items": items}},
        "x-kubernetes-group-version-kind": [gvk(&def.group, &def.version, &def.list_kind)]});
    schemas.add(&format!("{name}List"), list);
}

fn wrapped(schemas: &mut Schemas, name: &str) -> Value {
    let reference = schemas.reference(&format!("{META}{name}"));
    if schemas.dialect() == Dialect::V3 { json!({"allOf": [reference]}) } else { reference }
}
