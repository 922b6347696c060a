//! What the server decides of an object before it is stored: system metadata, fields that an endpoint does not own, generation.
//! Upstream's `rest.BeforeCreate` and `BeforeUpdate`, by columns of the row.

use atoll_kube_schema::{ResourceDef, decode};
use serde_json::{Map, Value};

use crate::admission::{Attributes, Operation};
use crate::error::{ApiError, Cause, Result};

/// An object of `def`'s kind in canonical form with its defaults.
pub fn canonical(def: &ResourceDef, object: Value) -> Result<Value> {
    let kind = def.kind.clone();
    let mut object =
        decode::canonicalise(def, object).map_err(|e| ApiError::bad_request(format!("{kind} cannot be handled: {e}")))?;
    default(def, &mut object);
    Ok(object)
}

/// Gives an object its defaults.
pub fn default(def: &ResourceDef, object: &mut Value) {
    atoll_kube_schema::defaults::apply_defaults(def, object);
}

/// Whether an update that takes the last thing that holds a deleted object removes it.
pub fn may_be_removed_by_update(def: &ResourceDef) -> bool {
    def.has_verb("delete")
}

pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The metadata of an object, made if absent.
pub fn metadata_mut(object: &mut Value) -> Result<&mut Map<String, Value>> {
    let map = object.as_object_mut().ok_or_else(|| ApiError::bad_request("the object is not a JSON object"))?;
    map.entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
        .ok_or_else(|| ApiError::bad_request("metadata is not a JSON object"))
}

pub fn meta_text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Gives a new object what only the server may give it; before admission, so that plugins see it.
pub fn fill_system_metadata(object: &mut Value) -> Result<()> {
    let metadata = metadata_mut(object)?;
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(key);
    }
    metadata.insert("creationTimestamp".into(), now().into());
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    Ok(())
}

pub fn prepare_create(def: &ResourceDef, attributes: &mut Attributes) -> Result<()> {
    atoll_kube_schema::prepare_create(def, &mut attributes.object, jiff::Timestamp::now());
    attributes.object = canonical(def, attributes.object.take())?;
    Ok(())
}

pub fn prepare_update(def: &ResourceDef, attributes: &mut Attributes) -> Result<()> {
    let Some(old) = attributes.old.clone() else { return Ok(()) };
    keep_system_metadata(&mut attributes.object, &old)?;
    let now = jiff::Timestamp::now();
    atoll_kube_schema::prepare_update(def, &attributes.subresource, &mut attributes.object, &old, now);
    attributes.object = canonical(def, attributes.object.take())?;
    atoll_kube_schema::apply::keep_times_of_equal(&old, &mut attributes.object);
    Ok(())
}

fn keep_system_metadata(object: &mut Value, old: &Value) -> Result<()> {
    let metadata = metadata_mut(object)?;
    let old = old.get("metadata").and_then(Value::as_object);
    let old_value = |key: &str| old.and_then(|m| m.get(key)).cloned();
    // Always the server's own.
    for key in ["creationTimestamp", "resourceVersion"] {
        match old_value(key) {
            Some(value) => metadata.insert(key.into(), value),
            None => metadata.remove(key),
        };
    }
    // Kept where the client left them out; a change of them is for validation to judge.
    for key in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if metadata.get(key).is_none_or(Value::is_null)
            && let Some(value) = old_value(key)
        {
            metadata.insert(key.into(), value);
        }
    }
    metadata.remove("selfLink");
    Ok(())
}

/// Checks the rules of the kind; all that are broken are named at once.
pub fn validate(def: &ResourceDef, attributes: &Attributes) -> Result<()> {
    let errors = match (attributes.operation, &attributes.old) {
        (Operation::Create, _) => atoll_kube_schema::validate_create(def, &attributes.object),
        (Operation::Update, Some(old)) => {
            atoll_kube_schema::validate_update(def, &attributes.subresource, &attributes.object, old)
        }
        _ => Vec::new(),
    };
    if errors.is_empty() {
        let warnings = atoll_kube_schema::warnings(def, &attributes.object, attributes.old.as_deref());
        warnings.into_iter().for_each(|w| attributes.warnings.add(w));
        return Ok(());
    }
    let causes = errors.iter().map(|e| Cause::new(e.reason.as_str(), e.field.clone(), e.body())).collect();
    Err(ApiError::invalid(&def.storage.group, &def.kind, &attributes.name, causes))
}
