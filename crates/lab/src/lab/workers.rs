//! Test 2: each tenant has its own worker with its own cards.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Lab, Tenant, eventually};

/// The node annotation that holds the cards.
const REGISTER: &str = "hami.io/node-nvidia-register";
/// What the device plugins register.
const RESOURCES: [&str; 3] = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"];
const PLUGINS: [&str; 2] = ["hami-device-plugin", "hami-mock-device-plugin-daemonset"];
/// How long an edited register may take to be allocatable.
const PATIENCE: Duration = Duration::from_secs(30);
const A: [u64; 3] = [20, 163_840, 200];
const B: [u64; 3] = [40, 65_536, 400];

pub async fn run(lab: &Lab) -> Result<String, String> {
    for (tenant, cards, memory, expected) in [(&lab.a, 2, 81_920, A), (&lab.b, 4, 16_384, B)] {
        check_node(tenant, cards, memory).await?;
        until(tenant, expected).await?;
    }
    let edited = edit_register(&lab.a).await?;
    scale_plugins(lab).await?;
    Ok(format!(
        "{}: {A:?}, {}: {B:?} of gpu, gpumem, gpucores; one card less in the register: {edited:?}; plugins away: 0; both back",
        node_name(&lab.a),
        node_name(&lab.b)
    ))
}

/// Name of the tenant's first worker.
pub fn node_name(tenant: &Tenant) -> String {
    format!("{}-worker-1", tenant.name)
}

fn nodes(tenant: &Tenant) -> Api<Node> {
    Api::all(tenant.client.clone())
}

/// Allocatable of the three resources on the tenant's worker.
pub async fn allocatable(tenant: &Tenant) -> Result<[u64; 3], String> {
    let node = nodes(tenant).get(&node_name(tenant)).await.map_err(|e| format!("read {}: {e}", node_name(tenant)))?;
    let found = node.status.and_then(|s| s.allocatable).unwrap_or_default();
    Ok(RESOURCES.map(|name| found.get(name).and_then(|q| q.0.parse().ok()).unwrap_or(0)))
}

async fn until(tenant: &Tenant, expected: [u64; 3]) -> Result<(), String> {
    let what = format!("{} has {expected:?} allocatable", node_name(tenant));
    eventually(&what, PATIENCE, || async {
        let found = allocatable(tenant).await?;
        if found == expected { Ok(()) } else { Err(format!("it has {found:?}")) }
    })
    .await
}

/// Exactly its own worker, Ready, with its cards.
async fn check_node(tenant: &Tenant, cards: usize, memory: u64) -> Result<(), String> {
    let listed = nodes(tenant).list(&ListParams::default()).await.map_err(|e| e.to_string())?;
    let names: Vec<&str> = listed.iter().filter_map(|n| n.metadata.name.as_deref()).collect();
    if names != [node_name(tenant).as_str()] {
        return Err(format!("{} sees the nodes {names:?}", tenant.name));
    }
    let conditions = listed.items[0].status.as_ref().and_then(|s| s.conditions.as_ref());
    if !conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True")) {
        return Err(format!("{} is not Ready", names[0]));
    }
    let found = register(&listed.items[0])?;
    let fits = found.len() == cards && found.iter().all(|card| card["devmem"].as_u64() == Some(memory));
    if fits { Ok(()) } else { Err(format!("{} registers {found:?}", names[0])) }
}

fn register(node: &Node) -> Result<Vec<Value>, String> {
    let text = node.metadata.annotations.as_ref().and_then(|a| a.get(REGISTER)).ok_or("the node has no register of cards")?;
    serde_json::from_str(text).map_err(|e| format!("the register is not JSON: {e}: {text}"))
}

/// Takes the last card from the register and puts it back.
async fn edit_register(tenant: &Tenant) -> Result<[u64; 3], String> {
    let name = node_name(tenant);
    let node = nodes(tenant).get(&name).await.map_err(|e| e.to_string())?;
    let whole = register(&node)?;
    let less = &whole[..whole.len() - 1];
    let expected = A.map(|n| n / 2);
    write_register(tenant, &json!(less)).await?;
    let outcome = until(tenant, expected).await;
    write_register(tenant, &json!(whole)).await?;
    until(tenant, A).await?;
    outcome.map(|()| expected)
}

async fn write_register(tenant: &Tenant, cards: &Value) -> Result<(), String> {
    let patch = json!({ "metadata": { "annotations": { REGISTER: cards.to_string() } } });
    let patched = nodes(tenant).patch(&node_name(tenant), &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|e| format!("edit the register: {e}"))
}

/// Without plugins on its node nothing is allocatable; tenant-b notices nothing.
async fn scale_plugins(lab: &Lab) -> Result<(), String> {
    select_plugins(&lab.a, json!({ "atoll.dev/nowhere": "true" })).await?;
    let gone = until(&lab.a, [0; 3]).await;
    let others = allocatable(&lab.b).await;
    select_plugins(&lab.a, json!({ "atoll.dev/nowhere": null })).await?;
    until(&lab.a, A).await?;
    gone?;
    if others? == B { Ok(()) } else { Err("tenant-b lost its cards with tenant-a's plugins".to_owned()) }
}

async fn select_plugins(tenant: &Tenant, selector: Value) -> Result<(), String> {
    let sets: Api<DaemonSet> = Api::namespaced(tenant.client.clone(), "kube-system");
    let patch = json!({ "spec": { "template": { "spec": { "nodeSelector": selector } } } });
    for name in PLUGINS {
        let patched = sets.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.map_err(|e| format!("change the node selector of {name}: {e}"))?;
    }
    Ok(())
}
