//! The planner: a snapshot and a Pod in, a node or the reasons out. No clock, no randomness, no IO.

use crate::plugin::{Candidates, Cycle, Plugin, Rejection};
use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Where a Pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Name of the node.
    pub node: String,
    /// How many nodes would have done.
    pub feasible: usize,
}

/// Why a Pod goes nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoFit {
    /// How many nodes there are.
    pub nodes: usize,
    /// Set when one reason holds for all nodes.
    pub everywhere: Option<Rejection>,
    /// Reasons by node.
    pub by_node: BTreeMap<String, Rejection>,
}

impl fmt::Display for NoFit {
    /// The message that upstream's scheduler puts into events and the condition: reasons counted, then sorted as text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if let Some(rejection) = &self.everywhere {
            return write!(f, " {}.", rejection.reasons.join(", "));
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.by_node.values().flat_map(|r| &r.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        let mut lines: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        lines.sort();
        write!(f, " {}.", lines.join(", "))
    }
}

/// Chooses a node for `pod`: the highest weighted score, and of equals the first by name.
pub fn plan(snapshot: &Snapshot, pod: &PodInfo, plugins: &[Arc<dyn Plugin>]) -> Result<Placement, NoFit> {
    let mut cycle = Cycle::default();
    let feasible = feasible(&mut cycle, snapshot, pod, plugins)?;
    let count = feasible.len();
    let best = if count == 1 { 0 } else { best(&mut cycle, snapshot, pod, plugins, &feasible) };
    Ok(Placement { node: feasible[best].name().to_owned(), feasible: count })
}

/// The nodes that every plugin admits, by name; at least one.
fn feasible<'a>(
    cycle: &mut Cycle,
    snapshot: &'a Snapshot,
    pod: &PodInfo,
    plugins: &[Arc<dyn Plugin>],
) -> Result<Vec<&'a NodeInfo>, NoFit> {
    let mut failed = NoFit { nodes: snapshot.nodes.len(), ..NoFit::default() };
    if failed.nodes == 0 {
        return Err(failed);
    }
    let mut only = None;
    for plugin in plugins {
        match plugin.pre_filter(cycle, pod, snapshot) {
            Ok(Candidates::All) => {}
            Ok(Candidates::Only(names)) => {
                only = Some(match only.take() {
                    None => names,
                    Some(before) => names.intersection(&before).cloned().collect(),
                });
            }
            Err(rejection) => {
                failed.everywhere = Some(rejection);
                return Err(failed);
            }
        }
    }
    let mut passed = Vec::new();
    for (name, node) in &snapshot.nodes {
        if only.as_ref().is_some_and(|only| !only.contains(name)) {
            let reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
            failed.by_node.insert(name.clone(), Rejection::unresolvable(reason));
            continue;
        }
        match plugins.iter().find_map(|plugin| plugin.filter(cycle, pod, node).err()) {
            None => passed.push(node.as_ref()),
            Some(rejection) => {
                failed.by_node.insert(name.clone(), rejection);
            }
        }
    }
    if passed.is_empty() { Err(failed) } else { Ok(passed) }
}

/// Index of the best node.
fn best(cycle: &mut Cycle, snapshot: &Snapshot, pod: &PodInfo, plugins: &[Arc<dyn Plugin>], nodes: &[&NodeInfo]) -> usize {
    let mut totals = vec![0i64; nodes.len()];
    for plugin in plugins {
        plugin.pre_score(cycle, pod, snapshot, nodes);
        let scores: Option<Vec<i64>> = nodes.iter().map(|node| plugin.score(cycle, pod, node)).collect();
        let Some(mut scores) = scores else { continue };
        plugin.normalize(&mut scores);
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += score * plugin.weight();
        }
    }
    // The first of equal maxima, so that equal nodes are taken by name.
    let mut best = 0;
    for (index, total) in totals.iter().enumerate() {
        if *total > totals[best] {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_counts_and_sorts_reasons() {
        let mut failed = NoFit { nodes: 3, ..NoFit::default() };
        failed.by_node.insert("a".into(), Rejection::new("node(s) had untolerated taint(s)"));
        failed.by_node.insert("b".into(), Rejection::new("Insufficient cpu"));
        failed.by_node.insert("c".into(), Rejection::new("node(s) had untolerated taint(s)"));
        assert_eq!(failed.to_string(), "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).");
        assert_eq!(NoFit::default().to_string(), "no nodes available to schedule pods");
    }
}
