//! A decision written onto the Pod: what the plugin reads and what a restarted scheduler finds.

use atoll_devices::Allocation;
use atoll_devices::names::{NodeName, annotation, phase};
use atoll_devices::pod::PodView;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::error::{Error, Result, call};
use crate::limits;

/// A Pod by what names it for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl PodKey {
    /// The key of a Pod.
    pub fn of(pod: &Pod) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self { namespace: text(&pod.metadata.namespace), name: text(&pod.metadata.name), uid: text(&pod.metadata.uid) }
    }
}

/// The annotations and the label that HAMi's plugins and tools read.
fn metadata(node: &NodeName, allocation: &Allocation, now: Timestamp) -> Value {
    let (seconds, slices) = (now.as_second().to_string(), allocation.encode());
    json!({
        "labels": {annotation::VGPU_NODE: node},
        "annotations": {
            annotation::VGPU_NODE: node,
            annotation::VGPU_TIME: seconds,
            annotation::BIND_TIME: seconds,
            annotation::BIND_PHASE: phase::ALLOCATING,
            annotation::TO_ALLOCATE: slices,
            annotation::ALLOCATED: slices,
        },
    })
}

/// Writes the decision in one patch, onto the Pod as it is known or as it is read anew, never onto one that has a node.
/// Returns the Pod's `resourceVersion` with the decision on it.
pub async fn write(client: &kube::Client, known: &Pod, node: &NodeName, allocation: &Allocation) -> Result<String> {
    let key = PodKey::of(known);
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let mut version = known.metadata.resource_version.clone();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut patch = json!({"metadata": metadata(node, allocation, Timestamp::now())});
        patch["metadata"]["uid"] = json!(key.uid);
        patch["metadata"]["resourceVersion"] = json!(version);
        match call(api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(written) => return Ok(written.metadata.resource_version.unwrap_or_default()),
            Err(error) if error.is_status(409) && attempt < limits::DECISION_ATTEMPTS_MAX => {
                let now = call(api.get(&key.name)).await?;
                version = unbound_version(&now, &key, node, allocation)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The version of a Pod that may be written to: the same Pod, still without a node.
fn unbound_version(now: &Pod, key: &PodKey, node: &NodeName, allocation: &Allocation) -> Result<Option<String>> {
    let view = crate::view(now).unwrap_or_default();
    if view.metadata.uid != key.uid {
        return Err(Error::Option(format!("pod {}/{} was replaced", key.namespace, key.name)));
    }
    // Bound by an earlier binding of this very decision: writing it again changes nothing that anybody reads.
    let same =
        view.bound_node().as_ref() == Some(node) && view.annotation(annotation::ALLOCATED) == Some(allocation.encode().as_str());
    match view.bound_node() {
        Some(bound) if !same => Err(Error::Option(format!("pod is already assigned to node {bound}"))),
        _ => Ok(now.metadata.resource_version.clone()),
    }
}

/// Takes a decision off a Pod that was not bound by it, provided that nobody has written to the Pod since `version`.
pub async fn withdraw(client: &kube::Client, key: &PodKey, version: &str) -> Result<()> {
    let keys = [
        annotation::VGPU_NODE,
        annotation::VGPU_TIME,
        annotation::BIND_TIME,
        annotation::BIND_PHASE,
        annotation::TO_ALLOCATE,
        annotation::ALLOCATED,
    ];
    let nothing: serde_json::Map<String, Value> = keys.into_iter().map(|key| (key.to_owned(), Value::Null)).collect();
    let patch = json!({"metadata": {
        "uid": key.uid, "resourceVersion": version, "annotations": nothing, "labels": {annotation::VGPU_NODE: null}}});
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    call(api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))).await.map(drop)
}

/// What became of a decision that was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing {
    /// The Pod, at this version, still claims the slices and has no node.
    Claimed(String),
    /// The Pod has a node.
    Bound,
    /// The Pod is gone or carries no such claim.
    Clear,
}

/// Reads what became of a decision.
pub async fn standing(client: &kube::Client, key: &PodKey, allocation: &Allocation) -> Result<Standing> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    Ok(call(api.get_opt(&key.name)).await?.map_or(Standing::Clear, |now| standing_of(&now, key, allocation)))
}

fn standing_of(now: &Pod, key: &PodKey, allocation: &Allocation) -> Standing {
    let view = crate::view(now).unwrap_or_default();
    if view.metadata.uid != key.uid {
        return Standing::Clear;
    }
    if view.bound_node().is_some() {
        return Standing::Bound;
    }
    match view.annotation(annotation::ALLOCATED) {
        Some(text) if text == allocation.encode() => Standing::Claimed(now.metadata.resource_version.clone().unwrap_or_default()),
        _ => Standing::Clear,
    }
}

/// Whether the Pod carries a decision and no node.
pub fn is_undone(pod: &PodView) -> bool {
    pod.bound_node().is_none() && pod.annotation(annotation::ALLOCATED).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: Option<&str>, allocated: Option<&str>) -> Pod {
        let annotations = allocated.map(|text| json!({"hami.io/vgpu-devices-allocated": text})).unwrap_or(json!({}));
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "7", "annotations": annotations},
            "spec": {"nodeName": node, "containers": []}
        }))
        .unwrap()
    }

    #[test]
    fn one_patch_holds_all_that_plugins_read() {
        let allocation = Allocation::decode(annotation::ALLOCATED, "GPU-x,NVIDIA,4000,30:;").unwrap();
        let metadata = metadata(&NodeName::from("n"), &allocation, Timestamp::from_second(1_790_000_000).unwrap());
        assert_eq!(
            metadata,
            json!({"labels": {"hami.io/vgpu-node": "n"}, "annotations": {
                "hami.io/vgpu-node": "n", "hami.io/vgpu-time": "1790000000", "hami.io/bind-time": "1790000000",
                "hami.io/bind-phase": "allocating", "hami.io/vgpu-devices-to-allocate": "GPU-x,NVIDIA,4000,30:;",
                "hami.io/vgpu-devices-allocated": "GPU-x,NVIDIA,4000,30:;"}})
        );
    }

    #[test]
    fn a_bound_or_replaced_pod_is_not_rewritten() {
        let allocation = Allocation::decode(annotation::ALLOCATED, "GPU-x,NVIDIA,4000,30:;").unwrap();
        let key = PodKey::of(&pod(None, None));
        let version = |pod: &Pod, key: &PodKey| unbound_version(pod, key, &NodeName::from("n"), &allocation);
        assert_eq!(version(&pod(None, None), &key).unwrap().as_deref(), Some("7"));
        assert!(version(&pod(Some("n"), None), &key).is_err());
        assert!(version(&pod(Some("m"), Some("GPU-x,NVIDIA,4000,30:;")), &key).is_err());
        assert!(version(&pod(Some("n"), Some("GPU-x,NVIDIA,4000,30:;")), &key).is_ok());
        assert!(version(&pod(None, None), &PodKey { uid: "other".into(), ..key }).is_err());
    }

    #[test]
    fn a_decision_is_claimed_until_it_is_off_the_pod_or_bound() {
        let text = "GPU-x,NVIDIA,4000,30:;";
        let allocation = Allocation::decode(annotation::ALLOCATED, text).unwrap();
        let key = PodKey::of(&pod(None, None));
        let standing = |node, allocated, key: &PodKey| standing_of(&pod(node, allocated), key, &allocation);
        assert_eq!(standing(None, Some(text), &key), Standing::Claimed("7".into()));
        assert_eq!(standing(None, Some("GPU-y,NVIDIA,4000,30:;"), &key), Standing::Clear);
        assert_eq!(standing(None, None, &key), Standing::Clear);
        assert_eq!(standing(Some("n"), Some(text), &key), Standing::Bound);
        assert_eq!(standing(Some("n"), Some(text), &PodKey { uid: "other".into(), ..key }), Standing::Clear);
    }
}
