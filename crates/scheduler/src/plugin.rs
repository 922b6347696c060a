//! Plugin points. A plugin sees snapshots; what it keeps itself it keeps behind its own lock.

use crate::error::Result;
use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

/// Why a Pod does not go to a node (or, from `pre_filter`, to any).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Each counted separately in the message of the event.
    pub reasons: Vec<Cow<'static, str>>,
    /// True where removing Pods from the node would not help.
    pub unresolvable: bool,
}

impl Rejection {
    /// One that could be resolved by removing Pods.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reasons: vec![reason.into()], unresolvable: false }
    }

    /// One that stands whatever Pods the node has.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reasons: vec![reason.into()], unresolvable: true }
    }
}

/// What plugins pass on from one point of a scheduling cycle to the next, one value per type.
#[derive(Default)]
pub struct Cycle(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl Cycle {
    /// Stores a value for later points of this cycle.
    pub fn put<T: Any + Send + Sync>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    /// The value stored under this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref())
    }
}

/// Which nodes a plugin still admits after `pre_filter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// Any.
    All,
    /// Only these names.
    Only(BTreeSet<String>),
}

/// Something a plugin set aside on a node for one Pod. Dropping it gives it back, unless `commit` was called.
#[async_trait]
pub trait Reservation: Send + Sync {
    /// Called before the binding is sent, and again if the Pod changed in between; an error ends the attempt.
    async fn pre_bind(&mut self, client: &kube::Client, pod: &Pod, node: &str) -> Result<()>;

    /// The `resourceVersion` that the Pod must have when it is bound: that of what `pre_bind` wrote, if the binding relies
    /// on it. A binding that was sent earlier and comes through late is then refused instead of standing beside a newer
    /// decision.
    fn resource_version(&self) -> Option<&str> {
        None
    }

    /// The binding stands: what was set aside is now the Pod's.
    fn commit(self: Box<Self>);
}

/// One part of the scheduling rules.
pub trait Plugin: Send + Sync {
    /// Name as it appears in logs and errors.
    fn name(&self) -> &'static str;

    /// Once per Pod, before nodes are looked at.
    fn pre_filter(&self, _cycle: &mut Cycle, _pod: &PodInfo, _snapshot: &Snapshot) -> Result<Candidates, Rejection> {
        Ok(Candidates::All)
    }

    /// Whether the Pod may go to this node.
    fn filter(&self, _cycle: &Cycle, _pod: &PodInfo, _node: &NodeInfo) -> Result<(), Rejection> {
        Ok(())
    }

    /// Once per Pod, when the nodes that passed are known.
    fn pre_score(&self, _cycle: &mut Cycle, _pod: &PodInfo, _snapshot: &Snapshot, _passed: &[&NodeInfo]) {}

    /// How good the node is; any scale that `normalize` brings to 0..=100. `None` if this plugin has no opinion on the Pod.
    fn score(&self, _cycle: &Cycle, _pod: &PodInfo, _node: &NodeInfo) -> Option<i64> {
        None
    }

    /// Brings the raw scores of all nodes to 0..=100.
    fn normalize(&self, _scores: &mut [i64]) {}

    /// How much the score counts.
    fn weight(&self) -> i64 {
        1
    }

    /// Sets aside what the Pod needs on the node that was chosen.
    fn reserve(&self, _pod: &PodInfo, _node: &NodeInfo) -> Result<Option<Box<dyn Reservation>>, Rejection> {
        Ok(None)
    }

    /// A Pod appeared or changed (any Pod of the cluster that has not finished).
    fn pod_changed(&self, _pod: &Pod) {}

    /// A Pod was deleted or has finished.
    fn pod_removed(&self, _pod: &Pod) {}

    /// A node appeared or changed.
    fn node_changed(&self, _node: &Node) {}

    /// A node was deleted.
    fn node_removed(&self, _name: &str) {}
}

/// Scales scores so that the highest becomes 100 (`reverse`: so that the lowest raw score becomes the highest).
pub fn scale_to_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if max == 0 { 0 } else { *score * crate::limits::NODE_SCORE_MAX / max };
        *score = if reverse { crate::limits::NODE_SCORE_MAX - scaled } else { scaled };
    }
}
