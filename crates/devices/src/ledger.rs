//! Who has what: one writer for usage, quota and reservations.
//!
//! Every change is one step under one lock, which is held for computation alone. A reservation is planned and written in
//! that step, so two Pods cannot be promised the same slice (HAMi issues 2522, 2232); it is a guard that gives back what
//! it took unless confirmed (2308). Each entry carries the generation of its last writing, so that a guard or a listing
//! that is older than an entry leaves it alone (2478, 2923).

mod observe;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::allocation::Allocation;
use crate::fit::{CardState, Unfit};
use crate::inventory::Card;
use crate::names::{DeviceUuid, NodeName, PodUid};
use crate::pod::PodView;
use crate::quota::{Charge, QuotaLimits};
use crate::request::{PodRequest, RequestDefaults};
use crate::selection::{CardPolicy, NodePolicy, Selection};
use state::State;

/// Counts the writes of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// Why a node does not take a Pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeUnfit {
    /// The node has registered no cards.
    #[error("node unregistered")]
    Unregistered,
    /// The node's register annotation, or what a live Pod on it holds, cannot be read (HAMi issue 2958).
    #[error("node unreadable: {0}")]
    Unreadable(String),
    /// The cards do not serve.
    #[error("{0}")]
    Cards(Unfit),
}

/// A Pod as it asks the ledger.
#[derive(Clone, Debug)]
pub struct Ask {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name, for people.
    pub name: String,
    /// Wishes.
    pub request: PodRequest,
    /// Selectors and policies.
    pub selection: Selection,
}

impl Ask {
    /// Reads a Pod; `None` if it wants no cards.
    pub fn of_pod(pod: &PodView, defaults: &RequestDefaults) -> Result<Option<Self>, crate::Error> {
        let Some(request) = PodRequest::of_pod(pod, defaults)? else { return Ok(None) };
        let selection = Selection::of_pod(pod)?;
        let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        Ok(Some(Self { uid: pod.uid(), namespace, name, request, selection }))
    }
}

/// What a look at a live Pod changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nothing.
    Unchanged,
    /// The Pod's entry was written.
    Recorded,
    /// The Pod's entry was removed: capacity may have become free.
    Freed,
}

/// An entry, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Node.
    pub node: NodeName,
    /// What it holds of each card.
    pub usage: BTreeMap<DeviceUuid, crate::Usage>,
}

/// A node, for people and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSnapshot {
    /// Name.
    pub name: NodeName,
    /// Cards and what is taken of them.
    pub cards: Vec<CardState>,
}

/// Usage and limits of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSnapshot {
    /// Namespace.
    pub namespace: String,
    /// Limits by ResourceQuota.
    pub quotas: BTreeMap<String, QuotaLimits>,
    /// What its Pods hold.
    pub used: Charge,
}

/// The ledger; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    state: Arc<Mutex<State>>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(defaults: RequestDefaults, card_policy: CardPolicy) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(defaults, card_policy))) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything in it can panic, so the state behind a poisoned lock is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the cards of a node, or why they cannot be read. Returns whether anything changed.
    pub fn set_node(&self, node: &NodeName, cards: Result<Vec<Card>, String>, cordoned: &BTreeSet<DeviceUuid>) -> bool {
        self.lock().set_node(node, cards, cordoned)
    }

    /// Forgets a node. What its Pods hold stays recorded, should it come back.
    pub fn remove_node(&self, node: &NodeName) {
        self.lock().remove_node(node);
    }

    /// Sets what one ResourceQuota allows; `None` when it is gone. Returns whether anything changed.
    pub fn set_quota(&self, namespace: &str, quota: &str, limits: Option<QuotaLimits>) -> bool {
        self.lock().set_quota(namespace, quota, limits)
    }

    /// Whether the Pod would fit on the node, changing nothing.
    pub fn plan(&self, ask: &Ask, node: &NodeName) -> Result<Allocation, NodeUnfit> {
        self.lock().plan(ask, node)
    }

    /// Those of `nodes` that would not take the Pod, and why, in one look at the ledger.
    pub fn unfit<'a>(&self, ask: &Ask, nodes: impl Iterator<Item = &'a str>) -> BTreeMap<String, NodeUnfit> {
        self.lock().unfit(ask, nodes)
    }

    /// The node's score, from what is used without `uid`: the fuller the higher.
    pub fn node_score(&self, node: &NodeName, uid: &PodUid) -> Option<f64> {
        self.lock().node_score(node, uid)
    }

    /// Plans and writes in one step. An older entry of the same Pod is replaced.
    pub fn reserve(&self, ask: &Ask, node: &NodeName) -> Result<Reservation, NodeUnfit> {
        let mut state = self.lock();
        let allocation = state.plan(ask, node)?;
        Ok(self.promise(&mut state, ask, node.clone(), allocation))
    }

    /// Chooses the node too: an earlier decision's if it still serves, else by `policy` among `admitted`, equals by name.
    pub fn place(
        &self,
        ask: &Ask,
        policy: NodePolicy,
        admitted: &BTreeSet<&str>,
    ) -> Result<Reservation, BTreeMap<String, NodeUnfit>> {
        let mut state = self.lock();
        let (node, allocation) = state.place(ask, policy, admitted)?;
        Ok(self.promise(&mut state, ask, node, allocation))
    }

    fn promise(&self, state: &mut State, ask: &Ask, node: NodeName, allocation: Allocation) -> Reservation {
        let generation = state.write(ask, &node, allocation.clone(), state::Origin::Reserved);
        let (ledger, uid) = (self.clone(), ask.uid.clone());
        Reservation { ledger, uid, node, generation, allocation, outcome: Outcome::Undecided }
    }

    /// Takes in what a live Pod says. What this ledger decided itself is left alone until the Pod is bound: an older event
    /// must not undo a newer decision. A Pod that is bound is believed, also against a guard that is dropped later.
    pub fn observe(&self, pod: &PodView) -> Observed {
        self.lock().observe(pod)
    }

    /// Removes the entry of a Pod that is gone or that was refused; says whether there was one.
    pub fn release(&self, uid: &PodUid) -> bool {
        self.lock().remove(uid)
    }

    /// The generation now; to be taken before a listing that goes to [`Self::reconcile`].
    pub fn generation(&self) -> Generation {
        self.lock().generation
    }

    /// Removes entries whose Pod is not among `live`, unless written after `since`. Returns how many.
    pub fn reconcile(&self, since: Generation, live: &BTreeSet<PodUid>) -> usize {
        self.lock().reconcile(since, live)
    }

    /// Where a Pod's entry is, and what it holds.
    pub fn entry(&self, uid: &PodUid) -> Option<(NodeName, Allocation)> {
        self.lock().entries.get(uid).map(|entry| (entry.node.clone(), entry.allocation.clone()))
    }

    /// All entries, by UID.
    pub fn entries(&self) -> Vec<EntryView> {
        self.lock().entries.iter().map(|(uid, entry)| entry.view(uid)).collect()
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> Vec<NodeSnapshot> {
        let state = self.lock();
        state.nodes.iter().map(|(name, node)| NodeSnapshot { name: name.clone(), cards: node.cards.clone() }).collect()
    }

    /// All namespaces with a quota.
    pub fn quotas(&self) -> Vec<QuotaSnapshot> {
        self.lock().quota_snapshots()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Undecided,
    Settled,
}

/// A promise to one Pod. Dropped without [`Self::confirm`] it gives back what it took.
#[derive(Debug)]
#[must_use = "dropping a reservation undoes it"]
pub struct Reservation {
    ledger: Ledger,
    uid: PodUid,
    node: NodeName,
    generation: Generation,
    allocation: Allocation,
    outcome: Outcome,
}

impl Reservation {
    /// What was promised.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Where.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// Whether nothing newer was written for the Pod.
    pub fn is_current(&self) -> bool {
        self.ledger.lock().entries.get(&self.uid).is_some_and(|entry| entry.generation == self.generation)
    }

    /// Keeps it: the Pod carries the decision now, or may do so (an outcome that is not known counts as taken).
    pub fn confirm(mut self) {
        self.outcome = Outcome::Settled;
        self.ledger.lock().settle(&self.uid, self.generation);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.outcome == Outcome::Undecided {
            self.ledger.lock().undo(&self.uid, self.generation);
        }
    }
}

#[cfg(test)]
mod tests;
