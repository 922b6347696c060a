//! What the server fills in on Pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{copy, get};
use crate::defaults::{Object, child, is_unset, items, text};
use crate::quantity::Quantity;
use crate::timestamp::format_time;

pub(super) fn create(map: &mut Object, now: Timestamp) {
    let qos = map.get("spec").map_or("BestEffort", qos_class);
    let mut status = json!({"phase": "Pending", "qosClass": qos});
    let labels = map.get("metadata").and_then(|m| m.get("labels")).and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = child(map, "spec") else { return };
    if !is_unset(spec, "schedulingGates") {
        let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": format_time(now), "message": "Scheduling is blocked due to non-empty scheduling gates"});
        status["conditions"] = Value::Array(vec![gated]);
    }
    affinity(spec, &labels);
    for constraint in items(spec, "topologySpreadConstraints") {
        select_by_keys(constraint, "matchLabelKeys", "In", &labels);
    }
    map.insert("status".to_owned(), status);
}

fn affinity(spec: &mut Object, labels: &Object) {
    let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) else { return };
    for side in ["podAffinity", "podAntiAffinity"] {
        let Some(side) = affinity.get_mut(side).and_then(Value::as_object_mut) else { continue };
        for term in items(side, "requiredDuringSchedulingIgnoredDuringExecution") {
            select_by_keys(term, "matchLabelKeys", "In", labels);
            select_by_keys(term, "mismatchLabelKeys", "NotIn", labels);
        }
        for weighted in items(side, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = weighted.get_mut("podAffinityTerm").and_then(Value::as_object_mut) {
                select_by_keys(term, "matchLabelKeys", "In", labels);
                select_by_keys(term, "mismatchLabelKeys", "NotIn", labels);
            }
        }
    }
}

/// Turns label keys into requirements on the Pod's own values (KEP-3633, KEP-3243); needs a selector to add them to.
fn select_by_keys(term: &mut Object, keys: &str, operator: &str, labels: &Object) {
    let keys: Vec<String> =
        term.get(keys).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    for key in keys {
        let Some(value) = labels.get(&key) else { continue };
        let list = selector.entry("matchExpressions").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = list.as_array_mut() {
            list.push(json!({"key": key, "operator": operator, "values": [value]}));
        }
    }
}

/// Fields of the status that a writer who does not know them must not lose.
pub(super) fn status_update(object: &mut Value, old: &Value) {
    for path in ["status.qosClass", "status.observedGeneration"] {
        if get(object, path).is_none() {
            copy(object, old, path);
        }
    }
    let mut before: Vec<Value> = get(old, "status.conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    for condition in items(status, "conditions") {
        let Some(at) = before.iter().position(|c| c.get("type") == condition.get("type")) else { continue };
        let observed = before.remove(at).get("observedGeneration").cloned();
        if let (true, Some(observed)) = (is_unset(condition, "observedGeneration"), observed) {
            condition.insert("observedGeneration".to_owned(), observed);
        }
    }
}

fn amounts(resources: Option<&Value>, side: &str) -> Vec<(&'static str, Quantity)> {
    let list = resources.and_then(|r| r.get(side)).and_then(Value::as_object);
    ["cpu", "memory"]
        .into_iter()
        .filter_map(|name| {
            let text = list?.get(name)?.as_str()?;
            Quantity::parse(text).ok().filter(|q| !q.is_zero()).map(|q| (name, q))
        })
        .collect()
}

/// Quality of service of a Pod spec: `Guaranteed`, `Burstable` or `BestEffort`, by CPU and memory.
pub fn qos_class(spec: &Value) -> &'static str {
    let whole = spec.get("resources").filter(|r| r.is_object());
    let containers: Vec<Option<&Value>> = match whole {
        Some(resources) if !amounts(Some(resources), "requests").is_empty() || !amounts(Some(resources), "limits").is_empty() => {
            vec![Some(resources)]
        }
        _ => ["containers", "initContainers"]
            .into_iter()
            .flat_map(|key| spec.get(key).and_then(Value::as_array).into_iter().flatten())
            .map(|c| c.get("resources"))
            .collect(),
    };
    let mut is_guaranteed = !containers.is_empty();
    let mut has_any = false;
    for resources in containers {
        let (requests, limits) = (amounts(resources, "requests"), amounts(resources, "limits"));
        has_any |= !requests.is_empty() || !limits.is_empty();
        let follows = requests.iter().all(|(name, q)| limits.iter().any(|(n, l)| n == name && l == q));
        is_guaranteed &= limits.len() == 2 && follows;
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A container's update through `ephemeralcontainers` keeps all of the old Pod but those and the bookkeeping of the write.
pub(super) fn keep_ephemeral(object: &mut Value, old: &Value) {
    let mut kept = old.clone();
    copy(&mut kept, object, "spec.ephemeralContainers");
    for key in ["managedFields", "resourceVersion"] {
        copy(&mut kept, object, &format!("metadata.{key}"));
    }
    *object = kept;
}

/// A write through `resize` changes resources and resize policies of containers, and the Pod's own resources.
pub(super) fn keep_resize(object: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for list in ["containers", "initContainers"] {
        let new: Vec<Value> = object.get("spec").and_then(|s| s.get(list)).and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(spec) = kept.get_mut("spec").and_then(Value::as_object_mut) else { continue };
        for container in items(spec, list) {
            let name = text(container, "name").to_owned();
            let Some(new) = new.iter().find(|c| c.get("name").and_then(Value::as_str) == Some(&name)) else { continue };
            for key in ["resources", "resizePolicy"] {
                match new.get(key) {
                    Some(value) => container.insert(key.to_owned(), value.clone()),
                    None => container.remove(key),
                };
            }
        }
    }
    copy(&mut kept, object, "spec.resources");
    for key in ["managedFields", "resourceVersion"] {
        copy(&mut kept, object, &format!("metadata.{key}"));
    }
    *object = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    #[test]
    fn classes_of_service() {
        let class = |requests: Value, limits: Value| {
            qos_class(&json!({"containers": [{"resources": {"requests": requests, "limits": limits}}]}))
        };
        assert_eq!(class(json!({}), json!({})), "BestEffort");
        assert_eq!(class(json!({"cpu": "1"}), json!({})), "Burstable");
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(full.clone(), full.clone()), "Guaranteed");
        assert_eq!(class(json!({}), full.clone()), "Guaranteed");
        assert_eq!(class(json!({"cpu": "500m", "memory": "1Gi"}), full), "Burstable");
        assert_eq!(class(json!({"nvidia.com/gpu": "1"}), json!({"nvidia.com/gpu": "1"})), "BestEffort");
    }

    #[test]
    fn label_keys_become_requirements() {
        let mut term = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["x", "none"]});
        let labels = Map::from_iter([("x".to_owned(), Value::from("1"))]);
        select_by_keys(term.as_object_mut().unwrap(), "matchLabelKeys", "In", &labels);
        assert_eq!(term["labelSelector"]["matchExpressions"], json!([{"key": "x", "operator": "In", "values": ["1"]}]));
    }
}
