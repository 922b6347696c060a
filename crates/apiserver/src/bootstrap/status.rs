//! What the server says of its own objects: its range of addresses is ready, its groups are served, its flow schemas have levels.

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Resource};
use crate::error::Result;

/// Writes the conditions that are missing.
pub(super) async fn report(cluster: &Cluster) -> Result<()> {
    let now = Timestamp::now();
    let mut updates = Vec::new();
    for (resource, condition) in [
        (Resource::new("networking.k8s.io", "servicecidrs"), cidr_condition as fn(&Value) -> Option<Value>),
        (Resource::new("apiregistration.k8s.io", "apiservices"), api_service_condition),
        (Resource::new("flowcontrol.apiserver.k8s.io", "flowschemas"), flow_schema_condition),
    ] {
        let objects = cluster.list(resource, "").await?.items;
        updates.extend(objects.iter().filter_map(|object| with_condition(object, condition(object)?, now)));
    }
    let updates = updates.into_iter().map(|object| async move {
        match cluster.update(object, "status").await {
            Err(e) if e.code != 409 => Err(e),
            _ => Ok(()),
        }
    });
    super::first_failure(join_all(updates).await)
}

/// `object` with a condition; none if it has it already.
fn with_condition(object: &Value, mut condition: Value, now: Timestamp) -> Option<Value> {
    let current = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if current.iter().any(|c| c["type"] == condition["type"] && c["status"] == condition["status"]) {
        return None;
    }
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    condition["lastTransitionTime"] = now.to_string().into();
    let mut object = object.clone();
    let others = current.into_iter().filter(|c| c["type"] != condition["type"]);
    let conditions: Vec<Value> = others.chain([condition.clone()]).collect();
    object["status"]["conditions"] = conditions.into();
    Some(object)
}

fn cidr_condition(object: &Value) -> Option<Value> {
    (object["metadata"]["name"] == "kubernetes")
        .then(|| json!({"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready"}))
}

fn api_service_condition(object: &Value) -> Option<Value> {
    object["spec"]["service"].is_null().then(|| {
        json!({
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        })
    })
}

fn flow_schema_condition(object: &Value) -> Option<Value> {
    let level = object["spec"]["priorityLevelConfiguration"]["name"].as_str()?;
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists");
    Some(json!({"type": "Dangling", "status": "False", "reason": "Found", "message": message}))
}
