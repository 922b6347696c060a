//! GPU parts of a tenant: what is installed, and when they can be used.

use std::time::{Duration, Instant};

use atoll_devices::cards::CardSpec;
use atoll_devices::names::resource;
use atoll_gpu::ManifestOptions;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use super::{Error, cluster};

/// Namespace of the GPU parts.
const NAMESPACE: &str = "kube-system";
/// What has to be available before a GPU Pod is admitted and placed.
const DEPLOYMENTS: [&str; 2] = ["hami-webhook", "hami-scheduler"];
/// What the mock device plugin adds to `nvidia.com/gpu`.
const SECONDARY: [&str; 2] = [resource::MEMORY, resource::CORES];
/// How long the parts may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Applies the GPU parts to a tenant: webhook, scheduler and device plugins.
pub async fn install(kubeconfig: &str, image: &str, options: &ManifestOptions) -> Result<(), Error> {
    let client = cluster::client_of(kubeconfig).await?;
    let objects = atoll_gpu::manifests(image, options).map_err(|e| Error::Invalid(e.to_string()))?;
    for object in objects {
        cluster::apply(&client, &object).await?;
    }
    Ok(())
}

/// Applies them unless the tenant has some, which may have been made to its own wishes.
pub async fn install_if_missing(kubeconfig: &str, image: &str) -> Result<(), Error> {
    let client = cluster::client_of(kubeconfig).await?;
    let deployments: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    for name in DEPLOYMENTS {
        if deployments.get_opt(name).await.map_err(Error::api(format!("read {name}")))?.is_none() {
            return install(kubeconfig, image, &ManifestOptions::default()).await;
        }
    }
    Ok(())
}

/// Waits until a GPU Pod can be admitted, placed and started: webhook and scheduler are available, and the node offers all its
/// `cards`.
pub async fn wait_ready(kubeconfig: &str, node: &str, cards: &str) -> Result<(), Error> {
    let client = cluster::client_of(kubeconfig).await?;
    let spec: CardSpec = cards.parse().map_err(|e| Error::Invalid(format!("{cards:?}: {e}")))?;
    let slots: u64 = spec.cards(node).iter().map(|card| u64::from(card.count)).sum();
    let start = Instant::now();
    loop {
        let missing = match available(&client).await {
            Ok(()) => offered(&client, node, slots).await,
            missing => missing,
        };
        let Err(missing) = missing else { return Ok(()) };
        if start.elapsed() > PATIENCE {
            return Err(Error::Invalid(format!(
                "the GPU parts of {node} are not ready after {} s: {missing}; see 'kubectl get pods -n {NAMESPACE}'",
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn available(client: &Client) -> Result<(), String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    for name in DEPLOYMENTS {
        let deployment = deployments.get(name).await.map_err(|e| e.to_string())?;
        let wanted = deployment.spec.and_then(|s| s.replicas).unwrap_or(1);
        let available = deployment.status.and_then(|s| s.available_replicas).unwrap_or(0);
        if available < wanted {
            return Err(format!("{name}: {available} of {wanted} replicas are available"));
        }
    }
    Ok(())
}

async fn offered(client: &Client, node: &str, slots: u64) -> Result<(), String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let allocatable = nodes.get(node).await.map_err(|e| e.to_string())?.status.and_then(|s| s.allocatable).unwrap_or_default();
    let amount = |name: &str| allocatable.get(name).and_then(|q| atoll_devices::quantity::whole(&q.0)).unwrap_or(0);
    let found = amount(resource::GPU);
    if u64::try_from(found) != Ok(slots) {
        return Err(format!("{found} of {slots} {} are allocatable", resource::GPU));
    }
    match SECONDARY.into_iter().find(|name| amount(name) <= 0) {
        Some(name) => Err(format!("{name} is not allocatable")),
        None => Ok(()),
    }
}
