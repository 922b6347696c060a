//! What Pods ask for and nodes offer, as integers.

use crate::quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource name: `cpu` in thousandths of a core, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, i64>);

/// CPU that a Pod without a request counts as in scores.
const DEFAULT_CPU_MILLI: i64 = 100;
/// Memory that a Pod without a request counts as in scores.
const DEFAULT_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

impl Resources {
    /// Reads a `requests`, `limits` or `allocatable` map.
    pub fn from_map(map: Option<&BTreeMap<String, Quantity>>) -> Self {
        let amount = |name: &str, q: &Quantity| if name == "cpu" { quantity::milli(q) } else { quantity::units(q) };
        Self(map.into_iter().flatten().map(|(name, q)| (name.clone(), amount(name, q))).collect())
    }

    /// The amount of one resource, 0 if absent.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds each amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let slot = self.0.entry(name.clone()).or_default();
            *slot = slot.saturating_add(*amount);
        }
    }

    /// Takes away each amount of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if let Some(slot) = self.0.get_mut(name) {
                *slot = slot.saturating_sub(*amount);
            }
        }
    }

    /// Raises each amount to that of `other` where that is higher.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let slot = self.0.entry(name.clone()).or_default();
            *slot = (*slot).max(*amount);
        }
    }
}

/// What a Pod takes of a node: the larger of its containers together and its largest moment during initialisation
/// (restartable init containers run on, KEP-753), Pod-level requests where given (KEP-2837), plus overhead.
pub fn pod_requests(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let requests = |c: &Container| Resources::from_map(c.resources.as_ref().and_then(|r| r.requests.as_ref()));
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&requests(container));
    }
    let mut restartable = Resources::default();
    let mut peak = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let own = requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&own);
            restartable.add(&own);
            peak.raise(&restartable);
        } else {
            let mut moment = restartable.clone();
            moment.add(&own);
            peak.raise(&moment);
        }
    }
    running.raise(&peak);
    let whole = Resources::from_map(spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    for (name, amount) in whole.0 {
        running.0.insert(name, amount);
    }
    running.add(&Resources::from_map(spec.overhead.as_ref()));
    running
}

/// Requests as scores see them: a container that asks for nothing still costs something.
pub fn with_defaults(pod: &Pod, requests: &Resources) -> (i64, i64) {
    let containers = pod.spec.as_ref().map_or(&[][..], |s| &s.containers);
    let lacks = |name: &str| {
        containers
            .iter()
            .filter(|c| !c.resources.as_ref().and_then(|r| r.requests.as_ref()).is_some_and(|r| r.contains_key(name)))
            .count() as i64
    };
    (requests.get("cpu") + lacks("cpu") * DEFAULT_CPU_MILLI, requests.get("memory") + lacks("memory") * DEFAULT_MEMORY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_containers_count_by_their_peak_and_sidecars_always() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "overhead": {"cpu": "10m"},
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "once", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m"}}}]}}))
        .unwrap();
        let requests = pod_requests(&pod);
        assert_eq!(requests.get("cpu"), 2110);
        assert_eq!(requests.get("memory"), 1 << 30);
        assert_eq!(requests.get("nvidia.com/gpu"), 1);
    }
}
