//! Update, and the loop that patch shares with it.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::{Current, Written, admit, attributes, body, commit, create, current, modified, written};
use crate::admission::Operation;
use crate::error::{ApiError, Cause, Result};
use crate::http_types::Body;
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::strategy::{self, meta_text, metadata_mut};
use crate::{hooks, limits, managed, stored};

/// What an update makes of the current object.
pub(super) struct Made {
    /// The new object, canonical and defaulted, with its managedFields.
    pub object: Value,
}

/// Makes the new object from the current one; called again for each newer one.
pub(super) trait Change: Send + Sync {
    fn make(&self, current: Option<&Current>) -> Result<Made>;
    /// Whether an object that does not exist is created.
    fn may_create(&self) -> bool;
    /// Whether the client leaves the resourceVersion out on purpose (a patch) rather than by omission.
    fn is_patch(&self) -> bool;
}

struct Replace<'a> {
    call: &'a Call,
    object: Value,
}

impl Change for Replace<'_> {
    fn make(&self, current: Option<&Current>) -> Result<Made> {
        let live = current.map(|c| c.object.as_ref());
        Ok(Made { object: managed::update(self.call, live, self.object.clone()) })
    }

    fn may_create(&self) -> bool {
        self.call.def.strategy.allows_create_on_update && self.call.info.subresource.is_empty()
    }

    fn is_patch(&self) -> bool {
        false
    }
}

pub(crate) async fn update(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let dry_run = call.dry_run("UpdateOptions")?;
    managed::check_manager(call, "UpdateOptions")?;
    let mut object = body::object(call, &bytes, "UpdateOptions")?;
    body::check_name(call, &object)?;
    body::check_namespace(call, &mut object)?;
    let (created, object) = run(core, call, &Replace { call, object }, dry_run).await?;
    written(call, if created { 201 } else { 200 }, &object)
}

/// Runs a change until it is committed: `(created, object)`.
pub(super) async fn run(core: &Core, call: &Call, change: &dyn Change, dry_run: bool) -> Result<(bool, Value)> {
    for _ in 0..limits::CONFLICT_RETRIES_MAX {
        let now = current(core, call, &call.info.name).await?;
        let made = change.make(now.as_ref())?;
        let Some(now) = now else {
            check_uid(call, &made.object, None)?;
            if !change.may_create() {
                return Err(call.not_found());
            }
            match create::create_object(core, call, without_version(made.object)?, dry_run).await {
                // Somebody else created it first: then this is an update of that one.
                Err(error) if error.reason == "AlreadyExists" && !dry_run => continue,
                outcome => return Ok((true, outcome?)),
            }
        };
        let states_version = check_version(call, &made.object, &now, change)?;
        if !change.is_patch() {
            check_uid(call, &made.object, Some(&now.object))?;
        }
        match replace(core, call, made.object, &now, dry_run).await? {
            Written::Done(object) => return Ok((false, object)),
            Written::Raced if states_version => return Err(modified(call, &call.info.name)),
            Written::Raced => {}
        }
    }
    Err(modified(call, &call.info.name))
}

fn without_version(mut object: Value) -> Result<Value> {
    metadata_mut(&mut object)?.remove("resourceVersion");
    Ok(object)
}

/// A stated resourceVersion has to be the current one; answers whether one was stated.
fn check_version(call: &Call, object: &Value, now: &Current, change: &dyn Change) -> Result<bool> {
    let stated = meta_text(object, "resourceVersion");
    if stated.is_empty() || stated == "0" {
        if change.is_patch() || call.def.strategy.allows_unconditional_update {
            return Ok(false);
        }
        let message =
            format!("Invalid value: {}: must be specified for an update", if stated.is_empty() { "0x0" } else { stated });
        let cause = Cause::new("FieldValueInvalid", "metadata.resourceVersion", message);
        // Upstream names the resource where the kind should be.
        return Err(ApiError::invalid(&call.def.group, &call.def.plural, &call.info.name, vec![cause]));
    }
    let version: u64 = stated
        .parse()
        .map_err(|_| ApiError::new(500, "", format!("Invalid value: {stated:?}: resourceVersion is not a version")))?;
    if version != now.revision {
        return Err(modified(call, &call.info.name));
    }
    // A patch starts from the current version: what it carries was not stated by the client unless the patch changed it.
    Ok(!change.is_patch())
}

/// A stated uid has to be the current one.
fn check_uid(call: &Call, object: &Value, now: Option<&Value>) -> Result<()> {
    let stated = meta_text(object, "uid");
    let have = now.map(|o| meta_text(o, "uid")).unwrap_or_default();
    if stated.is_empty() || stated == have {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {stated}, UID in object meta: {have}");
    Err(ApiError::conflict(call.group_resource(), &call.info.name, why))
}

async fn replace(core: &Core, call: &Call, object: Value, now: &Current, dry_run: bool) -> Result<Written> {
    let attributes = attributes(call, Operation::Update, &call.info.name, object, Some(now.object.clone()), dry_run);
    let admitted = admit(core, call, Some(now.revision), attributes).await?;
    let Some(new) = admitted.object() else { return Ok(Written::Raced) };
    if stored::to_stored(new)? == now.stored {
        return Ok(Written::Done(now.object.as_ref().clone()));
    }
    if is_released(call, new) {
        return commit(core, admitted.into_removal(), dry_run).await;
    }
    commit(core, admitted, dry_run).await
}

/// Whether an object that is being deleted has nothing left that holds it.
fn is_released(call: &Call, object: &Value) -> bool {
    let metadata = |key: &str| object.get("metadata").and_then(|m| m.get(key)).filter(|v| !v.is_null());
    metadata("deletionTimestamp").is_some()
        && metadata("finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && metadata("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default() == 0
        && !hooks::is_held(&call.def, object)
        && strategy::may_be_removed_by_update(&call.def)
}
