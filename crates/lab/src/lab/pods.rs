//! GPU Pods as the tests make them, in a namespace of the test's own.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, LogParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::eventually;

/// How long a Pod may take to run, and a namespace to be ready or gone.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// What the scheduler gave a Pod.
pub const ALLOCATED: &str = "hami.io/vgpu-devices-allocated";

/// An object from its JSON form.
pub fn object<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|e| format!("an object of the test has a wrong shape: {e}"))
}

/// A Pod without devices.
pub fn cpu_pod(image: &str, name: &str) -> Result<Pod, String> {
    object(json!({
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "work", "image": image, "command": ["atoll", "example", "gpu-work"] }],
        },
    }))
}

/// A Pod that prints what it was given of a card. `limits` are names below `nvidia.com/`.
pub fn gpu_pod(image: &str, name: &str, card_policy: &str, limits: &[(&str, u64)]) -> Result<Pod, String> {
    let limits: BTreeMap<String, String> = limits.iter().map(|(k, v)| (format!("nvidia.com/{k}"), v.to_string())).collect();
    object(json!({
        "metadata": { "name": name, "annotations": { "hami.io/gpu-scheduler-policy": card_policy } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "work", "image": image, "command": ["atoll", "example", "gpu-work"], "resources": { "limits": limits },
            }],
        },
    }))
}

/// Creates a Pod.
pub async fn create(pods: &Api<Pod>, pod: &Pod) -> Result<Pod, kube::Error> {
    pods.create(&PostParams::default(), pod).await
}

/// A new namespace in which Pods can be created.
pub async fn open(client: &Client, name: &str) -> Result<Api<Pod>, String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = object(json!({ "metadata": { "name": name } }))?;
    namespaces.create(&PostParams::default(), &namespace).await.map_err(|e| format!("create namespace {name}: {e}"))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    eventually(&format!("service account of {name}"), PATIENCE, || async {
        accounts.get("default").await.map(drop).map_err(|e| e.to_string())
    })
    .await?;
    Ok(Api::namespaced(client.clone(), name))
}

/// Deletes a namespace with all in it and waits until it is gone.
pub async fn close(client: &Client, name: &str) -> Result<(), String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => drop(other.map_err(|e| format!("delete namespace {name}: {e}"))?),
    }
    eventually(&format!("namespace {name} is gone"), PATIENCE, || async {
        match namespaces.get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("it is still there".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await
}

/// Deletes a Pod and waits until it is gone.
pub async fn remove(pods: &Api<Pod>, name: &str) -> Result<(), String> {
    pods.delete(name, &DeleteParams::default()).await.map_err(|e| format!("delete Pod {name}: {e}"))?;
    eventually(&format!("Pod {name} is gone"), PATIENCE, || async {
        match pods.get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("it is still there".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await
}

/// Waits until a Pod runs.
pub async fn running(pods: &Api<Pod>, name: &str) -> Result<Pod, String> {
    eventually(&format!("Pod {name} runs"), PATIENCE, || async {
        let pod = pods.get(name).await.map_err(|e| e.to_string())?;
        if phase(&pod) == "Running" { Ok(pod) } else { Err(format!("it is {}", phase(&pod))) }
    })
    .await
}

/// The phase, empty if there is none yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// One slice of a card, as annotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub card: String,
    pub memory_mib: u64,
    pub cores: u64,
}

/// The slices that a Pod's annotation names: `UUID,TYPE,MiB,cores:` each, `;` ends a container.
pub fn given(pod: &Pod) -> Result<Vec<Given>, String> {
    let text = pod.metadata.annotations.as_ref().and_then(|a| a.get(ALLOCATED)).map_or("", String::as_str);
    let slices = text.split([':', ';']).filter(|s| !s.is_empty());
    slices
        .map(|slice| match slice.split(',').collect::<Vec<_>>()[..] {
            [card, _, memory, cores] => {
                let number = |n: &str| n.parse().map_err(|_| format!("{n:?} in {text:?} is no number"));
                Ok(Given { card: card.to_owned(), memory_mib: number(memory)?, cores: number(cores)? })
            }
            _ => Err(format!("{text:?} is not an allocation")),
        })
        .collect()
}

/// What the Pod's process says its environment holds.
pub async fn environment(pods: &Api<Pod>, name: &str) -> Result<BTreeMap<String, String>, String> {
    eventually(&format!("log of Pod {name}"), PATIENCE, || async {
        let log = pods.logs(name, &LogParams::default()).await.map_err(|e| e.to_string())?;
        let pairs: BTreeMap<_, _> =
            log.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        if pairs.is_empty() { Err(format!("no environment in {log:?}")) } else { Ok(pairs) }
    })
    .await
}

/// The message has the code word, once, and a cause has it as its reason.
pub fn names_cause(status: &kube::core::Status, code: &str) -> bool {
    let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
    status.message.matches(code).count() == 1 && causes.iter().any(|c| c.reason == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_names_card_memory_and_cores() {
        let pod = |text: &str| object::<Pod>(json!({ "metadata": { "annotations": { ALLOCATED: text } } })).expect("a Pod");
        let one = Given { card: "GPU-1".to_owned(), memory_mib: 4000, cores: 30 };
        assert_eq!(given(&pod("GPU-1,NVIDIA,4000,30:;")), Ok(vec![one.clone()]));
        assert_eq!(given(&pod(";GPU-1,NVIDIA,4000,30:GPU-1,NVIDIA,4000,30:;")), Ok(vec![one.clone(), one]));
        assert_eq!(given(&Pod::default()), Ok(Vec::new()));
        assert!(given(&pod("GPU-1,NVIDIA:;")).is_err());
    }

    fn status(message: &str, reasons: &[&str]) -> kube::core::Status {
        let causes: Vec<_> = reasons.iter().map(|r| json!({ "reason": r, "message": "", "field": "" })).collect();
        object(json!({
            "message": message, "details": { "causes": causes, "name": "", "group": "", "kind": "", "uid": "" },
        }))
        .expect("a Status")
    }

    #[test]
    fn a_code_word_stands_once_in_the_message_and_in_a_cause() {
        assert!(names_cause(&status("failed: TunnelNoAgent: nobody", &["TunnelNoAgent"]), "TunnelNoAgent"));
        assert!(!names_cause(&status("failed: TunnelNoAgent: TunnelNoAgent: nobody", &["TunnelNoAgent"]), "TunnelNoAgent"));
        assert!(!names_cause(&status("failed: TunnelNoAgent: nobody", &[]), "TunnelNoAgent"));
        assert!(!names_cause(&status("failed: TunnelNoAgent: nobody", &["TunnelNoAgent"]), "TunnelNoAnswer"));
    }
}
