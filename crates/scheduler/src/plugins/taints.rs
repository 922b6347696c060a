//! Taints and tolerations.

use crate::plugin::{Cycle, Plugin, Rejection, scale_to_max};
use crate::snapshot::{NodeInfo, PodInfo};
use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Taints with effect `NoSchedule` or `NoExecute` must be tolerated; untolerated `PreferNoSchedule` ones cost score.
pub struct TaintToleration;

/// Whether some toleration of the Pod covers this taint.
pub(super) fn tolerates(pod: &PodInfo, key: &str, value: &str, effect: &str) -> bool {
    let tolerations = pod.pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|t| covers(t, key, value, effect))
}

fn covers(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let any = |given: &Option<String>, wanted: &str| given.as_deref().is_none_or(|g| g.is_empty() || g == wanted);
    if !any(&toleration.effect, effect) || !any(&toleration.key, key) {
        return false;
    }
    let given = toleration.value.as_deref().unwrap_or_default();
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "" | "Equal" => toleration.key.as_deref().is_some_and(|k| !k.is_empty()) && given == value,
        "Exists" => true,
        // KEP-5471: numeric comparison of the taint's value against the toleration's.
        "Gt" => numbers(value, given).is_some_and(|(taint, own)| taint > own),
        "Lt" => numbers(value, given).is_some_and(|(taint, own)| taint < own),
        _ => false,
    }
}

fn numbers(taint: &str, own: &str) -> Option<(i64, i64)> {
    Some((taint.parse().ok()?, own.parse().ok()?))
}

fn taints(node: &NodeInfo) -> &[Taint] {
    node.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

fn untolerated(pod: &PodInfo, taint: &Taint) -> bool {
    !tolerates(pod, &taint.key, taint.value.as_deref().unwrap_or_default(), &taint.effect)
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let binding = |t: &&Taint| t.effect == "NoSchedule" || t.effect == "NoExecute";
        if taints(node).iter().filter(binding).any(|taint| untolerated(pod, taint)) {
            return Err(Rejection::unresolvable("node(s) had untolerated taint(s)"));
        }
        Ok(())
    }

    fn score(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let soft = taints(node).iter().filter(|t| t.effect == "PreferNoSchedule");
        Some(soft.filter(|taint| untolerated(pod, taint)).count() as i64)
    }

    fn normalize(&self, scores: &mut [i64]) {
        scale_to_max(scores, true);
    }

    fn weight(&self) -> i64 {
        3
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::tests::{cluster, place};
    use serde_json::json;

    #[test]
    fn tolerations_match_by_key_value_effect_and_operator() {
        let snapshot =
            cluster(&[("a", json!({"spec": {"taints": [{"key": "team", "value": "x", "effect": "NoExecute"}]}}))], &[]);
        let with = |toleration| place(&snapshot, json!({"spec": {"tolerations": [toleration]}})).is_ok();
        assert!(with(json!({"operator": "Exists"})));
        assert!(with(json!({"key": "team", "value": "x"})));
        assert!(!with(json!({"key": "team", "value": "y"})));
        assert!(!with(json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"})));
    }

    #[test]
    fn soft_taints_are_avoided_not_forbidden() {
        let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
        let snapshot = cluster(&[("a", soft.clone()), ("b", json!({}))], &[]);
        assert_eq!(place(&snapshot, json!({})), Ok("b".into()));
        assert_eq!(place(&cluster(&[("a", soft)], &[]), json!({})), Ok("a".into()));
    }
}
