//! How full a node or a card is, on HAMi's scale. Higher is fuller; the policy says which end is wanted.

use crate::fit::{CardState, Usage};
use crate::selection::Weights;

/// Part of a whole; nothing counts as not used.
fn ratio(used: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { used as f64 / total as f64 }
}

/// Score of a node from what is used before the placement: 0 to 30.
pub fn node(cards: &[CardState]) -> f64 {
    let mut used = Usage::default();
    let mut total = Usage::default();
    for state in cards {
        used = used.plus(state.usage);
        total = total.plus(state.capacity());
    }
    10.0 * (ratio(used.slots.into(), total.slots.into())
        + ratio(used.cores.into(), total.cores.into())
        + ratio(used.memory_mib, total.memory_mib))
}

/// Score of a card with `wanted` added.
pub fn card(state: &CardState, wanted: Usage, weights: Weights) -> f64 {
    let used = state.usage.plus(wanted);
    let total = state.capacity();
    10.0 * (f64::from(weights.slot) * ratio(used.slots.into(), total.slots.into())
        + f64::from(weights.core) * ratio(used.cores.into(), total.cores.into())
        + f64::from(weights.memory) * ratio(used.memory_mib, total.memory_mib))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(count: u32, devcore: u32, devmem: u64, usage: Usage) -> CardState {
        let mut card = crate::inventory::decode(&format!("GPU-1,{count},{devmem},{devcore},T4,0,true")).unwrap().remove(0);
        card.count = count;
        CardState { card: std::sync::Arc::new(card), cordoned: false, usage }
    }

    #[test]
    fn a_half_used_node_scores_fifteen() {
        let cards = [state(10, 100, 8000, Usage { slots: 5, memory_mib: 4000, cores: 50 })];
        assert!((node(&cards) - 15.0).abs() < 1e-9);
    }

    #[test]
    fn a_card_scores_with_and_without_the_request() {
        let used = state(10, 4, 8192, Usage { slots: 2, memory_mib: 2048, cores: 1 });
        assert!((card(&used, Usage::default(), Weights::default()) - 7.0).abs() < 1e-9);
        let wanted = Usage { slots: 1, memory_mib: 1024, cores: 1 };
        assert!((card(&used, wanted, Weights::default()) - 11.75).abs() < 1e-9);
    }
}
