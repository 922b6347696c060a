//! Field rules of the built-in kinds: sections of the tables, looked up by group, plural and subresource.

use serde_json::Value;

use super::check::Check;
use super::error::FieldError;
use super::path::Path;
use super::tables;
use crate::registry::ResourceDef;

/// What a rule sees of a write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub object: &'a Value,
    /// What is stored now; `None` on create.
    pub old: Option<&'a Value>,
    /// The endpoint: empty for the resource itself.
    pub subresource: &'a str,
}

/// Applies every rule of the kind at that endpoint.
pub fn apply(def: &ResourceDef, write: Write<'_>) -> Vec<FieldError> {
    let mut name = format!("{}/{}", def.group, def.plural);
    if !write.subresource.is_empty() {
        name = format!("{name}/{}", write.subresource);
    }
    let mut check = Check::new(write);
    tables::section(&mut check, &name, write.object, &Path::ROOT);
    check.errors
}
