//! Objects that several tests make.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Lab, Tenant, eventually};

/// How long a Pod may take to run, or to be gone.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn pods(tenant: &Tenant) -> Api<Pod> {
    Api::namespaced(tenant.client.clone(), "default")
}

/// A Pod of Atoll's image; with `gpu` it asks for a slice of a card.
pub fn pod(lab: &Lab, name: &str, gpu: bool) -> Result<Pod, String> {
    let limits = if gpu { json!({ "nvidia.com/gpu": 1, "nvidia.com/gpumem": 100 }) } else { json!({}) };
    let container = json!({
        "name": "work", "image": lab.image, "command": ["atoll", "example", "gpu-work"], "resources": { "limits": limits },
    });
    let pod = json!({
        "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [container] },
    });
    serde_json::from_value(pod).map_err(|e| e.to_string())
}

/// Creates a Pod as it is told and answers what came back.
pub async fn create(lab: &Lab, tenant: &Tenant, name: &str, gpu: bool) -> Result<Pod, kube::Error> {
    let pod = pod(lab, name, gpu).unwrap_or_default();
    pods(tenant).create(&PostParams::default(), &pod).await
}

pub async fn running(tenant: &Tenant, name: &str) -> Result<(), String> {
    eventually(&format!("Pod {name} runs"), PATIENCE, || async {
        let pod = pods(tenant).get(name).await.map_err(|e| e.to_string())?;
        let phase = pod.status.and_then(|s| s.phase).unwrap_or_default();
        if phase == "Running" { Ok(()) } else { Err(format!("it is {phase}")) }
    })
    .await
}

pub async fn delete(tenant: &Tenant, name: &str) -> Result<(), String> {
    let _ = pods(tenant).delete(name, &DeleteParams::default()).await;
    eventually(&format!("Pod {name} is gone"), PATIENCE, || async {
        match pods(tenant).get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("it is there".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await
}

/// Scales the GPU webhook.
pub async fn scale_webhook(tenant: &Tenant, replicas: i32) -> Result<(), String> {
    let deployments: Api<Deployment> = Api::namespaced(tenant.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let patched = deployments.patch("hami-webhook", &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|e| format!("scale hami-webhook: {e}"))
}
