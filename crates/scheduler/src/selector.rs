//! Label and node selectors.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Whether `selector` matches `labels`. An absent selector matches nothing, an empty one everything.
pub fn labels_match(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    let equal = selector.match_labels.iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
    equal
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|r| requirement(&r.operator, r.values.as_deref().unwrap_or_default(), labels.get(&r.key).map(String::as_str)))
}

/// Whether one term of a node selector matches. A term without any requirement matches nothing.
pub fn node_term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let empty = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let holds = |r: &NodeSelectorRequirement, value: Option<&str>| {
        requirement(&r.operator, r.values.as_deref().unwrap_or_default(), value)
    };
    expressions.iter().all(|r| holds(r, labels.get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| r.key == "metadata.name" && holds(r, node.metadata.name.as_deref()))
}

fn requirement(operator: &str, values: &[String], actual: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    match (operator, actual) {
        ("In", Some(actual)) => values.iter().any(|v| v == actual),
        ("NotIn", Some(actual)) => !values.iter().any(|v| v == actual),
        ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
        ("Gt", Some(actual)) => values.first().and_then(|v| Some(number(actual)? > number(v)?)).unwrap_or(false),
        ("Lt", Some(actual)) => values.first().and_then(|v| Some(number(actual)? < number(v)?)).unwrap_or(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn operators() {
        let labels: Labels = [("a".to_owned(), "1".to_owned())].into();
        let check = |op: &str, key: &str, values: &[&str]| {
            let selector: LabelSelector =
                from_value(json!({"matchExpressions": [{"key": key, "operator": op, "values": values}]})).unwrap();
            labels_match(Some(&selector), &labels)
        };
        assert!(check("In", "a", &["1", "2"]) && !check("In", "b", &["1"]));
        assert!(check("NotIn", "b", &["1"]) && !check("NotIn", "a", &["1"]));
        assert!(check("Exists", "a", &[]) && check("DoesNotExist", "b", &[]) && !check("Exists", "b", &[]));
        assert!(!labels_match(None, &labels) && labels_match(Some(&LabelSelector::default()), &labels));
    }

    #[test]
    fn node_terms_see_labels_and_the_name() {
        let node: Node = from_value(json!({"metadata": {"name": "n1", "labels": {"size": "7"}}})).unwrap();
        let matches = |term| node_term_matches(&from_value(term).unwrap(), &node);
        assert!(matches(json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["5"]}]})));
        assert!(matches(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})));
        assert!(!matches(json!({})));
    }
}
