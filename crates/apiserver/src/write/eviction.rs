//! `pods/eviction`: a delete that respects the Pod's disruption budget.

use atoll_kube_schema::{FieldValidation, LabelSelector, table};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::binding::set_condition;
use super::delete::delete_named;
use super::delete_options::DeleteOptions;
use super::{Written, body, commit, current, status_success, subresource_attributes};
use crate::cluster::{ClusterApi, Resource};
use crate::error::{ApiError, Cause, GroupResource, Result};
use crate::http_types::Body;
use crate::limits;
use crate::pipeline::call::Call;
use crate::pipeline::draft::Decoded;
use crate::server::Core;
use crate::strategy::meta_text;

const BUDGETS: Resource<'_> = Resource::new("policy", "poddisruptionbudgets");
/// Seconds after which a client may try again when the budget's controller has not seen the budget yet.
const UNOBSERVED_RETRY_SECONDS: u32 = 10;

pub(crate) async fn evict(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let node = table::type_of_kind("policy", "v1", "Eviction").ok_or_else(|| ApiError::internal("the table has no Eviction"))?;
    let mut eviction = body::subresource_object(call, &bytes, node, FieldValidation::Warn)?;
    if meta_text(&eviction, "name") != call.info.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    body::check_namespace(call, &mut eviction)?;
    let mut options = DeleteOptions::of(eviction.get("deleteOptions").unwrap_or(&Value::Null))?;
    options.dry_run |= call.dry_run("CreateOptions")?;
    let now = current(core, call, &call.info.name).await?.ok_or_else(|| call.not_found())?;
    if options.uid.as_deref().is_some_and(|u| u != meta_text(&now.object, "uid")) {
        let pod = GroupResource { group: "", resource: "Pod" };
        return Err(ApiError::conflict(pod, &call.info.name, "Precondition failed: the uid is another one"));
    }
    let attributes = subresource_attributes(call, &call.info.name, eviction, options.dry_run);
    let draft = Decoded::new(call.def.clone(), call.key(&call.info.name), Some(now.revision), attributes);
    draft.mutate(core).await?.validate(core)?.admit(core).await?;
    if is_counted(&now.object) {
        take_disruption(core, call, &now.object, options.dry_run).await?;
    }
    mark(core, call, options.dry_run).await?;
    let plain = call.on_row(call.def.clone(), &call.info.name, "");
    delete_named(core, &plain, &call.info.name, &options).await?;
    Ok(status_success())
}

/// A Pod that is over, not started or going already disrupts nothing.
fn is_counted(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && meta_text(pod, "deletionTimestamp").is_empty()
}

async fn take_disruption(core: &Core, call: &Call, pod: &Value, dry_run: bool) -> Result<()> {
    for _ in 0..limits::CONFLICT_RETRIES_MAX {
        let listed = core.list(BUDGETS, &call.info.namespace).await?;
        let covers = |budget: &&std::sync::Arc<Value>| {
            budget.pointer("/spec/selector").is_some_and(|s| LabelSelector::from_object(s).is_ok_and(|s| s.matches_object(pod)))
        };
        let budgets: Vec<_> = listed.items.iter().filter(covers).collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let allowed = budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or_default();
        let observed = budget.pointer("/status/observedGeneration").and_then(Value::as_i64).unwrap_or_default();
        let generation = budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        if allowed <= 0 || observed < generation {
            let why = format!("The disruption budget {} does not allow another disruption now", meta_text(budget, "name"));
            let retry = if observed < generation { UNOBSERVED_RETRY_SECONDS } else { 0 };
            let refusal = ApiError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", retry);
            return Err(refusal.with_cause(Cause::new("DisruptionBudget", "", why)));
        }
        if dry_run {
            return Ok(());
        }
        let mut taken = budget.as_ref().clone();
        taken["status"]["disruptionsAllowed"] = (allowed - 1).into();
        taken["status"]["disruptedPods"][meta_text(pod, "name")] = crate::strategy::now().into();
        match core.update(taken, "status").await {
            Ok(_) => return Ok(()),
            Err(error) if error.code == 409 => {}
            Err(error) => return Err(error),
        }
    }
    Err(super::modified(call, &call.info.name))
}

/// The Pod says why it goes.
async fn mark(core: &Core, call: &Call, dry_run: bool) -> Result<()> {
    let call = &call.on_row(call.def.clone(), &call.info.name, "status");
    loop {
        let Some(now) = current(core, call, &call.info.name).await? else { return Ok(()) };
        let mut pod = now.object.as_ref().clone();
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        set_condition(&mut pod, condition);
        let attributes =
            super::attributes(call, crate::admission::Operation::Update, &call.info.name, pod, Some(now.object.clone()), dry_run);
        let admitted = super::admit(core, call, Some(now.revision), attributes).await?;
        if let Written::Done(_) = commit(core, admitted, dry_run).await? {
            return Ok(());
        }
    }
}
