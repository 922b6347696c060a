//! Field rules of the built-in kinds: one row per rule, looked up by group and plural.

use serde_json::Value;

use super::error::FieldError;
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

/// A rule of one kind.
pub type Rule = fn(Write<'_>) -> Vec<FieldError>;

/// Kind (`group/plural`) and rule; a kind may have several rows. Sorted by kind.
const RULES: &[(&str, Rule)] = &[];

/// Applies every rule of the kind.
pub fn apply(def: &ResourceDef, write: Write<'_>) -> Vec<FieldError> {
    let kind = format!("{}/{}", def.group, def.plural);
    let start = RULES.partition_point(|(k, _)| *k < kind.as_str());
    RULES[start..].iter().take_while(|(k, _)| *k == kind).flat_map(|(_, rule)| rule(write)).collect()
}
