//! Host ports.

use crate::plugin::{Cycle, Plugin, Rejection};
use crate::snapshot::{HostPort, NodeInfo, PodInfo};

/// Two Pods of one node cannot have the same host port on overlapping addresses.
pub struct NodePorts;

fn conflict(a: &HostPort, b: &HostPort) -> bool {
    a.1 == b.1 && a.2 == b.2 && (a.0.is_empty() || b.0.is_empty() || a.0 == b.0)
}

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if pod.host_ports.is_empty() {
            return Ok(());
        }
        let mut taken = node.pods.values().flat_map(|p| &p.host_ports);
        if taken.any(|taken| pod.host_ports.iter().any(|wanted| conflict(taken, wanted))) {
            return Err(Rejection::new("node(s) didn't have free ports for the requested pod ports"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{cluster, place};
    use serde_json::json;

    #[test]
    fn same_port_on_overlapping_addresses_conflicts() {
        let pod = |name: &str, port: serde_json::Value| {
            json!({"metadata": {"name": name}, "spec": {"nodeName": "a",
            "containers": [{"name": "c", "ports": [port]}]}})
        };
        let snapshot =
            cluster(&[("a", json!({}))], &[pod("x", json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}))]);
        assert!(place(&snapshot, pod("y", json!({"containerPort": 1, "hostPort": 80}))).is_err());
        assert!(place(&snapshot, pod("y", json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.2"}))).is_ok());
        assert!(place(&snapshot, pod("y", json!({"containerPort": 1, "hostPort": 80, "protocol": "UDP"}))).is_ok());
    }
}
