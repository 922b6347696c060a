//! Bringing an object that exists to what it should be, without undoing what an administrator added.

use serde_json::Value;

use super::{create, flow, policy, resource_of};
use crate::auth::rbac::{Rule, missing};
use crate::cluster::Cluster;
use crate::error::Result;

/// Repairs `found`, if it is not as `wanted` and has not been taken over.
pub(super) async fn repair(cluster: &Cluster, found: &Value, wanted: Value) -> Result<()> {
    let is_automatic = |annotation: &str| found["metadata"]["annotations"][annotation] == "true";
    let repaired = match wanted["kind"].as_str().unwrap_or_default() {
        // Deletion goes its way, and then the namespace comes back.
        "Namespace" | "PriorityClass" => None,
        // Since when is said once.
        "ConfigMap" if wanted["data"]["since"].is_string() => None,
        "ClusterRole" | "Role" if is_automatic(policy::AUTOUPDATE) => repaired_role(found, &wanted),
        "ClusterRoleBinding" | "RoleBinding" if is_automatic(policy::AUTOUPDATE) => {
            if found["roleRef"] != wanted["roleRef"] {
                return replace(cluster, wanted).await;
            }
            repaired_binding(found, &wanted)
        }
        "ClusterRole" | "Role" | "ClusterRoleBinding" | "RoleBinding" => None,
        "FlowSchema" | "PriorityLevelConfiguration" if !is_automatic(flow::AUTOUPDATE) => None,
        _ => overlaid(found, &wanted),
    };
    match repaired {
        None => Ok(()),
        // Somebody else may have repaired or changed it meanwhile; the next round sees.
        Some(object) => match cluster.update(object, "").await {
            Err(e) if e.code != 409 => Err(e),
            _ => Ok(()),
        },
    }
}

/// A binding's role cannot be changed.
async fn replace(cluster: &Cluster, wanted: Value) -> Result<()> {
    let metadata = &wanted["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default());
    cluster.delete(resource_of(&wanted), namespace, name).await?;
    create(cluster, wanted).await
}

/// The role with the rules that it lacks; an aggregated role's rules are the controller's.
fn repaired_role(found: &Value, wanted: &Value) -> Option<Value> {
    let mut repaired = with_metadata(found, wanted);
    if !wanted["aggregationRule"].is_null() {
        repaired["aggregationRule"] = wanted["aggregationRule"].clone();
    } else {
        let own = Rule::all_of(found);
        let lacking = missing(&own, &Rule::all_of(wanted));
        if !lacking.is_empty() {
            repaired["rules"] = own.into_iter().chain(lacking).map(|rule| serde_json::json!(rule)).collect();
        }
    }
    (repaired != *found).then_some(repaired)
}

/// The binding with the subjects that it lacks.
fn repaired_binding(found: &Value, wanted: &Value) -> Option<Value> {
    let mut repaired = with_metadata(found, wanted);
    let list = |binding: &Value| binding["subjects"].as_array().cloned().unwrap_or_default();
    let own = list(found);
    let lacking: Vec<Value> = list(wanted).into_iter().filter(|subject| !own.contains(subject)).collect();
    if !lacking.is_empty() {
        repaired["subjects"] = own.into_iter().chain(lacking).collect();
    }
    (repaired != *found).then_some(repaired)
}

/// `found` with the labels and annotations of `wanted`.
fn with_metadata(found: &Value, wanted: &Value) -> Value {
    let mut repaired = found.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            repaired["metadata"][field][key] = value.clone();
        }
    }
    repaired
}

/// `found` with every field that `wanted` states; none if it says so already.
fn overlaid(found: &Value, wanted: &Value) -> Option<Value> {
    let mut repaired = found.clone();
    overlay(&mut repaired, wanted);
    (repaired != *found).then_some(repaired)
}

fn overlay(target: &mut Value, source: &Value) {
    match (target, source) {
        (Value::Object(target), Value::Object(source)) => {
            for (key, value) in source {
                overlay(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(target), Value::Array(source)) => {
            target.truncate(source.len());
            target.resize(source.len(), Value::Null);
            target.iter_mut().zip(source).for_each(|(target, source)| overlay(target, source));
        }
        (target, source) => *target = source.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_role_gets_back_what_it_lacks_and_keeps_what_was_added() {
        let rule = |verbs: &[&str], resource: &str| json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]});
        let wanted = json!({"metadata": {"labels": {"a": "b"}}, "rules": [rule(&["get", "list"], "pods")]});
        let found = json!({"metadata": {"labels": {"a": "b"}}, "rules": [rule(&["get"], "pods"), rule(&["get"], "secrets")]});
        let repaired = repaired_role(&found, &wanted).unwrap();
        assert_eq!(repaired["rules"], json!([rule(&["get"], "pods"), rule(&["get"], "secrets"), rule(&["list"], "pods")]));
        assert_eq!(repaired_role(&repaired, &wanted), None);
    }

    #[test]
    fn defaults_that_the_server_filled_in_are_no_difference() {
        let wanted = json!({"spec": {"ports": [{"port": 443, "targetPort": 6443}]}});
        let found = json!({"spec": {"ports": [{"port": 443, "targetPort": 6443, "protocol": "TCP"}], "type": "ClusterIP"}});
        assert_eq!(overlaid(&found, &wanted), None);
        let moved = json!({"spec": {"ports": [{"port": 443, "targetPort": 7443}]}});
        assert_eq!(overlaid(&found, &moved).unwrap()["spec"]["ports"][0]["targetPort"], 7443);
    }
}
