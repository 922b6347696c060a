//! Which rule a type has.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Object, child, is_unset, items, pods, services, set_default, text, workloads};

/// Applies the rule of a type, if it has one.
pub(super) fn apply(type_name: &str, map: &mut Object) {
    let rule: fn(&mut Object) = match type_name.strip_prefix("io.k8s.api.").unwrap_or(type_name) {
        "core.v1.Pod" => pods::pod,
        "core.v1.PodSpec" => pods::spec,
        "core.v1.PodStatus" => pods::status,
        "core.v1.Container" | "core.v1.EphemeralContainer" => pods::container,
        "core.v1.Volume" => pods::volume,
        "core.v1.Service" => services::service,
        "core.v1.ServiceSpec" => services::spec,
        "core.v1.Secret" => secret,
        "core.v1.Namespace" => namespace,
        "core.v1.NodeSpec" => node_spec,
        "core.v1.NodeStatus" => node_status,
        "core.v1.LimitRangeItem" => limit_range_item,
        "core.v1.ReplicationController" => workloads::replication_controller,
        "apps.v1.DeploymentSpec" => workloads::deployment_spec,
        "apps.v1.DaemonSet" => workloads::daemon_set,
        "apps.v1.DaemonSetSpec" => workloads::daemon_set_spec,
        "apps.v1.StatefulSetSpec" => workloads::stateful_set_spec,
        "batch.v1.Job" => workloads::job,
        "autoscaling.v2.HorizontalPodAutoscalerSpec" => workloads::autoscaler_spec,
        "networking.v1.NetworkPolicySpec" => network_policy_spec,
        "rbac.v1.Subject" => subject,
        "resource.v1.ExactDeviceRequest" | "resource.v1.DeviceSubRequest" => device_request,
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" => definition,
        _ => return,
    };
    rule(map);
}

/// `stringData` is write-only text that overrides `data`.
fn secret(map: &mut Object) {
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    let Some(data) = child(map, "data") else { return };
    for (key, value) in texts {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, Value::String(encoded));
    }
}

/// A namespace carries its name as a label; a nameless one (`generateName`) gets it when it is named.
fn namespace(map: &mut Object) {
    let name = map.get("metadata").and_then(|m| m.get("name")).and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) = child(map, "metadata").and_then(|m| child(m, "labels")) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::String(name));
    }
}

fn node_spec(map: &mut Object) {
    pods::sync_first(map, "podCIDR", "podCIDRs", None);
}

fn node_status(map: &mut Object) {
    if is_unset(map, "allocatable") && !is_unset(map, "capacity") {
        let capacity = map.get("capacity").cloned().unwrap_or_default();
        map.insert("allocatable".to_owned(), capacity);
    }
}

/// For containers: a missing limit is the maximum, a missing request the limit, else the minimum.
fn limit_range_item(map: &mut Object) {
    if text(map, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(source)) = map.get(from).cloned() else { continue };
        let Some(target) = child(map, to) else { continue };
        for (key, value) in source {
            target.entry(key).or_insert(value);
        }
    }
}

fn network_policy_spec(map: &mut Object) {
    if is_unset(map, "policyTypes") {
        let types = if is_unset(map, "egress") { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        map.insert("policyTypes".to_owned(), types);
    }
}

fn subject(map: &mut Object) {
    if is_unset(map, "apiGroup") && matches!(text(map, "kind"), "User" | "Group") {
        map.insert("apiGroup".to_owned(), "rbac.authorization.k8s.io".into());
    }
}

fn device_request(map: &mut Object) {
    if matches!(text(map, "allocationMode"), "" | "ExactCount") && map.get("count").is_none_or(|c| c == 0) {
        map.insert("count".to_owned(), 1.into());
    }
}

fn definition(map: &mut Object) {
    let Some(spec) = child(map, "spec") else { return };
    let stored = items(spec, "versions")
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .map(|v| Value::String(text(v, "name").to_owned()));
    if let Some(names) = child(spec, "names") {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            set_default(names, "singular", kind.to_lowercase());
            set_default(names, "listKind", format!("{kind}List"));
        }
    }
    if let (Some(stored), Some(status)) = (stored, child(map, "status"))
        && is_unset(status, "storedVersions")
    {
        status.insert("storedVersions".to_owned(), Value::Array(vec![stored]));
    }
}
