//! Affinity and anti-affinity between Pods, per topology domain.

use crate::plugin::{Candidates, Cycle, Plugin, Rejection};
use crate::selector::{Labels, labels_match};
use crate::snapshot::{NodeInfo, PodInfo, Snapshot};
use k8s_openapi::api::core::v1::{PodAffinityTerm, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};

/// Required terms bind (those of Pods that already run too), preferred terms score.
pub struct PodAffinity;

/// A topology domain: key and value of a node label.
type Domain = (String, String);

/// What `pre_filter` found.
#[derive(Default)]
struct Found {
    /// Domains that an existing Pod's anti-affinity closes to this Pod.
    closed: BTreeSet<Domain>,
    /// Per required affinity term: the domains with a Pod that matches all terms.
    affine: Vec<BTreeSet<Domain>>,
    /// Per required anti-affinity term: the domains with a match.
    averse: Vec<BTreeSet<Domain>>,
    /// Nothing matches anywhere, but the Pod matches itself: the first of a group may go anywhere.
    first_of_group: bool,
}

/// Preferred terms summed per domain.
#[derive(Default)]
struct Preferred(BTreeMap<Domain, i64>);

fn term_matches(term: &PodAffinityTerm, owner: &PodInfo, other: &PodInfo, namespaces: &BTreeMap<String, Labels>) -> bool {
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let in_namespace = if listed.is_empty() && term.namespace_selector.is_none() {
        other.namespace() == owner.namespace()
    } else {
        let empty = Labels::new();
        listed.iter().any(|ns| ns == other.namespace())
            || labels_match(term.namespace_selector.as_ref(), namespaces.get(other.namespace()).unwrap_or(&empty))
    };
    in_namespace && labels_match(Some(&effective_selector(term, owner)), other.labels())
}

/// The term's selector with `matchLabelKeys` and `mismatchLabelKeys` of its owner worked in (KEP-3633). The API server
/// merges them at creation; this serves servers that did not.
fn effective_selector(term: &PodAffinityTerm, owner: &PodInfo) -> LabelSelector {
    let mut selector = term.label_selector.clone().unwrap_or_default();
    if term.label_selector.is_none() {
        // An absent selector matches no Pod; an impossible requirement says so.
        selector.match_expressions = Some(vec![impossible()]);
        return selector;
    }
    for key in term.match_label_keys.iter().flatten() {
        if let Some(value) = owner.labels().get(key) {
            selector.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
        }
    }
    selector
}

fn impossible() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement {
        key: String::new(),
        operator: "In".into(),
        values: None,
    }
}

fn domain(node: &NodeInfo, key: &str) -> Option<Domain> {
    Some((key.to_owned(), node.labels().get(key)?.clone()))
}

fn preferred(pod: &PodInfo) -> (&[WeightedPodAffinityTerm], &[WeightedPodAffinityTerm]) {
    let affinity = pod.pod.spec.as_ref().and_then(|s| s.affinity.as_ref());
    let towards = affinity.and_then(|a| a.pod_affinity.as_ref());
    let away = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    (
        towards.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default(),
        away.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default(),
    )
}

impl PodAffinity {
    fn look(pod: &PodInfo, snapshot: &Snapshot) -> Found {
        let (towards, away) = (pod.required_affinity(), pod.required_anti_affinity());
        let mut found =
            Found { affine: vec![BTreeSet::new(); towards.len()], averse: vec![BTreeSet::new(); away.len()], ..Found::default() };
        let names = &snapshot.namespaces;
        for node in snapshot.nodes.values() {
            for other in node.pods.values() {
                for term in other.required_anti_affinity() {
                    if term_matches(term, other, pod, names) {
                        found.closed.extend(domain(node, &term.topology_key));
                    }
                }
                if !towards.is_empty() && towards.iter().all(|t| term_matches(t, pod, other, names)) {
                    for (term, domains) in towards.iter().zip(&mut found.affine) {
                        domains.extend(domain(node, &term.topology_key));
                    }
                }
                for (term, domains) in away.iter().zip(&mut found.averse) {
                    if term_matches(term, pod, other, names) {
                        domains.extend(domain(node, &term.topology_key));
                    }
                }
            }
        }
        found.first_of_group =
            found.affine.iter().all(BTreeSet::is_empty) && towards.iter().all(|term| term_matches(term, pod, pod, names));
        found
    }
}

impl Plugin for PodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn pre_filter(&self, cycle: &mut Cycle, pod: &PodInfo, snapshot: &Snapshot) -> Result<Candidates, Rejection> {
        cycle.put(Self::look(pod, snapshot));
        Ok(Candidates::All)
    }

    fn filter(&self, cycle: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(found) = cycle.get::<Found>() else { return Ok(()) };
        for (term, domains) in pod.required_affinity().iter().zip(&found.affine) {
            let here = domain(node, &term.topology_key);
            let fine = here.is_some_and(|here| found.first_of_group || domains.contains(&here));
            if !fine {
                return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
            }
        }
        for (term, domains) in pod.required_anti_affinity().iter().zip(&found.averse) {
            if domain(node, &term.topology_key).is_some_and(|here| domains.contains(&here)) {
                return Err(Rejection::new("node(s) didn't match pod anti-affinity rules"));
            }
        }
        if found.closed.iter().any(|(key, value)| node.labels().get(key) == Some(value)) {
            return Err(Rejection::new("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn pre_score(&self, cycle: &mut Cycle, pod: &PodInfo, snapshot: &Snapshot, _: &[&NodeInfo]) {
        let (towards, away) = preferred(pod);
        if towards.is_empty() && away.is_empty() {
            return;
        }
        let mut sums = Preferred::default();
        for node in snapshot.nodes.values() {
            for other in node.pods.values() {
                for (terms, sign) in [(towards, 1), (away, -1)] {
                    for term in terms {
                        let matches = term_matches(&term.pod_affinity_term, pod, other, &snapshot.namespaces);
                        if let (true, Some(domain)) = (matches, domain(node, &term.pod_affinity_term.topology_key)) {
                            *sums.0.entry(domain).or_default() += sign * i64::from(term.weight);
                        }
                    }
                }
            }
        }
        cycle.put(sums);
    }

    fn score(&self, cycle: &Cycle, _: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let sums = cycle.get::<Preferred>()?;
        Some(sums.0.iter().filter(|((k, v), _)| node.labels().get(k) == Some(v)).map(|(_, sum)| sum).sum())
    }

    fn normalize(&self, scores: &mut [i64]) {
        let (min, max) = (scores.iter().min().copied().unwrap_or(0), scores.iter().max().copied().unwrap_or(0));
        for score in scores {
            *score = if max == min { 0 } else { (*score - min) * crate::limits::NODE_SCORE_MAX / (max - min) };
        }
    }

    fn weight(&self) -> i64 {
        2
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{cluster, place};
    use serde_json::{Value, json};

    fn pod(name: &str, node: Option<&str>, kind: &str) -> Value {
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}});
        json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"nodeName": node,
            "affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
    }

    #[test]
    fn anti_affinity_keeps_apart_in_both_directions() {
        let snapshot = cluster(&[("a", json!({})), ("b", json!({}))], &[pod("x", Some("a"), "podAntiAffinity")]);
        assert_eq!(place(&snapshot, pod("y", None, "podAntiAffinity")), Ok("b".into()));
        let plain =
            json!({"metadata": {"name": "z", "labels": {"app": "x"}}, "spec": {"nodeSelector": {"kubernetes.io/hostname": "a"}}});
        assert!(place(&snapshot, plain).unwrap_err().contains("1 node(s) didn't satisfy existing pods anti-affinity rules"));
    }

    #[test]
    fn affinity_follows_and_the_first_of_a_group_may_go_anywhere() {
        let nodes = [("a", json!({})), ("b", json!({}))];
        assert_eq!(place(&cluster(&nodes, &[]), pod("x", None, "podAffinity")), Ok("a".into()));
        let snapshot = cluster(&nodes, &[pod("x", Some("b"), "podAffinity")]);
        assert_eq!(place(&snapshot, pod("y", None, "podAffinity")), Ok("b".into()));
    }
}
