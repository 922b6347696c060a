//! The kinds whose fields the server fills in.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{copy, get, pods};
use crate::defaults::workloads::TEMPLATE_GENERATION;
use crate::defaults::{Object, child, is_unset, items, set_default, text};
use crate::registry::ResourceDef;
use crate::timestamp::format_time;

pub(super) fn create(def: &ResourceDef, object: &mut Value, now: Timestamp) {
    let Some(map) = object.as_object_mut() else { return };
    match (def.group.as_str(), def.plural.as_str()) {
        ("", "pods") => pods::create(map, now),
        ("", "namespaces") => namespace(map),
        ("", "persistentvolumes") => {
            map.insert("status".to_owned(), json!({"phase": "Pending", "lastPhaseTransitionTime": format_time(now)}));
        }
        ("", "persistentvolumeclaims") => {
            map.insert("status".to_owned(), json!({"phase": "Pending"}));
            claim_sources(map);
        }
        ("coordination.k8s.io", "leases") => coordinated_election(map, None),
        ("", "serviceaccounts") => secret_references(map),
        ("apps", "daemonsets") => {
            let stated = template_generation(&Value::Object(map.clone())).max(1);
            set_template_generation(map, stated);
        }
        ("batch", "jobs") => job(map),
        ("apiregistration.k8s.io", "apiservices") => local_service(map, now),
        ("apiextensions.k8s.io", "customresourcedefinitions") => stored_versions(map),
        _ => {}
    }
}

pub(super) fn update(def: &ResourceDef, subresource: &str, object: &mut Value, old: &Value, now: Timestamp) {
    match (def.group.as_str(), def.plural.as_str(), subresource) {
        ("", "pods", "status") => pods::status_update(object, old),
        ("", "pods", "ephemeralcontainers") => pods::keep_ephemeral(object, old),
        ("", "pods", "resize") => pods::keep_resize(object, old),
        ("", "namespaces", "") => copy(object, old, "spec.finalizers"),
        ("", "secrets", "") if object.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() => {
            copy(object, old, "type");
        }
        ("", "serviceaccounts", "") => {
            if let Some(map) = object.as_object_mut() {
                secret_references(map);
            }
        }
        ("coordination.k8s.io", "leases", "") => {
            if let Some(map) = object.as_object_mut() {
                coordinated_election(map, Some(old));
            }
        }
        ("", "persistentvolumes", "status") => phase_transition(object, old, now),
        ("", "persistentvolumeclaims", "") => {
            if let Some(map) = object.as_object_mut() {
                claim_sources(map);
            }
        }
        ("apps", "daemonsets", "") => {
            let current = template_generation(old);
            let raised = i64::from(get(object, "spec.template") != get(old, "spec.template"));
            if let Some(map) = object.as_object_mut() {
                set_template_generation(map, current + raised);
            }
        }
        ("certificates.k8s.io", _, "status" | "approval") => condition_times(object, old, now),
        ("apiextensions.k8s.io", "customresourcedefinitions", "") => {
            if let Some(map) = object.as_object_mut() {
                stored_versions(map);
            }
        }
        _ => {}
    }
}

/// An API that this server serves itself is available from the start.
fn local_service(map: &mut Object, now: Timestamp) {
    let is_local = map.get("spec").is_some_and(|spec| spec.get("service").is_none_or(Value::is_null));
    if is_local {
        let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": format_time(now), "reason": "Local",
            "message": "Local APIServices are always available"});
        map.insert("status".to_owned(), json!({"conditions": [condition]}));
    }
}

/// Coordinated leader election (KEP-4355) is off: its fields stay only where they are in use already.
fn coordinated_election(map: &mut Object, old: Option<&Value>) {
    let Some(spec) = child(map, "spec") else { return };
    for key in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| get(old, &format!("spec.{key}")).is_none()) {
            spec.remove(key);
        }
    }
}

fn namespace(map: &mut Object) {
    map.insert("status".to_owned(), json!({"phase": "Active"}));
    let Some(spec) = child(map, "spec") else { return };
    let list = spec.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|f| f == "kubernetes")
    {
        list.push("kubernetes".into());
    }
}

/// `dataSource` and `dataSourceRef` say the same where both can.
fn claim_sources(map: &mut Object) {
    let Some(spec) = child(map, "spec") else { return };
    let source = spec.get("dataSource").filter(|v| v.is_object()).cloned();
    let reference = spec.get("dataSourceRef").filter(|v| v.is_object()).cloned();
    match (source, reference) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if reference.get("namespace").is_none() => {
            let is_known = matches!(
                (reference.get("apiGroup").and_then(Value::as_str), reference.get("kind").and_then(Value::as_str)),
                (None | Some(""), Some("PersistentVolumeClaim")) | (Some("snapshot.storage.k8s.io"), Some("VolumeSnapshot"))
            );
            if is_known {
                spec.insert("dataSource".to_owned(), reference);
            }
        }
        _ => {}
    }
}

/// Only the names of a service account's Secrets are kept.
fn secret_references(map: &mut Object) {
    for secret in items(map, "secrets") {
        let name = text(secret, "name").to_owned();
        *secret = Map::new();
        if !name.is_empty() {
            secret.insert("name".to_owned(), Value::String(name));
        }
    }
}

fn template_generation(value: &Value) -> i64 {
    let annotations = value.get("metadata").and_then(|m| m.get("annotations"));
    annotations.and_then(|a| a.get(TEMPLATE_GENERATION)).and_then(Value::as_str).and_then(|t| t.parse().ok()).unwrap_or(1)
}

fn set_template_generation(map: &mut Object, generation: i64) {
    let annotations = child(map, "metadata").and_then(|m| child(m, "annotations"));
    if let Some(annotations) = annotations {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), Value::String(generation.to_string()));
    }
}

/// A Job selects the Pods that carry its uid, unless its author chose the selector.
fn job(map: &mut Object) {
    let metadata = map.get("metadata").cloned().unwrap_or_default();
    let own = |key: &str| metadata.get(key).cloned().unwrap_or_else(|| "".into());
    let Some(spec) = child(map, "spec") else { return };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let labels = child(spec, "template").and_then(|t| child(t, "metadata")).and_then(|m| child(m, "labels"));
    if let Some(labels) = labels {
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.entry(key).or_insert_with(|| own("name"));
        }
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            labels.entry(key).or_insert_with(|| own("uid"));
        }
    }
    if let Some(labels) = child(spec, "selector").and_then(|s| child(s, "matchLabels")) {
        labels.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| own("uid"));
    }
}

/// The storage version of a definition is remembered among those ever stored.
fn stored_versions(map: &mut Object) {
    let stored = child(map, "spec").and_then(|spec| {
        items(spec, "versions")
            .find(|v| v.get("storage") == Some(&Value::Bool(true)))
            .map(|v| Value::String(text(v, "name").to_owned()))
    });
    let (Some(stored), Some(status)) = (stored, child(map, "status")) else { return };
    if is_unset(status, "storedVersions") {
        status.insert("storedVersions".to_owned(), Value::Array(Vec::new()));
    }
    if let Some(list) = status.get_mut("storedVersions").and_then(Value::as_array_mut)
        && !list.contains(&stored)
    {
        list.push(stored);
    }
}

fn phase_transition(object: &mut Value, old: &Value, now: Timestamp) {
    const TIME: &str = "status.lastPhaseTransitionTime";
    let is_stale = get(object, TIME).is_none() || get(object, TIME) == get(old, TIME);
    if get(object, "status.phase") == get(old, "status.phase") {
        if get(object, TIME).is_none() {
            copy(object, old, TIME);
        }
    } else if is_stale && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("lastPhaseTransitionTime".to_owned(), format_time(now).into());
    }
}

/// Conditions of a signing request get their times from the server where the writer left them out.
fn condition_times(object: &mut Value, old: &Value, now: Timestamp) {
    let before: Vec<Value> = get(old, "status.conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    for condition in items(status, "conditions") {
        set_default(condition, "lastUpdateTime", format_time(now));
        if condition.get("lastTransitionTime").is_some_and(|t| !t.is_null()) {
            continue;
        }
        let same = before
            .iter()
            .find(|c| c.get("type") == condition.get("type") && c.get("status") == condition.get("status"))
            .and_then(|c| c.get("lastTransitionTime"))
            .filter(|t| !t.is_null());
        let time = same.cloned().unwrap_or_else(|| format_time(now).into());
        condition.insert("lastTransitionTime".to_owned(), time);
    }
}
