//! Create.

use std::sync::Arc;

use atoll_kube_schema::{ResourceDef, SchemaSource};
use bytes::Bytes;
use http::Response;
use rand::Rng;
use serde_json::Value;

use super::{Written, admit, attributes, body, commit, written};
use crate::admission::Operation;
use crate::error::{ApiError, Result};
use crate::http_types::Body;
use crate::limits;
use crate::managed;
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::strategy::{fill_system_metadata, meta_text, metadata_mut};
use crate::virtual_resource::VirtualRequest;

/// Letters of a generated name: no vowels, so that no words come out.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(crate) async fn create(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let dry_run = call.dry_run("CreateOptions")?;
    managed::check_manager(call, "CreateOptions")?;
    let mut object = body::object(call, &bytes, "CreateOptions")?;
    body::check_namespace(call, &mut object)?;
    if !call.def.is_stored {
        let object = virtual_create(core, call, managed::update(call, None, object), dry_run).await?;
        return written(call, 201, &object);
    }
    if core.is_terminating(&call.def.group, &call.def.plural) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::forbidden(call.group_resource(), meta_text(&object, "name"), why));
    }
    if !meta_text(&object, "resourceVersion").is_empty() {
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    let is_generated = meta_text(&object, "name").is_empty() && !meta_text(&object, "generateName").is_empty();
    let mut attempts = if is_generated { limits::GENERATE_NAME_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let mut candidate = object.clone();
        if is_generated {
            let name = generated_name(meta_text(&candidate, "generateName"));
            metadata_mut(&mut candidate)?.insert("name".into(), name.into());
        }
        let candidate = managed::update(call, None, candidate);
        match create_object(core, call, candidate, dry_run).await {
            Err(error) if error.reason == "AlreadyExists" && attempts > 0 => {}
            outcome => return written(call, 201, &outcome?),
        }
    }
}

/// A subresource that is answered rather than stored (`serviceaccounts/token`).
pub(crate) async fn create_virtual(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let dry_run = call.dry_run("CreateOptions")?;
    let row = call.subresource().ok_or_else(ApiError::no_such_path)?;
    let node = atoll_kube_schema::table::type_of_kind(&row.group, &row.version, &row.kind)
        .ok_or_else(|| ApiError::internal("the table lacks the kind of a subresource"))?;
    let object = body::subresource_object(call, &bytes, node, body::field_validation(call, "CreateOptions")?)?;
    let (group, version, kind) = (row.group.clone(), row.version.clone(), row.kind.clone());
    let own_row = ResourceDef { group, version, kind, schema: SchemaSource::BuiltIn(node), ..ResourceDef::clone(&call.def) };
    let object = managed::update(&call.on_row(Arc::new(own_row), &call.info.name, &call.info.subresource), None, object);
    let mut admitted = attributes(call, Operation::Create, &call.info.name, object, None, dry_run);
    core.admission.admit(&mut admitted, core).await?;
    core.admission.validate(&admitted, core).await?;
    let object = virtual_create(core, call, admitted.object, dry_run).await?;
    crate::encoding::value_answer(call, 201, &object)
}

/// Lets the one who answers this virtual resource answer.
pub(crate) async fn virtual_create(core: &Core, call: &Call, object: Value, dry_run: bool) -> Result<Value> {
    let (group, resource, subresource) = (call.def.group.as_str(), call.def.plural.as_str(), call.info.subresource.as_str());
    let server = core.virtual_resources.iter().find(|v| v.serves(group, resource, subresource));
    let request = VirtualRequest {
        user: &call.user,
        group,
        resource,
        subresource,
        namespace: &call.info.namespace,
        name: &call.info.name,
        dry_run,
        warnings: &call.warnings,
        authenticators: &core.authenticators,
        authorizers: &core.authorizers,
        cluster: core,
    };
    server.ok_or_else(ApiError::method_not_allowed)?.create(&request, object).await
}

/// Creates a decoded object that has its owners.
pub(super) async fn create_object(core: &Core, call: &Call, mut object: Value, dry_run: bool) -> Result<Value> {
    let name = meta_text(&object, "name").to_owned();
    fill_system_metadata(&mut object)?;
    let admitted = admit(core, call, None, attributes(call, Operation::Create, &name, object, None, dry_run)).await?;
    if dry_run && core.objects.get(admitted.key()).await?.is_some() {
        return Err(ApiError::already_exists(call.group_resource(), &name));
    }
    match commit(core, admitted, dry_run).await? {
        Written::Done(object) => Ok(object),
        Written::Raced => Err(ApiError::already_exists(call.group_resource(), &name)),
    }
}

fn generated_name(base: &str) -> String {
    let room = limits::GENERATED_NAME_BYTES_MAX - limits::GENERATED_SUFFIX_BYTES;
    let base: String = base.chars().take(room).collect();
    let mut rng = rand::rng();
    let suffix = (0..limits::GENERATED_SUFFIX_BYTES).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    base.chars().chain(suffix).collect()
}
