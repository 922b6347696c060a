//! What the scheduler knows of the cluster, assumed placements included. Hands out snapshots that share everything.

use crate::selector::Labels;
use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
use k8s_openapi::api::core::v1::Node;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug)]
struct Place {
    info: Arc<PodInfo>,
    node: String,
    assumed: bool,
}

/// The cache.
#[derive(Debug, Default)]
pub struct Cache {
    snapshot: Snapshot,
    /// Where each placed Pod is, by uid. Its node may not exist (any more, or yet).
    places: HashMap<String, Place>,
}

impl Cache {
    /// The current view.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// A node appeared or changed; true if the change may let a Pod fit.
    pub fn set_node(&mut self, node: Arc<Node>) -> bool {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(known) = self.snapshot.nodes.get_mut(&name) {
            let relevant = relevant_change(&known.node, &node);
            Arc::make_mut(known).set_node(node);
            return relevant;
        }
        let mut info = NodeInfo::new(node);
        for place in self.places.values().filter(|place| place.node == name) {
            info.add_pod(place.info.clone());
        }
        self.snapshot.nodes.insert(name, Arc::new(info));
        true
    }

    /// A node was deleted.
    pub fn remove_node(&mut self, name: &str) {
        self.snapshot.nodes.remove(name);
    }

    /// Names of all nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &String> {
        self.snapshot.nodes.keys()
    }

    /// Replaces the labels of all namespaces.
    pub fn set_namespaces(&mut self, namespaces: BTreeMap<String, Labels>) {
        self.snapshot.namespaces = Arc::new(namespaces);
    }

    /// The API server says that the Pod is on this node.
    pub fn set_pod(&mut self, info: Arc<PodInfo>, node: &str) {
        self.place(info, node, false);
    }

    /// A binding is on its way.
    pub fn assume(&mut self, info: Arc<PodInfo>, node: &str) {
        self.place(info, node, true);
    }

    fn place(&mut self, info: Arc<PodInfo>, node: &str, assumed: bool) {
        self.remove_pod(info.uid());
        if let Some(target) = self.snapshot.nodes.get_mut(node) {
            Arc::make_mut(target).add_pod(info.clone());
        }
        self.places.insert(info.uid().to_owned(), Place { info, node: node.to_owned(), assumed });
    }

    /// The Pod no longer takes anything; true if it did.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(place) = self.places.remove(uid) else { return false };
        if let Some(node) = self.snapshot.nodes.get_mut(&place.node) {
            Arc::make_mut(node).remove_pod(uid);
        }
        true
    }

    /// The assumed binding did not come about; true if it was still assumed.
    pub fn forget(&mut self, uid: &str) -> bool {
        self.is_assumed(uid) && self.remove_pod(uid)
    }

    /// Whether the Pod's place is only assumed.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.places.get(uid).is_some_and(|place| place.assumed)
    }

    /// Whether the Pod has a place.
    pub fn contains(&self, uid: &str) -> bool {
        self.places.contains_key(uid)
    }
}

/// Heartbeats change a node's status every few seconds; only what a rule reads counts.
fn relevant_change(old: &Node, new: &Node) -> bool {
    let offered = |n: &Node| n.status.as_ref().and_then(|s| s.allocatable.clone());
    old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.spec != new.spec
        || offered(old) != offered(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::tests::info;
    use serde_json::{from_value, json};

    fn node(name: &str, label: &str) -> Arc<Node> {
        Arc::new(from_value(json!({"metadata": {"name": name, "labels": {"l": label}}})).unwrap())
    }

    fn pods(cache: &Cache, node: &str) -> usize {
        cache.snapshot().nodes[node].pods.len()
    }

    #[test]
    fn assumed_pods_take_room_until_forgotten_or_confirmed() {
        let mut cache = Cache::default();
        assert!(cache.set_node(node("n", "1")));
        let pod = Arc::new(info(json!({"metadata": {"name": "p"}})));
        cache.assume(pod.clone(), "n");
        let before = cache.snapshot();
        assert!(cache.forget("p") && !cache.forget("p"));
        assert_eq!((pods(&cache, "n"), before.nodes["n"].pods.len()), (0, 1), "a snapshot does not change");
        cache.assume(pod.clone(), "n");
        cache.set_pod(pod, "n");
        assert!(!cache.forget("p"));
        assert_eq!(pods(&cache, "n"), 1);
    }

    #[test]
    fn pods_of_a_node_that_comes_later_are_counted() {
        let mut cache = Cache::default();
        cache.set_pod(Arc::new(info(json!({"metadata": {"name": "p"}}))), "n");
        cache.set_node(node("n", "1"));
        assert_eq!(pods(&cache, "n"), 1);
        assert!(!cache.set_node(node("n", "1")) && cache.set_node(node("n", "2")));
    }
}
