//! Whether a Pod fits on the node: what a scheduler should have seen to, judged again where it counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::downward::Allocatable;
use super::resources::{containers, pod_request};

/// Why a Pod is refused: the reason and message of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// Judges a Pod against what the Pods already taken leave. A resource that the node does not have at all is not judged:
/// it may belong to somebody else's scheduler.
pub fn admit(pod: &Pod, taken: &[Arc<Pod>], allocatable: &Allocatable) -> Result<(), Refusal> {
    if let Some(limit) = allocatable.get("pods").filter(|l| (taken.len() as i128 + 1) * 1000 > **l) {
        return Err(refusal("pods", 1, taken.len() as i128, limit / 1000));
    }
    let named = containers(pod).filter_map(|c| c.resources.as_ref());
    let names: BTreeSet<&String> =
        named.flat_map(|r| r.requests.iter().flatten().chain(r.limits.iter().flatten()).map(|(n, _)| n)).collect();
    for name in names {
        let Some(have) = allocatable.get(name) else { continue };
        let wanted = pod_request(pod, name);
        let used: i128 = taken.iter().map(|p| pod_request(p, name)).sum();
        if wanted > 0 && used + wanted > *have {
            // CPU is reported in thousandths, everything else in units.
            let unit = if name == "cpu" { 1 } else { 1000 };
            return Err(refusal(name, wanted / unit, used / unit, have / unit));
        }
    }
    Ok(())
}

fn refusal(name: &str, wanted: i128, used: i128, capacity: i128) -> Refusal {
    Refusal {
        reason: format!("OutOf{name}"),
        message: format!("Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {capacity}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str) -> Pod {
        let container = serde_json::json!({"name": "c", "resources": {"requests": {"cpu": cpu, "other.io/x": "5"}}});
        serde_json::from_value(serde_json::json!({"metadata": {}, "spec": {"containers": [container]}})).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_numbers() {
        let node = Allocatable::from([("cpu".to_owned(), 2000), ("pods".to_owned(), 2000)]);
        let taken = [Arc::new(pod("1500m"))];
        assert_eq!(admit(&pod("500m"), &taken, &node), Ok(()));
        let refused = admit(&pod("1"), &taken, &node).unwrap_err();
        assert_eq!(refused.reason, "OutOfcpu");
        assert_eq!(refused.message, "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000");
        let two = [Arc::new(pod("0")), Arc::new(pod("0"))];
        assert_eq!(admit(&pod("0"), &two, &node).unwrap_err().reason, "OutOfpods");
    }
}
