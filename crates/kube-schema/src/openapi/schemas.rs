//! Definitions of types, rendered from the table as they are referred to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::defaults::stated_default;
use crate::schema::ListType;
use crate::table::{self, Kind, Node};

/// Which version of OpenAPI is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// The definitions of one document.
pub(super) struct Schemas {
    dialect: Dialect,
    /// Group and version of a v3 document; v2 holds all of them.
    group: Option<(String, String)>,
    done: BTreeMap<String, Value>,
    wanted: BTreeSet<String>,
}

impl Schemas {
    pub(super) fn new(dialect: Dialect, group: Option<(&str, &str)>) -> Schemas {
        let group = group.map(|(group, version)| (group.to_owned(), version.to_owned()));
        Schemas { dialect, group, done: BTreeMap::new(), wanted: BTreeSet::new() }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// A reference to a type, which will be among the definitions.
    pub(super) fn reference(&mut self, name: &str) -> Value {
        if !self.done.contains_key(name) {
            self.wanted.insert(name.to_owned());
        }
        let root = match self.dialect {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{root}{name}")})
    }

    /// Adds a definition that is not in the table (a custom kind's).
    pub(super) fn add(&mut self, name: &str, schema: Value) {
        self.wanted.remove(name);
        self.done.insert(name.to_owned(), schema);
    }

    /// All definitions that were referred to, directly or not. `groups` are the groups and versions that options belong to in v2.
    pub(super) fn finish(mut self, groups: &[(&str, &str)]) -> Value {
        while let Some(name) = self.wanted.pop_first() {
            let Some(node) = table::type_named(&name) else { continue };
            let schema = self.definition(node, groups);
            self.done.insert(name, schema);
        }
        Value::Object(self.done.into_iter().collect())
    }

    fn definition(&mut self, node: Node, groups: &[(&str, &str)]) -> Value {
        if node.kind() != Kind::Struct {
            return scalar(node.kind(), self.dialect);
        }
        let mut schema = Map::from_iter([("type".to_owned(), Value::from("object"))]);
        let mut properties = Map::new();
        for field in node.built_in_fields() {
            let owner = node.type_name().unwrap_or_default();
            properties.insert(field.name().to_owned(), self.property(owner, field));
        }
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        let required = node.required();
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        if node.is_atomic_map() {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if let Some(unions) = unions(node.type_name().unwrap_or_default()) {
            schema.insert("x-kubernetes-unions".to_owned(), unions);
        }
        if let Some((group, version, kind)) = node.gvk() {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(group, version, kind)]));
        } else if node.is_of_every_group() {
            let kind = node.type_name().and_then(|n| n.rsplit('.').next()).unwrap_or_default();
            let mut all: Vec<(&str, &str)> = match &self.group {
                Some((group, version)) => vec![("", "v1"), (group, version)],
                None => groups.to_vec(),
            };
            all.sort_unstable();
            all.dedup();
            let all: Vec<Value> = all.into_iter().map(|(group, version)| gvk(group, version, kind)).collect();
            schema.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(all));
        }
        Value::Object(schema)
    }

    fn property(&mut self, owner: &str, field: Node) -> Value {
        let default = self.default_of(owner, field);
        let mut schema = match (self.dialect, field.kind(), field.type_name()) {
            // Version 3 wraps a reference that has siblings.
            (Dialect::V3, kind, Some(name)) if kind != Kind::List && kind != Kind::Map => {
                json!({"allOf": [self.reference(name)]})
            }
            _ => self.value(field),
        };
        if let (Some(default), Some(map)) = (default, schema.as_object_mut()) {
            map.insert("default".to_owned(), default);
        }
        self.extensions(field, &mut schema);
        schema
    }

    fn default_of(&self, owner: &str, field: Node) -> Option<Value> {
        if self.dialect == Dialect::V2 {
            return None;
        }
        if let Some(stated) = stated_default(owner, field.name()) {
            return Some(stated);
        }
        if field.is_pointer() {
            return None;
        }
        match field.kind() {
            Kind::Struct => Some(json!({})),
            _ if field.omits_empty() => None,
            Kind::String => Some("".into()),
            Kind::Int32 | Kind::Int64 => Some(0.into()),
            Kind::Boolean => Some(false.into()),
            _ => None,
        }
    }

    fn extensions(&self, field: Node, schema: &mut Value) {
        let Some(map) = schema.as_object_mut() else { return };
        if field.states_list_type() {
            let list_type = match field.list_type() {
                ListType::Atomic => "atomic",
                ListType::Set => "set",
                ListType::Map => "map",
            };
            map.insert("x-kubernetes-list-type".to_owned(), list_type.into());
            let keys = field.list_map_keys();
            if !keys.is_empty() {
                map.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
            }
        }
        if field.kind() == Kind::Map && field.is_atomic_map() {
            map.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if field.states_granular_map() {
            map.insert("x-kubernetes-map-type".to_owned(), "granular".into());
        }
        if let Some(key) = field.merge_key() {
            map.insert("x-kubernetes-patch-merge-key".to_owned(), key.into());
        }
        let strategy = field.patch_strategy();
        let words: Vec<&str> = [(strategy.merge, "merge"), (strategy.replace, "replace"), (strategy.retain_keys, "retainKeys")]
            .into_iter()
            .filter_map(|(is_set, word)| is_set.then_some(word))
            .collect();
        if !words.is_empty() {
            map.insert("x-kubernetes-patch-strategy".to_owned(), words.join(",").into());
        }
    }

    fn value(&mut self, node: Node) -> Value {
        match (node.kind(), node.element(), node.type_name()) {
            (Kind::List, Some(element), _) => json!({"type": "array", "items": self.value(element)}),
            (Kind::Map, Some(element), _) => json!({"type": "object", "additionalProperties": self.value(element)}),
            (_, _, Some(name)) => self.reference(name),
            (kind, ..) => scalar(kind, self.dialect),
        }
    }
}

/// `x-kubernetes-unions`: of these fields one is set, and the discriminator says which.
fn unions(type_name: &str) -> Option<Value> {
    let (discriminator, fields): (&str, &[&str]) = match type_name.strip_prefix("io.k8s.api.")? {
        "core.v1.AppArmorProfile" | "core.v1.SeccompProfile" => ("type", &["localhostProfile"]),
        "core.v1.PodSchedulingGroup" => ("", &["podGroupName"]),
        "flowcontrol.v1.LimitResponse" => ("type", &["queuing"]),
        "flowcontrol.v1.PriorityLevelConfigurationSpec" => ("type", &["exempt", "limited"]),
        "flowcontrol.v1.Subject" => ("kind", &["group", "serviceAccount", "user"]),
        _ => return None,
    };
    let capitalised = |field: &str| field[..1].to_uppercase() + &field[1..];
    let by: Map<String, Value> = fields.iter().map(|f| ((*f).to_owned(), capitalised(f).into())).collect();
    let mut union = json!({"fields-to-discriminateBy": by});
    if !discriminator.is_empty() {
        union["discriminator"] = discriminator.into();
    }
    Some(json!([union]))
}

/// `x-kubernetes-group-version-kind` of one kind.
pub(super) fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn scalar(kind: Kind, dialect: Dialect) -> Value {
    match kind {
        Kind::String | Kind::Duration => json!({"type": "string"}),
        Kind::Bytes => json!({"type": "string", "format": "byte"}),
        Kind::Int32 => json!({"type": "integer", "format": "int32"}),
        Kind::Int64 => json!({"type": "integer", "format": "int64"}),
        Kind::Number => json!({"type": "number", "format": "double"}),
        Kind::Boolean => json!({"type": "boolean"}),
        Kind::Time | Kind::MicroTime => json!({"type": "string", "format": "date-time"}),
        Kind::Quantity if dialect == Dialect::V3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Kind::Quantity => json!({"type": "string"}),
        Kind::IntOrString if dialect == Dialect::V3 => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Kind::IntOrString => json!({"type": "string", "format": "int-or-string"}),
        Kind::RawExtension | Kind::Fields => json!({"type": "object"}),
        _ => json!({}),
    }
}
