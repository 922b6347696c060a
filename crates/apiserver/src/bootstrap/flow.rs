//! Default priority levels and flow schemas, from the table in `flow.txt` (its first lines tell its form).

use serde_json::{Value, json};

const TABLE: &str = include_str!("flow.txt");
/// Marks what follows its default.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// All of them.
pub fn objects() -> Vec<Value> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| parse(line.split(' ').collect())).collect()
}

fn parse(words: Vec<&str>) -> Option<Value> {
    match words.as_slice() {
        ["exempt", name] => {
            let spec = json!({"type": "Exempt", "exempt": {"lendablePercent": 0, "nominalConcurrencyShares": 0}});
            Some(object("PriorityLevelConfiguration", name, spec))
        }
        ["level", name, shares, lendable, response] => {
            let limited = json!({
                "nominalConcurrencyShares": number(shares),
                "lendablePercent": number(lendable),
                "limitResponse": limit_response(response),
            });
            Some(object("PriorityLevelConfiguration", name, json!({"type": "Limited", "limited": limited})))
        }
        ["flow", name, precedence, level, distinguisher, rule, subjects @ ..] => {
            let mut rule = rules(rule);
            rule["subjects"] = subjects.iter().map(|word| subject(word)).collect();
            let mut spec = json!({
                "matchingPrecedence": number(precedence),
                "priorityLevelConfiguration": {"name": level},
                "rules": [rule],
            });
            if *distinguisher != "-" {
                spec["distinguisherMethod"] = json!({"type": distinguisher});
            }
            Some(object("FlowSchema", name, spec))
        }
        _ => None,
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "annotations": {AUTOUPDATE: "true"}},
        "spec": spec,
    })
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_default()
}

fn limit_response(text: &str) -> Value {
    let numbers: Vec<i64> = text.split('x').map(number).collect();
    match numbers.as_slice() {
        [queues, length, hand] => {
            json!({"type": "Queue", "queuing": {"queues": queues, "queueLengthLimit": length, "handSize": hand}})
        }
        _ => json!({"type": "Reject"}),
    }
}

fn rules(name: &str) -> Value {
    let any_path = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let leases = |verbs: &[&str]| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    match name {
        "probes" => json!({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}),
        "leases" => json!({"resourceRules": [leases(&["get", "create", "update"])]}),
        "nodes" => {
            let nodes = json!({
                "verbs": ["*"],
                "apiGroups": [""],
                "resources": ["nodes", "nodes/status"],
                "clusterScope": true,
                "namespaces": ["*"],
            });
            json!({"resourceRules": [nodes, leases(&["*"])]})
        }
        _ => json!({
            "resourceRules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]},
            ],
            "nonResourceRules": any_path,
        }),
    }
}

fn subject(word: &str) -> Value {
    match word.split_once(':').unwrap_or_default() {
        ("s", account) => {
            let (namespace, name) = account.split_once('/').unwrap_or_default();
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
        ("g", name) => json!({"kind": "Group", "group": {"name": name}}),
        (_, name) => json!({"kind": "User", "user": {"name": name}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_schema_has_its_level_and_a_subject() {
        let objects = objects();
        let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).collect::<Vec<_>>();
        let (levels, flows) = (of("PriorityLevelConfiguration"), of("FlowSchema"));
        assert_eq!((levels.len(), flows.len()), (8, 11));
        for flow in flows {
            let level = &flow["spec"]["priorityLevelConfiguration"]["name"];
            assert!(levels.iter().any(|l| &l["metadata"]["name"] == level), "{level}");
            assert!(flow["spec"]["rules"][0]["subjects"].as_array().is_some_and(|s| !s.is_empty()));
            assert!(flow["spec"]["matchingPrecedence"].as_i64().is_some_and(|p| p > 0));
        }
    }
}
