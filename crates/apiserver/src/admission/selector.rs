//! `LabelSelector` as configurations and policies state it.

use serde::Deserialize;
use serde_json::{Map, Value};

/// `metav1.LabelSelector`: all of it must hold; an empty one holds for everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    match_labels: Map<String, Value>,
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl LabelSelector {
    pub(crate) fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Judges `metadata.labels` (null for an object without labels).
    pub(crate) fn matches(&self, labels: &Value) -> bool {
        let value = |key: &str| labels.get(key).and_then(Value::as_str);
        self.match_labels.iter().all(|(key, wanted)| value(key) == wanted.as_str())
            && self.match_expressions.iter().all(|r| {
                let found = value(&r.key);
                match r.operator.as_str() {
                    "In" => found.is_some_and(|v| r.values.iter().any(|w| w == v)),
                    "NotIn" => found.is_none_or(|v| !r.values.iter().any(|w| w == v)),
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missing_label_is_not_in_any_list() {
        let selector: LabelSelector = serde_json::from_value(json!({ "matchExpressions": [
            { "key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"] },
        ] }))
        .expect("a selector");
        assert!(selector.matches(&Value::Null));
        assert!(selector.matches(&json!({ "hami.io/webhook": "on" })));
        assert!(!selector.matches(&json!({ "hami.io/webhook": "ignore" })));
        assert!(LabelSelector::default().matches(&json!({ "a": "b" })));
    }
}
