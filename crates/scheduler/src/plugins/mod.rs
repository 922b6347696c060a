//! The default profile, one rule per file.

mod node_affinity;
mod node_name;
mod pod_affinity;
mod ports;
mod resources_fit;
mod spread;
mod taints;

pub use node_affinity::NodeAffinity;
pub use node_name::{NodeName, NodeUnschedulable};
pub use pod_affinity::PodAffinity;
pub use ports::NodePorts;
pub use resources_fit::{BalancedAllocation, ResourcesFit};
pub use spread::TopologySpread;
pub use taints::TaintToleration;

use crate::plugin::Plugin;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Upstream's default rules in upstream's order. `ignored` names extended resources that another plugin (or another
/// scheduler's extender) accounts for, so that the node's count of them is not looked at.
pub fn default_profile(ignored: BTreeSet<String>) -> Vec<Arc<dyn Plugin>> {
    vec![
        Arc::new(NodeUnschedulable),
        Arc::new(NodeName),
        Arc::new(TaintToleration),
        Arc::new(NodeAffinity),
        Arc::new(NodePorts),
        Arc::new(ResourcesFit { ignored }),
        Arc::new(TopologySpread),
        Arc::new(PodAffinity),
        Arc::new(BalancedAllocation),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::planner::{NoFit, Placement, plan};
    use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
    use serde_json::{Value, from_value, json};

    /// A snapshot of nodes (`name`, patch of the object) and Pods that already have a node.
    pub fn cluster(nodes: &[(&str, Value)], pods: &[Value]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (name, extra) in nodes {
            let mut node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
            merge(&mut node, extra);
            snapshot.nodes.insert((*name).into(), Arc::new(NodeInfo::new(Arc::new(from_value(node).unwrap()))));
        }
        for pod in pods {
            let pod = info(pod.clone());
            let node = pod.pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap();
            Arc::make_mut(snapshot.nodes.get_mut(&node).unwrap()).add_pod(Arc::new(pod));
        }
        snapshot
    }

    pub fn info(pod: Value) -> PodInfo {
        let mut full = json!({"metadata": {"namespace": "default", "name": "p", "uid": pod["metadata"]["name"].as_str().unwrap_or("p")},
            "spec": {"containers": [{"name": "c"}]}});
        merge(&mut full, &pod);
        PodInfo::new(Arc::new(from_value(full).unwrap()))
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    pub fn place(snapshot: &Snapshot, pod: Value) -> Result<String, String> {
        let placed: Result<Placement, NoFit> = plan(snapshot, &info(pod), &default_profile(BTreeSet::new()));
        placed.map(|p| p.node).map_err(|e| e.to_string())
    }

    #[test]
    fn equal_nodes_are_taken_by_name_and_the_emptier_one_wins() {
        let empty = cluster(&[("b", json!({})), ("a", json!({}))], &[]);
        assert_eq!(place(&empty, json!({})), Ok("a".into()));
        let used =
            cluster(&[("a", json!({})), ("b", json!({}))], &[json!({"metadata": {"name": "x"}, "spec": {"nodeName": "a"}})]);
        assert_eq!(place(&used, json!({})), Ok("b".into()));
    }

    #[test]
    fn reasons_per_node_are_reported_together() {
        let snapshot = cluster(
            &[
                ("a", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})),
                ("b", json!({"spec": {"unschedulable": true}})),
                ("c", json!({"status": {"allocatable": {"cpu": "1", "memory": "1Mi"}}})),
            ],
            &[],
        );
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}});
        assert_eq!(
            place(&snapshot, pod),
            Err("0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), \
                 1 node(s) were unschedulable."
                .into())
        );
    }
}
