//! Mutating webhooks: one after another, each sees what the ones before made of the object.

use std::collections::BTreeSet;

use serde_json::Value;
use tracing::warn;

use super::config::{self, Webhook};
use super::{Webhooks, review};
use crate::admission::Attributes;
use crate::cluster::Cluster;
use crate::error::{ApiError, Result};

const PLURAL: &str = "mutatingwebhookconfigurations";

pub(super) async fn run(shared: &Webhooks, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
    let webhooks = config::webhooks(cluster, PLURAL, attributes).await?;
    if webhooks.is_empty() {
        return Ok(());
    }
    let mut called = BTreeSet::new();
    let mut last_change = None;
    for (index, webhook) in webhooks.iter().enumerate() {
        if !config::concerns(shared, webhook, attributes, cluster).await? {
            continue;
        }
        called.insert(index);
        if ask(shared, webhook, index, 0, attributes, cluster).await? {
            last_change = Some(index);
        }
    }
    // Once more for those that asked for it and ran before the last change.
    let Some(last_change) = last_change else { return Ok(()) };
    for index in called.into_iter().filter(|i| *i < last_change) {
        let webhook = &webhooks[index];
        if webhook.reinvokes() && config::concerns(shared, webhook, attributes, cluster).await? {
            ask(shared, webhook, index, 1, attributes, cluster).await?;
        }
    }
    Ok(())
}

/// Calls one webhook and applies its patch. Answers whether the object changed.
async fn ask(
    shared: &Webhooks,
    webhook: &Webhook,
    index: usize,
    round: u32,
    attributes: &mut Attributes,
    cluster: &Cluster,
) -> Result<bool> {
    let verdict = match shared.caller.call(webhook, attributes, cluster, true).await {
        Ok(verdict) => verdict,
        Err(error) if webhook.ignores_failures() => {
            warn!(webhook = webhook.name, code = error.word, "webhook failed open");
            let key = format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
            attributes.audit_annotations.push((key, webhook.name.clone()));
            return Ok(false);
        }
        Err(error) => return Err(error.into_api_error(webhook)),
    };
    for warning in &verdict.warnings {
        attributes.warnings.add(warning.as_str());
    }
    for (key, value) in &verdict.audit_annotations {
        attributes.audit_annotations.push((format!("{}/{key}", webhook.name), value.clone()));
    }
    if let Some(status) = &verdict.refusal {
        return Err(review::refused(&webhook.name, status));
    }
    let Some(patch) = verdict.patch else { return Ok(false) };
    if attributes.object.is_null() {
        let name = &webhook.name;
        let configuration = &webhook.configuration;
        return Err(ApiError::internal(format!(
            "admission webhook \"{name}\" of {configuration} attempted to modify the object, which is not supported for this operation"
        )));
    }
    let patched = apply(&attributes.object, &patch, webhook)?;
    let changed = patched != attributes.object;
    attributes.object = patched;
    Ok(changed)
}

fn apply(object: &Value, patch: &Value, webhook: &Webhook) -> Result<Value> {
    atoll_kube_schema::patch::apply_json(object, patch).map_err(|e| {
        let name = &webhook.name;
        ApiError::internal(format!("the patch of admission webhook \"{name}\" does not apply: {e}"))
    })
}
