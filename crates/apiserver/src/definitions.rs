//! Custom resource definitions: what the server does besides storing them.
//!
//! After each write of a definition, before it is answered, its names are accepted or refused, its conditions follow, and the
//! registry is made anew from all definitions: a custom kind is served as soon as its definition was answered. A definition that is
//! being deleted takes its objects with it; it is held by a finalizer until the last one is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_kube_schema::{Registry, ResourceDef};
use atoll_store::RangeQuery;
use serde_json::{Value, json};

use crate::cluster::{ClusterApi, Resource};
use crate::error::Result;
use crate::objects::{prefix, split_key};
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::strategy::{meta_text, metadata_mut, now};

pub const GROUP: &str = "apiextensions.k8s.io";
pub const PLURAL: &str = "customresourcedefinitions";
/// Holds a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const DEFINITIONS: Resource<'_> = Resource::new(GROUP, PLURAL);

/// Resources whose definition is being deleted: nothing new is created there.
pub type Terminating = BTreeSet<(String, String)>;

pub fn is_definition(def: &ResourceDef) -> bool {
    def.group == GROUP && def.plural == PLURAL
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(definition: &Value, condition: &str) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

/// Rebuilds the registry from all definitions.
pub(crate) async fn reload(core: &Core) -> Result<()> {
    let listed = core.list(DEFINITIONS, "").await?;
    let mut registry = Registry::builtin();
    let mut terminating = Terminating::new();
    for definition in listed.items.iter().filter(|d| is_true(d, "Established")) {
        match ResourceDef::from_crd(definition) {
            Ok(rows) => registry = registry.with(rows),
            Err(error) => tracing::error!(name = meta_text(definition, "name"), %error, "a stored definition cannot be served"),
        }
        if !meta_text(definition, "deletionTimestamp").is_empty() {
            terminating.insert((text(definition, "/spec/group").to_owned(), text(definition, "/spec/names/plural").to_owned()));
        }
    }
    core.set_registry(registry, terminating);
    Ok(())
}

/// Does what a write of a definition calls for. `name` is empty where several were written.
pub(crate) async fn follow(core: &Core, call: &Call) -> Result<()> {
    let listed = core.list(DEFINITIONS, "").await?;
    for definition in &listed.items {
        let is_meant = call.info.name.is_empty() || meta_text(definition, "name") == call.info.name;
        if !is_meant {
            continue;
        }
        let wanted = status(definition, &listed.items);
        if definition.get("status") != Some(&wanted) {
            let mut changed = definition.as_ref().clone();
            changed["status"] = wanted;
            match core.update(changed, "status").await {
                // A newer write has its own follow-up.
                Err(error) if error.code != 409 && error.code != 404 => {
                    tracing::error!(name = meta_text(definition, "name"), %error, "the status of a definition cannot be written");
                }
                _ => {}
            }
        }
        if !meta_text(definition, "deletionTimestamp").is_empty()
            && let Some(core) = core.this.upgrade()
        {
            tokio::spawn(clean_up(core, definition.clone()));
        }
    }
    reload(core).await
}

/// Goes on with deletions that a stop of the server interrupted.
pub(crate) async fn resume(core: &Arc<Core>) -> Result<()> {
    reload(core).await?;
    for definition in core.list(DEFINITIONS, "").await?.items {
        if !meta_text(&definition, "deletionTimestamp").is_empty() {
            tokio::spawn(clean_up(core.clone(), definition));
        }
    }
    Ok(())
}

/// The status that a definition should have.
fn status(definition: &Value, all: &[Arc<Value>]) -> Value {
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let conflict = conflict(definition, &names, all);
    let accepted = match &conflict {
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => condition("NamesAccepted", "False", reason, message),
    };
    let was_established = is_true(definition, "Established");
    let established = match &conflict {
        Some(_) if !was_established => condition("Established", "False", "NotAccepted", "not all names are accepted"),
        _ => condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
    };
    if conflict.is_none() {
        status["acceptedNames"] = names;
    }
    set(&mut status, accepted);
    set(&mut status, established);
    if !meta_text(definition, "deletionTimestamp").is_empty() {
        let message = "CustomResource deletion is in progress";
        set(&mut status, condition("Terminating", "True", "InstanceDeletionInProgress", message));
    }
    status
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "lastTransitionTime": now(), "reason": reason, "message": message })
}

fn set(status: &mut Value, mut condition: Value) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(old) => {
            if old["status"] == condition["status"] {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            for (key, value) in condition.as_object().into_iter().flatten() {
                old[key] = value.clone();
            }
        }
        None => list.push(condition),
    }
}

/// A name that another definition of the group has already.
fn conflict(definition: &Value, names: &Value, all: &[Arc<Value>]) -> Option<(&'static str, String)> {
    let group = text(definition, "/spec/group");
    let others: Vec<&Value> = all
        .iter()
        .filter(|d| meta_text(d, "uid") != meta_text(definition, "uid") && text(d, "/spec/group") == group)
        .filter_map(|d| d.pointer("/status/acceptedNames"))
        .collect();
    let short = |value: &Value| -> Vec<String> {
        value["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for other in others {
        let taken: Vec<String> = [other["plural"].as_str(), other["singular"].as_str()]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .chain(short(other))
            .filter(|n| !n.is_empty())
            .collect();
        for (key, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
            let name = names[key].as_str().unwrap_or_default();
            if taken.iter().any(|t| t == name) {
                return Some((reason, format!("{name:?} is already in use")));
            }
        }
        if let Some(name) = short(names).into_iter().find(|n| taken.contains(n)) {
            return Some(("ShortNamesConflict", format!("{name:?} is already in use")));
        }
        for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
            let name = names[key].as_str().unwrap_or_default();
            if name == other["kind"].as_str().unwrap_or_default() || name == other["listKind"].as_str().unwrap_or_default() {
                return Some((reason, format!("{name:?} is already in use")));
            }
        }
    }
    None
}

/// Deletes all objects of a definition, waits until they are gone, and lets the definition go.
async fn clean_up(core: Arc<Core>, definition: Arc<Value>) {
    if let Err(error) = empty(&core, &definition).await {
        tracing::warn!(name = meta_text(&definition, "name"), %error, "objects of a definition could not be deleted");
    }
}

async fn empty(core: &Arc<Core>, definition: &Value) -> Result<()> {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let prefix = prefix(group, plural, "");
    loop {
        let page = core.objects.range(RangeQuery::prefix(&prefix)).await?;
        if page.entries.is_empty() {
            return release(core, meta_text(definition, "name"), meta_text(definition, "uid")).await;
        }
        for (key, _) in &page.entries {
            let (namespace, name) = split_key(key, &prefix);
            match core.delete(Resource::new(group, plural), namespace, name).await {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        // Those that finalizers still hold: the next change of any of them is worth another look.
        let page = core.objects.range(RangeQuery::prefix(&prefix)).await?;
        if !page.entries.is_empty() {
            let mut watcher = core.objects.watch(&prefix, page.revision.0).await?;
            watcher.next_batch(1).await.map_err(crate::objects::store_error)?;
        }
    }
}

async fn release(core: &Core, name: &str, uid: &str) -> Result<()> {
    loop {
        let Some(definition) = core.get(DEFINITIONS, "", name).await? else { return Ok(()) };
        if meta_text(&definition, "uid") != uid {
            return Ok(());
        }
        let mut released = definition.as_ref().clone();
        let metadata = metadata_mut(&mut released)?;
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            let before = finalizers.len();
            finalizers.retain(|f| f != FINALIZER);
            if finalizers.len() == before {
                return Ok(());
            }
        }
        match core.update(released, "").await {
            Err(error) if error.code == 409 => {}
            outcome => return outcome.map(drop),
        }
    }
}
