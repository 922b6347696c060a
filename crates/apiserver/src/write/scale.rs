//! The `scale` subresource: replicas of any kind whose row says where they are.

use atoll_kube_schema::registry::ScalePaths;
use atoll_kube_schema::{FieldValidation, LabelSelector, Schema, decode, table};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::patch::{self, Kind};
use super::update::{Change, Made, run};
use super::{Current, body, current};
use crate::error::{ApiError, Cause, Result};
use crate::http_types::Body;
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::strategy::{meta_text, metadata_mut};
use crate::{encoding, managed, path};

/// What is done to a `Scale`.
enum Edit {
    Replace(Value),
    Patch(patch::Request),
}

struct ScaleChange<'a> {
    call: &'a Call,
    paths: &'a ScalePaths,
    node: table::Node,
    edit: Edit,
}

fn paths(call: &Call) -> Result<&ScalePaths> {
    call.def.scale.as_ref().ok_or_else(ApiError::no_such_path)
}

fn scale_node() -> Result<table::Node> {
    table::type_of_kind("autoscaling", "v1", "Scale").ok_or_else(|| ApiError::internal("the table has no Scale"))
}

pub(crate) async fn get(core: &Core, call: &Call) -> Result<Response<Body>> {
    let paths = paths(call)?;
    let now = current(core, call, &call.info.name).await?.ok_or_else(|| call.not_found())?;
    if call.def.is_custom() && path::get(&now.object, &paths.spec_replicas).is_none() {
        return Err(ApiError::internal(format!("the spec replicas field {:?} does not exist", paths.spec_replicas)));
    }
    encoding::value_answer(call, 200, &scale_of(call, paths, &now.object))
}

pub(crate) async fn update(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let dry_run = call.dry_run("UpdateOptions")?;
    managed::check_manager(call, "UpdateOptions")?;
    let (paths, node) = (paths(call)?, scale_node()?);
    let parsed = body::parse(call, &bytes, Some(node))?;
    check_kind(&parsed.value)?;
    let validation = body::field_validation(call, "UpdateOptions")?;
    let decoded = decode::decode_built_in(node, parsed, validation).map_err(|e| undecodable(&e))?;
    decoded.warnings.into_iter().for_each(|w| call.warnings.add(w));
    body::check_name(call, &decoded.value)?;
    answer(core, call, ScaleChange { call, paths, node, edit: Edit::Replace(decoded.value) }, dry_run).await
}

pub(crate) async fn patch(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let request = patch::request(call, &bytes)?;
    let dry_run = request.dry_run;
    let change = ScaleChange { call, paths: paths(call)?, node: scale_node()?, edit: Edit::Patch(request) };
    answer(core, call, change, dry_run).await
}

async fn answer(core: &Core, call: &Call, change: ScaleChange<'_>, dry_run: bool) -> Result<Response<Body>> {
    let (_, object) = run(core, call, &change, dry_run).await?;
    encoding::value_answer(call, 200, &scale_of(call, change.paths, &object))
}

/// A body that says what it is has to be a `Scale`.
fn check_kind(body: &Value) -> Result<()> {
    let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if matches!(kind, "" | "Scale") && matches!(api_version, "" | "autoscaling/v1") {
        return Ok(());
    }
    let why = format!("the object provided is unrecognized as a Scale: its type is {kind:?} of {api_version:?}");
    Err(ApiError::bad_request(why))
}

fn undecodable(error: &decode::DecodeError) -> ApiError {
    ApiError::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {error}"))
}

/// The `Scale` of an object.
fn scale_of(call: &Call, paths: &ScalePaths, object: &Value) -> Value {
    let number = |path: &str| path::get(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.pointer(&format!("/metadata/{key}")) {
            metadata[key] = value.clone();
        }
    }
    let mut status = json!({ "replicas": number(&paths.status_replicas) });
    let selector = selector_text(call, paths, object);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let replicas = number(&paths.spec_replicas);
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

fn selector_text(call: &Call, paths: &ScalePaths, object: &Value) -> String {
    let Some(value) = paths.selector.as_deref().and_then(|p| path::get(object, p)) else { return String::new() };
    match value {
        Value::String(text) => text.clone(),
        Value::Object(map) if call.def.plural == "replicationcontrollers" => LabelSelector::from_map(map).to_string(),
        other => LabelSelector::from_object(other).map(|s| s.to_string()).unwrap_or_default(),
    }
}

impl Change for ScaleChange<'_> {
    fn make(&self, current: Option<&Current>) -> Result<Made> {
        let current = current.ok_or_else(|| self.call.not_found())?;
        let live = managed::scale_with_owners(self.call, scale_of(self.call, self.paths, &current.object), &current.object);
        let wanted = self.edited(&live)?;
        let replicas = wanted.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
        if replicas < 0 {
            let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
            let def = &self.call.def;
            if def.is_custom() {
                let cause = Cause::new("FieldValueInvalid", format!(".{}", self.paths.spec_replicas), message);
                return Err(ApiError::invalid(&def.group, &def.kind, &self.call.info.name, vec![cause]));
            }
            let cause = Cause::new("FieldValueInvalid", "spec.replicas", message);
            return Err(ApiError::invalid("autoscaling", "Scale", &self.call.info.name, vec![cause]));
        }
        self.check_uid(&wanted, &current.object)?;
        let mut object = current.object.as_ref().clone();
        path::set(&mut object, &self.paths.spec_replicas, replicas.into());
        managed::set_owners_of_scale(self.call, &mut object, &wanted)?;
        let metadata = metadata_mut(&mut object)?;
        match meta_text(&wanted, "resourceVersion") {
            "" => metadata.remove("resourceVersion"),
            stated => metadata.insert("resourceVersion".into(), stated.into()),
        };
        Ok(Made { object })
    }

    fn may_create(&self) -> bool {
        false
    }

    fn is_patch(&self) -> bool {
        // A scale without a resourceVersion overwrites whatever the kind's own rule is.
        match &self.edit {
            Edit::Replace(scale) => meta_text(scale, "resourceVersion").is_empty(),
            Edit::Patch(_) => true,
        }
    }
}

impl ScaleChange<'_> {
    /// A uid that the client states has to be the object's; custom kinds do not look at it.
    fn check_uid(&self, wanted: &Value, current: &Value) -> Result<()> {
        let (stated, have) = (meta_text(wanted, "uid"), meta_text(current, "uid"));
        if stated.is_empty() || stated == have || self.call.def.is_custom() {
            return Ok(());
        }
        let why = format!("Precondition failed: UID in precondition: {stated}, UID in object meta: {have}");
        Err(ApiError::conflict(self.call.group_resource(), &self.call.info.name, why))
    }

    /// The `Scale` that the client wants, with its owners.
    fn edited(&self, live: &Value) -> Result<Value> {
        match &self.edit {
            Edit::Replace(scale) => Ok(managed::update_scale(self.call, self.node, live, scale.clone())),
            Edit::Patch(request) if request.kind == Kind::Apply => {
                let merged = managed::apply_scale(self.call, self.node, live, &request.document, request.force)?;
                self.decoded(merged, request.validation)
            }
            Edit::Patch(request) => {
                let schema = Schema::BuiltIn(self.node);
                let patched = patch::patched(self.call, request.kind, schema, live, &request.document)?;
                let scale = self.decoded(patched, request.validation)?;
                Ok(managed::update_scale(self.call, self.node, live, scale))
            }
        }
    }

    fn decoded(&self, scale: Value, validation: FieldValidation) -> Result<Value> {
        let decoded = decode::decode_built_in(self.node, scale.into(), validation).map_err(|e| {
            let cause = Cause::new("FieldValueInvalid", "patch", format!("Invalid value: {e}"));
            ApiError::new(422, "Invalid", format!("Scale is invalid: patch: {}", cause.message)).with_cause(cause)
        })?;
        decoded.warnings.into_iter().for_each(|w| self.call.warnings.add(w));
        Ok(decoded.value)
    }
}
