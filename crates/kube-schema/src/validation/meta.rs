//! Rules of `metadata` that hold for every kind.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::FieldError;
use super::names;
use crate::limits;
use crate::registry::{NameRule, ResourceDef};

const IMMUTABLE: &str = "field is immutable";
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn map<'a>(meta: &'a Value, key: &str) -> BTreeMap<&'a str, &'a str> {
    let entries = meta.get(key).and_then(Value::as_object).into_iter().flatten();
    entries.map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default())).collect()
}

fn list<'a>(meta: &'a Value, key: &str) -> &'a [Value] {
    meta.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Labels of any object or template; `path` is that of the labels.
pub fn labels(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut out = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        out.extend(names::qualified_name(key).into_iter().map(|m| FieldError::invalid(path, key.as_str(), m)));
        let value = value.as_str().unwrap_or_default();
        out.extend(names::label_value(value).into_iter().map(|m| FieldError::invalid(path, value, m)));
    }
    out
}

/// Annotations of any object or template; `path` is that of the annotations.
pub fn annotations(annotations: &Value, path: &str) -> Vec<FieldError> {
    let mut out = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let problems = names::qualified_name(&key.to_lowercase());
        out.extend(problems.into_iter().map(|m| FieldError::invalid(path, key.as_str(), m)));
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > limits::ANNOTATIONS_BYTES_MAX {
        out.push(FieldError::too_long(path, limits::ANNOTATIONS_BYTES_MAX));
    }
    out
}

fn owner_references(meta: &Value) -> Vec<FieldError> {
    const PATH: &str = "metadata.ownerReferences";
    let mut out = Vec::new();
    let mut controller: Option<String> = None;
    for reference in list(meta, "ownerReferences") {
        let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
        let is_bad_version = api_version.is_empty() || api_version.matches('/').count() > 1 || api_version.ends_with('/');
        if is_bad_version {
            out.push(FieldError::invalid(format!("{PATH}.apiVersion"), api_version, "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if text(reference, key).is_empty() {
                out.push(FieldError::invalid(format!("{PATH}.{key}"), "", "must not be empty"));
            }
        }
        if api_version == "v1" && kind == "Event" {
            out.push(FieldError::invalid(PATH, reference.clone(), "/v1, Kind=Event is disallowed from being an owner"));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{kind}/{}", text(reference, "name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    out.push(FieldError::invalid(PATH, list(meta, "ownerReferences").to_vec(), detail));
                }
                None => controller = Some(name),
            }
        }
    }
    out
}

fn finalizers(meta: &Value) -> Vec<FieldError> {
    const PATH: &str = "metadata.finalizers";
    let all = list(meta, "finalizers");
    let mut out = Vec::new();
    for finalizer in all.iter().filter_map(Value::as_str) {
        out.extend(names::qualified_name(finalizer).into_iter().map(|m| FieldError::invalid(PATH, finalizer, m)));
    }
    if [ORPHAN, FOREGROUND].iter().all(|f| all.iter().any(|v| v == f)) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        out.push(FieldError::invalid(PATH, all.to_vec(), detail));
    }
    out
}

/// Built-in kinds demand a qualified finalizer, except for the machinery's own.
fn kube_finalizers(meta: &Value) -> Vec<FieldError> {
    let all = list(meta, "finalizers").iter().enumerate().filter_map(|(i, v)| v.as_str().map(|f| (i, f)));
    all.filter(|(_, f)| !f.contains('/') && !matches!(*f, ORPHAN | FOREGROUND | "kubernetes"))
        .map(|(i, f)| {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("metadata.finalizers[{i}]"), f, detail)
        })
        .collect()
}

/// The extension groups have finalizers of their own that are not qualified.
fn demands_qualified_finalizers(def: &ResourceDef) -> bool {
    !def.is_custom() && !matches!(def.group.as_str(), "apiextensions.k8s.io" | "apiregistration.k8s.io")
}

fn managed_fields(meta: &Value) -> Vec<FieldError> {
    let mut out = Vec::new();
    for (index, entry) in list(meta, "managedFields").iter().enumerate() {
        let path = format!("metadata.managedFields[{index}]");
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            out.push(FieldError::invalid(format!("{path}.operation"), operation, "must be `Apply` or `Update`"));
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            out.push(FieldError::invalid(format!("{path}.fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        out.extend(field_manager(text(entry, "manager"), &format!("{path}.manager")));
        if text(entry, "subresource").len() > limits::SUBRESOURCE_BYTES_MAX {
            out.push(FieldError::too_long(format!("{path}.subresource"), limits::SUBRESOURCE_BYTES_MAX));
        }
    }
    out
}

/// A field manager's name (`fieldManager` of a request, `manager` of an entry).
pub fn field_manager(name: &str, path: &str) -> Vec<FieldError> {
    let mut out = Vec::new();
    if name.len() > limits::FIELD_MANAGER_CHARS_MAX {
        out.push(FieldError::too_long(path, limits::FIELD_MANAGER_CHARS_MAX));
    }
    // Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the plain space.
    if let Some(at) = name.char_indices().find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' ')).map(|(i, _)| i) {
        let c = name[at..].chars().next().unwrap_or_default();
        let detail = format!("invalid character {:?} (at position {at})", c.to_string());
        out.push(FieldError::invalid(path, name, detail));
    }
    out
}

fn namespace(meta: &Value, namespaced: bool) -> Vec<FieldError> {
    const PATH: &str = "metadata.namespace";
    let namespace = text(meta, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => vec![FieldError::required(PATH, "")],
        (true, false) => names::dns_label(namespace).into_iter().map(|m| FieldError::invalid(PATH, namespace, m)).collect(),
        (false, false) => vec![FieldError::forbidden(PATH, "not allowed on this type")],
        (false, true) => Vec::new(),
    }
}

/// Everything about one object's metadata, its name by `rule`.
pub fn object_meta(meta: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut out = Vec::new();
    let (name, generate_name) = (text(meta, "name"), text(meta, "generateName"));
    if !generate_name.is_empty() {
        let problems = names::by_rule(rule, generate_name, true);
        out.extend(problems.into_iter().map(|m| FieldError::invalid("metadata.generateName", generate_name, m)));
    }
    if name.is_empty() {
        out.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        let problems = names::by_rule(rule, name, false);
        out.extend(problems.into_iter().map(|m| FieldError::invalid("metadata.name", name, m)));
    }
    out.extend(namespace(meta, namespaced));
    let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        out.push(FieldError::invalid("metadata.generation", generation, detail));
    }
    out.extend(labels(meta.get("labels").unwrap_or(&Value::Null), "metadata.labels"));
    out.extend(annotations(meta.get("annotations").unwrap_or(&Value::Null), "metadata.annotations"));
    out.extend(owner_references(meta));
    out.extend(finalizers(meta));
    out.extend(managed_fields(meta));
    out
}

/// What an update may not do to metadata.
pub fn object_meta_update(meta: &Value, old: &Value) -> Vec<FieldError> {
    let mut out = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        let before = list(old, "finalizers");
        let mut added: Vec<&str> =
            list(meta, "finalizers").iter().filter(|f| !before.contains(f)).filter_map(Value::as_str).collect();
        added.sort_unstable();
        if !added.is_empty() {
            let shown: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            );
            out.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    if text(meta, "resourceVersion").is_empty() {
        out.push(FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update"));
    }
    let generation = |m: &Value| m.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if generation(meta) < generation(old) {
        out.push(FieldError::invalid("metadata.generation", generation(meta), "must not be decremented"));
    }
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |m: &Value| m.get(key).filter(|v| !v.is_null()).cloned();
        if value(meta) != value(old) {
            out.push(FieldError::invalid(format!("metadata.{key}"), value(meta).unwrap_or(Value::Null), IMMUTABLE));
        }
    }
    out.extend(labels(meta.get("labels").unwrap_or(&Value::Null), "metadata.labels"));
    out.extend(annotations(meta.get("annotations").unwrap_or(&Value::Null), "metadata.annotations"));
    out.extend(owner_references(meta));
    out.extend(managed_fields(meta));
    out
}

/// A kind's own view of its metadata on create: the name's rule and, for built-in kinds, the finalizers'.
pub fn kind_create(def: &ResourceDef, meta: &Value) -> Vec<FieldError> {
    let mut out = object_meta(meta, def.namespaced, def.strategy.name_rule);
    if demands_qualified_finalizers(def) {
        out.extend(kube_finalizers(meta));
    }
    out
}

/// A kind's own view of its metadata on update, which repeats the common one as upstream's strategies do.
pub fn kind_update(def: &ResourceDef, meta: &Value, old: &Value) -> Vec<FieldError> {
    let mut out = object_meta_update(meta, old);
    if demands_qualified_finalizers(def) {
        out.extend(kube_finalizers(meta));
    }
    out
}

/// Labels as pairs, for callers that match selectors.
pub fn label_map(object: &Value) -> BTreeMap<&str, &str> {
    object.get("metadata").map(|m| map(m, "labels")).unwrap_or_default()
}
