//! `clusterrole-aggregation-controller`: a role with an aggregation rule has the rules of those it selects.

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::selector;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;
use std::sync::Arc;

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let roles = env.informer::<ClusterRole>();
    let all = roles.clone();
    let user = "system:serviceaccount:kube-system:clusterrole-aggregation-controller";
    let builder = Builder::new(env, "clusterrole-aggregation-controller", user).on(&roles, move |role| {
        let mut keys: Vec<Key> = all.all().iter().filter(|r| selects(r, role)).map(|r| Key::of(&r.metadata)).collect();
        keys.extend(role.aggregation_rule.is_some().then(|| Key::of(&role.metadata)));
        keys
    });
    vec![builder.plan(move |key, _| roles.get(key).map(|role| plan(&role, &roles.all())).unwrap_or_default())]
}

fn selects(aggregate: &ClusterRole, role: &ClusterRole) -> bool {
    let selectors = aggregate.aggregation_rule.as_ref().and_then(|r| r.cluster_role_selectors.as_deref()).unwrap_or_default();
    aggregate.metadata.name != role.metadata.name && selectors.iter().any(|s| selector::matches(s, role.metadata.labels.as_ref()))
}

/// Each rule once, in the order of the selected roles' names.
fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Vec<Action> {
    if role.aggregation_rule.is_none() || role.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut rules: Vec<PolicyRule> = Vec::new();
    for rule in all.iter().filter(|other| selects(role, other)).flat_map(|other| other.rules.iter().flatten()) {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    if role.rules.as_deref().unwrap_or_default() == rules {
        return Vec::new();
    }
    vec![Action::patch(role, Verb::MergePatch, json!({"rules": rules}))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{Value, from_value};

    fn role(name: &str, labels: Value, rules: Value, aggregation: Value) -> Arc<ClusterRole> {
        Arc::new(
            from_value(json!({"metadata": {"name": name, "labels": labels}, "rules": rules, "aggregationRule": aggregation}))
                .unwrap(),
        )
    }

    #[test]
    fn selected_rules_are_merged_once() {
        let rule = |r: &str| json!({"verbs": ["get"], "resources": [r]});
        let sum = role("sum", json!({}), json!([]), json!({"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]}));
        let a = role("a", json!({"to": "sum"}), json!([rule("x"), rule("y")]), Value::Null);
        let b = role("b", json!({"to": "sum"}), json!([rule("y")]), Value::Null);
        let c = role("c", json!({}), json!([rule("z")]), Value::Null);
        let actions = plan(&sum, &[a, b, c, sum.clone()]);
        let [Action::Write(Write { body, .. })] = &actions[..] else { panic!() };
        assert_eq!(body["rules"], json!([rule("x"), rule("y")]));
    }
}
