//! Sending one binding, to a known outcome.

use crate::error::{Error, Result};
use crate::limits;
use crate::plugin::Reservation;
use crate::snapshot::PodInfo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use std::sync::Arc;
use std::time::Duration;

/// Runs a call under the call timeout.
pub(crate) async fn call<T>(future: impl Future<Output = Result<T, kube::Error>>) -> Result<T> {
    match tokio::time::timeout(limits::CALL_TIMEOUT, future).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::Timeout(limits::CALL_TIMEOUT)),
    }
}

/// What a refused or lost call says about the binding.
enum Doubt {
    /// It did not happen.
    NotBound(Error),
    /// Nobody knows; the Pod has to be read.
    Unknown(Error),
}

/// Prepares and sends the binding. On return the outcome is known: `Ok` means that the Pod is on `node`.
/// The reservation is committed or given back accordingly.
pub(crate) async fn bind(
    client: kube::Client,
    pod: Arc<PodInfo>,
    node: String,
    mut reservations: Vec<Box<dyn Reservation>>,
) -> Result<()> {
    let mut attempt = 1;
    loop {
        for reservation in &mut reservations {
            reservation.pre_bind(&client, &pod.pod, &node).await?;
        }
        let version = reservations.iter().find_map(|reservation| reservation.resource_version());
        let error = match send(&client, &pod, &node, version).await {
            Ok(()) => break,
            Err(Doubt::NotBound(error)) => return Err(error),
            Err(Doubt::Unknown(error)) => error,
        };
        tracing::debug!(pod = pod.name(), namespace = pod.namespace(), %error, "binding has an unknown outcome");
        let conflict = is_conflict(&error);
        match settle(&client, &pod, &node, error).await {
            Ok(()) => break,
            // Somebody wrote to the Pod between the preparation and the binding: prepared once more, it may pass.
            Err(error) if conflict && is_conflict(&error) && version.is_some() && attempt < limits::BIND_ATTEMPTS_MAX => {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
    for reservation in reservations {
        reservation.commit();
    }
    Ok(())
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(kube::Error::Api(status)) if status.code == 409)
}

async fn send(client: &kube::Client, pod: &PodInfo, node: &str, version: Option<&str>) -> Result<(), Doubt> {
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.namespace());
    let mut metadata = serde_json::json!({"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let body = serde_json::json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let params = PostParams::default();
    let sent = api.create_subresource::<_, serde_json::Value>("binding", pod.name(), &params, &body);
    match call(sent).await {
        Ok(_) => Ok(()),
        // The Pod has a node already, perhaps by an earlier binding of this decision; or it changed.
        Err(error) if is_conflict(&error) => Err(Doubt::Unknown(error)),
        // Another 4xx was decided before anything was written; after a 5xx the write may have happened (a gateway, a timeout).
        Err(Error::Api(kube::Error::Api(status))) if (400..500).contains(&status.code) => {
            Err(Doubt::NotBound(Error::Api(kube::Error::Api(status))))
        }
        Err(error) => Err(Doubt::Unknown(error)),
    }
}

/// Reads the Pod until the API server answers, and says what became of the binding.
async fn settle(client: &kube::Client, pod: &PodInfo, node: &str, cause: Error) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.namespace());
    let mut pause = Duration::from_millis(50);
    loop {
        match call(api.get_opt(pod.name())).await {
            Ok(Some(now)) if now.metadata.uid.as_deref() == Some(pod.uid()) => {
                return match now.spec.and_then(|s| s.node_name).filter(|n| !n.is_empty()) {
                    Some(name) if name == node => Ok(()),
                    Some(name) => Err(Error::BoundElsewhere(name)),
                    None => Err(cause),
                };
            }
            Ok(_) => return Err(Error::PodGone),
            Err(error) => tracing::debug!(%error, "cannot read the pod yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(limits::UNKNOWN_BIND_PAUSE_MAX);
    }
}
