//! Defaults of the workload kinds and of autoscaling that span fields.

use serde_json::{Value, json};

use super::{Object, child, is_unset, items, set_default, text};

/// Labels of a workload's Pod template, where it has any.
fn template_labels(map: &Object) -> Option<Value> {
    map.get("spec")?.get("template")?.get("metadata")?.get("labels").filter(|l| l.is_object()).cloned()
}

fn label_from_template(map: &mut Object, labels: &Value) {
    if let Some(metadata) = child(map, "metadata")
        && is_unset(metadata, "labels")
    {
        metadata.insert("labels".to_owned(), labels.clone());
    }
}

pub(super) fn replication_controller(map: &mut Object) {
    let Some(labels) = template_labels(map) else { return };
    if let Some(spec) = child(map, "spec")
        && is_unset(spec, "selector")
    {
        spec.insert("selector".to_owned(), labels.clone());
    }
    label_from_template(map, &labels);
}

fn rolling(map: &mut Object, strategy: &str, defaults: &[(&str, Value)]) {
    let Some(strategy) = child(map, strategy) else { return };
    set_default(strategy, "type", "RollingUpdate");
    if text(strategy, "type") != "RollingUpdate" {
        return;
    }
    let Some(parameters) = child(strategy, "rollingUpdate") else { return };
    for (key, value) in defaults {
        if parameters.get(*key).is_none_or(Value::is_null) {
            parameters.insert((*key).to_owned(), value.clone());
        }
    }
}

pub(super) fn deployment_spec(map: &mut Object) {
    rolling(map, "strategy", &[("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())]);
}

/// The generation of a DaemonSet's template lives on in an annotation that the server keeps.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn daemon_set(map: &mut Object) {
    if let Some(annotations) = child(map, "metadata").and_then(|m| child(m, "annotations")) {
        set_default(annotations, TEMPLATE_GENERATION, "0");
    }
}

pub(super) fn daemon_set_spec(map: &mut Object) {
    rolling(map, "updateStrategy", &[("maxUnavailable", 1.into()), ("maxSurge", 0.into())]);
}

pub(super) fn stateful_set_spec(map: &mut Object) {
    if let Some(strategy) = child(map, "updateStrategy") {
        if is_unset(strategy, "type") {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            child(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(parameters) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut)
            && parameters.get("partition").is_none_or(Value::is_null)
        {
            parameters.insert("partition".to_owned(), 0.into());
        }
    }
    // Claim templates are whole objects of a kind.
    for template in items(map, "volumeClaimTemplates") {
        set_default(template, "apiVersion", "v1");
        set_default(template, "kind", "PersistentVolumeClaim");
    }
}

pub(super) fn job(map: &mut Object) {
    if let Some(labels) = template_labels(map) {
        label_from_template(map, &labels);
    }
    let Some(spec) = child(map, "spec") else { return };
    let lacks = |key: &str, spec: &Object| spec.get(key).is_none_or(Value::is_null);
    if lacks("completions", spec) && lacks("parallelism", spec) {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let limit = if lacks("backoffLimitPerIndex", spec) { 6 } else { i32::MAX };
    set_default(spec, "backoffLimit", limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replacement = if lacks("podFailurePolicy", spec) { "TerminatingOrFailed" } else { "Failed" };
    set_default(spec, "podReplacementPolicy", replacement);
    set_default(spec, "manualSelector", false);
}

pub(super) fn autoscaler_spec(map: &mut Object) {
    if is_unset(map, "metrics") {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        map.insert("metrics".to_owned(), Value::Array(vec![cpu]));
    }
    let Some(behavior) = map.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    if let Some(up) = child(behavior, "scaleUp") {
        set_default(up, "stabilizationWindowSeconds", 0);
        set_default(up, "selectPolicy", "Max");
        set_default(up, "policies", Value::Array(vec![pods, percent.clone()]));
    }
    if let Some(down) = child(behavior, "scaleDown") {
        set_default(down, "selectPolicy", "Max");
        set_default(down, "policies", Value::Array(vec![percent]));
    }
}
