//! A tenant's end: process, address, Secrets and data, in this order, then the finalizer.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch};
use kube::runtime::controller::Action;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tracing::info;

use super::context::Context;
use crate::names::{self, Names};
use crate::spec::TenantControlPlane;
use crate::{Error, limits};

pub(super) async fn run(tenant: &TenantControlPlane, context: &Context) -> Result<Action, Error> {
    if !tenant.finalizers().iter().any(|f| f == names::FINALIZER) {
        return Ok(Action::await_change());
    }
    let names = Names::new(&tenant.namespace().unwrap_or_default(), &tenant.name_any());
    let client = &context.client;
    delete::<Deployment>(client, &names.namespace, &names.tenant).await?;
    if pods_remain(client, &names).await? {
        return Ok(Action::requeue(limits::POLL));
    }
    delete::<Service>(client, &names.namespace, &names.tenant).await?;
    for secret in names.secrets() {
        delete::<Secret>(client, &names.namespace, &secret).await?;
    }
    delete::<PersistentVolumeClaim>(client, &names.namespace, &names.data_claim()).await?;
    if data_remains(client, &names).await? {
        return Ok(Action::requeue(limits::POLL));
    }
    let finalizers: Vec<&String> = tenant.finalizers().iter().filter(|f| *f != names::FINALIZER).collect();
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": tenant.resource_version() } });
    let api: Api<TenantControlPlane> = Api::namespaced(client.clone(), &names.namespace);
    api.patch(&names.tenant, &Default::default(), &Patch::Merge(&patch)).await.map_err(Error::api("release the tenant"))?;
    context.forget(tenant);
    info!(tenant = names.tenant, "deleted with its data");
    Ok(Action::await_change())
}

async fn delete<K>(client: &Client, namespace: &str, name: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("delete {} {name}", K::kind(&())))(error)),
    }
}

async fn pods_remain(client: &Client, names: &Names) -> Result<bool, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &names.namespace);
    let params = ListParams::default().labels(&format!("{}={}", names::LABEL_NAME, names.tenant)).limit(1);
    let pods = api.list(&params).await.map_err(Error::api("list the tenant's Pods"))?;
    Ok(!pods.items.is_empty())
}

/// The claim, or a volume of it that is to be deleted with it, is still there. A volume that its class retains is the
/// administrator's to keep.
async fn data_remains(client: &Client, names: &Names) -> Result<bool, Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &names.namespace);
    let claim = names.data_claim();
    if claims.get_opt(&claim).await.map_err(Error::api("read the data claim"))?.is_some() {
        return Ok(true);
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let listed = volumes.list(&ListParams::default()).await.map_err(Error::api("list volumes"))?;
    Ok(listed.iter().filter_map(|v| v.spec.as_ref()).any(|spec| {
        let ours = spec.claim_ref.as_ref().is_some_and(|r| {
            r.name.as_deref() == Some(claim.as_str()) && r.namespace.as_deref() == Some(names.namespace.as_str())
        });
        ours && spec.persistent_volume_reclaim_policy.as_deref() != Some("Retain")
    }))
}
