//! Objects that the server itself makes and keeps: system namespaces, Service `default/kubernetes`, bootstrap RBAC, priority
//! classes, flow schemas, its own APIServices.
//!
//! [`ensure`] runs once before the server is ready and brings everything to its default that an administrator has not taken over;
//! [`keep`] then repairs what the cluster cannot do without. What is missing is created at once, so that the store commits it
//! together and the number of objects is not the number of waits for the disk.

mod flow;
pub mod policy;
mod repair;
mod status;
mod system;

use std::net::IpAddr;

use atoll_kube_schema::registry::GroupDef;
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::{Cluster, Resource};
use crate::error::Result;
use crate::limits;

/// What the server's own objects say of it.
#[derive(Clone, Debug)]
pub struct BootstrapOptions {
    /// Address under which the cluster reaches the server; none is published if it is loopback.
    pub address: IpAddr,
    pub port: u16,
    /// Range of the cluster addresses of Services.
    pub service_cidr: String,
    /// Authority of client certificates, PEM.
    pub client_ca_pem: String,
    /// Authority of the certificate that this server shows to aggregated API servers, PEM.
    pub front_proxy_ca_pem: Option<String>,
    /// Name of this server among those of the cluster: its host's.
    pub identity: String,
}

/// Where objects of a kind that this module makes are stored.
fn resource_of(object: &Value) -> Resource<'static> {
    match object["kind"].as_str().unwrap_or_default() {
        "Namespace" => Resource::core("namespaces"),
        "Service" => Resource::core("services"),
        "Endpoints" => Resource::core("endpoints"),
        "ConfigMap" => Resource::core("configmaps"),
        "EndpointSlice" => Resource::new("discovery.k8s.io", "endpointslices"),
        "PriorityClass" => Resource::new("scheduling.k8s.io", "priorityclasses"),
        "ServiceCIDR" => Resource::new("networking.k8s.io", "servicecidrs"),
        "Lease" => Resource::new("coordination.k8s.io", "leases"),
        "APIService" => Resource::new("apiregistration.k8s.io", "apiservices"),
        "FlowSchema" => Resource::new("flowcontrol.apiserver.k8s.io", "flowschemas"),
        "PriorityLevelConfiguration" => Resource::new("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        "ClusterRole" => Resource::new("rbac.authorization.k8s.io", "clusterroles"),
        "Role" => Resource::new("rbac.authorization.k8s.io", "roles"),
        "ClusterRoleBinding" => Resource::new("rbac.authorization.k8s.io", "clusterrolebindings"),
        _ => Resource::new("rbac.authorization.k8s.io", "rolebindings"),
    }
}

/// What is kept as long as the server runs.
fn kept(options: &BootstrapOptions) -> Vec<Value> {
    let mut objects = system::kubernetes_service(options);
    objects.push(system::service_cidr(options));
    objects.push(system::extension_authentication(options));
    objects
}

/// What is made or brought up to date at each start.
fn started(options: &BootstrapOptions, groups: &[GroupDef], now: Timestamp) -> Vec<Value> {
    let mut objects = kept(options);
    objects.extend(system::priority_classes());
    objects.push(system::legacy_token_tracking(now));
    objects.push(system::identity_lease(options, limits::IDENTITY_LEASE_SECONDS, now));
    objects.extend(policy::role_objects());
    objects.extend(policy::binding_objects());
    objects.extend(flow::objects());
    // The group of APIServices itself is not delegated by one.
    let served = groups.iter().filter(|group| group.name != "apiregistration.k8s.io");
    objects.extend(served.flat_map(|group| {
        let versions = group.versions.iter();
        versions.map(|(version, priority)| system::local_api_service(&group.name, version, group.priority, *priority))
    }));
    objects
}

/// Creates what is missing and repairs what is not as it should be; `groups` are those that the server serves itself.
pub async fn ensure(cluster: &Cluster, options: &BootstrapOptions, groups: &[GroupDef]) -> Result<()> {
    bring_about(cluster, system::namespaces()).await?;
    // All else is worth a complaint, but a cluster without one of its roles is better than none.
    for outcome in [bring_about(cluster, started(options, groups, Timestamp::now())).await, status::report(cluster).await] {
        if let Err(error) = outcome {
            tracing::error!(%error, "some of the cluster's own objects are not as they should be");
        }
    }
    Ok(())
}

/// The first failure of many independent steps; the others are logged.
fn first_failure(outcomes: Vec<Result<()>>) -> Result<()> {
    let mut failures = outcomes.into_iter().filter_map(Result::err);
    let first = failures.next();
    failures.for_each(|error| tracing::error!(%error, "an own object could not be written"));
    first.map_or(Ok(()), Err)
}

/// Repairs what the cluster cannot do without, for as long as it is polled.
pub async fn keep(cluster: &Cluster, options: &BootstrapOptions) {
    let mut renewed = Timestamp::now();
    loop {
        tokio::time::sleep(limits::KEEP_PERIOD).await;
        let now = Timestamp::now();
        let mut objects = kept(options);
        if now.duration_since(renewed).as_secs() >= limits::IDENTITY_LEASE_SECONDS / 3 {
            objects.push(system::identity_lease(options, limits::IDENTITY_LEASE_SECONDS, now));
            renewed = now;
        }
        for objects in [system::namespaces(), objects] {
            if let Err(error) = bring_about(cluster, objects).await {
                tracing::warn!(%error, "the cluster's own objects could not be repaired");
            }
        }
    }
}

/// Creates and repairs objects that do not need each other.
async fn bring_about(cluster: &Cluster, wanted: Vec<Value>) -> Result<()> {
    let found = join_all(wanted.iter().map(|object| {
        let metadata = &object["metadata"];
        let (namespace, name) =
            (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default());
        cluster.get(resource_of(object), namespace, name)
    }));
    let steps = found.await.into_iter().zip(wanted).map(|(found, wanted)| async move {
        match found? {
            None => create(cluster, wanted).await,
            Some(found) => repair::repair(cluster, &found, wanted).await,
        }
    });
    first_failure(join_all(steps).await)
}

async fn create(cluster: &Cluster, object: Value) -> Result<()> {
    match cluster.create(object).await {
        Err(e) if e.reason != "AlreadyExists" => Err(e),
        _ => Ok(()),
    }
}
