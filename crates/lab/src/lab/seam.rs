//! Test 3: a GPU Pod is admitted by a webhook on the tenant's worker, called through the tunnel; so is every webhook.

mod foreign;
mod log;

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::{Lab, eventually, netns, pods, webhooks};
use log::{field, line_with, lines};

const NAMESPACE: &str = "lab-seam";
const SLICE: [(&str, u64); 2] = [("gpu", 1), ("gpumem", 100)];
/// Logs of the GPU webhook.
const WEBHOOK: &str = "kube-system_hami-webhook";

pub async fn run(lab: &Lab) -> Result<String, String> {
    let outcome = seam(lab).await;
    foreign::remove(lab).await?;
    pods::close(&lab.a.client, NAMESPACE).await?;
    outcome
}

async fn seam(lab: &Lab) -> Result<String, String> {
    let api = pods::open(&lab.a.client, NAMESPACE).await?;
    let (own, foreign) = tokio::join!(own(lab, &api), foreign::run(lab, NAMESPACE));
    let (own, foreign) = (own?, foreign?);
    let refusal = without_webhook(lab, &api).await;
    webhooks::scale_gpu(&lab.a, 2).await?;
    let refusal = refusal?;
    eventually("a GPU Pod is admitted again", pods::PATIENCE, || async {
        create(lab, &api, "again").await.map(drop).map_err(|e| e.to_string())
    })
    .await?;
    Ok(format!("{own}; a CPU Pod: not asked; {foreign}; scaled to 0: {refusal}; back: admitted"))
}

async fn create(lab: &Lab, api: &Api<Pod>, name: &str) -> Result<Pod, kube::Error> {
    let pod = pods::gpu_pod(&lab.image, name, "binpack", &SLICE).unwrap_or_default();
    pods::create(api, &pod).await
}

/// The GPU webhook, followed from the API server's log to its own.
async fn own(lab: &Lab, api: &Api<Pod>) -> Result<String, String> {
    let created = create(lab, api, "gpu").await.map_err(|e| format!("create a GPU Pod: {e}"))?;
    let scheduler = created.spec.and_then(|s| s.scheduler_name).unwrap_or_default();
    if scheduler != "hami-scheduler" {
        return Err(format!("the Pod came back with schedulerName {scheduler:?}"));
    }
    pods::running(api, "gpu").await?;
    let line = line_with(log::worker(lab, &lab.a), WEBHOOK, &["admission", &format!("pod={NAMESPACE}/gpu ")]).await?;
    let uid = field(&line, "uid=").ok_or_else(|| format!("no uid in {line:?}"))?;
    let (dial, address) = log::called(lab, &lab.a, &uid).await?;
    not_direct(lab, &address).await?;
    cpu_pod_is_not_asked(lab, api).await?;
    Ok(format!("review {uid} went as dial {dial} to {address}, not reachable directly"))
}

/// The control plane's own network has no way to the webhook; the worker's has.
async fn not_direct(lab: &Lab, address: &str) -> Result<(), String> {
    let address: SocketAddr = address.parse().map_err(|e| format!("{address:?}: {e}"))?;
    if !netns::connects(&netns::worker(lab, &lab.a)?, address).await? {
        return Err(format!("the webhook at {address} does not answer on its own worker"));
    }
    if netns::connects(&netns::platform(lab), address).await? {
        return Err(format!("the platform's network reaches the webhook at {address} directly"));
    }
    Ok(())
}

/// A GPU Pod created after a CPU Pod has a line in the webhook's log; the CPU Pod has none.
async fn cpu_pod_is_not_asked(lab: &Lab, api: &Api<Pod>) -> Result<(), String> {
    pods::create(api, &pods::cpu_pod(&lab.image, "cpu")?).await.map_err(|e| format!("create a CPU Pod: {e}"))?;
    create(lab, api, "after").await.map_err(|e| format!("create a GPU Pod: {e}"))?;
    let worker = log::worker(lab, &lab.a);
    line_with(worker.clone(), WEBHOOK, &[&format!("pod={NAMESPACE}/after ")]).await?;
    pods::running(api, "cpu").await?;
    let asked = lines(&worker, WEBHOOK).iter().any(|l| l.contains(&format!("pod={NAMESPACE}/cpu ")));
    if asked { Err("the webhook was asked about a CPU Pod".to_owned()) } else { Ok(()) }
}

/// A GPU Pod is refused, once the webhooks' end has come through. The code is also the reason of a cause.
async fn without_webhook(lab: &Lab, api: &Api<Pod>) -> Result<&'static str, String> {
    const CODE: &str = "WebhookNoEndpoint";
    webhooks::scale_gpu(&lab.a, 0).await?;
    eventually(&format!("a GPU Pod is refused with {CODE}"), pods::PATIENCE, || async {
        match create(lab, api, "refused").await {
            Ok(_) => {
                pods::remove(api, "refused").await?;
                Err("it is admitted".to_owned())
            }
            Err(kube::Error::Api(status)) if pods::names_cause(&status, CODE) => Ok(CODE),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}
