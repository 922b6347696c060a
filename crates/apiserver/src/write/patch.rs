//! Patch: the four kinds, each a way to make the new object from the current one.

use atoll_kube_schema::patch::{self as patches, PatchError};
use atoll_kube_schema::{FieldValidation, Schema, SchemaSource, decode, parse_json, parse_yaml};
use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::update::{Change, Made, run};
use super::{Current, body, written};
use crate::error::{ApiError, Cause, Result};
use crate::http_types::Body;
use crate::managed;
use crate::negotiate::media_type;
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::strategy::{self, meta_text, metadata_mut};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY_YAML: &str = "application/apply-patch+yaml";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Merge,
    Strategic,
    Apply,
}

struct Patch<'a> {
    call: &'a Call,
    kind: Kind,
    document: Value,
    validation: FieldValidation,
    force: bool,
}

/// The options and the document of a patch request.
pub(super) struct Request {
    pub kind: Kind,
    pub document: Value,
    pub validation: FieldValidation,
    pub force: bool,
    pub dry_run: bool,
}

pub(super) fn request(call: &Call, bytes: &Bytes) -> Result<Request> {
    let kind = kind(call)?;
    let dry_run = call.dry_run("PatchOptions")?;
    managed::check_manager(call, "PatchOptions")?;
    let validation = body::field_validation(call, "PatchOptions")?;
    let force = call.query.flag("force");
    check_options(call, kind)?;
    let parsed = if kind == Kind::Apply { parse_yaml(bytes) } else { parse_json(bytes) };
    let parsed = parsed.map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    report_duplicates(call, &parsed.duplicates, validation)?;
    Ok(Request { kind, document: parsed.value, validation, force, dry_run })
}

pub(crate) async fn patch(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let Request { kind, document, validation, force, dry_run } = request(call, &bytes)?;
    let change = Patch { call, kind, document, validation, force };
    let (created, object) = run(core, call, &change, dry_run).await?;
    written(call, if created { 201 } else { 200 }, &object)
}

fn kind(call: &Call) -> Result<Kind> {
    let is_built_in = matches!(call.def.schema, SchemaSource::BuiltIn(_));
    match media_type(&call.headers).as_str() {
        JSON_PATCH => Ok(Kind::Json),
        MERGE_PATCH => Ok(Kind::Merge),
        STRATEGIC if is_built_in => Ok(Kind::Strategic),
        APPLY_YAML => Ok(Kind::Apply),
        _ if is_built_in => Err(ApiError::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, STRATEGIC, APPLY_YAML])),
        _ => Err(ApiError::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_YAML])),
    }
}

fn check_options(call: &Call, kind: Kind) -> Result<()> {
    let mut causes = Vec::new();
    if kind == Kind::Apply {
        if call.query.text("fieldManager").is_empty() {
            causes.push(Cause::new("FieldValueRequired", "fieldManager", "Required value: is required for apply patch"));
        }
    } else if call.query.get("force").is_some() {
        causes.push(Cause::new("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch"));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", causes)) }
}

fn report_duplicates(call: &Call, duplicates: &[String], validation: FieldValidation) -> Result<()> {
    let texts: Vec<String> = duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
    match validation {
        FieldValidation::Strict if !texts.is_empty() => {
            Err(ApiError::bad_request(format!("error decoding patch: strict decoding error: {}", texts.join(", "))))
        }
        FieldValidation::Warn => {
            texts.into_iter().for_each(|t| call.warnings.add(t));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Applies a patch that is no apply to an object.
pub(super) fn patched(call: &Call, kind: Kind, schema: Schema<'_>, object: &Value, document: &Value) -> Result<Value> {
    match kind {
        Kind::Json => patches::apply_json(object, document),
        Kind::Strategic => patches::apply_strategic(schema, object, document),
        Kind::Merge | Kind::Apply => patches::apply_merge(object, document),
    }
    .map_err(|error| refused(call, &error))
}

fn refused(call: &Call, error: &PatchError) -> ApiError {
    match error {
        PatchError::Unprocessable(message) => {
            let message = format!("{} \"{}\" is invalid: {message}", call.def.kind, call.info.name);
            ApiError::new(422, error.reason(), message)
        }
        other => ApiError::new(other.code(), other.reason(), other.to_string()),
    }
}

impl Change for Patch<'_> {
    fn make(&self, current: Option<&Current>) -> Result<Made> {
        if self.kind == Kind::Apply {
            return self.apply(current);
        }
        let current = current.ok_or_else(|| self.call.not_found())?;
        let patched = patched(self.call, self.kind, self.schema()?, &current.object, &self.document)?;
        let object = self.decode(patched)?;
        self.check_identity(&object, &current.object)?;
        let object = managed::update(self.call, Some(&current.object), object);
        Ok(Made { object })
    }

    fn may_create(&self) -> bool {
        self.kind == Kind::Apply && self.call.info.subresource.is_empty()
    }

    fn is_patch(&self) -> bool {
        true
    }
}

impl Patch<'_> {
    fn schema(&self) -> Result<Schema<'_>> {
        self.call.def.schema().ok_or_else(|| ApiError::internal("this kind has no schema"))
    }

    /// A patched object that is no object of its kind: 422 with the cause `patch`.
    fn decode(&self, patched: Value) -> Result<Value> {
        let def = &self.call.def;
        let decoded = decode(def, patched.into(), self.validation).map_err(|e| {
            let cause = Cause::new("FieldValueInvalid", "patch", format!("Invalid value: {e}"));
            ApiError::new(422, "Invalid", format!("{} is invalid: patch: {}", def.kind, cause.message)).with_cause(cause)
        })?;
        decoded.warnings.into_iter().for_each(|w| self.call.warnings.add(w));
        let mut object = decoded.value;
        strategy::default(def, &mut object);
        Ok(object)
    }

    /// A patch may not turn an object into another one.
    fn check_identity(&self, object: &Value, old: &Value) -> Result<()> {
        for key in ["apiVersion", "kind"] {
            if object.get(key) != old.get(key) {
                return Err(ApiError::bad_request(format!("a patch must not change {key}")));
            }
        }
        for key in ["name", "namespace"] {
            if meta_text(object, key) != meta_text(old, key) {
                return Err(ApiError::bad_request(format!("the {key} of the object does not match the {key} on the URL")));
            }
        }
        Ok(())
    }

    fn apply(&self, current: Option<&Current>) -> Result<Made> {
        let document = &self.document;
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != self.call.def.api_version() || kind != self.call.def.kind {
            return Err(ApiError::bad_request(format!(
                "the applied object is {kind:?} of {api_version:?}, the endpoint takes {:?} of {:?}",
                self.call.def.kind,
                self.call.def.api_version()
            )));
        }
        body::check_name(self.call, document)?;
        // Refused before anything is merged; what is applied stays as the client said it.
        body::check_namespace(self.call, &mut document.clone())?;
        let merged = managed::apply(self.call, current.map(|c| c.object.as_ref()), document, self.force)?;
        let mut object = self.decode(merged)?;
        body::check_namespace(self.call, &mut object)?;
        if current.is_none() {
            metadata_mut(&mut object)?.remove("resourceVersion");
        }
        Ok(Made { object })
    }
}
