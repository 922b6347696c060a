//! What controllers read off Pods.

use crate::action::{Action, Verb};
use crate::key::controller_of;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Phase, empty if none was reported.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Whether all its containers have ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Neither finished nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// A condition of the Pod.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == type_)
}

/// Whether it may serve.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

/// Since when it is ready.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let condition = condition(pod, "Ready").filter(|c| c.status == "True")?;
    condition.last_transition_time.as_ref().map(|t| t.0)
}

/// `None` if the Pod counts as available, else how long until it will (`Duration::MAX` if it is not even ready).
pub fn until_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return Some(Duration::MAX);
    }
    if min_ready_seconds == 0 {
        return None;
    }
    let Some(since) = ready_since(pod) else { return Some(Duration::MAX) };
    until(since, i64::from(min_ready_seconds), now)
}

/// `None` if `seconds` have passed since `start`, else what is left.
pub fn until(start: Timestamp, seconds: i64, now: Timestamp) -> Option<Duration> {
    let due = start.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    Duration::try_from(due.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// The Pods in the order in which they are given up: unassigned, pending, not ready, cheap, crowded, young ones first.
pub fn by_uselessness(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    let mut per_node: HashMap<String, i64> = HashMap::new();
    for pod in &pods {
        *per_node.entry(node(pod).to_owned()).or_default() += 1;
    }
    let time = |t: Option<Timestamp>| Reverse(t.unwrap_or(Timestamp::MAX));
    pods.sort_by_cached_key(|pod| {
        let rank = match phase(pod) {
            "Pending" | "" => 0,
            "Running" => 2,
            _ => 1,
        };
        let cost = pod.metadata.annotations.as_ref().and_then(|a| a.get("controller.kubernetes.io/pod-deletion-cost"));
        let cost: i32 = cost.and_then(|c| c.parse().ok()).unwrap_or(0);
        let crowd = Reverse(per_node.get(node(pod)).copied().unwrap_or(0));
        let created = pod.metadata.creation_timestamp.as_ref().map(|t: &Time| t.0);
        let key = (!node(pod).is_empty(), rank, is_ready(pod), cost, crowd);
        (key, time(ready_since(pod)), Reverse(restarts(pod)), time(created), pod.metadata.name.clone())
    });
    pods
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
    statuses.iter().map(|s| s.restart_count).max().unwrap_or(0)
}

/// Sorts a namespace's Pods: those that `owner` controls and that its selector matches, with the patches that adopt
/// matching orphans and let go of controlled ones that no longer match.
pub fn claim<K: kube::Resource<DynamicType = ()>>(
    owner: &K,
    pods: Vec<Arc<Pod>>,
    selects: impl Fn(&Pod) -> bool,
) -> (Vec<Arc<Pod>>, Vec<Action>) {
    let uid = owner.meta().uid.as_deref().unwrap_or_default();
    let (mut claimed, mut actions) = (Vec::new(), Vec::new());
    for pod in pods {
        match controller_of(&pod.metadata) {
            Some(other) if other.uid != uid => {}
            Some(_) if selects(&pod) => claimed.push(pod),
            Some(_) if owner.meta().deletion_timestamp.is_none() => {
                let rest: Vec<_> = pod.metadata.owner_references.iter().flatten().filter(|o| o.uid != uid).collect();
                actions.push(Action::patch(pod.as_ref(), Verb::MergePatch, json!({"metadata": {"ownerReferences": rest}})));
            }
            Some(_) => {}
            None if selects(&pod) && is_active(&pod) && owner.meta().deletion_timestamp.is_none() => {
                let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
                owners.push(super::template::controller_ref(owner));
                let patch = json!({"metadata": {"ownerReferences": owners, "resourceVersion": pod.metadata.resource_version}});
                actions.push(Action::patch(pod.as_ref(), Verb::MergePatch, patch));
                claimed.push(pod);
            }
            None => {}
        }
    }
    (claimed, actions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value};

    fn pod(name: &str, node: &str, extra: Value) -> Arc<Pod> {
        let mut value =
            json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": {"nodeName": node, "containers": []}});
        for (key, part) in extra.as_object().unwrap() {
            for (k, v) in part.as_object().unwrap() {
                value[key][k] = v.clone();
            }
        }
        Arc::new(from_value(value).unwrap())
    }

    #[test]
    fn the_least_useful_go_first() {
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let mut cheap = running.clone();
        cheap["metadata"] = json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}});
        let pods = vec![
            pod("ready", "n1", running),
            pod("cheap", "n2", cheap),
            pod("pending", "n3", json!({"status": {"phase": "Pending"}})),
            pod("unassigned", "", json!({})),
        ];
        let order: Vec<_> = by_uselessness(pods).iter().filter_map(|p| p.metadata.name.clone()).collect();
        assert_eq!(order, ["unassigned", "pending", "cheap", "ready"]);
    }

    #[test]
    fn availability_needs_its_time() {
        let ready = pod(
            "p",
            "n",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        );
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(until_available(&ready, 10, at("2026-01-01T00:00:04Z")), Some(Duration::from_secs(6)));
        assert_eq!(until_available(&ready, 10, at("2026-01-01T00:00:10Z")), None);
    }
}
