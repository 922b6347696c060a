//! Where on a node a Pod fits, in HAMi's order of checks and with HAMi's reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::allocation::{Allocation, Slice};
use crate::inventory::Card;
use crate::request::{ContainerRequest, Memory, PodRequest, Role};
use crate::score;
use crate::selection::{CardGrouping, CardOrder, CardPolicy, Selection};

/// Amounts of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Slots.
    pub slots: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Percent of compute.
    pub cores: u32,
}

impl Usage {
    /// The sum. Saturating: a wrong annotation must not wrap a counter to 'free' (HAMi issue 1181).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            slots: self.slots.saturating_add(other.slots),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            cores: self.cores.saturating_add(other.cores),
        }
    }

    /// The larger of each amount.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            slots: self.slots.max(other.slots),
            memory_mib: self.memory_mib.max(other.memory_mib),
            cores: self.cores.max(other.cores),
        }
    }
}

/// A card and what is taken of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CardState {
    /// The card, shared by all snapshots of its node.
    pub card: Arc<Card>,
    /// Whether it takes no further Pods.
    pub cordoned: bool,
    /// What is taken.
    pub usage: Usage,
}

impl CardState {
    /// All there is.
    pub fn capacity(&self) -> Usage {
        Usage { slots: self.card.count, memory_mib: self.card.devmem, cores: self.card.devcore }
    }
}

/// Why a card does not serve; in the order of the checks, and named as HAMi names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The card is broken.
    CardNotHealth,
    /// The card takes no further Pods.
    CardCordoned,
    /// Type or mode is not admitted.
    CardTypeMismatch,
    /// Not on the NUMA node of the container's other cards.
    NumaNotFit,
    /// The card itself is not admitted.
    CardUuidMismatch,
    /// All slots are taken.
    CardTimeSlicingExhausted,
    /// The namespace's quota has not that much left.
    ResourceQuotaNotFit,
    /// Not enough memory left.
    CardInsufficientMemory,
    /// Not enough compute left.
    CardInsufficientCore,
    /// A whole card is wanted and this one is in use.
    ExclusiveDeviceAllocateConflict,
    /// All compute is promised, so 'unlimited' cannot be had.
    CardComputeUnitsExhausted,
    /// The card is cut by MIG, which is not served.
    CardNotFoundCustomFilterRule,
    /// Cards that would have served, but not enough of them.
    AllocatedCardsInsufficientRequest,
    /// More cards wanted than the node has.
    NodeInsufficientDevice,
}

/// Why a node does not serve: how many cards for which reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfit {
    /// Cards by reason.
    pub reasons: BTreeMap<Reason, usize>,
    /// Cards of the node.
    pub cards: usize,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (reason, count)) in self.reasons.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{count}/{} {reason:?}", self.cards)?;
        }
        Ok(())
    }
}

/// What a namespace may still take; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Memory in MiB over all cards.
    pub memory_mib: Option<u64>,
    /// Cores over all cards.
    pub cores: Option<u64>,
}

/// What a fit is asked with.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The Pod's wishes.
    pub request: &'a PodRequest,
    /// Its selectors.
    pub selection: &'a Selection,
    /// Policy if the Pod names none.
    pub card_policy: CardPolicy,
    /// What quota leaves.
    pub headroom: Headroom,
    /// An earlier decision: its cards are taken first where they still serve, so that planning again changes nothing.
    pub earlier: Option<&'a Allocation>,
}

/// Places every container of the Pod on `cards`, or says why not.
///
/// Hard rules: no card over its slots, memory or cores at any time of the Pod's life (init containers run one after the
/// other, sidecars and the others together); at most one slice of a card in a container. Ties go to the lower NUMA node,
/// then the lower index, then the UUID.
pub fn pod(cards: &[CardState], query: &Query<'_>) -> Result<Allocation, Unfit> {
    if query.request.cards_max() as usize > cards.len() {
        return Err(Unfit { reasons: [(Reason::NodeInsufficientDevice, cards.len())].into(), cards: cards.len() });
    }
    // What runs for as long as the Pod does, so far.
    let mut lasting: Vec<CardState> = cards.to_vec();
    let mut lasting_spent = Spent::default();
    let mut containers = Vec::with_capacity(query.request.containers.len());
    for (position, claim) in query.request.containers.iter().enumerate() {
        let Some(request) = claim.request else {
            containers.push(Vec::new());
            continue;
        };
        let mut spent = lasting_spent;
        let earlier = query.earlier.and_then(|earlier| earlier.containers.get(position)).map_or(&[][..], Vec::as_slice);
        let chosen = container(&lasting, &request, query, earlier, &mut spent)?;
        let mut slices = Vec::with_capacity(chosen.len());
        for at in chosen {
            let state = &mut lasting[at];
            let wanted = wanted(&state.card, &request);
            slices.push(Slice::new(state.card.id.clone(), wanted.memory_mib, wanted.cores));
            if claim.role != Role::Init {
                state.usage = state.usage.plus(wanted);
            }
        }
        if claim.role != Role::Init {
            lasting_spent = spent;
        }
        containers.push(slices);
    }
    Ok(Allocation { containers })
}

/// Whether [`pod`] would succeed, or its refusal. For the common Pod, one container with cards, it neither sorts nor copies:
/// which card is taken does not decide whether one can be.
pub fn fits(cards: &[CardState], query: &Query<'_>) -> Result<(), Unfit> {
    let mut wishes = query.request.containers.iter().filter_map(|claim| claim.request);
    let (first, second) = (wishes.next(), wishes.next());
    let Some(request) = first.filter(|_| second.is_none()) else { return pod(cards, query).map(drop) };
    // A percentage takes more of the quota on one card than on another, so the order counts.
    let order_counts = query.headroom.memory_mib.is_some() && matches!(request.memory, Memory::Percent(_));
    if query.selection.numa_bind || order_counts || request.count as usize > cards.len() || cards.len() > IN_ORDER.len() {
        return pod(cards, query).map(drop);
    }
    let policy = query.selection.card_policy.unwrap_or(query.card_policy);
    pick(cards, &IN_ORDER[..cards.len()], &request, query, policy, &mut Spent::default()).map(drop)
}

/// 0, 1, 2 …
const IN_ORDER: [usize; crate::limits::CARDS_PER_NODE_MAX] = {
    let mut order = [0; crate::limits::CARDS_PER_NODE_MAX];
    let mut at = 0;
    while at < order.len() {
        order[at] = at;
        at += 1;
    }
    order
};

/// What the Pod takes of its namespace's quota at one time.
#[derive(Clone, Copy, Default)]
struct Spent {
    memory_mib: u64,
    cores: u64,
}

fn wanted(card: &Card, request: &ContainerRequest) -> Usage {
    Usage { slots: 1, memory_mib: request.memory.on_card(card.devmem), cores: request.cores }
}

/// Indices of the cards for one container.
fn container(
    cards: &[CardState],
    request: &ContainerRequest,
    query: &Query<'_>,
    earlier: &[Slice],
    spent: &mut Spent,
) -> Result<Vec<usize>, Unfit> {
    let policy = query.selection.card_policy.unwrap_or(query.card_policy);
    let mut order = ordered(cards, request, query.selection, policy);
    order.sort_by_key(|&at| !earlier.iter().any(|slice| slice.uuid == cards[at].card.id));
    let numa_nodes: BTreeSet<u32> =
        if query.selection.numa_bind { order.iter().map(|&at| cards[at].card.numa).collect() } else { BTreeSet::new() };
    if numa_nodes.len() <= 1 {
        return pick(cards, &order, request, query, policy, spent);
    }
    // The NUMA node of the best card first.
    let mut tried = BTreeSet::new();
    let mut unfit = Unfit { reasons: BTreeMap::new(), cards: cards.len() };
    for numa in order.iter().map(|&at| cards[at].card.numa) {
        if !tried.insert(numa) {
            continue;
        }
        let here: Vec<usize> = order.iter().copied().filter(|&at| cards[at].card.numa == numa).collect();
        let mut attempt = *spent;
        match pick(cards, &here, request, query, policy, &mut attempt) {
            Ok(chosen) => {
                *spent = attempt;
                return Ok(chosen);
            }
            Err(part) => {
                for (reason, count) in part.reasons {
                    // Cards that would serve alone fail for want of company on their NUMA node.
                    let reason = if reason == Reason::AllocatedCardsInsufficientRequest { Reason::NumaNotFit } else { reason };
                    *unfit.reasons.entry(reason).or_default() += count;
                }
            }
        }
    }
    Err(unfit)
}

/// Cards from the most to the least wanted.
fn ordered(cards: &[CardState], request: &ContainerRequest, selection: &Selection, policy: CardPolicy) -> Vec<usize> {
    let scores: Vec<f64> =
        cards.iter().map(|state| score::card(state, wanted(&state.card, request), selection.weights)).collect();
    let mut order: Vec<usize> = (0..cards.len()).collect();
    order.sort_by(|&a, &b| {
        let by_score = match policy.order {
            CardOrder::Binpack => scores[b].total_cmp(&scores[a]),
            CardOrder::Spread | CardOrder::Mutex => scores[a].total_cmp(&scores[b]),
        };
        let by_numa = cards[a].card.numa.cmp(&cards[b].card.numa);
        let primary = match policy.grouping {
            CardGrouping::Score => by_score.then(by_numa),
            CardGrouping::Numa => by_numa.then(by_score),
        };
        primary.then_with(|| cards[a].card.index.cmp(&cards[b].card.index)).then_with(|| cards[a].card.id.cmp(&cards[b].card.id))
    });
    order
}

fn pick(
    cards: &[CardState],
    order: &[usize],
    request: &ContainerRequest,
    query: &Query<'_>,
    policy: CardPolicy,
    spent: &mut Spent,
) -> Result<Vec<usize>, Unfit> {
    let count = request.count as usize;
    let mut chosen = Vec::with_capacity(count.min(order.len()));
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    for &at in order {
        let wanted = wanted(&cards[at].card, request);
        match check(&cards[at], wanted, query, policy, *spent) {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None => {
                spent.memory_mib = spent.memory_mib.saturating_add(wanted.memory_mib);
                spent.cores += u64::from(wanted.cores);
                chosen.push(at);
                if chosen.len() == count {
                    return Ok(chosen);
                }
            }
        }
    }
    if !chosen.is_empty() {
        reasons.insert(Reason::AllocatedCardsInsufficientRequest, chosen.len());
    }
    Err(Unfit { reasons, cards: cards.len() })
}

/// The first check that the card fails. In this order a check that allocates comes after the cheap ones that stand before
/// it by HAMi's rules, and is skipped where nothing is selected.
fn check(state: &CardState, wanted: Usage, query: &Query<'_>, policy: CardPolicy, spent: Spent) -> Option<Reason> {
    let (card, used, selection) = (&state.card, state.usage, query.selection);
    let over = |limit: Option<u64>, amount: u64| limit.is_some_and(|limit| amount > limit);
    if !card.health {
        Some(Reason::CardNotHealth)
    } else if state.cordoned {
        Some(Reason::CardCordoned)
    } else if !selection.admits_type(card) {
        Some(Reason::CardTypeMismatch)
    } else if !selection.admits_uuid(card) {
        Some(Reason::CardUuidMismatch)
    } else if used.slots >= card.count {
        Some(Reason::CardTimeSlicingExhausted)
    } else if policy.order == CardOrder::Mutex && used.slots > 0 {
        Some(Reason::ExclusiveDeviceAllocateConflict)
    } else if over(query.headroom.memory_mib, spent.memory_mib.saturating_add(wanted.memory_mib))
        || over(query.headroom.cores, spent.cores + u64::from(wanted.cores))
    {
        Some(Reason::ResourceQuotaNotFit)
    } else if card.devmem.saturating_sub(used.memory_mib) < wanted.memory_mib {
        Some(Reason::CardInsufficientMemory)
    } else if card.devcore.saturating_sub(used.cores) < wanted.cores {
        Some(Reason::CardInsufficientCore)
    } else if card.devcore == 100 && wanted.cores == 100 && used.slots > 0 {
        Some(Reason::ExclusiveDeviceAllocateConflict)
    } else if card.devcore > 0 && used.cores >= card.devcore && wanted.cores == 0 {
        Some(Reason::CardComputeUnitsExhausted)
    } else if card.mode() == "mig" {
        Some(Reason::CardNotFoundCustomFilterRule)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
