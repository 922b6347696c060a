//! `pod-garbage-collector-controller`: Pods that nobody else will remove.

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// How long a node must be gone before its Pods are: it may be registered again.
const NODE_GONE_GRACE_SECONDS: i64 = 40;
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
        here.for_each(|pod| queue.add_after(Key::of(&pod.metadata), Duration::from_secs(NODE_GONE_GRACE_SECONDS as u64)));
    });
    vec![builder.plan(move |key, now| {
        let Some(pod) = all_pods.get(key) else { return Vec::new() };
        let node = super::lifecycle::node_name(&pod).map(super::lifecycle::key);
        let node = node.map(|key| nodes.get(&key));
        let mut actions = plan(&pod, node.as_ref().map(|n| n.as_deref()), now);
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

/// `node`: `None` if the Pod is on none, `Some(None)` if its node does not exist.
fn plan(pod: &Pod, node: Option<Option<&Node>>, now: Timestamp) -> Vec<Action> {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    match node {
        // Deleted before it ever had a node: no kubelet will confirm.
        None if deleting => remove(pod, now),
        Some(None) => {
            // The start of the wait is not recorded anywhere; the condition's absence starts it here.
            let since = pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
            match since.and_then(|since| pods::until(since, NODE_GONE_GRACE_SECONDS, now)) {
                Some(left) => vec![Action::After(left)],
                None => remove(pod, now),
            }
        }
        Some(Some(node)) if deleting && is_out_of_service(node) => remove(pod, now),
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
        let pod = |meta| from_value::<Pod>(json!({"metadata": meta, "status": {"startTime": "2026-01-01T00:00:00Z"}})).unwrap();
        let (living, deleting) = (pod(json!({})), pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})));
        let node = Node::default();
        assert!(plan(&living, None, now).is_empty() && plan(&deleting, Some(Some(&node)), now).is_empty());
        assert_eq!((plan(&deleting, None, now).len(), plan(&living, Some(None), now).len()), (2, 2));
    }
}
