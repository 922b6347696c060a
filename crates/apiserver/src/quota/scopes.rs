//! Whether a quota's scopes take in an object.

use serde_json::Value;

/// Scopes concern Pods (and one of them claims); an object that a scope cannot judge is not taken in.
pub fn applies(quota: &Value, group: &str, resource: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut all = plain.map(|name| (name, "Exists", Vec::new())).collect::<Vec<_>>();
    for expression in spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten() {
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let name = expression["scopeName"].as_str().unwrap_or_default();
        all.push((name, expression["operator"].as_str().unwrap_or_default(), values));
    }
    all.iter().all(|(scope, operator, values)| holds(scope, operator, values, group, resource, object))
}

fn holds(scope: &str, operator: &str, values: &[&str], group: &str, resource: &str, object: &Value) -> bool {
    if group.is_empty() && resource == "persistentvolumeclaims" && scope == "VolumeAttributesClass" {
        return selects(object["spec"]["volumeAttributesClassName"].as_str(), operator, values);
    }
    if !group.is_empty() || resource != "pods" {
        return false;
    }
    let spec = &object["spec"];
    let is_terminating = spec["activeDeadlineSeconds"].as_i64().is_some_and(|s| s >= 0);
    match scope {
        "Terminating" => is_terminating,
        "NotTerminating" => !is_terminating,
        "BestEffort" => is_best_effort(object),
        "NotBestEffort" => !is_best_effort(object),
        "PriorityClass" => selects(spec["priorityClassName"].as_str().filter(|n| !n.is_empty()), operator, values),
        "CrossNamespacePodAffinity" => crosses_namespaces(spec),
        _ => false,
    }
}

fn selects(value: Option<&str>, operator: &str, values: &[&str]) -> bool {
    match operator {
        "In" => value.is_some_and(|v| values.contains(&v)),
        "NotIn" => value.is_none_or(|v| !values.contains(&v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// No container asks for or limits CPU or memory.
fn is_best_effort(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"];
    let mut containers = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
    !containers.any(|container| {
        ["requests", "limits"].iter().any(|kind| {
            let resources = &container["resources"][*kind];
            ["cpu", "memory"].iter().any(|name| resources.get(*name).is_some())
        })
    })
}

fn crosses_namespaces(spec: &Value) -> bool {
    let affinity = &spec["affinity"];
    let crosses =
        |term: &Value| term["namespaces"].as_array().is_some_and(|n| !n.is_empty()) || !term["namespaceSelector"].is_null();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let kind = &affinity[*kind];
        let required = kind["requiredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        let preferred = kind["preferredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        required.into_iter().any(crosses) || preferred.into_iter().any(|p| crosses(&p["podAffinityTerm"]))
    })
}
