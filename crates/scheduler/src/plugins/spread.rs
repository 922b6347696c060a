//! Topology spread constraints.

use crate::plugin::{Candidates, Cycle, Plugin, Rejection, scale_to_max};
use crate::selector::{labels_match, node_term_matches};
use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use std::collections::BTreeMap;

/// Constraints with `DoNotSchedule` bind, those with `ScheduleAnyway` score.
pub struct TopologySpread;

/// Per constraint of the Pod: matching Pods by value of its topology key.
struct Counts(Vec<BTreeMap<String, i64>>);

fn constraints(pod: &PodInfo) -> &[TopologySpreadConstraint] {
    pod.pod.spec.as_ref().and_then(|s| s.topology_spread_constraints.as_deref()).unwrap_or_default()
}

fn matches(constraint: &TopologySpreadConstraint, owner: &PodInfo, other: &PodInfo) -> bool {
    let mut selector = constraint.label_selector.clone();
    for key in constraint.match_label_keys.iter().flatten() {
        if let (Some(selector), Some(value)) = (&mut selector, owner.labels().get(key)) {
            selector.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
        }
    }
    other.namespace() == owner.namespace()
        && other.pod.metadata.deletion_timestamp.is_none()
        && labels_match(selector.as_ref(), other.labels())
}

/// Whether a node counts as a domain at all (`nodeAffinityPolicy`, default Honor; `nodeTaintsPolicy`, default Ignore).
fn eligible(constraint: &TopologySpreadConstraint, pod: &PodInfo, node: &NodeInfo) -> bool {
    if constraint.node_affinity_policy.as_deref() != Some("Ignore") {
        let spec = pod.pod.spec.as_ref();
        let selector = spec.and_then(|s| s.node_selector.as_ref());
        let required = spec
            .and_then(|s| s.affinity.as_ref()?.node_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        if selector.into_iter().flatten().any(|(k, v)| node.labels().get(k) != Some(v))
            || required.is_some_and(|r| !r.node_selector_terms.iter().any(|t| node_term_matches(t, &node.node)))
        {
            return false;
        }
    }
    if constraint.node_taints_policy.as_deref() == Some("Honor") {
        return super::TaintToleration.filter(&Cycle::default(), pod, node).is_ok();
    }
    true
}

impl Plugin for TopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn pre_filter(&self, cycle: &mut Cycle, pod: &PodInfo, snapshot: &Snapshot) -> Result<Candidates, Rejection> {
        let constraints = constraints(pod);
        if constraints.is_empty() {
            return Ok(Candidates::All);
        }
        // A node is a domain of a constraint only if it has the keys of all constraints of that kind.
        let has_all = |node: &NodeInfo, kind: &str| {
            constraints.iter().filter(|c| c.when_unsatisfiable == kind).all(|c| node.labels().contains_key(&c.topology_key))
        };
        let count = |constraint: &TopologySpreadConstraint| {
            let mut counts = BTreeMap::new();
            for node in snapshot.nodes.values() {
                let Some(value) = node.labels().get(&constraint.topology_key) else { continue };
                if has_all(node, &constraint.when_unsatisfiable) && eligible(constraint, pod, node) {
                    let here = node.pods.values().filter(|other| matches(constraint, pod, other)).count() as i64;
                    *counts.entry(value.clone()).or_default() += here;
                }
            }
            counts
        };
        cycle.put(Counts(constraints.iter().map(count).collect()));
        Ok(Candidates::All)
    }

    fn filter(&self, cycle: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(Counts(counts)) = cycle.get::<Counts>() else { return Ok(()) };
        for (constraint, counts) in constraints(pod).iter().zip(counts) {
            if constraint.when_unsatisfiable != "DoNotSchedule" {
                continue;
            }
            let Some(value) = node.labels().get(&constraint.topology_key) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Rejection::unresolvable(reason));
            };
            let domains_short = (counts.len() as i64) < i64::from(constraint.min_domains.unwrap_or(1));
            let lowest = if domains_short { 0 } else { counts.values().min().copied().unwrap_or(0) };
            let own = i64::from(matches(constraint, pod, pod));
            let here = counts.get(value).copied().unwrap_or(0);
            if here + own - lowest > i64::from(constraint.max_skew) {
                return Err(Rejection::new("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }

    fn score(&self, cycle: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Counts(counts) = cycle.get::<Counts>()?;
        let soft = constraints(pod).iter().zip(counts).filter(|(c, _)| c.when_unsatisfiable == "ScheduleAnyway");
        let here = |(c, counts): (&TopologySpreadConstraint, &BTreeMap<String, i64>)| {
            node.labels().get(&c.topology_key).and_then(|value| counts.get(value)).copied().unwrap_or(i64::from(u16::MAX))
        };
        Some(soft.map(here).sum())
    }

    fn normalize(&self, scores: &mut [i64]) {
        scale_to_max(scores, true);
    }

    fn weight(&self) -> i64 {
        2
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{cluster, place};
    use serde_json::{Value, json};

    fn pod(name: &str, node: Option<&str>, when: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"nodeName": node, "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "x"}}}]}})
    }

    #[test]
    fn skew_binds_or_scores() {
        let zone = |z: &str| json!({"metadata": {"labels": {"zone": z}}});
        let snapshot = cluster(&[("a", zone("1")), ("b", zone("2")), ("c", json!({}))], &[pod("x", Some("a"), "DoNotSchedule")]);
        assert_eq!(place(&snapshot, pod("y", None, "DoNotSchedule")), Ok("b".into()));
        assert_eq!(place(&snapshot, pod("y", None, "ScheduleAnyway")), Ok("b".into()));
        let mut pinned = pod("y", None, "DoNotSchedule");
        pinned["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "c"});
        assert!(place(&snapshot, pinned).unwrap_err().contains("(missing required label)"));
    }
}
