//! `taint-eviction-controller`: Pods that do not tolerate a NoExecute taint leave, at once or when their time is up.

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::selector;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// Puts the controller together. Its keys are Pods.
pub fn start(env: &Env) -> Vec<Controller> {
    let (nodes, all_pods) = (env.informer::<Node>(), env.informer::<Pod>());
    let for_nodes = all_pods.clone();
    let user = "system:serviceaccount:kube-system:node-controller";
    let builder = Builder::new(env, "taint-eviction-controller", user).each(&all_pods).reads(&nodes);
    let queue = builder.queue.clone();
    nodes.on_change(move |old, new| {
        let (Some(new), old) = (new, old) else { return };
        if executing(new).is_empty() && old.is_none_or(|old| executing(old).is_empty()) {
            return;
        }
        let name = new.metadata.name.as_deref();
        let here = for_nodes.all().into_iter().filter(|pod| super::lifecycle::node_name(pod) == name);
        here.for_each(|pod| queue.add(Key::of(&pod.metadata)));
    });
    vec![builder.plan(move |key, now| {
        let Some(pod) = all_pods.get(key) else { return Vec::new() };
        let node = super::lifecycle::node_name(&pod).and_then(|name| nodes.get(&super::lifecycle::key(name)));
        node.map(|node| plan(&pod, &node, now)).unwrap_or_default()
    })]
}

fn executing(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    taints.iter().filter(|taint| taint.effect == "NoExecute").collect()
}

/// Evicts the Pod, or says when to look again.
fn plan(pod: &Pod, node: &Node, now: Timestamp) -> Vec<Action> {
    let taints = executing(node);
    if taints.is_empty() || !pods::is_active(pod) {
        return Vec::new();
    }
    match time_left(pod, &taints, now) {
        None => Vec::new(),
        Some(left) if left.is_zero() => evict(pod, now),
        Some(left) => vec![Action::After(left)],
    }
}

/// How long the Pod may stay: `None` for ever, zero not at all. The shortest toleration counts, from when its taint came.
fn time_left(pod: &Pod, taints: &[&Taint], now: Timestamp) -> Option<Duration> {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    let mut shortest = None::<Duration>;
    for taint in taints {
        let covering: Vec<_> = tolerations.iter().filter(|t| selector::tolerates(t, taint)).collect();
        if covering.is_empty() {
            return Some(Duration::ZERO);
        }
        let Some(seconds) = covering.iter().filter_map(|t| t.toleration_seconds).min() else { continue };
        let since = taint.time_added.as_ref().map_or(now, |t| t.0);
        let left = pods::until(since, seconds.max(0), now).unwrap_or_default();
        shortest = Some(shortest.map_or(left, |s| s.min(left)));
    }
    shortest
}

fn evict(pod: &Pod, now: Timestamp) -> Vec<Action> {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": Time(now)});
    vec![
        Action::note(pod, "TaintManagerEviction", format!("Marking for deletion Pod {}", Key::of(&pod.metadata))),
        Action::patch_sub(pod, "status", Verb::StrategicPatch, json!({"status": {"conditions": [condition]}})),
        Action::delete(pod),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value};

    fn left(tolerations: Value) -> Option<Duration> {
        let pod: Pod = from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).unwrap();
        let taint: Taint = from_value(json!({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"})).unwrap();
        time_left(&pod, &[&taint], "2026-01-01T00:01:00Z".parse().unwrap())
    }

    #[test]
    fn tolerated_for_ever_for_a_time_or_not() {
        assert_eq!(left(json!([{"operator": "Exists"}])), None);
        assert_eq!(left(json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 90}])), Some(Duration::from_secs(30)));
        assert_eq!(left(json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}])), Some(Duration::ZERO));
        assert_eq!(left(json!([])), Some(Duration::ZERO));
    }
}
