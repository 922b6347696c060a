//! Test 6: a quota of card memory refuses what exceeds it, in its namespace and tenant only.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::pods::{self, PATIENCE};
use super::{Lab, eventually};

const NAMESPACE: &str = "lab-quota";
const OTHER: &str = "lab-quota-other";
const QUOTA: &str = "cards";
const RESOURCE: &str = "limits.nvidia.com/gpumem";
const HARD_MIB: u64 = 10_000;
/// Created at once, 4,000 MiB each: two fit.
const AT_ONCE: usize = 8;

pub async fn run(lab: &Lab) -> Result<String, String> {
    let outcome = quotas(lab).await;
    for (client, name) in [(&lab.a.client, NAMESPACE), (&lab.a.client, OTHER), (&lab.b.client, NAMESPACE)] {
        pods::close(client, name).await?;
    }
    outcome
}

async fn quotas(lab: &Lab) -> Result<String, String> {
    let api = pods::open(&lab.a.client, NAMESPACE).await?;
    set(&lab.a.client).await?;
    admitted(lab, &api, "one", &[("gpu", 1), ("gpumem", 4000)]).await?;
    used(&lab.a.client, 4000).await?;
    let two = refused(lab, &api, "two-cards", &[("gpu", 2), ("gpumem", 4000)]).await?;
    // A tenth of a card of 81,920 MiB.
    let percent = refused(lab, &api, "percent", &[("gpu", 1), ("gpumem-percentage", 10)]).await?;
    for (message, requested) in [(&two, 8000), (&percent, 8192)] {
        names_amounts(message, requested)?;
    }
    admitted(lab, &api, "two-smaller", &[("gpu", 2), ("gpumem", 3000)]).await?;
    used(&lab.a.client, HARD_MIB).await?;
    for name in ["one", "two-smaller"] {
        pods::remove(&api, name).await?;
    }
    used(&lab.a.client, 0).await?;
    at_once(lab, &api).await?;
    used(&lab.a.client, 8000).await?;
    let other = pods::open(&lab.a.client, OTHER).await?;
    admitted(lab, &other, "elsewhere", &[("gpu", 1), ("gpumem", 12_000)]).await?;
    let tenant = pods::open(&lab.b.client, NAMESPACE).await?;
    admitted(lab, &tenant, "elsewhere", &[("gpu", 1), ("gpumem", 12_000)]).await?;
    Ok(format!(
        "of {HARD_MIB} MiB: 2 of {AT_ONCE} Pods created at once admitted, used 8000; two cards and a percentage counted whole; \
         other namespace and tenant unaffected; \"{two}\""
    ))
}

async fn set(client: &Client) -> Result<(), String> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), NAMESPACE);
    let hard = json!({ "metadata": { "name": QUOTA }, "spec": { "hard": { RESOURCE: HARD_MIB.to_string() } } });
    quotas.create(&PostParams::default(), &pods::object(hard)?).await.map_err(|e| format!("create the quota: {e}"))?;
    // Until its use is counted a quota admits nothing.
    used(client, 0).await
}

/// Waits until the quota's status says that so much is used.
async fn used(client: &Client, expected: u64) -> Result<(), String> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(&format!("status.used is {expected}"), PATIENCE, || async {
        let quota = quotas.get(QUOTA).await.map_err(|e| e.to_string())?;
        let found = quota.status.and_then(|s| s.used?.get(RESOURCE).map(|q| q.0.clone())).unwrap_or_default();
        if amount(&found) == Some(expected) { Ok(()) } else { Err(format!("it is {found:?}")) }
    })
    .await
}

/// A whole number as Kubernetes writes it: `8k` is 8000.
fn amount(text: &str) -> Option<u64> {
    match text.strip_suffix('k') {
        Some(thousands) => thousands.parse::<u64>().ok()?.checked_mul(1000),
        None => text.parse().ok(),
    }
}

async fn admitted(lab: &Lab, api: &Api<Pod>, name: &str, limits: &[(&str, u64)]) -> Result<(), String> {
    let pod = pods::gpu_pod(&lab.image, name, "binpack", limits)?;
    pods::create(api, &pod).await.map(drop).map_err(|e| format!("Pod {name} is refused: {e}"))
}

/// The message of the refusal.
async fn refused(lab: &Lab, api: &Api<Pod>, name: &str, limits: &[(&str, u64)]) -> Result<String, String> {
    let pod = pods::gpu_pod(&lab.image, name, "binpack", limits)?;
    match pods::create(api, &pod).await {
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("exceeded quota") => {
            Ok(status.message.clone())
        }
        Err(error) => Err(format!("Pod {name} is refused for another reason: {error}")),
        Ok(_) => Err(format!("Pod {name} is admitted beyond the quota")),
    }
}

/// Requested, used and limit are in the message.
fn names_amounts(message: &str, requested: u64) -> Result<(), String> {
    for (word, expected) in [("requested", requested), ("used", 4000), ("limited", HARD_MIB)] {
        let lead = format!("{word}: {RESOURCE}=");
        let found = message.split_once(&lead).map(|(_, rest)| rest.split(',').next().unwrap_or_default());
        if found.and_then(amount) != Some(expected) {
            return Err(format!("the refusal does not say {word} {expected}: {message}"));
        }
    }
    Ok(())
}

/// However many are created at once, the quota holds.
async fn at_once(lab: &Lab, api: &Api<Pod>) -> Result<(), String> {
    let wanted: Vec<Pod> = (0..AT_ONCE)
        .map(|i| pods::gpu_pod(&lab.image, &format!("crowd-{i}"), "binpack", &[("gpu", 1), ("gpumem", 4000)]))
        .collect::<Result<_, _>>()?;
    let created = join_all(wanted.iter().map(|pod| pods::create(api, pod))).await;
    for error in created.iter().filter_map(|c| c.as_ref().err()) {
        if !matches!(error, kube::Error::Api(status) if status.code == 403) {
            return Err(format!("a Pod of the crowd is refused for another reason: {error}"));
        }
    }
    let there = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items.len();
    if there != 2 {
        let _ = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
        return Err(format!("{there} Pods of 4000 MiB each were admitted at once under a quota of {HARD_MIB}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_kubernetes_writes_it() {
        let message = format!(
            "pods \"b\" is forbidden: exceeded quota: cards, requested: {RESOURCE}=8k, used: {RESOURCE}=4k, limited: {RESOURCE}=10k"
        );
        assert_eq!(names_amounts(&message, 8000), Ok(()));
        assert!(names_amounts(&message, 4000).is_err());
        assert_eq!(amount("8192"), Some(8192));
        assert_eq!(amount(""), None);
    }
}
