//! `node-lifecycle-controller`: a node that stops renewing its lease is marked, tainted, and its Pods stop serving.

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::pods;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long a node may be silent before its conditions become Unknown.
const GRACE_SECONDS: i64 = 50;
/// How long a new node may take until its first word.
const STARTUP_GRACE_SECONDS: i64 = 60;
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that become taints with effect NoSchedule while they are True.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
];
/// Conditions that a kubelet reports; without it they become Unknown.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (nodes, all_pods) = (env.informer::<Node>(), env.informer::<Pod>());
    let leases = env.informers.get_in::<Lease>("kube-node-lease");
    let user = "system:serviceaccount:kube-system:node-controller";
    let builder = Builder::new(env, "node-lifecycle-controller", user).each(&nodes).reads(&leases).reads(&all_pods);
    vec![builder.plan(move |key, now| {
        let Some(node) = nodes.get(key) else { return Vec::new() };
        let lease = leases.find("kube-node-lease", &key.name);
        let on_node = || all_pods.all().into_iter().filter(|p| node_name(p) == Some(key.name.as_str())).collect();
        plan(&node, lease.as_deref(), &on_node, now)
    })]
}

pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == type_)
}

/// When the node was last heard of, and how long its silence may last.
fn last_word(node: &Node, lease: Option<&Lease>) -> (Timestamp, i64) {
    let renewed = lease.and_then(|l| l.spec.as_ref()).and_then(|s| s.renew_time.as_ref()).map(|t| t.0);
    let reported = condition(node, "Ready").and_then(|c| c.last_heartbeat_time.as_ref()).map(|t| t.0);
    let created = node.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    match renewed.max(reported) {
        Some(word) => (word.max(created), GRACE_SECONDS),
        None => (created, STARTUP_GRACE_SECONDS),
    }
}

/// Conditions, taints and Pods of one node.
pub fn plan(node: &Node, lease: Option<&Lease>, pods_on_node: &dyn Fn() -> Vec<Arc<Pod>>, now: Timestamp) -> Vec<Action> {
    let (word, grace) = last_word(node, lease);
    let left = pods::until(word, grace, now);
    if left.is_none() {
        let unknown = silent(node, now);
        if !unknown.is_empty() {
            // The taints follow when the conditions show.
            return vec![Action::patch_sub(node, "status", Verb::StrategicPatch, json!({"status": {"conditions": unknown}}))];
        }
    }
    let mut actions = Vec::new();
    let taints = taints(node, now);
    let current = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    if !same(&taints, &current) {
        let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        actions.push(Action::patch(node, Verb::MergePatch, patch));
    }
    if condition(node, "Ready").is_some_and(|c| c.status != "True") {
        actions.extend(pods_on_node().iter().filter_map(|pod| not_ready(pod, now)));
    }
    // A silent node says nothing more, so time has to bring this node up again.
    actions.extend(left.map(|left| Action::After(left.max(Duration::from_secs(1)))));
    actions
}

/// The conditions of a node that has fallen silent.
fn silent(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let unknown = |type_: &&str| {
        let old = condition(node, type_);
        if old.is_some_and(|c| c.status == "Unknown") {
            return None;
        }
        let (reason, message) = match old {
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
        };
        Some(NodeCondition {
            type_: (*type_).into(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: old
                .and_then(|c| c.last_heartbeat_time.clone())
                .or_else(|| node.metadata.creation_timestamp.clone()),
            last_transition_time: Some(Time(now)),
        })
    };
    REPORTED.iter().filter_map(unknown).collect()
}

/// All taints the node should have: its own, and those that conditions and cordoning call for.
fn taints(node: &Node, now: Timestamp) -> Vec<Taint> {
    let current = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    match condition(node, "Ready").map(|c| c.status.as_str()) {
        Some("False") => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        _ => {}
    }
    for (type_, key) in PRESSURES {
        if condition(node, type_).is_some_and(|c| c.status == "True") {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    // A node that has not reported yet keeps the taint it was registered with.
    let reported = condition(node, "Ready").is_some();
    let ours = |t: &Taint| {
        let key = t.key.as_str();
        (key == NOT_READY && (reported || t.effect == "NoExecute"))
            || key == UNREACHABLE
            || key == UNSCHEDULABLE
            || PRESSURES.iter().any(|(_, pressure)| *pressure == key)
    };
    let is_wanted = |t: &Taint| wanted.iter().any(|(key, effect)| t.key == *key && t.effect == *effect);
    let mut taints: Vec<Taint> = current.into_iter().filter(|t| !ours(t) || is_wanted(t)).collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|t| t.key == key && t.effect == effect) {
            let time_added = (effect == "NoExecute").then_some(Time(now));
            taints.push(Taint { key: key.into(), effect: effect.into(), value: None, time_added });
        }
    }
    taints
}

fn same(a: &[Taint], b: &[Taint]) -> bool {
    a.len() == b.len() && a.iter().all(|t| b.iter().any(|o| t.key == o.key && t.effect == o.effect && t.value == o.value))
}

/// A Pod on a node that is not ready must not get traffic.
fn not_ready(pod: &Pod, now: Timestamp) -> Option<Action> {
    if !pods::is_ready(pod) {
        return None;
    }
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now), "reason": "NodeNotReady",
        "message": "the node is not ready"});
    Some(Action::patch_sub(pod, "status", Verb::StrategicPatch, json!({"status": {"conditions": [condition]}})))
}

/// The keys of nodes are names.
pub(super) fn key(name: &str) -> Key {
    Key::new("", name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{Value, from_value};

    fn node(ready: Value, taints: Value, unschedulable: bool) -> Node {
        from_value(json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"taints": taints, "unschedulable": unschedulable}, "status": {"conditions": ready}}))
        .unwrap()
    }

    fn lease(at: &str) -> Lease {
        from_value(json!({"spec": {"renewTime": at}})).unwrap()
    }

    fn body(actions: &[Action]) -> Value {
        actions
            .iter()
            .find_map(|a| if let Action::Write(Write { body, .. }) = a { Some(body.clone()) } else { None })
            .unwrap_or_default()
    }

    fn run(node: &Node, lease: Option<&Lease>, now: &str) -> Vec<Action> {
        plan(node, lease, &Vec::new, now.parse().unwrap())
    }

    #[test]
    fn a_ready_node_loses_the_taint_and_is_looked_at_again() {
        let ready = node(
            json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]),
            json!([{"key": NOT_READY, "effect": "NoSchedule"}, {"key": "own", "effect": "NoExecute"}]),
            false,
        );
        let actions = run(&ready, Some(&lease("2026-01-01T00:01:00.000000Z")), "2026-01-01T00:01:10Z");
        assert_eq!(body(&actions)["spec"]["taints"], json!([{"key": "own", "effect": "NoExecute"}]));
        assert!(actions.contains(&Action::After(Duration::from_secs(40))));
    }

    #[test]
    fn silence_makes_conditions_unknown_then_taints() {
        let ready = node(json!([{"type": "Ready", "status": "True"}]), json!([]), false);
        let told = body(&run(&ready, Some(&lease("2026-01-01T00:00:00.000000Z")), "2026-01-01T00:00:51Z"));
        assert_eq!(told["status"]["conditions"][0]["status"], "Unknown");
        let unknown: Vec<Value> = REPORTED.iter().map(|t| json!({"type": t, "status": "Unknown"})).collect();
        let told = body(&run(&node(json!(unknown), json!([]), true), None, "2026-01-01T00:05:00Z"));
        let keys: Vec<_> = told["spec"]["taints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| (t["key"].as_str().unwrap(), t["effect"].as_str().unwrap()))
            .collect();
        assert_eq!(keys, [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute"), (UNSCHEDULABLE, "NoSchedule")]);
    }

    #[test]
    fn a_new_node_has_time_to_report() {
        let silent = node(json!([]), json!([{"key": NOT_READY, "effect": "NoSchedule"}]), false);
        assert_eq!(run(&silent, None, "2026-01-01T00:00:30Z"), [Action::After(Duration::from_secs(30))]);
        assert_eq!(
            body(&run(&silent, None, "2026-01-01T00:01:00Z"))["status"]["conditions"][0]["reason"],
            "NodeStatusNeverUpdated"
        );
    }
}
