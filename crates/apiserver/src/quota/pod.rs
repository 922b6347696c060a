//! What a Pod uses.

use std::collections::BTreeMap;

use atoll_kube_schema::quantity::{Format, Quantity};
use serde_json::Value;

use super::{DeviceView, Usage};

type Resources = BTreeMap<String, Quantity>;

/// Adds a Pod's amounts. A Pod that has ended is counted as an object only.
pub(super) fn add(pod: &Value, devices: &DeviceView, usage: &mut Usage) {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return;
    }
    usage.insert("pods".to_owned(), Quantity::from_units(1, Format::Decimal));
    for (name, amount) in effective(pod, "requests") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount);
        }
        usage.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in effective(pod, "limits") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
    // Sliced cards count by what is taken of them, not by what one container's line says.
    for (name, amount) in devices.amounts(pod) {
        for prefix in ["limits.", "requests."] {
            usage.insert(format!("{prefix}{name}"), Quantity::from_units(amount, Format::Decimal));
        }
    }
}

pub(super) fn of_container(container: &Value, kind: &str) -> Resources {
    let listed = container["resources"][kind].as_object().into_iter().flatten();
    listed
        .filter_map(|(name, amount)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            Some((name.clone(), Quantity::parse(&text).ok()?))
        })
        .collect()
}

fn add_all(sum: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::from_units(0, amount.format()));
        *entry = entry.plus(*amount);
    }
}

fn max_all(sum: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let entry = sum.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

/// The larger of the containers' sum and the init containers' peak, with sidecars beside what starts after them.
pub(super) fn of_containers(pod: &Value, kind: &str) -> Resources {
    let mut lasting = Resources::new();
    let mut peak = Resources::new();
    for container in pod["spec"]["initContainers"].as_array().into_iter().flatten() {
        let own = of_container(container, kind);
        if container["restartPolicy"] == "Always" {
            add_all(&mut lasting, &own);
            max_all(&mut peak, &lasting);
        } else {
            let mut together = lasting.clone();
            add_all(&mut together, &own);
            max_all(&mut peak, &together);
        }
    }
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        add_all(&mut lasting, &of_container(container, kind));
    }
    max_all(&mut lasting, &peak);
    lasting
}

/// What the containers need together, and overhead.
fn effective(pod: &Value, kind: &str) -> Resources {
    let mut lasting = of_containers(pod, kind);
    if let Some(overhead) = pod["spec"]["overhead"].as_object() {
        for (name, amount) in overhead {
            let amount = amount.as_str().and_then(|t| Quantity::parse(t).ok());
            if let (Some(amount), true) = (amount, kind == "requests" || lasting.contains_key(name)) {
                add_all(&mut lasting, &Resources::from([(name.clone(), amount)]));
            }
        }
    }
    lasting
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn used(pod: &Value, key: &str) -> Option<String> {
        let mut usage = Usage::new();
        add(pod, &DeviceView::default(), &mut usage);
        usage.get(key).map(ToString::to_string)
    }

    #[test]
    fn init_containers_count_by_their_peak_and_sidecars_on_top() {
        let requests = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
        let mut sidecar = requests("1");
        sidecar["restartPolicy"] = json!("Always");
        let pod = json!({ "spec": {
            "initContainers": [sidecar, requests("4")],
            "containers": [requests("1"), requests("2")],
        } });
        assert_eq!(used(&pod, "requests.cpu").as_deref(), Some("5"));
        assert_eq!(used(&pod, "cpu").as_deref(), Some("5"));
    }

    #[test]
    fn memory_of_cards_counts_once_for_each_card() {
        let pod = json!({ "spec": { "containers": [{ "name": "c", "resources": { "limits": {
            "nvidia.com/gpu": "2", "nvidia.com/gpumem": "4000",
        } } }] } });
        assert_eq!(used(&pod, "limits.nvidia.com/gpumem").as_deref(), Some("8k"));
    }

    #[test]
    fn a_finished_pod_uses_nothing() {
        let pod = json!({ "status": { "phase": "Succeeded" }, "spec": { "containers": [] } });
        assert_eq!(used(&pod, "pods"), None);
    }
}
