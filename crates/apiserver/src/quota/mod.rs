//! What objects use of a ResourceQuota: pure, shared by admission (which charges before a write) and the quota controller (which
//! counts what is there).

use atoll_kube_schema::quantity::Quantity;
use serde_json::Value;

mod devices;
mod pod;
mod scopes;
mod usage;

pub use devices::DeviceView;
pub use scopes::applies;
pub use usage::{Usage, covered, exceeded, plus, positive_delta, usage_of};

/// A map of amounts as an object states it; what is no quantity is left out.
pub(crate) fn amounts(value: &Value) -> Usage {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(k, v)| Some((k.clone(), Quantity::parse(v.as_str()?).ok()?))).collect()
}

/// `requests` or `limits` of one container.
pub(crate) fn container_amounts(container: &Value, side: &str) -> Usage {
    pod::of_container(container, side)
}

/// `requests` or `limits` of a Pod without its overhead; what it states for itself as a whole goes before the containers' sum.
pub(crate) fn pod_amounts(pod: &Value, side: &str) -> Usage {
    let mut total = pod::of_containers(pod, side);
    let whole = amounts(&pod["spec"]["resources"][side]);
    total.extend(
        whole.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-")),
    );
    total
}
