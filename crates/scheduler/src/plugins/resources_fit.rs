//! Requests against allocatable.

use crate::limits::NODE_SCORE_MAX;
use crate::plugin::{Cycle, Plugin, Rejection};
use crate::snapshot::{NodeInfo, PodInfo};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// What a Pod requests must be free; emptier nodes score higher (least allocated).
pub struct ResourcesFit {
    /// Extended resources that someone else accounts for.
    pub ignored: BTreeSet<String>,
}

impl Plugin for ResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        let mut unresolvable = false;
        if node.pods.len() as i64 + 1 > node.allocatable.get("pods") {
            reasons.push("Too many pods".into());
        }
        for (name, wanted) in pod.requests.iter() {
            if wanted <= 0 || self.ignored.contains(name) {
                continue;
            }
            let capacity = node.allocatable.get(name);
            if wanted > capacity.saturating_sub(node.requested.get(name)) {
                reasons.push(format!("Insufficient {name}").into());
                unresolvable |= wanted > capacity;
            }
        }
        if reasons.is_empty() { Ok(()) } else { Err(Rejection { reasons, unresolvable }) }
    }

    fn score(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let free = |capacity: i64, used: i64| {
            if capacity <= 0 || used > capacity { 0 } else { (capacity - used).saturating_mul(NODE_SCORE_MAX) / capacity }
        };
        let cpu = free(node.allocatable.get("cpu"), node.scored.0 + pod.scored.0);
        let memory = free(node.allocatable.get("memory"), node.scored.1 + pod.scored.1);
        Some((cpu + memory) / 2)
    }
}

/// Nodes whose CPU and memory are used in equal parts score higher.
pub struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn score(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        // A Pod without requests says nothing about balance.
        if pod.requests.get("cpu") == 0 && pod.requests.get("memory") == 0 {
            return None;
        }
        let part = |capacity: i64, used: i64| {
            if capacity <= 0 { 1.0 } else { (used as f64 / capacity as f64).min(1.0) }
        };
        let cpu = part(node.allocatable.get("cpu"), node.requested.get("cpu") + pod.requests.get("cpu"));
        let memory = part(node.allocatable.get("memory"), node.requested.get("memory") + pod.requests.get("memory"));
        Some(((1.0 - (cpu - memory).abs() / 2.0) * NODE_SCORE_MAX as f64) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Plugin;
    use crate::plugins::tests::{cluster, info, place};
    use serde_json::json;

    #[test]
    fn counts_pods_and_every_resource() {
        let full = cluster(
            &[("a", json!({"status": {"allocatable": {"pods": "1"}}}))],
            &[json!({"metadata": {"name": "x"}, "spec": {"nodeName": "a"}})],
        );
        assert_eq!(place(&full, json!({})), Err("0/1 nodes are available: 1 Too many pods.".into()));
    }

    #[test]
    fn ignored_resources_are_not_looked_at() {
        let snapshot = cluster(&[("a", json!({}))], &[]);
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpumem": "4000"}}}]}});
        assert_eq!(place(&snapshot, pod.clone()), Err("0/1 nodes are available: 1 Insufficient nvidia.com/gpumem.".into()));
        let fit = ResourcesFit { ignored: ["nvidia.com/gpumem".to_owned()].into() };
        assert!(fit.filter(&Cycle::default(), &info(pod), &snapshot.nodes["a"]).is_ok());
    }
}
