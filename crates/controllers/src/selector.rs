//! Label and node selectors, tolerations.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Whether all of `selector` is in `labels`; an empty or absent selector matches nothing.
pub fn map_matches(selector: Option<&Labels>, labels: Option<&Labels>) -> bool {
    selector.is_some_and(|s| !s.is_empty() && s.iter().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v)))
}

/// Whether `selector` matches `labels`; an empty selector matches everything.
pub fn matches(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let value = |key: &str| labels.and_then(|l| l.get(key)).map(String::as_str);
    selector.match_labels.iter().flatten().all(|(k, v)| value(k) == Some(v))
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|r| requirement(&r.operator, r.values.as_deref().unwrap_or_default(), value(&r.key)))
}

/// Whether the selector names anything at all.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty) && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether one term of a node selector matches; a term without requirements matches nothing.
pub fn node_term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|l| l.get(key)).map(String::as_str);
    let holds = |r: &NodeSelectorRequirement, value| requirement(&r.operator, r.values.as_deref().unwrap_or_default(), value);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|r| holds(r, label(&r.key)))
        && fields.iter().all(|r| r.key == "metadata.name" && holds(r, node.metadata.name.as_deref()))
}

fn requirement(operator: &str, values: &[String], actual: Option<&str>) -> bool {
    let compare = |actual: &str| {
        let bound: i64 = values.first()?.parse().ok()?;
        Some(actual.parse::<i64>().ok()?.cmp(&bound))
    };
    match (operator, actual) {
        ("In", Some(actual)) => values.iter().any(|v| v == actual),
        ("NotIn", Some(actual)) => !values.iter().any(|v| v == actual),
        ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
        ("Gt", Some(actual)) => compare(actual) == Some(std::cmp::Ordering::Greater),
        ("Lt", Some(actual)) => compare(actual) == Some(std::cmp::Ordering::Less),
        _ => false,
    }
}

/// Whether a toleration covers a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let any = |given: &Option<String>, wanted: &str| given.as_deref().is_none_or(|g| g.is_empty() || g == wanted);
    if !any(&toleration.effect, &taint.effect) || !any(&toleration.key, &taint.key) {
        return false;
    }
    let (given, actual) = (toleration.value.as_deref().unwrap_or_default(), taint.value.as_deref().unwrap_or_default());
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.key.as_deref().is_some_and(|k| !k.is_empty()) && given == actual,
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn selectors_match_labels_and_expressions() {
        let labels: Labels = [("a".to_owned(), "1".to_owned())].into();
        let selector = |v| from_value::<LabelSelector>(v).unwrap();
        assert!(matches(&selector(json!({"matchLabels": {"a": "1"}})), Some(&labels)));
        assert!(!matches(&selector(json!({"matchLabels": {"a": "1"}})), None));
        let not = json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]});
        assert!(!matches(&selector(not.clone()), Some(&labels)) && matches(&selector(not), None));
        assert!(is_empty(&selector(json!({}))) && !map_matches(None, Some(&labels)));
    }

    #[test]
    fn tolerations_cover_by_key_value_and_effect() {
        let taint: Taint = from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        let covers = |v| tolerates(&from_value(v).unwrap(), &taint);
        assert!(covers(json!({"operator": "Exists"})) && covers(json!({"key": "k", "value": "v"})));
        assert!(
            !covers(json!({"key": "k", "value": "w"}))
                && !covers(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}))
        );
    }
}
