//! `spec.nodeName` is honoured, cordoned nodes are left alone.

use crate::plugin::{Cycle, Plugin, Rejection};
use crate::snapshot::{NodeInfo, PodInfo};

/// A Pod that names a node goes there or nowhere.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match pod.pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) {
            Some(name) if !name.is_empty() && name != node.name() => {
                Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
            }
            _ => Ok(()),
        }
    }
}

/// A cordoned node takes only Pods that tolerate that.
pub struct NodeUnschedulable;

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let cordoned = node.node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
        if !cordoned || super::taints::tolerates(pod, UNSCHEDULABLE_TAINT, "", "NoSchedule") {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) were unschedulable"))
    }
}
