//! Is an object acceptable: rules of metadata, of the kind, and of a custom kind's schema. The findings come in upstream's order
//! and words; a write with any is 422 `Invalid`.

mod check;
pub mod error;
mod formats;
mod kinds;
pub mod meta;
pub mod names;
mod path;
mod predicates;
pub mod rules;
#[cfg(test)]
mod samples;
mod selectors;
pub mod structural;
mod tables;
mod view;

use serde_json::Value;

pub use error::{FieldError, Reason, aggregate};
pub use rules::Write;

use crate::registry::{NameRule, ResourceDef, SchemaSource};

/// Judges an object that is about to be created (after `prepare_create`).
pub fn validate_create(def: &ResourceDef, object: &Value) -> Vec<FieldError> {
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    if !def.is_stored {
        // A review has no name of its own.
        return kind(def, Write { object, old: None, subresource: "" });
    }
    let mut errors = meta::kind_create(def, meta);
    errors.extend(kind(def, Write { object, old: None, subresource: "" }));
    // The common rules come last, and only when the kind had nothing to say, so that its words are the ones seen.
    if errors.is_empty() {
        errors = meta::object_meta(meta, def.namespaced, NameRule::PathSegment);
    }
    errors
}

/// Judges an object that is about to replace `old` (after `prepare_update`).
pub fn validate_update(def: &ResourceDef, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let (meta, old_meta) = (object.get("metadata").unwrap_or(&Value::Null), old.get("metadata").unwrap_or(&Value::Null));
    let mut errors = meta::object_meta(meta, def.namespaced, NameRule::PathSegment);
    errors.extend(meta::object_meta_update(meta, old_meta));
    errors.extend(meta::kind_update(def, meta, old_meta));
    errors.extend(kind(def, Write { object, old: Some(old), subresource }));
    errors
}

fn kind(def: &ResourceDef, write: Write<'_>) -> Vec<FieldError> {
    match &def.schema {
        SchemaSource::BuiltIn(_) => rules::apply(def, write),
        SchemaSource::Custom(schema) => structural::validate(schema, write.object, write.old),
        SchemaSource::None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn created(value: Value) -> Vec<String> {
        let registry = Registry::builtin();
        let errors = validate_create(registry.get("", "v1", "configmaps").unwrap(), &value);
        errors.iter().map(|e| format!("{} {}", e.reason.as_str(), e.field)).collect()
    }

    #[test]
    fn metadata_is_checked_on_create() {
        assert!(created(json!({"metadata": {"name": "a", "namespace": "n", "labels": {"a": "b"}}})).is_empty());
        assert_eq!(created(json!({"metadata": {"namespace": "n"}})), ["FieldValueRequired metadata.name"]);
        assert_eq!(created(json!({"metadata": {"name": "A", "namespace": "n"}})), ["FieldValueInvalid metadata.name"]);
        let finalizer = json!({"metadata": {"name": "a", "namespace": "n", "finalizers": ["x"]}});
        assert_eq!(created(finalizer), ["FieldValueInvalid metadata.finalizers[0]"]);
        let owners = json!({"metadata": {"name": "a", "namespace": "n", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": true},
            {"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "2", "controller": true}]}});
        assert_eq!(created(owners), ["FieldValueInvalid metadata.ownerReferences"]);
        let big = json!({"metadata": {"name": "a", "namespace": "n", "annotations": {"a": "x".repeat(256 * 1024)}}});
        assert_eq!(created(big), ["FieldValueTooLong metadata.annotations"]);
    }

    #[test]
    fn immutable_metadata_is_reported_by_both_views() {
        let registry = Registry::builtin();
        let old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "5"}});
        let new = json!({"metadata": {"name": "a", "namespace": "n", "uid": "2", "resourceVersion": "5"}});
        let errors = validate_update(registry.get("", "v1", "configmaps").unwrap(), "", &new, &old);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["metadata.uid: Invalid value: \"2\": field is immutable"; 2]);
        assert_eq!(aggregate(&errors), texts[0]);
    }
}
