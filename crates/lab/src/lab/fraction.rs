//! Test 4: a Pod gets a fraction of a card, and its process is told which.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::Lab;
use super::pods::{self, Given};

const NAMESPACE: &str = "lab-fraction";
const MEMORY_MIB: u64 = 4000;
const CORES: u64 = 30;
/// More than half a card: two such Pods are never on the same one.
const CORES_APART: u64 = 60;

pub async fn run(lab: &Lab) -> Result<String, String> {
    let outcome = fractions(lab).await;
    pods::close(&lab.a.client, NAMESPACE).await?;
    outcome
}

async fn fractions(lab: &Lab) -> Result<String, String> {
    let api = pods::open(&lab.a.client, NAMESPACE).await?;
    let first = place(lab, &api, "first", "binpack", CORES).await?;
    let second = place(lab, &api, "second", "binpack", CORES).await?;
    if first.card != second.card {
        return Err(format!("under binpack the second Pod is on {}, the first on {}", second.card, first.card));
    }
    for name in ["first", "second"] {
        pods::remove(&api, name).await?;
    }
    let (left, right) =
        tokio::join!(place(lab, &api, "left", "spread", CORES_APART), place(lab, &api, "right", "spread", CORES_APART));
    let (left, right) = (left?, right?);
    if left.card == right.card {
        return Err(format!("two Pods of {CORES_APART} cores each are on {}", left.card));
    }
    Ok(format!(
        "{} shared by two Pods of {MEMORY_MIB} MiB and {CORES} cores, as annotation and process say; two equal Pods at once: \
         {} and {}, each told its own; declared; enforced only where a GPU is",
        first.card, left.card, right.card
    ))
}

/// Creates a Pod, waits until it runs and checks that annotation and process agree.
async fn place(lab: &Lab, api: &Api<Pod>, name: &str, policy: &str, cores: u64) -> Result<Given, String> {
    let pod = pods::gpu_pod(&lab.image, name, policy, &[("gpu", 1), ("gpumem", MEMORY_MIB), ("gpucores", cores)])?;
    pods::create(api, &pod).await.map_err(|e| format!("create Pod {name}: {e}"))?;
    let pod = pods::running(api, name).await?;
    let given = pods::given(&pod)?;
    let [one] = given.as_slice() else { return Err(format!("Pod {name} is annotated with {given:?}")) };
    if (one.memory_mib, one.cores) != (MEMORY_MIB, cores) {
        return Err(format!("Pod {name} is annotated with {one:?}"));
    }
    let told = pods::environment(api, name).await?;
    let expected = [
        ("NVIDIA_VISIBLE_DEVICES", one.card.clone()),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", format!("{MEMORY_MIB}m")),
        ("CUDA_DEVICE_SM_LIMIT", cores.to_string()),
    ];
    for (key, value) in expected {
        if told.get(key) != Some(&value) {
            return Err(format!("the process of Pod {name} has {key}={:?}, its annotation says {value}", told.get(key)));
        }
    }
    Ok(one.clone())
}
