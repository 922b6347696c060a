//! `garbage-collector-controller`: what no living owner owns is deleted; foreground and orphan deletion are carried out.

mod graph;
mod watch;

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::discovery::Served;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::executor::send;
use crate::key::Key;
use graph::{FOREGROUND, Graph, Look, Node, ORPHAN, Owners, Verdict, judge};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the watches write and the loop reads.
#[derive(Default)]
struct Shared {
    graph: Mutex<Graph>,
    /// Kinds by their number in the graph; a number is never given twice.
    kinds: Mutex<Vec<Served>>,
}

impl Shared {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds(&self) -> MutexGuard<'_, Vec<Served>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kind(&self, node: &Node) -> Option<Served> {
        self.kinds().get(node.kind).cloned()
    }

    /// The kind that an owner reference names, in whatever version it is served.
    fn kind_of(&self, owner: &OwnerReference) -> Option<Served> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        self.kinds().iter().find(|k| k.group == group && k.kind == owner.kind).cloned()
    }
}

const DELETE: &str = "delete";
const ORPHANS: &str = "orphan";

fn key_of(look: Look) -> Key {
    match look {
        Look::Delete(uid) => Key::new(DELETE, uid.as_ref()),
        Look::Orphan(uid) => Key::new(ORPHANS, uid.as_ref()),
    }
}

/// Puts the controller together. Its keys are uids, under what to do with them.
pub fn start(env: &Env) -> Vec<Controller> {
    let user = "system:serviceaccount:kube-system:generic-garbage-collector";
    let builder = Builder::new(env, "garbage-collector-controller", user);
    let (client, shared) = (builder.client.clone(), Arc::new(Shared::default()));
    let watches = watch::Watches::start(builder.client.clone(), shared.clone(), builder.queue.clone());
    vec![builder.ask(move |key| {
        // The watches live as long as the loop.
        let (client, shared, _watches) = (client.clone(), shared.clone(), watches.clone());
        async move {
            if key.namespace == ORPHANS {
                orphan(&client, &shared, &key.name).await
            } else {
                attempt(&client, &shared, &key.name).await
            }
        }
    })]
}

async fn metadata(client: &kube::Client, path: &str) -> Result<Option<ObjectMeta>> {
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let request = http::Request::get(path).header("accept", accept).body(Vec::new())?;
    match send(client, request).await {
        Ok(mut object) => Ok(serde_json::from_value(object["metadata"].take()).ok()),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A merge patch of one object's metadata, tied to what was read.
fn patch(path: String, meta: &ObjectMeta, mut change: Value) -> Action {
    change["uid"] = json!(meta.uid);
    change["resourceVersion"] = json!(meta.resource_version);
    Action::write(Verb::MergePatch, path, json!({"metadata": change}))
}

fn without(finalizer: &str, meta: &ObjectMeta) -> Value {
    json!({"finalizers": meta.finalizers.iter().flatten().filter(|f| *f != finalizer).collect::<Vec<_>>()})
}

/// Judges one object by what the API server says now.
async fn attempt(client: &kube::Client, shared: &Shared, uid: &str) -> Result<Vec<Action>> {
    let Some(node) = shared.graph().node(uid).cloned() else { return Ok(Vec::new()) };
    if node.deleting && !node.foreground {
        return Ok(Vec::new());
    }
    let Some(kind) = shared.kind(&node) else { return Ok(Vec::new()) };
    let path = kind.path(&node.key);
    let Some(meta) = metadata(client, &path).await?.filter(|m| m.uid.as_deref() == Some(uid)) else {
        // The watch will tell.
        return Ok(Vec::new());
    };
    if node.foreground {
        return Ok(finish_foreground(shared, uid, path, &meta));
    }
    let owners = classify(client, shared, &node).await?;
    let has_dependents = !shared.graph().dependents(uid).is_empty();
    match judge(&owners, &meta, has_dependents) {
        Verdict::Keep => Ok(Vec::new()),
        Verdict::Release => {
            let left = json!({"ownerReferences": owners.solid});
            Ok(vec![patch(path, &meta, left)])
        }
        Verdict::Delete(policy) => {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy,
                "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version}});
            Ok(vec![Action::write(Verb::Delete, path, options)])
        }
    }
}

/// An owner that waits is let go when nothing blocks it; else its dependents are looked at (each wakes it when it goes).
fn finish_foreground(shared: &Shared, uid: &str, path: String, meta: &ObjectMeta) -> Vec<Action> {
    if !shared.graph().blocking(uid).is_empty() {
        return Vec::new();
    }
    if meta.finalizers.iter().flatten().any(|f| f == FOREGROUND) {
        return vec![patch(path, meta, without(FOREGROUND, meta))];
    }
    Vec::new()
}

async fn classify(client: &kube::Client, shared: &Shared, node: &Node) -> Result<Owners> {
    let mut owners = Owners::default();
    for owner in &node.owners {
        let (exists, awaits) = {
            let graph = shared.graph();
            (graph.exists(&owner.uid), graph.awaits(&owner.uid))
        };
        if awaits {
            owners.waiting.push(owner.clone());
        } else if exists || !is_gone(client, shared, node, owner).await? {
            owners.solid.push(owner.clone());
        } else {
            owners.dangling.push(owner.clone());
        }
    }
    Ok(owners)
}

/// Asks the API server about an owner that no watch has shown.
async fn is_gone(client: &kube::Client, shared: &Shared, node: &Node, owner: &OwnerReference) -> Result<bool> {
    let Some(kind) = shared.kind_of(owner) else {
        return Err(Error::Unfinished(format!("owner kind {} {} is not served", owner.api_version, owner.kind)));
    };
    let namespace = if kind.namespaced { node.key.namespace.as_str() } else { "" };
    if kind.namespaced && namespace.is_empty() {
        // A cluster-scoped object cannot have an owner in a namespace; such a reference is left alone.
        return Ok(false);
    }
    let found = metadata(client, &kind.path(&Key::new(namespace, &owner.name))).await?;
    Ok(found.is_none_or(|meta| meta.uid.as_ref() != Some(&owner.uid)))
}

/// Sets free the dependents of an owner, then the owner itself.
async fn orphan(client: &kube::Client, shared: &Shared, uid: &str) -> Result<Vec<Action>> {
    let Some(node) = shared.graph().node(uid).filter(|n| n.orphan).cloned() else { return Ok(Vec::new()) };
    let dependents: Vec<Node> = {
        let graph = shared.graph();
        graph.dependents(uid).iter().filter_map(|d| graph.node(d).cloned()).collect()
    };
    let mut actions = Vec::new();
    for dependent in dependents {
        let Some(kind) = shared.kind(&dependent) else { continue };
        let path = kind.path(&dependent.key);
        if let Some(meta) = metadata(client, &path).await? {
            let left: Vec<_> = meta.owner_references.iter().flatten().filter(|o| o.uid != uid).collect();
            if left.len() < meta.owner_references.as_ref().map_or(0, Vec::len) {
                actions.push(patch(path, &meta, json!({"ownerReferences": left})));
            }
        }
    }
    let Some(kind) = shared.kind(&node) else { return Ok(actions) };
    let path = kind.path(&node.key);
    if let Some(meta) = metadata(client, &path).await?.filter(|m| m.uid.as_deref() == Some(uid)) {
        actions.push(patch(path, &meta, without(ORPHAN, &meta)));
    }
    Ok(actions)
}
