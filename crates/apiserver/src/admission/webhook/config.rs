//! Which webhooks a write concerns.

use serde::Deserialize;
use serde_json::Value;

use super::Webhooks;
use crate::admission::Attributes;
use crate::admission::selector::LabelSelector;
use crate::cluster::{Cluster, Resource};
use crate::error::{ApiError, Result};

/// One webhook of a configuration, as far as calling it needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) client_config: ClientConfig,
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
    #[serde(default)]
    failure_policy: Option<String>,
    #[serde(default)]
    namespace_selector: LabelSelector,
    #[serde(default)]
    object_selector: LabelSelector,
    #[serde(default)]
    pub(super) side_effects: Option<String>,
    #[serde(default)]
    timeout_seconds: Option<u64>,
    #[serde(default)]
    pub(super) admission_review_versions: Vec<String>,
    #[serde(default)]
    pub(super) match_conditions: Vec<MatchCondition>,
    #[serde(default)]
    reinvocation_policy: Option<String>,
    /// Name of the configuration it stands in.
    #[serde(skip)]
    pub(super) configuration: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientConfig {
    pub(super) url: Option<String>,
    pub(super) service: Option<ServiceReference>,
    /// Base64 of PEM.
    #[serde(default)]
    pub(super) ca_bundle: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServiceReference {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) port: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct MatchCondition {
    pub(super) name: String,
    pub(super) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<String>,
}

impl Rule {
    /// `*` matches all; resources are `pods`, `pods/*`, `pods/status`, `*/*`, `*/scale`; a plain `*` means no subresource.
    pub(super) fn matches(&self, attributes: &Attributes) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|v| v == "*" || v == wanted);
        let resource = self.resources.iter().any(|rule| {
            let (name, sub) = rule.split_once('/').unwrap_or((rule, ""));
            (name == "*" || name == attributes.resource) && (sub == "*" || sub == attributes.subresource)
        });
        let is_namespaced = !attributes.namespace.is_empty() && !attributes.is_resource("", "namespaces");
        let scope = match self.scope.as_deref() {
            Some("Namespaced") => is_namespaced,
            Some("Cluster") => !is_namespaced,
            _ => true,
        };
        scope
            && resource
            && any(&self.operations, attributes.operation.as_str())
            && any(&self.api_groups, &attributes.group)
            && any(&self.api_versions, &attributes.version)
    }
}

impl Webhook {
    pub(super) fn ignores_failures(&self) -> bool {
        self.failure_policy.as_deref() == Some("Ignore")
    }

    pub(super) fn reinvokes(&self) -> bool {
        self.reinvocation_policy.as_deref() == Some("IfNeeded")
    }

    /// 1 to 30 seconds, 10 unless stated.
    pub(super) fn timeout_seconds(&self) -> u64 {
        self.timeout_seconds.unwrap_or(10).clamp(1, 30)
    }

    /// A dry run may only reach webhooks that change nothing elsewhere then.
    fn tolerates_dry_run(&self) -> bool {
        matches!(self.side_effects.as_deref(), Some("None" | "NoneOnDryRun"))
    }
}

/// Kinds that no webhook sees, so that a broken one can always be removed.
fn is_exempt(attributes: &Attributes) -> bool {
    attributes.group == "admissionregistration.k8s.io"
        && matches!(
            attributes.resource.as_str(),
            "validatingwebhookconfigurations"
                | "mutatingwebhookconfigurations"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        )
}

/// All webhooks of all configurations of a resource: configurations by name, webhooks in their order.
pub(super) async fn webhooks(cluster: &Cluster, plural: &'static str, attributes: &Attributes) -> Result<Vec<Webhook>> {
    if is_exempt(attributes) {
        return Ok(Vec::new());
    }
    let listed = cluster.list(Resource::new("admissionregistration.k8s.io", plural), "").await?;
    let mut configurations: Vec<(&str, &Value)> =
        listed.items.iter().map(|c| (c["metadata"]["name"].as_str().unwrap_or_default(), &**c)).collect();
    configurations.sort_by_key(|(name, _)| *name);
    let mut out = Vec::new();
    for (configuration, object) in configurations {
        for item in object["webhooks"].as_array().into_iter().flatten() {
            let webhook = Webhook::deserialize(item)
                .map_err(|e| ApiError::internal(format!("webhook configuration {configuration} is not readable: {e}")))?;
            out.push(Webhook { configuration: configuration.to_owned(), ..webhook });
        }
    }
    Ok(out)
}

/// Whether a webhook is to be called for this write. The order is upstream's: selectors, rules, then conditions.
pub(super) async fn concerns(shared: &Webhooks, webhook: &Webhook, attributes: &Attributes, cluster: &Cluster) -> Result<bool> {
    if !webhook.rules.iter().any(|r| r.matches(attributes)) {
        return Ok(false);
    }
    if !namespace_matches(webhook, attributes, cluster).await? || !object_matches(webhook, attributes) {
        return Ok(false);
    }
    match shared.conditions.hold(webhook, attributes) {
        Ok(true) if attributes.dry_run && !webhook.tolerates_dry_run() => {
            let name = &webhook.name;
            Err(ApiError::bad_request(format!("admission webhook \"{name}\" does not support dry run")))
        }
        Ok(hold) => Ok(hold),
        Err(_) if webhook.ignores_failures() => Ok(false),
        Err(why) => Err(attributes.forbidden(why)),
    }
}

async fn namespace_matches(webhook: &Webhook, attributes: &Attributes, cluster: &Cluster) -> Result<bool> {
    if webhook.namespace_selector.is_empty() {
        return Ok(true);
    }
    // A namespace's own labels count for it; other cluster-scoped objects always match.
    if attributes.is_resource("", "namespaces") || (attributes.resource == "namespaces" && attributes.group.is_empty()) {
        let object = if attributes.object.is_null() { attributes.old.as_deref() } else { Some(&attributes.object) };
        return Ok(object.is_none_or(|o| webhook.namespace_selector.matches(&o["metadata"]["labels"])));
    }
    if attributes.namespace.is_empty() {
        return Ok(true);
    }
    match cluster.get(Resource::core("namespaces"), "", &attributes.namespace).await? {
        Some(namespace) => Ok(webhook.namespace_selector.matches(&namespace["metadata"]["labels"])),
        None => Ok(true),
    }
}

/// Either the old or the new object has the labels.
fn object_matches(webhook: &Webhook, attributes: &Attributes) -> bool {
    webhook.object_selector.is_empty()
        || (attributes.object.is_object() && webhook.object_selector.matches(&attributes.object["metadata"]["labels"]))
        || attributes.old.as_deref().is_some_and(|o| webhook.object_selector.matches(&o["metadata"]["labels"]))
}
