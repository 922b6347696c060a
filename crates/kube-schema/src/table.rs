//! The packed table of built-in types (placeholder until `cargo xtask schema` fills it).

use serde_json::Value;

use crate::schema::{ListType, PatchStrategy, Schema, Shape};

/// A position in a built-in type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(u32);

/// The schema of `meta/v1 ObjectMeta`.
pub fn object_meta() -> Option<Node> {
    None
}

/// The schema of a plain string.
pub fn string() -> Option<Node> {
    None
}

impl Node {
    pub fn shape(self) -> Shape {
        Shape::Any
    }
    pub fn field(self, _name: &str) -> Option<Schema<'static>> {
        None
    }
    pub fn fields(self) -> Vec<(&'static str, Schema<'static>)> {
        Vec::new()
    }
    pub fn values(self) -> Option<Schema<'static>> {
        None
    }
    pub fn items(self) -> Option<Schema<'static>> {
        None
    }
    pub fn list_type(self) -> ListType {
        ListType::Atomic
    }
    pub fn list_map_keys(self) -> Vec<&'static str> {
        Vec::new()
    }
    pub fn is_atomic_map(self) -> bool {
        false
    }
    pub fn merge_key(self) -> Option<&'static str> {
        None
    }
    pub fn patch_strategy(self) -> PatchStrategy {
        PatchStrategy::default()
    }
    pub fn required(self) -> Vec<&'static str> {
        Vec::new()
    }
    pub fn is_nullable(self) -> bool {
        false
    }
    pub fn preserves_unknown_fields(self) -> bool {
        false
    }
    pub fn default_value(self) -> Option<Value> {
        None
    }
    pub fn enum_values(self) -> Option<Vec<Value>> {
        None
    }
}
