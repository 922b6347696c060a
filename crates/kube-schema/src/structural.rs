//! The structural schema of a custom resource, parsed once from `CustomResourceDefinition.spec.versions[].schema`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::schema::{ListType, PatchStrategy, Schema, Shape};
use crate::table;

/// A node of a structural schema (OpenAPI v3 subset of apiextensions.k8s.io/v1 `JSONSchemaProps`).
///
/// `Structural::parse` keeps what the walks need as fields; the validations (`minimum`, `pattern`, `x-kubernetes-validations`, …)
/// stay in `raw`, the node's own JSON without `properties`, `items` and `additionalProperties`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Structural {
    /// `type`; empty for int-or-string and for preserve-unknown nodes without a type.
    pub type_name: String,
    pub format: String,
    pub properties: BTreeMap<String, Structural>,
    pub items: Option<Box<Structural>>,
    pub additional_properties: Option<Box<Structural>>,
    /// `additionalProperties: true`.
    pub any_additional: bool,
    pub required: Vec<String>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub enum_values: Option<Vec<Value>>,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: carries `apiVersion`, `kind` and a full `metadata`.
    pub embedded_resource: bool,
    pub list_type: Option<ListType>,
    pub list_map_keys: Vec<String>,
    pub atomic_map: bool,
    /// True for the schema's root, whose `metadata` is a full ObjectMeta.
    pub is_root: bool,
    pub raw: Value,
}

impl Structural {
    /// Parses `openAPIV3Schema` (or any node of it). Structure that is not understood is kept in `raw`; whether the schema is
    /// structural at all is judged by CRD validation, not here.
    pub fn parse(json: &Value) -> Structural {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
        let strings = |key: &str| -> Vec<String> {
            json.get(key)
                .and_then(Value::as_array)
                .map(|a| a.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
                .unwrap_or_default()
        };
        let mut raw = json.clone();
        if let Some(map) = raw.as_object_mut() {
            for key in ["properties", "items", "additionalProperties"] {
                map.remove(key);
            }
        }
        Structural {
            type_name: text("type"),
            format: text("format"),
            properties: json
                .get("properties")
                .and_then(Value::as_object)
                .map(|p| p.iter().map(|(k, v)| (k.clone(), Structural::parse(v))).collect())
                .unwrap_or_default(),
            items: json.get("items").filter(|v| v.is_object()).map(|v| Box::new(Structural::parse(v))),
            additional_properties: json
                .get("additionalProperties")
                .filter(|v| v.is_object())
                .map(|v| Box::new(Structural::parse(v))),
            any_additional: json.get("additionalProperties").and_then(Value::as_bool).unwrap_or(false),
            required: strings("required"),
            nullable: flag("nullable"),
            default: json.get("default").filter(|v| !v.is_null()).cloned(),
            enum_values: json.get("enum").and_then(Value::as_array).cloned(),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            list_type: match json.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => Some(ListType::Set),
                Some("map") => Some(ListType::Map),
                Some(_) => Some(ListType::Atomic),
                None => None,
            },
            list_map_keys: strings("x-kubernetes-list-map-keys"),
            atomic_map: json.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            is_root: false,
            raw,
        }
    }

    /// Parses the root of a version's schema: `metadata` is then the built-in ObjectMeta whatever the schema says of it.
    pub fn parse_root(json: &Value) -> Structural {
        Structural { is_root: true, ..Structural::parse(json) }
    }

    fn has_object_meta(&self) -> bool {
        self.is_root || self.embedded_resource
    }

    pub fn shape(&self) -> Shape {
        if self.int_or_string {
            return Shape::IntOrString;
        }
        match self.type_name.as_str() {
            "object" if self.properties.is_empty() && !self.has_object_meta() => {
                if self.additional_properties.is_some() {
                    Shape::Map
                } else if self.preserve_unknown || self.any_additional {
                    Shape::Any
                } else {
                    Shape::Struct
                }
            }
            "object" => Shape::Struct,
            "array" => Shape::List,
            "integer" => Shape::Int64,
            "number" => Shape::Number,
            "boolean" => Shape::Boolean,
            "string" => Shape::String,
            _ if self.has_object_meta() => Shape::Struct,
            _ => Shape::Any,
        }
    }

    pub fn field(&self, name: &str) -> Option<Schema<'_>> {
        if self.has_object_meta() {
            match name {
                "metadata" => return table::object_meta().map(Schema::BuiltIn),
                "apiVersion" | "kind" => return table::string().map(Schema::BuiltIn),
                _ => {}
            }
        }
        self.properties.get(name).map(Schema::Custom)
    }

    pub fn fields(&self) -> Vec<(&str, Schema<'_>)> {
        let mut out: Vec<(&str, Schema<'_>)> = Vec::new();
        if self.has_object_meta() {
            for name in ["apiVersion", "kind", "metadata"] {
                if let Some(schema) = self.field(name) {
                    out.push((name, schema));
                }
            }
        }
        for (name, node) in &self.properties {
            if !out.iter().any(|(n, _)| n == name) {
                out.push((name, Schema::Custom(node)));
            }
        }
        out
    }

    pub fn values(&self) -> Option<Schema<'_>> {
        self.additional_properties.as_deref().map(Schema::Custom)
    }

    pub fn items(&self) -> Option<Schema<'_>> {
        self.items.as_deref().map(Schema::Custom)
    }

    pub fn list_type(&self) -> ListType {
        self.list_type.unwrap_or(ListType::Atomic)
    }

    pub fn list_map_keys(&self) -> Vec<&str> {
        self.list_map_keys.iter().map(String::as_str).collect()
    }

    pub fn is_atomic_map(&self) -> bool {
        self.atomic_map
    }

    /// Custom resources have no strategic merge patch.
    pub fn merge_key(&self) -> Option<&str> {
        None
    }

    pub fn patch_strategy(&self) -> PatchStrategy {
        PatchStrategy::default()
    }

    pub fn required(&self) -> Vec<&str> {
        self.required.iter().map(String::as_str).collect()
    }

    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    pub fn preserves_unknown_fields(&self) -> bool {
        self.preserve_unknown || self.any_additional
    }

    pub fn default_value(&self) -> Option<Value> {
        self.default.clone()
    }

    pub fn enum_values(&self) -> Option<Vec<Value>> {
        self.enum_values.clone()
    }
}
