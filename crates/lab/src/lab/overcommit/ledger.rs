//! What a watch saw of the Pods of a namespace: at no revision may a card be over what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;

use crate::lab::pods::{self, Given};

/// What one card has.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    pub memory_mib: u64,
    pub cores: u64,
    pub slots: u64,
}

/// Built from every event of the watch.
#[derive(Debug, Default)]
pub struct Ledger {
    bound: BTreeMap<String, Vec<Given>>,
    running: BTreeSet<String>,
    /// Revisions read.
    pub revisions: u64,
    /// When each Pod was first seen bound.
    pub bound_at: BTreeMap<String, Instant>,
    /// When a Pod was last seen to go.
    pub removed_at: Option<Instant>,
    /// The first thing that was wrong.
    pub violation: Option<String>,
}

impl Ledger {
    /// Pods that hold slices.
    pub fn bound(&self) -> usize {
        self.bound.len()
    }

    /// Pods that run.
    pub fn running(&self) -> &BTreeSet<String> {
        &self.running
    }

    /// A Pod as it is at one revision.
    pub fn saw(&mut self, pod: &Pod, card: Card, now: Instant) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.revisions += 1;
        let placed = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        let phase = pods::phase(pod);
        if !placed || matches!(phase, "Failed" | "Succeeded") {
            self.bound.remove(&name);
            self.running.remove(&name);
            return;
        }
        if phase == "Running" {
            self.running.insert(name.clone());
        }
        match pods::given(pod) {
            Ok(given) if !given.is_empty() => {
                self.bound_at.entry(name.clone()).or_insert(now);
                self.bound.insert(name, given);
                self.judge(card);
            }
            Ok(_) => self.fail(format!("Pod {name} is bound without an allocation")),
            Err(why) => self.fail(format!("Pod {name}: {why}")),
        }
    }

    /// A Pod that is gone.
    pub fn lost(&mut self, pod: &Pod, now: Instant) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.revisions += 1;
        self.bound.remove(&name);
        self.running.remove(&name);
        self.removed_at = Some(now);
    }

    /// Keeps the first failure.
    pub fn fail(&mut self, why: String) {
        self.violation.get_or_insert(why);
    }

    fn judge(&mut self, card: Card) {
        let mut sums: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        for given in self.bound.values().flatten() {
            let sum = sums.entry(&given.card).or_default();
            *sum = (sum.0 + given.memory_mib, sum.1 + given.cores, sum.2 + 1);
        }
        let over = sums.into_iter().find(|(_, s)| s.0 > card.memory_mib || s.1 > card.cores || s.2 > card.slots);
        if let Some((id, (memory, cores, slots))) = over {
            let why = format!("card {id} was given {memory} MiB, {cores} cores, {slots} slots");
            self.fail(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CARD: Card = Card { memory_mib: 100, cores: 100, slots: 10 };

    fn pod(name: &str, memory: u64, phase: &str) -> Pod {
        pods::object(json!({
            "metadata": { "name": name, "annotations": { pods::ALLOCATED: format!("GPU-1,NVIDIA,{memory},10:;") } },
            "spec": { "nodeName": "n", "containers": [] }, "status": { "phase": phase },
        }))
        .expect("a Pod")
    }

    #[test]
    fn a_card_over_its_memory_is_seen() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.saw(&pod("a", 60, "Running"), CARD, now);
        ledger.lost(&pod("a", 60, "Running"), now);
        ledger.saw(&pod("b", 60, "Running"), CARD, now);
        assert_eq!((ledger.bound(), ledger.running().len(), &ledger.violation), (1, 1, &None));
        ledger.saw(&pod("c", 60, "Pending"), CARD, now);
        assert!(ledger.violation.is_some());
    }
}
