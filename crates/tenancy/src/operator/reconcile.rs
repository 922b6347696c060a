//! One look at a living tenant.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tracing::info;

use super::context::Context;
use crate::addons::{self, TenantFacts};
use crate::desired::{self, Choices};
use crate::names::{self, Names};
use crate::secrets::{self, Existing, Facts};
use crate::spec::TenantControlPlane;
use crate::status::{Finding, Observed};
use crate::{Error, limits, tenant_client};

pub(super) async fn run(tenant: &TenantControlPlane, context: &Arc<Context>) -> Result<Action, Error> {
    let names = Names::new(&tenant.namespace().unwrap_or_default(), &tenant.name_any());
    let mut observed = Observed {
        generation: tenant.metadata.generation.unwrap_or_default(),
        replicas_wanted: tenant.spec.control_plane.deployment.replicas,
        version: tenant.spec.kubernetes.version.clone(),
        names: Some(names.clone()),
        findings: findings(tenant),
        ..Observed::default()
    };
    if observed.findings.iter().any(|f| f.kind == "Accepted" && !f.is_true) {
        write_status(tenant, context, &observed).await?;
        return Ok(Action::await_change());
    }
    let user_id = context.claim(tenant).await?;
    let result = advance(tenant, context, &names, user_id, &mut observed).await;
    if let Err(error) = &result {
        let message = error.to_string();
        observed.findings.push(Finding { kind: "Reconciled", is_true: false, reason: error.reason(), message });
    }
    write_status(tenant, context, &observed).await?;
    result?;
    let waits = observed.word() != "Ready" && observed.word() != "Sleeping";
    let ready = observed.deployment.as_ref().and_then(|d| d.status.as_ref()).and_then(|s| s.ready_replicas).unwrap_or(0);
    Ok(Action::requeue(if waits && ready > 0 { limits::POLL } else { limits::RESYNC }))
}

/// What of the manifest is not served, and what is served otherwise than asked.
fn findings(tenant: &TenantControlPlane) -> Vec<Finding> {
    let control_plane = &tenant.spec.control_plane;
    let deployment = &control_plane.deployment;
    let store = tenant.spec.data_store.as_deref();
    let refusals = [
        (
            !is_served(&tenant.spec.kubernetes.version),
            "VersionNotServed",
            format!(
                "spec.kubernetes.version {:?} is not served: this Atoll serves API level 1.36, so any v1.36.x",
                tenant.spec.kubernetes.version
            ),
        ),
        (
            !deployment.registry_settings.is_default(),
            "ImageNotServed",
            "spec.controlPlane.deployment.registrySettings: the control plane runs Atoll's own image only; leave it out"
                .to_owned(),
        ),
        (
            !deployment.additional_containers.is_empty() || !deployment.additional_init_containers.is_empty(),
            "AdditionalContainersNotServed",
            "spec.controlPlane.deployment.additionalContainers and additionalInitContainers are not supported".to_owned(),
        ),
        (
            control_plane.ingress.is_some() || control_plane.gateway.is_some(),
            "ExposureNotServed",
            "spec.controlPlane.ingress and gateway are not supported: use service.serviceType".to_owned(),
        ),
        (
            store.is_some_and(|s| !matches!(s, "default" | "embedded")),
            "DataStoreNotServed",
            format!("spec.dataStore {:?}: only the embedded store is served; leave it out", store.unwrap_or_default()),
        ),
    ];
    let mut out: Vec<Finding> = refusals
        .into_iter()
        .filter(|(refused, ..)| *refused)
        .take(1)
        .map(|(_, reason, message)| Finding { kind: "Accepted", is_true: false, reason, message })
        .collect();
    if out.is_empty() {
        let message = "the manifest is served".to_owned();
        out.push(Finding { kind: "Accepted", is_true: true, reason: "Served", message });
    }
    if deployment.replicas > 1 {
        let message = format!(
            "{} replicas are asked for, one runs: the embedded store has one writer. More need an etcd DataStore",
            deployment.replicas
        );
        out.push(Finding { kind: "ReplicasReduced", is_true: true, reason: "EmbeddedStoreHasOneWriter", message });
    }
    if !deployment.extra_args.api_server.is_empty() {
        let message = format!(
            "spec.controlPlane.deployment.extraArgs.apiServer {:?}: these flags are not served and have no effect",
            deployment.extra_args.api_server
        );
        out.push(Finding { kind: "ExtraArgsIgnored", is_true: true, reason: "FlagsNotServed", message });
    }
    out
}

/// Any patch version of the API level that this build serves.
fn is_served(version: &str) -> bool {
    version.strip_prefix("v1.36.").is_some_and(|patch| patch.starts_with(|c: char| c.is_ascii_digit()))
}

async fn advance(
    tenant: &TenantControlPlane,
    context: &Arc<Context>,
    names: &Names,
    user_id: i64,
    observed: &mut Observed,
) -> Result<(), Error> {
    let client = &context.client;
    let service: Service = apply(client, &names.namespace, desired::service(tenant)).await?;
    observed.service = Some(service.clone());
    let Some(address) = address_of(tenant, &service) else { return Ok(()) };
    let port = tenant.spec.network_profile.port;
    observed.endpoint = Some(format!("{address}:{port}"));

    let existing = settle_secrets(tenant, context, names, &service, &address).await?;
    observed.secrets = existing.iter().map(|(name, secret)| (name.clone(), checksum_of(secret))).collect();

    let choices = Choices {
        image: context.options.image.clone(),
        user_id,
        storage_class: context.options.storage_class.clone(),
        storage_size: context.options.storage_size.clone(),
    };
    let _: DynamicObject = apply(client, &names.namespace, desired::data_claim(tenant, names, &choices)).await?;
    let wanted = desired::deployment(tenant, names, &choices, &address, &existing);
    let deployment: Deployment = apply(client, &names.namespace, wanted).await?;
    let ready = deployment.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or(0) > 0;
    observed.deployment = Some(deployment);
    if !ready {
        context.unwatch(tenant);
        return Ok(());
    }
    let tenant_api = context.tenant_client(tenant, names, &existing, &service).await?;
    observed.answers = tenant_client::answers(&tenant_api).await;
    if observed.answers {
        let ca_pem = secrets::require(&existing, &names.ca(), "ca.crt")?;
        let facts = TenantFacts { image: &context.options.image, endpoint_host: &address, endpoint_port: port, ca_pem: &ca_pem };
        apply_addons(tenant, context, &tenant_api, &facts).await?;
        context.watch(tenant);
        observed.konnectivity = Some(tenant.spec.addons.konnectivity.is_some());
    }
    Ok(())
}

/// The address under which users and workers reach the tenant.
fn address_of(tenant: &TenantControlPlane, service: &Service) -> Option<String> {
    let profile = &tenant.spec.network_profile;
    let from_service = || match tenant.spec.control_plane.service.service_type.as_str() {
        "LoadBalancer" => service
            .status
            .as_ref()
            .and_then(|s| s.load_balancer.as_ref())
            .and_then(|l| l.ingress.as_ref())
            .and_then(|i| i.iter().find_map(|i| i.ip.clone())),
        "NodePort" => Some(profile.address.clone()).filter(|a| !a.is_empty()),
        _ => service.spec.as_ref().and_then(|s| s.cluster_ip.clone()).filter(|ip| !ip.is_empty()),
    };
    let explicit = Some(profile.advertise_address.clone()).filter(|a| !a.is_empty());
    // The Service must have its address in any case: traffic goes there.
    let found = from_service()?;
    Some(explicit.unwrap_or(found))
}

/// The first address of the Service range: `kubernetes.default` inside the tenant.
fn first_service_ip(cidr: &str) -> String {
    let network = cidr.split_once('/').map_or(cidr, |(network, _)| network);
    match network.parse::<std::net::Ipv4Addr>() {
        Ok(address) => std::net::Ipv4Addr::from(u32::from(address).saturating_add(1)).to_string(),
        Err(_) => String::new(),
    }
}

fn checksum_of(secret: &Secret) -> String {
    secret.annotations().get(names::CHECKSUM).cloned().unwrap_or_default()
}

async fn settle_secrets(
    tenant: &TenantControlPlane,
    context: &Context,
    names: &Names,
    service: &Service,
    address: &str,
) -> Result<Existing, Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &names.namespace);
    let params = ListParams::default().labels(&format!("{}={}", names::LABEL_NAME, names.tenant));
    let listed = api.list(&params).await.map_err(Error::api("list the tenant's Secrets"))?;
    let mut existing: Existing = listed.into_iter().map(|s| (s.name_any(), s)).collect();
    let profile = &tenant.spec.network_profile;
    let cluster_ip = service.spec.as_ref().and_then(|s| s.cluster_ip.clone()).unwrap_or_default();
    let addresses = [address.to_owned(), profile.address.clone(), profile.advertise_address.clone(), cluster_ip];
    let first = first_service_ip(profile.service_cidr());
    let facts = Facts {
        names: names.clone(),
        owner: desired::owner(tenant),
        endpoint_host: address.to_owned(),
        endpoint_port: profile.port,
        sans: secrets::api_server_sans(names, &profile.cluster_domain, &first, &addresses, &profile.cert_sans),
    };
    for secret in secrets::plan(&facts, &existing, jiff::Timestamp::now())? {
        let name = secret.name_any();
        info!(tenant = names.tenant, secret = name, "writing");
        let written: Secret = apply(&context.client, &names.namespace, typed(&secret)?).await?;
        existing.insert(name, written);
    }
    Ok(existing)
}

fn typed<K: Resource<DynamicType = ()> + serde::Serialize>(object: &K) -> Result<Value, Error> {
    let mut value = serde_json::to_value(object).map_err(|e| Error::Manifest(e.to_string()))?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    Ok(value)
}

/// Server-side apply of one object that names its kind.
pub(super) async fn apply<K>(client: &Client, namespace: &str, object: Value) -> Result<K, Error>
where
    K: serde::de::DeserializeOwned,
{
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", api_version.as_str()),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let cluster_scoped = matches!(kind.as_str(), "ClusterRole" | "ClusterRoleBinding" | "Namespace");
    let api: Api<DynamicObject> = if cluster_scoped {
        Api::all_with(client.clone(), &resource)
    } else {
        let own = text("/metadata/namespace");
        let namespace = if own.is_empty() { namespace } else { &own };
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let what = format!("apply {kind} {name}");
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(&object)).await.map_err(Error::api(&what))?;
    let value = serde_json::to_value(applied).map_err(|e| Error::Manifest(format!("{what}: {e}")))?;
    serde_json::from_value(value).map_err(|e| Error::Manifest(format!("{what}: {e}")))
}

async fn apply_addons(
    tenant: &TenantControlPlane,
    context: &Context,
    tenant_api: &Client,
    facts: &TenantFacts<'_>,
) -> Result<(), Error> {
    let objects = addons::objects(tenant, facts);
    let text = serde_json::to_string(&objects).map_err(|e| Error::Manifest(e.to_string()))?;
    let checksum = secrets::checksum(&[(String::new(), text)]);
    if context.addons_are_current(tenant, &checksum) {
        return Ok(());
    }
    for object in objects {
        let _: DynamicObject = tokio::time::timeout(limits::TENANT_TIMEOUT, apply(tenant_api, "kube-system", object))
            .await
            .map_err(|_| Error::Tenant(tenant.name_any(), "its API server does not answer".to_owned()))??;
    }
    context.addons_applied(tenant, checksum);
    Ok(())
}

async fn write_status(tenant: &TenantControlPlane, context: &Context, observed: &Observed) -> Result<(), Error> {
    let namespace = tenant.namespace().unwrap_or_default();
    let resource = ApiResource::erase::<TenantControlPlane>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &namespace, &resource);
    let name = tenant.name_any();
    let current = api.get_status(&name).await.map_err(Error::api("read the tenant's status"))?;
    let previous = current.data.get("status").cloned().unwrap_or(Value::Null);
    let status = observed.status(&previous, jiff::Timestamp::now());
    if status == previous {
        return Ok(());
    }
    warn_once(tenant, context, observed, &previous).await;
    let body =
        json!({ "apiVersion": names::API_VERSION, "kind": "TenantControlPlane", "metadata": { "name": name }, "status": status });
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    api.patch_status(&name, &params, &Patch::Apply(&body)).await.map_err(Error::api("write the tenant's status"))?;
    Ok(())
}

/// A Warning event for each finding that was not in the status before.
async fn warn_once(tenant: &TenantControlPlane, context: &Context, observed: &Observed, previous: &Value) {
    let known = |finding: &Finding| {
        previous["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|c| c["reason"] == finding.reason && c["message"] == finding.message))
    };
    let notable = |f: &&Finding| (f.kind == "ReplicasReduced") == f.is_true && !known(f);
    for finding in observed.findings.iter().filter(notable) {
        let event = Event {
            type_: EventType::Warning,
            reason: finding.reason.to_owned(),
            note: Some(finding.message.clone()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = context.recorder.publish(&event, &tenant.object_ref(&())).await {
            tracing::debug!(%error, "an event was not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TenantControlPlaneSpec;

    fn tenant(edit: impl Fn(&mut TenantControlPlaneSpec)) -> TenantControlPlane {
        let mut spec = TenantControlPlaneSpec::default();
        spec.kubernetes.version = "v1.36.2".to_owned();
        edit(&mut spec);
        TenantControlPlane::new("t", spec)
    }

    fn refusal(tenant: &TenantControlPlane) -> Option<&'static str> {
        findings(tenant).iter().find(|f| f.kind == "Accepted" && !f.is_true).map(|f| f.reason)
    }

    #[test]
    fn what_is_not_served_is_refused_with_a_reason() {
        assert_eq!(refusal(&tenant(|_| {})), None);
        assert_eq!(refusal(&tenant(|s| s.kubernetes.version = "v1.35.0".to_owned())), Some("VersionNotServed"));
        assert_eq!(refusal(&tenant(|s| s.kubernetes.version = "v1.36".to_owned())), Some("VersionNotServed"));
        assert_eq!(refusal(&tenant(|s| s.data_store = Some("etcd-1".to_owned()))), Some("DataStoreNotServed"));
        assert_eq!(refusal(&tenant(|s| s.control_plane.ingress = Some(json!({})))), Some("ExposureNotServed"));
    }

    #[test]
    fn reduced_replicas_are_said() {
        let said = findings(&tenant(|s| s.control_plane.deployment.replicas = 3));
        assert!(said.iter().any(|f| f.kind == "ReplicasReduced" && f.message.starts_with("3 replicas")), "{said:?}");
    }

    #[test]
    fn the_first_service_address_follows_the_network() {
        assert_eq!(first_service_ip("10.96.0.0/16"), "10.96.0.1");
    }
}
