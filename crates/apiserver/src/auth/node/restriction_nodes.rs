//! What a kubelet may write to its own Node.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::restriction::name_of;
use crate::admission::{Attributes, Operation};
use crate::error::Result;

/// Labels of Kubernetes' own domains that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 13] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
];
const KUBELET_LABEL_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Labels with which administrators tell nodes apart where a node's own word is not enough.
const RESTRICTED_PREFIX: &str = "node-restriction.kubernetes.io";

pub(super) fn node(write: &Attributes, node: &str) -> Result<()> {
    if name_of(write) != node {
        return Err(write.forbidden(format!("node {node:?} is not allowed to modify node {:?}", name_of(write))));
    }
    let none = Map::new();
    match write.operation {
        Operation::Create => {
            let forbidden = forbidden_labels(&none, labels(&write.object).unwrap_or(&none));
            if !forbidden.is_empty() {
                return Err(write
                    .forbidden(format!("node {node:?} is not allowed to set the following labels: {}", forbidden.join(", "))));
            }
            if has_owners(&write.object) {
                return Err(write.forbidden(format!("node {node:?} is not allowed to set ownerReferences")));
            }
            Ok(())
        }
        Operation::Update => update(write, node),
        _ => Ok(()),
    }
}

fn update(write: &Attributes, node: &str) -> Result<()> {
    let Some(old) = &write.old else { return Ok(()) };
    let none = Map::new();
    let taints = |object: &Value| object.get("spec").and_then(|s| s.get("taints")).filter(|t| !t.is_null()).cloned();
    if taints(old) != taints(&write.object) {
        return Err(write.forbidden(format!("node {node:?} is not allowed to modify taints")));
    }
    let forbidden = forbidden_labels(labels(old).unwrap_or(&none), labels(&write.object).unwrap_or(&none));
    if !forbidden.is_empty() {
        return Err(write.forbidden(format!("node {node:?} is not allowed to modify labels: {}", forbidden.join(", "))));
    }
    let owners = |object: &Value| object.get("metadata").and_then(|m| m.get("ownerReferences")).cloned();
    if owners(old) != owners(&write.object) {
        return Err(write.forbidden(format!("node {node:?} is not allowed to modify ownerReferences")));
    }
    Ok(())
}

fn has_owners(object: &Value) -> bool {
    let owners = object.get("metadata").and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
    owners.is_some_and(|owners| !owners.is_empty())
}

fn labels(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("labels")?.as_object()
}

/// Labels that differ and that a kubelet may not touch.
fn forbidden_labels(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let changed: BTreeSet<&String> = old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)).collect();
    changed.into_iter().filter(|label| !may_set(label)).cloned().collect()
}

fn may_set(label: &str) -> bool {
    let prefix = label.split_once('/').map(|(prefix, _)| prefix).unwrap_or_default();
    let is_within = |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if is_within(RESTRICTED_PREFIX) {
        return false;
    }
    let is_kubernetes = is_within("kubernetes.io") || is_within("k8s.io");
    !is_kubernetes || KUBELET_LABELS.contains(&label) || KUBELET_LABEL_PREFIXES.iter().any(|domain| is_within(domain))
}

#[cfg(test)]
mod tests {
    use super::may_set;

    #[test]
    fn a_kubelet_sets_its_own_labels_and_foreign_ones() {
        for label in ["kubernetes.io/hostname", "example.com/gpu", "plain", "a.node.kubernetes.io/x", "kubelet.kubernetes.io/y"] {
            assert!(may_set(label), "{label}");
        }
        for label in ["node-role.kubernetes.io/control-plane", "node-restriction.kubernetes.io/team", "x.k8s.io/y"] {
            assert!(!may_set(label), "{label}");
        }
    }
}
