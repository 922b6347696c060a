//! `ResourceQuota`: what a namespace may use is charged before the write, under compare-and-set on the quota's status.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{Attributes, Operation, Plugin};
use crate::cluster::{Cluster, Resource};
use crate::error::{ApiError, Result};
use crate::limits;
use crate::quota::{self, DeviceView, Usage};

/// Keys for which every container of a Pod must state an amount, so that it can be charged at all.
const MUST_STATE: [(&str, &str, &str); 6] = [
    ("cpu", "requests", "cpu"),
    ("memory", "requests", "memory"),
    ("requests.cpu", "requests", "cpu"),
    ("requests.memory", "requests", "memory"),
    ("limits.cpu", "limits", "cpu"),
    ("limits.memory", "limits", "memory"),
];

/// Writes of one namespace are charged one after another; namespaces share a bounded number of turns.
#[derive(Default)]
pub struct ResourceQuota {
    turns: [Mutex<()>; limits::QUOTA_TURNS],
}

/// A quota with what a write would add to it.
struct Charged {
    object: Arc<Value>,
    used: Usage,
    delta: Usage,
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
        let resizes = attributes.resource == "pods" && attributes.subresource == "resize";
        if attributes.namespace.is_empty() || !(attributes.subresource.is_empty() || resizes) {
            return Ok(());
        }
        let quotas = cluster.list(Resource::core("resourcequotas"), &attributes.namespace).await?;
        if quotas.items.is_empty() {
            return Ok(());
        }
        let mut hash = DefaultHasher::new();
        attributes.namespace.hash(&mut hash);
        let _turn = self.turns[hash.finish() as usize % limits::QUOTA_TURNS].lock().await;
        let usage = usage(attributes, cluster).await?;
        for _ in 0..limits::QUOTA_ATTEMPTS {
            match charge(attributes, cluster, &usage).await {
                Err(e) if e.reason == "Conflict" => {}
                settled => return settled,
            }
        }
        Err(attributes.forbidden("the namespace's quotas change too often to be charged: try again"))
    }
}

/// What the new and the old object use.
async fn usage(attributes: &Attributes, cluster: &Cluster) -> Result<(Usage, Usage)> {
    let old = attributes.old.as_deref();
    let needs_devices = attributes.is_resource("", "pods") && DeviceView::is_needed(&attributes.object);
    let devices = if needs_devices {
        let nodes = cluster.list(Resource::core("nodes"), "").await?;
        DeviceView::of_nodes(nodes.items.iter().map(|n| &**n))
    } else {
        DeviceView::default()
    };
    let of = |object: &Value| quota::usage_of(&attributes.group, &attributes.resource, object, &devices);
    Ok((of(&attributes.object), old.map(of).unwrap_or_default()))
}

fn shown(keys: &[String], amounts: &Usage) -> String {
    let zero = "0".to_owned();
    let parts = keys.iter().map(|k| format!("{k}={}", amounts.get(k).map_or(zero.clone(), ToString::to_string)));
    parts.collect::<Vec<_>>().join(",")
}

async fn charge(attributes: &Attributes, cluster: &Cluster, (new, old): &(Usage, Usage)) -> Result<()> {
    let quotas = cluster.list(Resource::core("resourcequotas"), &attributes.namespace).await?;
    let mut charged = Vec::new();
    for object in quotas.items {
        if let Some(one) = judge(attributes, &object, new, old)? {
            charged.push(one);
        }
    }
    if attributes.dry_run {
        return Ok(());
    }
    for Charged { object, used, delta } in charged {
        let mut updated = (*object).clone();
        for (key, amount) in quota::plus(&used, &delta) {
            updated["status"]["used"][key] = json!(amount.to_string());
        }
        cluster.update(updated, "status").await?;
    }
    Ok(())
}

/// What the write adds to one quota: nothing, an amount, or too much.
fn judge(attributes: &Attributes, object: &Arc<Value>, new: &Usage, old: &Usage) -> Result<Option<Charged>> {
    let (group, resource) = (attributes.group.as_str(), attributes.resource.as_str());
    if !quota::applies(object, group, resource, &attributes.object) {
        return Ok(None);
    }
    let hard = quota::amounts(&object["spec"]["hard"]);
    let covered = quota::covered(new, &hard);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if attributes.operation == Operation::Create && attributes.is_resource("", "pods") {
        must_state(attributes, name, &hard)?;
    }
    // An object that comes into the scope by this write counts in full.
    let was_in = attributes.old.as_deref().is_some_and(|old| quota::applies(object, group, resource, old));
    let delta = quota::positive_delta(&covered, if was_in { old } else { const { &Usage::new() } });
    if delta.is_empty() {
        return Ok(None);
    }
    let used = quota::amounts(&object["status"]["used"]);
    let unknown: Vec<String> = delta.keys().filter(|k| !used.contains_key(*k)).cloned().collect();
    if !unknown.is_empty() {
        let why = format!("status unknown for quota: {name}, resources: {}", unknown.join(","));
        return Err(attributes.forbidden(why));
    }
    let exceeded = quota::exceeded(&delta, &used, &hard);
    if !exceeded.is_empty() {
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            shown(&exceeded, &delta),
            shown(&exceeded, &used),
            shown(&exceeded, &hard)
        );
        return Err(attributes.forbidden(why));
    }
    Ok(Some(Charged { object: object.clone(), used, delta }))
}

fn must_state(attributes: &Attributes, quota: &str, hard: &Usage) -> Result<(), ApiError> {
    let lists = ["containers", "initContainers"];
    let mut missing = Vec::new();
    for (key, kind, resource) in MUST_STATE.iter().filter(|(key, ..)| hard.contains_key(*key)) {
        let containers = lists.iter().flat_map(|list| attributes.object["spec"][*list].as_array().into_iter().flatten());
        let silent = containers.filter(|c| c["resources"][*kind].get(*resource).is_none());
        let mut names: Vec<&str> = silent.filter_map(|c| c["name"].as_str()).collect();
        names.sort_unstable();
        if !names.is_empty() {
            missing.push(format!("{key} for: {}", names.join(",")));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort();
    Err(attributes.forbidden(format!("failed quota: {quota}: must specify {}", missing.join("; "))))
}
