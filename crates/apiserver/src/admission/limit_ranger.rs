//! `LimitRanger`: a namespace's LimitRanges give containers their defaults and bound what Pods and claims may ask for.

use std::cmp::Ordering;

use async_trait::async_trait;
use atoll_kube_schema::quantity::Quantity;
use serde_json::{Map, Value};

use super::{Attributes, Operation, Plugin};
use crate::cluster::{Cluster, Resource};
use crate::error::Result;
use crate::quota::{Usage, amounts, container_amounts, pod_amounts};
use crate::strategy::meta_text;

/// Says on the Pod what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[derive(Debug, Default)]
pub struct LimitRanger;

/// What one container, Pod or claim asks for.
struct Demand {
    requests: Usage,
    limits: Usage,
    /// A claim has no limits: only its requests are held against the maximum.
    has_limits: bool,
}

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        if !is_bounded(attributes) || attributes.resource != "pods" {
            return Ok(());
        }
        for range in cluster.list(Resource::core("limitranges"), &attributes.namespace).await?.items {
            fill(&mut attributes.object, &range);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
        if !is_bounded(attributes) {
            return Ok(());
        }
        for range in cluster.list(Resource::core("limitranges"), &attributes.namespace).await?.items {
            let broken = broken(&attributes.resource, &attributes.object, &range);
            match broken.as_slice() {
                [] => {}
                [one] => return Err(attributes.forbidden(one)),
                several => return Err(attributes.forbidden(format!("[{}]", several.join(", ")))),
            }
        }
        Ok(())
    }
}

/// Pods when they are created or resized, claims always; nothing that is on its way out.
fn is_bounded(attributes: &Attributes) -> bool {
    let creates = attributes.operation == Operation::Create;
    let is_going = !creates && !meta_text(&attributes.object, "deletionTimestamp").is_empty();
    let counts = match (attributes.group.as_str(), attributes.resource.as_str(), attributes.subresource.as_str()) {
        ("", "pods", "") => creates,
        ("", "pods", "resize") => !creates,
        ("", "persistentvolumeclaims", "") => true,
        _ => false,
    };
    counts && !is_going
}

fn items_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |item| item["type"] == kind)
}

/// Gives containers the defaults of a range, where they state nothing themselves.
fn fill(pod: &mut Value, range: &Value) {
    let mut defaults = [("defaultRequest", "requests", Map::new()), ("default", "limits", Map::new())];
    for item in items_of(range, "Container") {
        for (key, _, found) in &mut defaults {
            found.extend(item[*key].as_object().cloned().unwrap_or_default());
        }
    }
    let mut notes = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for (_, side, defaults) in &defaults {
                let missing: Vec<&String> = defaults.keys().filter(|k| container["resources"][*side].get(*k).is_none()).collect();
                if missing.is_empty() {
                    continue;
                }
                let names = missing.iter().map(|k| k.as_str()).collect::<Vec<_>>().join(", ");
                let name = container["name"].as_str().unwrap_or_default();
                notes.push(format!("{names} {} for {word} {name}", side.trim_end_matches('s')));
                for key in missing {
                    container["resources"][*side][key] = defaults[key].clone();
                }
            }
        }
    }
    if !notes.is_empty() {
        pod["metadata"]["annotations"][ANNOTATION] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
    }
}

/// Which bounds of a range an object breaks.
fn broken(resource: &str, object: &Value, range: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if resource == "persistentvolumeclaims" {
        let requests = amounts(&object["spec"]["resources"]["requests"]);
        let demand = Demand { requests, limits: Usage::new(), has_limits: false };
        items_of(range, "PersistentVolumeClaim").for_each(|item| check(item, &demand, &mut out));
        return out;
    }
    for item in items_of(range, "Container") {
        for list in ["containers", "initContainers"] {
            for container in object["spec"][list].as_array().into_iter().flatten() {
                let of = |side| container_amounts(container, side);
                check(item, &Demand { requests: of("requests"), limits: of("limits"), has_limits: true }, &mut out);
            }
        }
    }
    for item in items_of(range, "Pod") {
        let of = |side| pod_amounts(object, side);
        check(item, &Demand { requests: of("requests"), limits: of("limits"), has_limits: true }, &mut out);
    }
    out
}

fn check(item: &Value, demand: &Demand, out: &mut Vec<String>) {
    let kind = item["type"].as_str().unwrap_or_default();
    for (name, bound) in amounts(&item["min"]) {
        let sides = [("request", demand.requests.get(&name), true), ("limit", demand.limits.get(&name), false)];
        out.extend(judge(&format!("minimum {name} usage per {kind} is {bound}"), bound, Ordering::Less, &sides));
    }
    for (name, bound) in amounts(&item["max"]) {
        let (request, limit) = (demand.requests.get(&name), demand.limits.get(&name));
        let sides = [("limit", limit, demand.has_limits), ("request", request, !demand.has_limits)];
        out.extend(judge(&format!("maximum {name} usage per {kind} is {bound}"), bound, Ordering::Greater, &sides));
    }
    if !demand.has_limits {
        return;
    }
    for (name, bound) in amounts(&item["maxLimitRequestRatio"]) {
        let what = format!("{name} max limit to request ratio per {kind} is {bound}");
        let side = |amounts: &Usage| amounts.get(&name).copied().filter(|q| !q.is_zero());
        match (side(&demand.requests), side(&demand.limits)) {
            (None, _) => out.push(format!("{what}, but no request is specified or request is 0")),
            (_, None) => out.push(format!("{what}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.nano() as f64 / request.nano() as f64;
                if ratio > bound.nano() as f64 / 1e9 {
                    out.push(format!("{what}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

/// The first side that breaks a bound: one that has to be stated and is not, or one that lies beyond.
fn judge(what: &str, bound: Quantity, beyond: Ordering, sides: &[(&str, Option<&Quantity>, bool)]) -> Option<String> {
    sides.iter().find_map(|(side, amount, must_state)| match amount {
        None if *must_state => Some(format!("{what}.  No {side} is specified")),
        Some(amount) if (*amount).cmp(&bound) == beyond => Some(format!("{what}, but {side} is {amount}")),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(resources: Value) -> Value {
        json!({ "metadata": {}, "spec": { "containers": [{ "name": "c", "resources": resources }] } })
    }

    fn count(limits: Value, resources: Value) -> usize {
        broken("pods", &pod(resources), &json!({ "spec": { "limits": [limits] } })).len()
    }

    #[test]
    fn containers_and_pods_stay_within_the_bounds() {
        let both = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
        let container = json!({ "type": "Container", "min": { "cpu": "100m" }, "max": { "cpu": "1" }, "maxLimitRequestRatio": { "cpu": "2" } });
        assert_eq!(count(container.clone(), both("500m", "1")), 0);
        assert_eq!(count(container.clone(), both("50m", "100m")), 1, "below the minimum");
        assert_eq!(count(container.clone(), both("1", "2")), 1, "above the maximum");
        assert_eq!(count(container.clone(), both("100m", "1")), 1, "ratio");
        assert_eq!(count(container, json!({})), 3, "nothing stated");
        let whole = json!({ "type": "Pod", "max": { "memory": "1Gi" } });
        assert_eq!(count(whole.clone(), json!({ "limits": { "memory": "2Gi" } })), 1);
        assert_eq!(count(whole, json!({ "limits": { "memory": "1Gi" } })), 0);
    }

    #[test]
    fn a_claim_is_bounded_by_its_request() {
        let range = json!({ "spec": { "limits": [{ "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "5Gi" } }] } });
        let count = |storage: &str| {
            broken("persistentvolumeclaims", &json!({ "spec": { "resources": { "requests": { "storage": storage } } } }), &range)
                .len()
        };
        assert_eq!((count("500Mi"), count("2Gi"), count("10Gi")), (1, 0, 1));
    }

    #[test]
    fn defaults_fill_what_is_not_stated_and_are_noted() {
        let range = json!({ "spec": { "limits": [{ "type": "Container", "default": { "cpu": "1" }, "defaultRequest": { "cpu": "500m" } }] } });
        let mut object = pod(json!({ "requests": { "cpu": "200m" } }));
        fill(&mut object, &range);
        assert_eq!(
            object["spec"]["containers"][0]["resources"],
            json!({ "requests": { "cpu": "200m" }, "limits": { "cpu": "1" } })
        );
        assert_eq!(object["metadata"]["annotations"][ANNOTATION], "LimitRanger plugin set: cpu limit for container c");
    }
}
