//! Who owns which field: the glue between requests and `kube_schema::apply`.

use atoll_kube_schema::apply::{
    self, ApplyError, CONFLICT_REASON, FieldManagerFault, Filter, OnConflict, ReplicasPath, UpdateContext, Versions,
};
use atoll_kube_schema::structural::Structural;
use atoll_kube_schema::table::Node;
use atoll_kube_schema::{Schema, SchemaSource};
use jiff::Timestamp;
use serde_json::Value;

use crate::error::{ApiError, Cause, Details, Result};
use crate::pipeline::call::Call;

/// Checks the `fieldManager` parameter.
pub fn check_manager(call: &Call, options_kind: &str) -> Result<()> {
    let name = call.query.text("fieldManager");
    let causes: Vec<Cause> = apply::check_field_manager(name)
        .into_iter()
        .map(|fault| match fault {
            FieldManagerFault::TooLong => {
                let max = atoll_kube_schema::limits::FIELD_MANAGER_CHARS_MAX;
                Cause::new("FieldValueTooLong", "fieldManager", format!("Too long: may not be more than {max} bytes"))
            }
            FieldManagerFault::NotPrintable => Cause::new(
                "FieldValueInvalid",
                "fieldManager",
                format!("Invalid value: {name:?}: should only contain printable characters"),
            ),
        })
        .collect();
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", options_kind, "", causes)) }
}

/// The versions of a call's kind.
struct CallVersions<'a>(&'a Call);

impl Versions for CallVersions<'_> {
    fn schema(&self, version: &str) -> Option<Schema<'_>> {
        self.row(version)?.schema()
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        Some(atoll_kube_schema::convert(&self.0.def, self.row(version)?, object.clone()))
    }
}

impl CallVersions<'_> {
    fn row(&self, version: &str) -> Option<&atoll_kube_schema::ResourceDef> {
        let Call { def, registry, .. } = self.0;
        if def.api_version() == version {
            return Some(def);
        }
        registry.rows().iter().map(AsRef::as_ref).find(|r| r.storage == def.storage && r.api_version() == version)
    }
}

fn with_context<T>(call: &Call, run: impl FnOnce(&UpdateContext<'_>) -> T) -> T {
    let unknown = Structural::default();
    let schema = match &call.def.schema {
        SchemaSource::None => Schema::Custom(&unknown),
        _ => call.def.schema().unwrap_or(Schema::Custom(&unknown)),
    };
    let agent = call.headers.get(http::header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let filter = Filter::of_endpoint(&call.def, &call.info.subresource);
    let api_version = call.def.api_version();
    run(&UpdateContext {
        schema,
        api_version: &api_version,
        kind: &call.def.kind,
        subresource: &call.info.subresource,
        manager: &apply::manager_or_user_agent(call.query.text("fieldManager"), agent),
        now: Timestamp::now(),
        reset: filter.as_ref(),
        versions: &CallVersions(call),
    })
}

/// The context of writes to a call's `Scale`.
fn with_scale_context<T>(call: &Call, node: Node, run: impl FnOnce(&UpdateContext<'_>) -> T) -> T {
    let agent = call.headers.get(http::header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    run(&UpdateContext {
        schema: Schema::BuiltIn(node),
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: &call.info.subresource,
        manager: &apply::manager_or_user_agent(call.query.text("fieldManager"), agent),
        now: Timestamp::now(),
        reset: None,
        versions: &apply::OneVersion,
    })
}

fn replicas_paths(call: &Call) -> Vec<ReplicasPath> {
    let rows = call.registry.rows().iter().filter(|r| r.storage == call.def.storage);
    rows.map(|row| match &row.scale {
        Some(paths) => ReplicasPath::of_fields(&row.api_version(), &paths.spec_replicas.split('.').collect::<Vec<_>>()),
        None => ReplicasPath { api_version: row.api_version(), path: None },
    })
    .collect()
}

/// A `Scale` with the owners of the object's replicas.
pub fn scale_with_owners(call: &Call, mut scale: Value, object: &Value) -> Value {
    let owners = apply::scale_to_subresource(object.pointer("/metadata/managedFields"), &replicas_paths(call));
    if let Ok(Some(owners)) = owners {
        scale["metadata"]["managedFields"] = owners;
    }
    scale
}

pub fn update_scale(call: &Call, node: Node, live: &Value, new: Value) -> Value {
    with_scale_context(call, node, |context| apply::update(context, Some(live), new))
}

pub fn apply_scale(call: &Call, node: Node, live: &Value, config: &Value, force: bool) -> Result<Value> {
    let on_conflict = if force { OnConflict::Force } else { OnConflict::Refuse };
    with_scale_context(call, node, |context| apply::apply(context, on_conflict, Some(live), config))
        .map_err(|error| refused(&error))
}

/// Brings the owners of a written `Scale` back to its object.
pub fn set_owners_of_scale(call: &Call, object: &mut Value, scale: &Value) -> Result<()> {
    let owners = apply::scale_to_parent(
        object.pointer("/metadata/managedFields"),
        scale.pointer("/metadata/managedFields"),
        &call.def.api_version(),
        &replicas_paths(call),
    )
    .map_err(ApiError::internal)?;
    let metadata = crate::strategy::metadata_mut(object)?;
    match owners {
        Some(owners) => metadata.insert("managedFields".into(), owners),
        None => metadata.remove("managedFields"),
    };
    Ok(())
}

/// Records the owners of what an ordinary write changes.
pub fn update(call: &Call, live: Option<&Value>, new: Value) -> Value {
    with_context(call, |context| apply::update(context, live, new))
}

/// Merges an applied configuration into the live object.
pub fn apply(call: &Call, live: Option<&Value>, config: &Value, force: bool) -> Result<Value> {
    let on_conflict = if force { OnConflict::Force } else { OnConflict::Refuse };
    with_context(call, |context| apply::apply(context, on_conflict, live, config)).map_err(|error| refused(&error))
}

fn refused(error: &ApplyError) -> ApiError {
    match error {
        ApplyError::BadRequest(message) => ApiError::bad_request(message.as_str()),
        ApplyError::Invalid(message) => ApiError::new(error.code(), "", message.as_str()),
        ApplyError::Conflicts(conflicts) => ApiError::new(409, "Conflict", error.to_string()).with_details(Details {
            causes: conflicts.iter().map(|c| Cause::new(CONFLICT_REASON, c.field(), c.message())).collect(),
            ..Details::default()
        }),
    }
}
