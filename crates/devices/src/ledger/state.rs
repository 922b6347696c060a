//! The state behind the ledger's lock, and the steps on it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Ask, EntryView, Generation, NodeUnfit, QuotaSnapshot};
use crate::allocation::Allocation;
use crate::fit::{self, CardState, Headroom, Query, Reason, Unfit, Usage};
use crate::inventory::Card;
use crate::names::{DeviceUuid, NodeName, PodUid};
use crate::quota::{self, Charge, QuotaLimits};
use crate::request::{RequestDefaults, Role};
use crate::score;
use crate::selection::{CardPolicy, NodePolicy};

/// Who wrote an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A reservation that is under way.
    Reserved,
    /// A reservation that was confirmed; its Pod was not yet seen bound.
    Confirmed,
    /// A live Pod's annotations.
    Live,
}

#[derive(Debug)]
pub struct Entry {
    pub namespace: String,
    pub name: String,
    pub node: NodeName,
    pub allocation: Allocation,
    pub usage: BTreeMap<DeviceUuid, Usage>,
    pub charge: Charge,
    pub generation: Generation,
    pub origin: Origin,
}

impl Entry {
    pub fn view(&self, uid: &PodUid) -> EntryView {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        EntryView { uid: uid.clone(), namespace, name, node: self.node.clone(), usage: self.usage.clone() }
    }
}

#[derive(Debug, Default)]
pub struct Node {
    pub cards: Vec<CardState>,
    /// Why the register annotation cannot be read.
    problem: Option<String>,
    /// Its place in the order of nodes.
    fullness: Fullness,
}

/// A node's score in a form that sorts: the bits of a float that is never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Fullness(u64);

impl Fullness {
    fn of(cards: &[CardState]) -> Self {
        Self(score::node(cards).max(0.0).to_bits())
    }
}

/// Nodes from the fullest and from the emptiest, equals by name, so that the first that fits is the answer.
#[derive(Debug, Default)]
struct Order {
    fullest: BTreeSet<(Reverse<Fullness>, NodeName)>,
    emptiest: BTreeSet<(Fullness, NodeName)>,
}

impl Order {
    fn insert(&mut self, name: &NodeName, fullness: Fullness) {
        self.fullest.insert((Reverse(fullness), name.clone()));
        self.emptiest.insert((fullness, name.clone()));
    }

    fn remove(&mut self, name: &NodeName, fullness: Fullness) {
        self.fullest.remove(&(Reverse(fullness), name.clone()));
        self.emptiest.remove(&(fullness, name.clone()));
    }
}

#[derive(Debug, Default)]
struct Namespace {
    quotas: BTreeMap<String, QuotaLimits>,
    used: Charge,
}

#[derive(Debug, Default)]
pub struct State {
    pub defaults: RequestDefaults,
    pub card_policy: CardPolicy,
    pub nodes: BTreeMap<NodeName, Node>,
    pub entries: BTreeMap<PodUid, Entry>,
    /// The entries of each node, so that no step costs the whole cluster.
    by_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    order: Order,
    /// Live Pods whose allocation cannot be read, by node.
    pub unreadable: BTreeMap<NodeName, BTreeMap<PodUid, String>>,
    namespaces: BTreeMap<String, Namespace>,
    pub generation: Generation,
}

impl State {
    pub fn new(defaults: RequestDefaults, card_policy: CardPolicy) -> Self {
        Self { defaults, card_policy, ..Self::default() }
    }

    fn next_generation(&mut self) -> Generation {
        self.generation.0 += 1;
        self.generation
    }

    pub fn set_node(&mut self, name: &NodeName, cards: Result<Vec<Card>, String>, cordoned: &BTreeSet<DeviceUuid>) -> bool {
        let (cards, problem) = match cards {
            Ok(cards) => (cards, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let mut cards: Vec<CardState> = cards
            .into_iter()
            .map(|card| CardState { cordoned: cordoned.contains(&card.id), card: Arc::new(card), usage: Usage::default() })
            .collect();
        for entry in entries_of(&self.by_node, &self.entries, name) {
            apply(&mut cards, &entry.usage, Usage::plus);
        }
        let node = self.nodes.entry(name.clone()).or_default();
        let changed = node.cards != cards || node.problem != problem;
        (node.cards, node.problem) = (cards, problem);
        self.reorder(name);
        changed
    }

    pub fn remove_node(&mut self, name: &NodeName) {
        if let Some(node) = self.nodes.remove(name) {
            self.order.remove(name, node.fullness);
        }
    }

    /// Puts a node where its usage belongs.
    fn reorder(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        self.order.remove(name, node.fullness);
        node.fullness = Fullness::of(&node.cards);
        self.order.insert(name, node.fullness);
    }

    /// The score of a node without the Pod's own entry.
    pub fn node_score(&self, node: &NodeName, uid: &PodUid) -> Option<f64> {
        if self.entries.get(uid).is_some_and(|entry| entry.node == *node) {
            return Some(score::node(&self.cards_without(uid, node)?));
        }
        Some(f64::from_bits(self.nodes.get(node)?.fullness.0))
    }

    /// Plans on the best of the admitted nodes: the one of an earlier decision, else the first that fits in the policy's
    /// order. If none fits, why each does not.
    pub fn place(
        &self,
        ask: &Ask,
        policy: NodePolicy,
        admitted: &BTreeSet<&str>,
    ) -> Result<(NodeName, Allocation), BTreeMap<String, NodeUnfit>> {
        let attempt = |node: &NodeName| {
            let allocation = admitted.contains(node.0.as_str()).then(|| self.plan(ask, node).ok())??;
            Some((node.clone(), allocation))
        };
        let earlier = self.entries.get(&ask.uid).and_then(|entry| attempt(&entry.node));
        let placed = earlier.or_else(|| match policy {
            NodePolicy::Binpack => self.order.fullest.iter().find_map(|(_, node)| attempt(node)),
            NodePolicy::Spread => self.order.emptiest.iter().find_map(|(_, node)| attempt(node)),
        });
        placed.ok_or_else(|| self.unfit(ask, admitted.iter().copied()))
    }

    pub fn set_quota(&mut self, namespace: &str, quota: &str, limits: Option<QuotaLimits>) -> bool {
        let namespace = self.namespaces.entry(namespace.to_owned()).or_default();
        match limits {
            Some(limits) => namespace.quotas.insert(quota.to_owned(), limits) != Some(limits),
            None => namespace.quotas.remove(quota).is_some(),
        }
    }

    /// The node's cards as they would be without the Pod's own entry; copied only if there is one.
    pub fn cards_without(&self, uid: &PodUid, node: &NodeName) -> Option<Cow<'_, [CardState]>> {
        let cards = &self.nodes.get(node)?.cards;
        let Some(own) = self.entries.get(uid).filter(|entry| entry.node == *node) else {
            return Some(Cow::Borrowed(cards));
        };
        let mut cards = cards.clone();
        apply(&mut cards, &own.usage, |held, own| Usage {
            slots: held.slots.saturating_sub(own.slots),
            memory_mib: held.memory_mib.saturating_sub(own.memory_mib),
            cores: held.cores.saturating_sub(own.cores),
        });
        Some(Cow::Owned(cards))
    }

    /// What does not depend on the node.
    fn budget(&self, ask: &Ask) -> Budget {
        let (limits, used) = self.quota_without(&ask.uid, &ask.namespace);
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let headroom = Headroom { memory_mib: left(limits.memory_mib, used.memory_mib), cores: left(limits.cores, used.cores) };
        Budget { limits, used, headroom }
    }

    pub fn plan(&self, ask: &Ask, node: &NodeName) -> Result<Allocation, NodeUnfit> {
        let budget = self.budget(ask);
        let cards = self.usable_cards(ask, node)?;
        let allocation = fit::pod(&cards, &self.query(ask, node, &budget)).map_err(NodeUnfit::Cards)?;
        if !budget.limits.allow(budget.used, quota::of_allocation(&allocation, &ask.request)) {
            return Err(beyond_quota(cards.len()));
        }
        Ok(allocation)
    }

    /// The nodes of `names` that do not take the Pod, and why.
    pub fn unfit<'a>(&self, ask: &Ask, names: impl Iterator<Item = &'a str>) -> BTreeMap<String, NodeUnfit> {
        let budget = self.budget(ask);
        let gpus = quota::of_request(&ask.request, 0).gpus;
        let too_many = !QuotaLimits { gpus: budget.limits.gpus, ..QuotaLimits::default() }
            .allow(Charge { gpus: budget.used.gpus, ..Charge::default() }, Charge { gpus, ..Charge::default() });
        let check = |name: &str| -> Result<(), NodeUnfit> {
            let node = NodeName::from(name);
            let cards = self.usable_cards(ask, &node)?;
            if too_many {
                return Err(beyond_quota(cards.len()));
            }
            fit::fits(&cards, &self.query(ask, &node, &budget)).map_err(NodeUnfit::Cards)
        };
        names.filter_map(|name| Some((name.to_owned(), check(name).err()?))).collect()
    }

    fn query<'a>(&'a self, ask: &'a Ask, node: &NodeName, budget: &Budget) -> Query<'a> {
        let earlier = self.entries.get(&ask.uid).filter(|entry| entry.node == *node).map(|entry| &entry.allocation);
        let (request, selection, card_policy) = (&ask.request, &ask.selection, self.card_policy);
        Query { request, selection, card_policy, headroom: budget.headroom, earlier }
    }

    /// The node's cards for this Pod, if the node takes Pods at all.
    fn usable_cards(&self, ask: &Ask, node: &NodeName) -> Result<Cow<'_, [CardState]>, NodeUnfit> {
        let known = self.nodes.get(node).ok_or(NodeUnfit::Unregistered)?;
        if let Some(problem) = &known.problem {
            return Err(NodeUnfit::Unreadable(problem.clone()));
        }
        if let Some((uid, problem)) = self.unreadable.get(node).and_then(|pods| pods.iter().find(|(uid, _)| **uid != ask.uid)) {
            return Err(NodeUnfit::Unreadable(format!("Pod {uid}: {problem}")));
        }
        if known.cards.is_empty() {
            return Err(NodeUnfit::Unregistered);
        }
        self.cards_without(&ask.uid, node).ok_or(NodeUnfit::Unregistered)
    }

    /// The namespace's limits, and what its other Pods hold.
    fn quota_without(&self, uid: &PodUid, namespace: &str) -> (QuotaLimits, Charge) {
        let Some(known) = self.namespaces.get(namespace) else { return Default::default() };
        let limits = known.quotas.values().copied().fold(QuotaLimits::default(), QuotaLimits::min);
        let own = self.entries.get(uid).map(|entry| entry.charge).unwrap_or_default();
        (limits, known.used.minus(own))
    }

    pub fn write(&mut self, ask: &Ask, node: &NodeName, allocation: Allocation, origin: Origin) -> Generation {
        self.remove(&ask.uid);
        let generation = self.next_generation();
        let roles: Vec<Role> = ask.request.containers.iter().map(|claim| claim.role).collect();
        let usage = allocation.usage(&roles);
        let charge = quota::of_allocation(&allocation, &ask.request);
        if let Some(known) = self.nodes.get_mut(node) {
            apply(&mut known.cards, &usage, Usage::plus);
            self.reorder(node);
        }
        self.namespaces.entry(ask.namespace.clone()).or_default().used.add(charge);
        let (namespace, name, node) = (ask.namespace.clone(), ask.name.clone(), node.clone());
        self.by_node.entry(node.clone()).or_default().insert(ask.uid.clone());
        self.entries.insert(ask.uid.clone(), Entry { namespace, name, node, allocation, usage, charge, generation, origin });
        generation
    }

    pub fn remove(&mut self, uid: &PodUid) -> bool {
        for pods in self.unreadable.values_mut() {
            pods.remove(uid);
        }
        let Some(entry) = self.entries.remove(uid) else { return false };
        if let Some(pods) = self.by_node.get_mut(&entry.node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.by_node.remove(&entry.node);
            }
        }
        if let Some(namespace) = self.namespaces.get_mut(&entry.namespace) {
            namespace.used = namespace.used.minus(entry.charge);
        }
        self.recount(&entry.node, &entry.usage);
        true
    }

    /// Adds the touched cards up again from the entries. A subtraction would drift where an addition had saturated.
    fn recount(&mut self, node: &NodeName, touched: &BTreeMap<DeviceUuid, Usage>) {
        let Some(known) = self.nodes.get_mut(node) else { return };
        for state in known.cards.iter_mut().filter(|state| touched.contains_key(&state.card.id)) {
            state.usage = Usage::default();
        }
        for entry in entries_of(&self.by_node, &self.entries, node) {
            for state in known.cards.iter_mut().filter(|state| touched.contains_key(&state.card.id)) {
                if let Some(usage) = entry.usage.get(&state.card.id) {
                    state.usage = state.usage.plus(*usage);
                }
            }
        }
        self.reorder(node);
    }

    pub fn settle(&mut self, uid: &PodUid, generation: Generation) {
        if let Some(entry) = self.entries.get_mut(uid).filter(|entry| entry.generation == generation) {
            entry.origin = Origin::Confirmed;
        }
    }

    pub fn undo(&mut self, uid: &PodUid, generation: Generation) {
        if self.entries.get(uid).is_some_and(|entry| entry.generation == generation) {
            self.remove(uid);
        }
    }

    pub fn quota_snapshots(&self) -> Vec<QuotaSnapshot> {
        let with_quota = self.namespaces.iter().filter(|(_, namespace)| !namespace.quotas.is_empty());
        with_quota
            .map(|(name, namespace)| QuotaSnapshot {
                namespace: name.clone(),
                quotas: namespace.quotas.clone(),
                used: namespace.used,
            })
            .collect()
    }
}

/// What a Pod's namespace allows it.
struct Budget {
    limits: QuotaLimits,
    used: Charge,
    headroom: Headroom,
}

fn beyond_quota(cards: usize) -> NodeUnfit {
    NodeUnfit::Cards(Unfit { reasons: [(Reason::ResourceQuotaNotFit, cards)].into(), cards })
}

fn entries_of<'a>(
    by_node: &'a BTreeMap<NodeName, BTreeSet<PodUid>>,
    entries: &'a BTreeMap<PodUid, Entry>,
    node: &NodeName,
) -> impl Iterator<Item = &'a Entry> {
    by_node.get(node).into_iter().flatten().filter_map(|uid| entries.get(uid))
}

fn apply(cards: &mut [CardState], usage: &BTreeMap<DeviceUuid, Usage>, change: impl Fn(Usage, Usage) -> Usage) {
    for state in cards {
        if let Some(usage) = usage.get(&state.card.id) {
            state.usage = change(state.usage, *usage);
        }
    }
}
