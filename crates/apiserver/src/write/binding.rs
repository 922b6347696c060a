//! `pods/binding` (and the older `bindings`): placing a Pod on a node.

use atoll_kube_schema::{FieldValidation, table};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::{Current, Written, body, commit, current, status_success, subresource_attributes};
use crate::error::{ApiError, GroupResource, Result};
use crate::http_types::Body;
use crate::limits;
use crate::pipeline::call::Call;
use crate::pipeline::draft::Decoded;
use crate::server::Core;
use crate::strategy::{self, meta_text, metadata_mut};

const BINDING: GroupResource<'_> = GroupResource { group: "", resource: "pods/binding" };

/// Binds the Pod that the path names, or, at `bindings`, the one that the body names.
pub(crate) async fn bind(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let dry_run = call.dry_run("CreateOptions")?;
    let node = table::type_of_kind("", "v1", "Binding").ok_or_else(|| ApiError::internal("the table has no Binding"))?;
    let mut binding = body::subresource_object(call, &bytes, node, FieldValidation::Warn)?;
    let name = if call.info.name.is_empty() { meta_text(&binding, "name").to_owned() } else { call.info.name.clone() };
    if !meta_text(&binding, "name").is_empty() && meta_text(&binding, "name") != name {
        return Err(ApiError::bad_request("the name in the URL does not match the name in the Binding object"));
    }
    body::check_namespace(call, &mut binding)?;
    let target = |key: &str| binding.pointer(&format!("/target/{key}")).and_then(Value::as_str).unwrap_or_default();
    if target("name").is_empty() || !matches!(target("kind"), "" | "Node") {
        return Err(ApiError::new(500, "", "a Pod can be bound to a Node with a name only"));
    }
    let pods = call.registry.get("", "v1", "pods").ok_or_else(ApiError::no_such_path)?.clone();
    let call = &call.on_row(pods, &name, "binding");
    for _ in 0..limits::CONFLICT_RETRIES_MAX {
        let now = current(core, call, &name).await?.ok_or_else(|| call.not_found())?;
        let pod = bound(call, &now, &binding)?;
        let attributes = subresource_attributes(call, &name, binding.clone(), dry_run);
        let draft = Decoded::new(call.def.clone(), call.key(&name), Some(now.revision), attributes);
        let admitted = draft.mutate(core).await?.validate(core)?.admit(core).await?.into_mark(pod.clone(), pod);
        if let Written::Done(_) = commit(core, admitted, dry_run).await? {
            return Ok(status_success());
        }
    }
    Err(super::modified(call, &name))
}

/// The Pod, placed where the binding says.
fn bound(call: &Call, now: &Current, binding: &Value) -> Result<Value> {
    let name = &call.info.name;
    let conflict = |why: String| Err(ApiError::conflict(BINDING, name, why));
    let uid = meta_text(binding, "uid");
    if !uid.is_empty() && uid != meta_text(&now.object, "uid") {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", meta_text(&now.object, "uid"));
        return Err(ApiError::conflict(call.group_resource(), name, why));
    }
    if !meta_text(&now.object, "deletionTimestamp").is_empty() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let placed = now.object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if !placed.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {placed:?}"));
    }
    if now.object.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|g| !g.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = now.object.as_ref().clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for key in ["annotations", "labels"] {
        let Some(added) = binding.pointer(&format!("/metadata/{key}")).and_then(Value::as_object).cloned() else { continue };
        let own = metadata_mut(&mut pod)?.entry(key).or_insert_with(|| json!({}));
        if let Some(own) = own.as_object_mut() {
            own.extend(added);
        }
    }
    set_condition(&mut pod, json!({ "type": "PodScheduled", "status": "True" }));
    strategy::canonical(&call.def, pod)
}

/// Sets a condition of a Pod; its time moves only when its status does.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = strategy::now().into();
    if let Some(old) = list.iter_mut().find(|c| c["type"] == condition["type"]) {
        if old["status"] == condition["status"] {
            condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
        *old = condition;
    } else {
        list.push(condition);
    }
}
