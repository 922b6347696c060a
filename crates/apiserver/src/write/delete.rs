//! Delete: preconditions, grace, finalizers, and who takes care of the dependents.

use bytes::Bytes;
use http::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::delete_options::{DeleteOptions, Propagation};
use super::{Current, Written, admit, attributes, commit, current};
use crate::admission::Operation;
use crate::error::{ApiError, GroupResource, Result};
use crate::http_types::Body;
use crate::pipeline::call::Call;
use crate::pipeline::draft::Admitted;
use crate::server::Core;
use crate::strategy::{meta_text, metadata_mut};
use crate::{encoding, hooks, limits};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a delete came to.
pub(super) struct Deleted {
    pub object: Value,
    pub is_gone: bool,
}

pub(crate) async fn delete(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let options = DeleteOptions::read(call, &bytes)?;
    let deleted = delete_named(core, call, &call.info.name, &options).await?;
    if !deleted.is_gone || hooks::returns_deleted(&call.def) {
        let code = if !deleted.is_gone && options.cascades_explicitly { 202 } else { 200 };
        return encoding::object_answer(call, code, &deleted.object);
    }
    encoding::value_answer(call, 200, &success(call, &deleted.object))
}

fn success(call: &Call, object: &Value) -> Value {
    let mut details = json!({ "name": meta_text(object, "name"), "kind": call.def.plural });
    if !call.def.group.is_empty() {
        details["group"] = call.def.group.as_str().into();
    }
    details["uid"] = meta_text(object, "uid").into();
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

/// Deletes one object, or begins to.
pub(super) async fn delete_named(core: &Core, call: &Call, name: &str, options: &DeleteOptions) -> Result<Deleted> {
    for _ in 0..limits::CONFLICT_RETRIES_MAX {
        let not_found = || ApiError::not_found(call.group_resource(), name);
        let now = current(core, call, name).await?.ok_or_else(not_found)?;
        check_preconditions(call, name, &now, options)?;
        if hooks::is_system(&call.def, name) {
            let why = "this is a system priority class and cannot be deleted";
            return Err(ApiError::forbidden(call.group_resource(), name, why));
        }
        let step = next_step(call, &now.object, options)?;
        let mut attributes = attributes(call, Operation::Delete, name, Value::Null, Some(now.object.clone()), options.dry_run);
        attributes.options = options.to_json();
        let admitted = admit(core, call, Some(now.revision), attributes).await?;
        let (admitted, is_gone) = match step {
            Step::Nothing => return Ok(Deleted { object: now.object.as_ref().clone(), is_gone: false }),
            Step::Remove => (admitted, true),
            Step::Mark(object) => (marked(admitted, call, object), false),
        };
        match commit(core, admitted, options.dry_run).await? {
            // What is gone is answered as it was, with the mark of a graceful deletion where its kind has one.
            Written::Done(_) if is_gone => {
                let mut object = now.object.as_ref().clone();
                if call.def.strategy.is_deleted_gracefully {
                    let is_marked = !meta_text(&object, "deletionTimestamp").is_empty();
                    mark(&mut object, 0, is_marked)?;
                }
                return Ok(Deleted { object, is_gone });
            }
            Written::Done(object) => return Ok(Deleted { object, is_gone }),
            Written::Raced => {}
        }
    }
    Err(super::modified(call, name))
}

fn marked(admitted: Admitted, call: &Call, object: Value) -> Admitted {
    admitted.into_mark(crate::convert::to_storage(&call.registry, &call.def, object.clone()), object)
}

fn check_preconditions(call: &Call, name: &str, now: &Current, options: &DeleteOptions) -> Result<()> {
    // Upstream names the kind where the resource should be.
    let kind = GroupResource { group: &call.def.group, resource: &call.def.kind };
    let have = meta_text(&now.object, "uid");
    if let Some(uid) = options.uid.as_deref().filter(|u| *u != have) {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {have}");
        return Err(ApiError::conflict(kind, name, why));
    }
    let have = now.revision.to_string();
    if let Some(version) = options.resource_version.as_deref().filter(|v| *v != have) {
        let why =
            format!("Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {have}");
        return Err(ApiError::conflict(kind, name, why));
    }
    Ok(())
}

enum Step {
    /// It is being deleted already and nothing about that changes.
    Nothing,
    Remove,
    /// It stays for now, in this form.
    Mark(Value),
}

fn next_step(call: &Call, now: &Value, options: &DeleteOptions) -> Result<Step> {
    let mut object = now.clone();
    let grace = hooks::grace_seconds(&call.def, now, options.grace_period_seconds);
    let is_marked = !meta_text(now, "deletionTimestamp").is_empty();
    if call.def.strategy.is_deleted_gracefully && is_marked {
        // A second delete can only shorten the time that is left.
        let left = now.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
        let is_shorter = options.grace_period_seconds.is_some() && grace < left;
        if left > 0 && !is_shorter {
            return Ok(Step::Nothing);
        }
    }
    // Once it is being deleted, a finalizer that was taken away does not come back.
    let own = hooks::deletion_finalizer(&call.def).filter(|_| !is_marked);
    set_finalizers(&mut object, options, own)?;
    if grace > 0 {
        mark(&mut object, grace, is_marked)?;
        hooks::begin_deletion(&call.def, &mut object);
        return Ok(Step::Mark(object));
    }
    let has_finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    if has_finalizers || hooks::is_held(&call.def, &object) {
        let already = is_marked
            && object.pointer("/metadata/finalizers") == now.pointer("/metadata/finalizers")
            && now.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default() == 0;
        if already {
            return Ok(Step::Nothing);
        }
        mark(&mut object, 0, is_marked)?;
        if hooks::is_deleted_by_condition(&call.def) {
            metadata_mut(&mut object)?.remove("deletionGracePeriodSeconds");
        }
        hooks::begin_deletion(&call.def, &mut object);
        return Ok(Step::Mark(object));
    }
    Ok(Step::Remove)
}

/// The garbage collector's finalizers, as the propagation policy wants them.
fn set_finalizers(object: &mut Value, options: &DeleteOptions, own: Option<&str>) -> Result<()> {
    let metadata = metadata_mut(object)?;
    let old: Vec<Value> = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let has = |name: &str| old.iter().any(|f| f == name);
    let wants = match options.propagation {
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None => None,
    };
    let mut new: Vec<Value> = old.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if let Some(name) = wants {
        new.push(name.into());
    }
    if let Some(name) = own.filter(|name| !new.iter().any(|f| f == name)) {
        new.push(name.into());
    }
    if new.is_empty() {
        metadata.remove("finalizers");
    } else if new.len() != old.len() || !new.iter().all(|f| old.contains(f)) {
        metadata.insert("finalizers".into(), new.into());
    }
    Ok(())
}

fn mark(object: &mut Value, grace: i64, was_marked: bool) -> Result<()> {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let metadata = metadata_mut(object)?;
    let until = if was_marked && grace == 0 {
        None
    } else {
        // A shortened time counts from when the first delete came.
        Some(Timestamp::now().checked_add(SignedDuration::from_secs(grace)).map_err(ApiError::internal)?)
    };
    if let Some(until) = until {
        metadata.insert("deletionTimestamp".into(), until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    }
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if generation > 0 && !was_marked {
        metadata.insert("generation".into(), (generation + 1).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_follow_the_propagation_policy() {
        let with = |propagation| DeleteOptions { propagation, ..DeleteOptions::default() };
        let mut object = json!({"metadata": {"finalizers": ["a/b"]}});
        set_finalizers(&mut object, &with(Some(Propagation::Foreground)), None).unwrap();
        assert_eq!(object["metadata"]["finalizers"], json!(["a/b", "foregroundDeletion"]));
        set_finalizers(&mut object, &with(None), None).unwrap();
        assert_eq!(object["metadata"]["finalizers"], json!(["a/b", "foregroundDeletion"]));
        set_finalizers(&mut object, &with(Some(Propagation::Background)), None).unwrap();
        assert_eq!(object["metadata"]["finalizers"], json!(["a/b"]));
    }
}
