//! Writes: create, update, patch, delete. Each is one loop: read the current object, make the new one from it, take it through
//! admission and commit it against the revision that was read; when somebody else was faster, begin again.

pub(crate) mod binding;
mod body;
mod create;
mod delete;
mod delete_collection;
mod delete_options;
pub(crate) mod eviction;
mod patch;
pub(crate) mod scale;
mod update;

use std::sync::Arc;

use atoll_kube_schema::ResourceDef;
use bytes::Bytes;
use http::Response;
use serde_json::Value;

pub(crate) use create::{create, create_virtual};
pub(crate) use delete::delete;
pub(crate) use delete_collection::delete_collection;
pub(crate) use patch::patch;
pub(crate) use update::update;

use crate::admission::{Attributes, Gvk, Operation};
use crate::encoding;
use crate::error::{ApiError, Result};
use crate::http_types::Body;
use crate::objects::Committed;
use crate::pipeline::call::Call;
use crate::pipeline::draft::{Admitted, Decoded};
use crate::read::load;
use crate::server::Core;

/// The object that a write begins from.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    /// In the version of the request, with its resourceVersion.
    pub object: Arc<Value>,
    pub revision: u64,
    /// As it is stored, to tell a write that changes nothing.
    pub stored: Bytes,
}

pub(crate) async fn current(core: &Core, call: &Call, name: &str) -> Result<Option<Current>> {
    let Some(entry) = core.objects.get(&call.key(name)).await? else { return Ok(None) };
    let object = Arc::new(load(call, &entry)?);
    Ok(Some(Current { object, revision: entry.mod_revision.0, stored: entry.value }))
}

/// Attributes of a write to `call`'s endpoint.
pub(crate) fn attributes(
    call: &Call,
    operation: Operation,
    name: &str,
    object: Value,
    old: Option<Arc<Value>>,
    dry_run: bool,
) -> Attributes {
    let def: &ResourceDef = &call.def;
    let kind = match call.subresource() {
        Some(row) => Gvk { group: row.group.clone(), version: row.version.clone(), kind: row.kind.clone() },
        None => Gvk { group: def.group.clone(), version: def.version.clone(), kind: def.kind.clone() },
    };
    // A namespace is its own scope, as upstream has it for admission.
    let is_namespace = def.group.is_empty() && def.plural == "namespaces";
    Attributes {
        operation,
        group: def.group.clone(),
        version: def.version.clone(),
        resource: def.plural.clone(),
        subresource: call.info.subresource.clone(),
        kind,
        name: name.to_owned(),
        namespace: if is_namespace { name.to_owned() } else { call.info.namespace.clone() },
        old,
        object,
        options: Value::Null,
        dry_run,
        user: call.user.clone(),
        warnings: call.warnings.clone(),
        audit_annotations: Vec::new(),
    }
}

/// Attributes of a create of a subresource whose body is of a kind of its own.
pub(crate) fn subresource_attributes(call: &Call, name: &str, object: Value, dry_run: bool) -> Attributes {
    attributes(call, Operation::Create, name, object, None, dry_run)
}

/// The answer of a subresource that has nothing to show.
pub(crate) fn status_success() -> Response<Body> {
    let status = serde_json::json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    crate::http_types::json_answer(201, &status)
}

/// Takes an object through admission.
pub(crate) async fn admit(core: &Core, call: &Call, base: Option<u64>, attributes: Attributes) -> Result<Admitted> {
    let key = call.key(&attributes.name);
    Decoded::new(call.def.clone(), key, base, attributes).mutate(core).await?.validate(core)?.admit(core).await
}

/// What a write came to.
pub(crate) enum Written {
    /// The object as it is now, with its resourceVersion.
    Done(Value),
    Raced,
}

/// Commits what was admitted, unless it is only tried.
pub(crate) async fn commit(core: &Core, admitted: Admitted, dry_run: bool) -> Result<Written> {
    if dry_run {
        return Ok(Written::Done(admitted.into_object()));
    }
    match core.objects.commit(&admitted).await? {
        Committed::Raced => Ok(Written::Raced),
        Committed::Done(revision) => {
            let mut object = admitted.into_object();
            crate::stored::set_resource_version(&mut object, revision.0);
            Ok(Written::Done(object))
        }
    }
}

/// Answers with a written object.
pub(crate) fn written(call: &Call, code: u16, object: &Value) -> Result<Response<Body>> {
    encoding::object_answer(call, code, object)
}

/// The 409 of an object that changed under a client that had stated what it expects.
pub(crate) fn modified(call: &Call, name: &str) -> ApiError {
    ApiError::conflict(
        call.group_resource(),
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}
