//! `pod-garbage-collector-controller`: Pods that nobody else will remove.

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a node must be gone before its Pods are: it may be registered again.
const NODE_GONE_GRACE: Duration = Duration::from_secs(40);
/// Finished Pods that are kept.
const FINISHED_MAX: usize = 12_500;

/// Puts the controller together. Its keys are Pods; the Pods of a node that is deleted are looked at again.
pub fn start(env: &Env) -> Vec<Controller> {
    let (nodes, all_pods) = (env.informer::<Node>(), env.informer::<Pod>());
    let for_nodes = all_pods.clone();
    let user = "system:serviceaccount:kube-system:pod-garbage-collector";
    let builder = Builder::new(env, "pod-garbage-collector-controller", user).each(&all_pods).reads(&nodes);
    let queue = builder.queue.clone();
    nodes.on_change(move |old, new| {
        let (Some(old), None) = (old, new) else { return };
        let name = old.metadata.name.as_deref();
        let here = for_nodes.all().into_iter().filter(|pod| super::lifecycle::node_name(pod) == name);
        here.for_each(|pod| queue.add(Key::of(&pod.metadata)));
    });
    let missing = Missing::default();
    vec![builder.plan(move |key, now| {
        let Some(pod) = all_pods.get(key) else { return Vec::new() };
        let node = super::lifecycle::node_name(&pod).filter(|name| !name.is_empty());
        let found = node.and_then(|name| nodes.get(&super::lifecycle::key(name)));
        let place = match (node, &found) {
            (None, _) => Place::Nowhere,
            (Some(name), found) => match missing.since(name, found.is_some(), Instant::now()) {
                Some(gone_for) => Place::Gone(gone_for),
                None => found.as_deref().map_or(Place::Nowhere, Place::On),
            },
        };
        let mut actions = plan(&pod, place, now);
        if actions.is_empty() && pods::is_finished(&pod) {
            let all = all_pods.all();
            let mut finished: Vec<_> =
                all.iter().filter(|p| pods::is_finished(p) && p.metadata.deletion_timestamp.is_none()).collect();
            if finished.len() > FINISHED_MAX {
                finished.sort_by_key(|p| p.metadata.creation_timestamp.as_ref().map(|t| t.0));
                actions.extend(finished.iter().take(finished.len() - FINISHED_MAX).map(|p| Action::delete(p.as_ref())));
            }
        }
        actions
    })]
}

/// Where a Pod is.
enum Place<'a> {
    /// On no node yet.
    Nowhere,
    /// On this one.
    On(&'a Node),
    /// On one that has not existed for this long.
    Gone(Duration),
}

/// Since when nodes that Pods are on have been missing.
#[derive(Default)]
struct Missing(Mutex<HashMap<String, Instant>>);

impl Missing {
    /// How long the node has been missing; `None` if it exists.
    fn since(&self, name: &str, exists: bool, now: Instant) -> Option<Duration> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if exists {
            known.remove(name);
            return None;
        }
        Some(now.duration_since(*known.entry(name.to_owned()).or_insert(now)))
    }
}

/// Removes a Pod that no kubelet will remove, or says when to look again.
fn plan(pod: &Pod, place: Place<'_>, now: Timestamp) -> Vec<Action> {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    match place {
        // Deleted before it ever had a node: no kubelet will confirm.
        Place::Nowhere if deleting => remove(pod, now),
        Place::Gone(gone_for) => match NODE_GONE_GRACE.checked_sub(gone_for).filter(|left| !left.is_zero()) {
            Some(left) => vec![Action::After(left)],
            None => remove(pod, now),
        },
        Place::On(node) if deleting && is_out_of_service(node) => remove(pod, now),
        _ => Vec::new(),
    }
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    taints.iter().any(|t| t.key == "node.kubernetes.io/out-of-service")
        && conditions.iter().any(|c| c.type_ == "Ready" && c.status != "True")
}

fn remove(pod: &Pod, now: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    if !pods::is_finished(pod) {
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)});
        let patch = json!({"status": {"phase": "Failed", "conditions": [condition]}});
        actions.push(Action::patch_sub(pod, "status", Verb::StrategicPatch, patch));
    }
    actions.push(Action::delete_with(pod, json!({"gracePeriodSeconds": 0})));
    actions
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    #[test]
    fn only_pods_without_anyone_responsible_are_removed() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let pod = |meta| from_value::<Pod>(json!({"metadata": meta})).unwrap();
        let (living, deleting) = (pod(json!({})), pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})));
        let node = Node::default();
        assert!(plan(&living, Place::Nowhere, now).is_empty() && plan(&deleting, Place::On(&node), now).is_empty());
        assert_eq!(plan(&deleting, Place::Nowhere, now).len(), 2);
        assert_eq!(plan(&living, Place::Gone(Duration::from_secs(30)), now), [Action::After(Duration::from_secs(10))]);
        assert_eq!(plan(&living, Place::Gone(NODE_GONE_GRACE), now).len(), 2);
        let (missing, start) = (Missing::default(), Instant::now());
        assert_eq!(missing.since("n", false, start), Some(Duration::ZERO));
        assert_eq!(missing.since("n", false, start + NODE_GONE_GRACE), Some(NODE_GONE_GRACE));
        assert_eq!((missing.since("n", true, start), missing.since("n", false, start)), (None, Some(Duration::ZERO)));
    }
}
