//! The planner's view of a cluster: immutable, cheap to clone, ordered by name.

use crate::resources::{self, Resources};
use crate::selector::Labels;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A host port that a Pod takes: address (empty for all), protocol, port.
pub type HostPort = (String, String, i32);

/// A Pod with what the planner needs of it worked out once.
#[derive(Debug)]
pub struct PodInfo {
    /// The Pod itself, without `managedFields`.
    pub pod: Arc<Pod>,
    /// What it takes of a node.
    pub requests: Resources,
    /// CPU (thousandths) and memory (bytes) as scores count them.
    pub scored: (i64, i64),
    /// Host ports it takes.
    pub host_ports: Vec<HostPort>,
}

impl PodInfo {
    /// Works out requests and ports.
    pub fn new(pod: Arc<Pod>) -> Self {
        let requests = resources::pod_requests(&pod);
        let scored = resources::with_defaults(&pod, &requests);
        let host_ports = host_ports(&pod);
        Self { pod, requests, scored, host_ports }
    }

    /// Name.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Uid.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Priority; 0 if none was admitted.
    pub fn priority(&self) -> i32 {
        self.pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
    }

    /// Labels, empty if none.
    pub fn labels(&self) -> &Labels {
        static NONE: Labels = Labels::new();
        self.pod.metadata.labels.as_ref().unwrap_or(&NONE)
    }

    /// Terms of required Pod anti-affinity.
    pub fn required_anti_affinity(&self) -> &[PodAffinityTerm] {
        let affinity = self.pod.spec.as_ref().and_then(|s| s.affinity.as_ref());
        affinity
            .and_then(|a| a.pod_anti_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default()
    }

    /// Terms of required Pod affinity.
    pub fn required_affinity(&self) -> &[PodAffinityTerm] {
        let affinity = self.pod.spec.as_ref().and_then(|s| s.affinity.as_ref());
        affinity
            .and_then(|a| a.pod_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default()
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            let address = p.host_ip.clone().filter(|ip| ip != "0.0.0.0").unwrap_or_default();
            Some((address, p.protocol.clone().unwrap_or_else(|| "TCP".into()), port))
        })
        .collect()
}

/// A node and the Pods that are, or are about to be, on it.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The node itself, without `managedFields` and image list.
    pub node: Arc<Node>,
    /// What it offers to Pods.
    pub allocatable: Resources,
    /// What its Pods take.
    pub requested: Resources,
    /// CPU and memory of its Pods as scores count them.
    pub scored: (i64, i64),
    /// Its Pods by uid, assumed ones included.
    pub pods: BTreeMap<String, Arc<PodInfo>>,
}

impl NodeInfo {
    /// A node without Pods.
    pub fn new(node: Arc<Node>) -> Self {
        let allocatable = Resources::from_map(node.status.as_ref().and_then(|s| s.allocatable.as_ref()));
        Self { node, allocatable, requested: Resources::default(), scored: (0, 0), pods: BTreeMap::new() }
    }

    /// Replaces the node's own object, keeping its Pods.
    pub fn set_node(&mut self, node: Arc<Node>) {
        self.allocatable = Resources::from_map(node.status.as_ref().and_then(|s| s.allocatable.as_ref()));
        self.node = node;
    }

    /// Adds a Pod, in place of an earlier one with the same uid.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(pod.uid());
        self.requested.add(&pod.requests);
        self.scored.0 += pod.scored.0;
        self.scored.1 += pod.scored.1;
        self.pods.insert(pod.uid().to_owned(), pod);
    }

    /// Removes a Pod.
    pub fn remove_pod(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.requested.subtract(&pod.requests);
            self.scored.0 -= pod.scored.0;
            self.scored.1 -= pod.scored.1;
        }
    }

    /// Name of the node.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Labels, empty if none.
    pub fn labels(&self) -> &Labels {
        static NONE: Labels = Labels::new();
        self.node.metadata.labels.as_ref().unwrap_or(&NONE)
    }
}

/// All nodes by name. A clone shares every node.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Nodes that exist.
    pub nodes: BTreeMap<String, Arc<NodeInfo>>,
    /// Labels of the namespaces, for namespace selectors of Pod affinity; empty where nobody watches them.
    pub namespaces: Arc<BTreeMap<String, Labels>>,
}
