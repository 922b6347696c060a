//! Resource definitions: one row per served (group, version, resource), built-in and custom alike.

use std::sync::Arc;

use crate::structural::Structural;
use crate::table;

/// Where a custom or built-in kind gets its schema from.
#[derive(Clone, Debug)]
pub enum SchemaSource {
    BuiltIn(table::Node),
    Custom(Arc<Structural>),
    /// A custom kind without a schema: everything is kept.
    None,
}

/// A subresource of a resource (`status`, `scale`, `binding`, …).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubresourceDef {
    pub name: String,
    /// Kind of its body, with its own group and version where they differ (`Scale` is `autoscaling/v1`).
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// Where objects of a row are stored: rows that share `group` and `plural` here are one object in several versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageIdentity {
    pub group: String,
    pub plural: String,
    pub version: String,
    pub kind: String,
}

/// One served resource. Everything a request needs to know of its kind is a column of this row.
#[derive(Clone, Debug)]
pub struct ResourceDef {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Kubernetes verbs in discovery's order; a virtual resource (`TokenReview`) has `create` alone.
    pub verbs: Vec<String>,
    pub subresources: Vec<SubresourceDef>,
    pub storage: StorageIdentity,
    pub schema: SchemaSource,
    /// Whether anything is stored (false for reviews).
    pub is_stored: bool,
}
