//! Amounts by quota key.

use std::collections::BTreeMap;

use atoll_kube_schema::quantity::{Format, Quantity};
use serde_json::Value;

use super::{DeviceView, pod};

/// Amounts by the names of `spec.hard`: `pods`, `requests.cpu`, `count/deployments.apps`, …
pub type Usage = BTreeMap<String, Quantity>;

fn one() -> Quantity {
    Quantity::from_units(1, Format::Decimal)
}

/// What one object of `group`/`resource` uses.
pub fn usage_of(group: &str, resource: &str, object: &Value, devices: &DeviceView) -> Usage {
    let counted = if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") };
    let mut usage = Usage::from([(counted, one())]);
    if !group.is_empty() {
        return usage;
    }
    match resource {
        "pods" => pod::add(object, devices, &mut usage),
        "services" => add_service(object, &mut usage),
        "persistentvolumeclaims" => add_claim(object, &mut usage),
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            usage.insert(resource.to_owned(), one());
        }
        _ => {}
    }
    usage
}

fn add_service(service: &Value, usage: &mut Usage) {
    usage.insert("services".to_owned(), one());
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(0, Vec::len) as i64;
    let node_ports = match spec["type"].as_str() {
        Some("NodePort") => ports,
        Some("LoadBalancer") => {
            usage.insert("services.loadbalancers".to_owned(), one());
            if spec["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true) {
                ports
            } else {
                spec["ports"].as_array().into_iter().flatten().filter(|p| p["nodePort"].as_i64().unwrap_or(0) != 0).count() as i64
            }
        }
        _ => 0,
    };
    if node_ports > 0 {
        usage.insert("services.nodeports".to_owned(), Quantity::from_units(node_ports, Format::Decimal));
    }
}

fn add_claim(claim: &Value, usage: &mut Usage) {
    usage.insert("persistentvolumeclaims".to_owned(), one());
    let class = claim["spec"]["storageClassName"].as_str().filter(|c| !c.is_empty());
    if let Some(class) = class {
        usage.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one());
    }
    let size = claim.pointer("/spec/resources/requests/storage").and_then(Value::as_str);
    if let Some(size) = size.and_then(|s| Quantity::parse(s).ok()) {
        usage.insert("requests.storage".to_owned(), size);
        if let Some(class) = class {
            usage.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), size);
        }
    }
}

/// The part of `usage` that `hard` limits.
pub fn covered(usage: &Usage, hard: &Usage) -> Usage {
    usage.iter().filter(|(key, _)| hard.contains_key(*key)).map(|(k, v)| (k.clone(), *v)).collect()
}

/// `new - old` where it is above zero.
pub fn positive_delta(new: &Usage, old: &Usage) -> Usage {
    let zero = Quantity::from_units(0, Format::Decimal);
    new.iter()
        .map(|(key, amount)| (key.clone(), old.get(key).map_or(*amount, |before| amount.minus(*before))))
        .filter(|(_, amount)| *amount > zero)
        .collect()
}

pub fn plus(a: &Usage, b: &Usage) -> Usage {
    let mut sum = a.clone();
    for (key, amount) in b {
        let entry = sum.entry(key.clone()).or_insert(Quantity::from_units(0, amount.format()));
        *entry = entry.plus(*amount);
    }
    sum
}

/// Keys of `delta` for which `used + delta` is above `hard`.
pub fn exceeded(delta: &Usage, used: &Usage, hard: &Usage) -> Vec<String> {
    let total = plus(used, delta);
    delta.keys().filter(|key| hard.get(*key).is_some_and(|limit| total[*key] > *limit)).cloned().collect()
}
