//! Node selector and node affinity.

use crate::plugin::{Candidates, Cycle, Plugin, Rejection, scale_to_max};
use crate::selector::node_term_matches;
use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
use k8s_openapi::api::core::v1::{NodeAffinity as Affinity, NodeSelectorTerm};
use std::collections::BTreeSet;

/// `nodeSelector` and required affinity bind; preferred affinity scores.
pub struct NodeAffinity;

fn affinity(pod: &PodInfo) -> Option<&Affinity> {
    pod.pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()
}

fn required_terms(pod: &PodInfo) -> Option<&[NodeSelectorTerm]> {
    Some(&affinity(pod)?.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    /// Terms that all name their nodes (as DaemonSets do) spare a look at every other node.
    fn pre_filter(&self, _: &mut Cycle, pod: &PodInfo, _: &Snapshot) -> Result<Candidates, Rejection> {
        let Some(terms) = required_terms(pod) else { return Ok(Candidates::All) };
        let mut names = BTreeSet::new();
        for term in terms {
            let fields = term.match_fields.as_deref().unwrap_or_default();
            let Some(field) = fields.iter().find(|f| f.key == "metadata.name" && f.operator == "In") else {
                return Ok(Candidates::All);
            };
            names.extend(field.values.iter().flatten().cloned());
        }
        if names.is_empty() { Ok(Candidates::All) } else { Ok(Candidates::Only(names)) }
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let spec = pod.pod.spec.as_ref();
        let selector = spec.and_then(|s| s.node_selector.as_ref());
        let selected = selector.into_iter().flatten().all(|(k, v)| node.labels().get(k) == Some(v));
        let required = required_terms(pod).is_none_or(|terms| terms.iter().any(|t| node_term_matches(t, &node.node)));
        if selected && required {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
    }

    fn score(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let preferred = affinity(pod)?.preferred_during_scheduling_ignored_during_execution.as_deref()?;
        let matching = preferred.iter().filter(|term| node_term_matches(&term.preference, &node.node));
        Some(matching.map(|term| i64::from(term.weight)).sum())
    }

    fn normalize(&self, scores: &mut [i64]) {
        scale_to_max(scores, false);
    }

    fn weight(&self) -> i64 {
        2
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{cluster, place};
    use serde_json::json;

    #[test]
    fn selector_required_and_preferred() {
        let zone = |z: &str| json!({"metadata": {"labels": {"zone": z}}});
        let snapshot = cluster(&[("a", zone("x")), ("b", zone("y"))], &[]);
        assert_eq!(place(&snapshot, json!({"spec": {"nodeSelector": {"zone": "y"}}})), Ok("b".into()));
        let term = |z: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]});
        let required = |z: &str| {
            json!({"spec": {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term(z)]}}}}})
        };
        assert_eq!(place(&snapshot, required("y")), Ok("b".into()));
        assert_eq!(
            place(&snapshot, required("z")),
            Err("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.".into())
        );
        let preferred = json!({"spec": {"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term("y")}]}}}});
        assert_eq!(place(&snapshot, preferred), Ok("b".into()));
    }
}
