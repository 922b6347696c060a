//! `DeleteOptions`, from the body or the query.

use atoll_kube_schema::{FieldValidation, decode, table};
use bytes::Bytes;
use serde_json::Value;

use super::body;
use crate::error::{ApiError, Cause, Result};
use crate::pipeline::call::Call;

/// What happens with the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
    /// `orphanDependents: false` was said: an answer of 202 then tells that the object is not gone yet.
    pub cascades_explicitly: bool,
}

impl DeleteOptions {
    /// Reads the options of a delete request. A body wins over the query.
    pub fn read(call: &Call, bytes: &Bytes) -> Result<DeleteOptions> {
        let value = if bytes.is_empty() { from_query(call)? } else { from_body(call, bytes)? };
        DeleteOptions::of(&value)
    }

    pub fn of(value: &Value) -> Result<DeleteOptions> {
        let mut causes = Vec::new();
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let orphan = value.get("orphanDependents").and_then(Value::as_bool);
        let policy = text("propagationPolicy");
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let message = format!("Invalid value: {policy:?}: orphanDependents and propagationPolicy cannot be both set");
            causes.push(Cause::new("FieldValueInvalid", "propagationPolicy", message));
        }
        let propagation = match policy {
            None | Some("") => orphan.map(|o| if o { Propagation::Orphan } else { Propagation::Background }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let supported = "supported values: \"Background\", \"Foreground\", \"Orphan\"";
                let message = format!("Unsupported value: {other:?}: {supported}");
                causes.push(Cause::new("FieldValueNotSupported", "propagationPolicy", message));
                None
            }
        };
        let dry_runs = value.get("dryRun").and_then(Value::as_array).cloned().unwrap_or_default();
        if let Some(wrong) = dry_runs.iter().find(|v| *v != "All") {
            let message = format!("Unsupported value: {wrong}: supported values: \"All\"");
            causes.push(Cause::new("FieldValueNotSupported", "dryRun", message));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        let precondition = |key: &str| value.pointer(&format!("/preconditions/{key}")).and_then(Value::as_str).map(str::to_owned);
        Ok(DeleteOptions {
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            propagation,
            dry_run: !dry_runs.is_empty(),
            cascades_explicitly: orphan == Some(false),
        })
    }

    /// As admission plugins are shown them.
    pub fn to_json(&self) -> Value {
        let mut options = serde_json::json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        if let Some(seconds) = self.grace_period_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if self.dry_run {
            options["dryRun"] = serde_json::json!(["All"]);
        }
        options
    }
}

fn from_body(call: &Call, bytes: &Bytes) -> Result<Value> {
    let invalid = |e: &dyn std::fmt::Display| ApiError::bad_request(format!("the body is not DeleteOptions: {e}"));
    let node = table::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
        .ok_or_else(|| ApiError::internal("the table has no DeleteOptions"))?;
    let parsed = body::parse(call, bytes, Some(node))?;
    let kind = parsed.value.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        return Err(invalid(&format!("it is a {kind}")));
    }
    decode::decode_built_in(node, parsed, FieldValidation::Ignore).map(|d| d.value).map_err(|e| invalid(&e))
}

fn from_query(call: &Call) -> Result<Value> {
    let mut value = serde_json::json!({});
    if let Some(seconds) = call.query.number("gracePeriodSeconds")? {
        value["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = call.query.get("propagationPolicy") {
        value["propagationPolicy"] = policy.into();
    }
    if call.query.get("orphanDependents").is_some() {
        value["orphanDependents"] = call.query.flag("orphanDependents").into();
    }
    let dry_runs: Vec<&str> = call.query.all("dryRun").collect();
    if !dry_runs.is_empty() {
        value["dryRun"] = serde_json::json!(dry_runs);
    }
    Ok(value)
}
