//! What a Pod costs of its namespace's quota, and what a ResourceQuota allows.
//!
//! HAMi charges memory × cards and forgets percentages (issue 2468); the API server by itself would count per container
//! and forget the cards (issue 1393). Here everything is charged in full: a percentage, or no memory at all, against the
//! largest registered card that the Pod admits, until the placement says which card it is.

use std::collections::BTreeMap;

use crate::allocation::Allocation;
use crate::inventory::Card;
use crate::names::{annotation, resource};
use crate::pod::{Amount, PodView};
use crate::request::{PodRequest, RequestDefaults, Role};
use crate::{Error, Selection};

/// What a Pod takes, over all its cards, at the time of its life when that is most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Slices.
    pub gpus: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Percent of compute.
    pub cores: u64,
}

impl Charge {
    fn plus(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.saturating_add(other.gpus),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            cores: self.cores.saturating_add(other.cores),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.max(other.gpus),
            memory_mib: self.memory_mib.max(other.memory_mib),
            cores: self.cores.max(other.cores),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.saturating_sub(other.gpus),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            cores: self.cores.saturating_sub(other.cores),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }

    /// The amount of `resource`, in the units that a quota is written in; `None` if that resource is not charged.
    pub fn of(&self, resource: &str, defaults: &RequestDefaults) -> Option<u64> {
        match resource {
            resource::GPU => Some(self.gpus),
            resource::MEMORY => Some(self.memory_mib.div_ceil(defaults.memory_factor.max(1))),
            resource::CORES => Some(self.cores),
            _ => None,
        }
    }
}

/// The resource that a key of `spec.hard` limits by a [`Charge`]: `limits.` or `requests.` before `nvidia.com/gpu`,
/// `nvidia.com/gpumem` or `nvidia.com/gpucores`.
pub fn charged_resource(hard_key: &str) -> Option<&'static str> {
    let name = hard_key.strip_prefix("limits.").or_else(|| hard_key.strip_prefix("requests."))?;
    [resource::GPU, resource::MEMORY, resource::CORES].into_iter().find(|known| *known == name)
}

/// The charge of `pod`: of what was decided for it, else of what it asks. `None` for a Pod without cards.
///
/// `cards` are those of the nodes that may take the Pod (see [`node_admits`]).
pub fn of_pod<'a>(
    pod: &PodView,
    defaults: &RequestDefaults,
    cards: impl IntoIterator<Item = &'a Card>,
) -> Result<Option<Charge>, Error> {
    let Some(request) = PodRequest::of_pod(pod, defaults)? else { return Ok(None) };
    if let Some(text) = pod.annotation(annotation::ALLOCATED) {
        let allocation = Allocation::decode(annotation::ALLOCATED, text)?.aligned(annotation::ALLOCATED, &request)?;
        if !allocation.is_empty() {
            return Ok(Some(of_allocation(&allocation, &request)));
        }
    }
    let selection = Selection::of_pod(pod)?;
    let largest = cards.into_iter().filter(|card| selection.admits(card)).map(|card| card.devmem).max().unwrap_or(0);
    Ok(Some(of_request(&request, largest)))
}

/// The charge of a request whose percentages are of a card with `card_mib`.
pub fn of_request(request: &PodRequest, card_mib: u64) -> Charge {
    collapse(request.containers.iter().map(|claim| {
        let charge = claim.request.map_or_else(Charge::default, |r| Charge {
            gpus: u64::from(r.count),
            memory_mib: r.memory.on_card(card_mib).saturating_mul(u64::from(r.count)),
            cores: u64::from(r.cores) * u64::from(r.count),
        });
        (claim.role, charge)
    }))
}

/// The charge of what was decided.
pub fn of_allocation(allocation: &Allocation, request: &PodRequest) -> Charge {
    collapse(allocation.containers.iter().enumerate().map(|(at, slices)| {
        let role = request.containers.get(at).map_or(Role::App, |claim| claim.role);
        let charge = slices.iter().fold(Charge::default(), |sum, slice| {
            sum.plus(Charge { gpus: 1, memory_mib: slice.memory_mib, cores: u64::from(slice.cores) })
        });
        (role, charge)
    }))
}

/// The larger of the init containers' peak and the sum of the others, sidecars beside what starts after them.
fn collapse(containers: impl Iterator<Item = (Role, Charge)>) -> Charge {
    let (mut lasting, mut peak) = (Charge::default(), Charge::default());
    for (role, charge) in containers {
        if role == Role::Init {
            peak = peak.max(lasting.plus(charge));
        } else {
            lasting = lasting.plus(charge);
        }
    }
    lasting.max(peak)
}

/// Whether the Pod's node selector admits a node with `labels`.
pub fn node_admits(pod: &PodView, labels: &BTreeMap<String, String>) -> bool {
    pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// What one or several ResourceQuotas allow; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Slices.
    pub gpus: Option<u64>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Percent of compute.
    pub cores: Option<u64>,
}

impl QuotaLimits {
    /// Reads `spec.hard`, keys `limits.<resource>`. An amount that cannot be read allows nothing: a limit that somebody
    /// set must not vanish.
    pub fn of_hard(hard: &BTreeMap<String, Amount>, defaults: &RequestDefaults) -> Self {
        let limit = |resource: &str| {
            let amount = hard.get(&format!("limits.{resource}"))?;
            Some(amount.whole().and_then(|value| u64::try_from(value).ok()).unwrap_or(0))
        };
        Self {
            gpus: limit(resource::GPU),
            memory_mib: limit(resource::MEMORY).map(|units| units.saturating_mul(defaults.memory_factor.max(1))),
            cores: limit(resource::CORES),
        }
    }

    /// The tighter of both, resource by resource.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        let tighter = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            gpus: tighter(self.gpus, other.gpus),
            memory_mib: tighter(self.memory_mib, other.memory_mib),
            cores: tighter(self.cores, other.cores),
        }
    }

    /// Whether `used` and `charge` together stay within.
    pub fn allow(&self, used: Charge, charge: Charge) -> bool {
        let within = |limit: Option<u64>, amount: u64| limit.is_none_or(|limit| amount <= limit);
        let sum = used.plus(charge);
        within(self.gpus, sum.gpus) && within(self.memory_mib, sum.memory_mib) && within(self.cores, sum.cores)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &serde_json::Value, annotations: &serde_json::Value) -> PodView {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap()
    }

    fn container(limits: &serde_json::Value) -> serde_json::Value {
        json!({"name": "c", "resources": {"limits": limits}})
    }

    fn charge(spec: &serde_json::Value, annotations: &serde_json::Value) -> Charge {
        let cards = crate::inventory::decode("a,10,16384,100,T4,0,true:b,10,81920,100,A100,0,true").unwrap();
        of_pod(&pod(spec, annotations), &RequestDefaults::default(), &cards).unwrap().unwrap()
    }

    #[test]
    fn cards_multiply_and_percent_is_of_the_largest_admitted_card() {
        let two = json!({"containers": [container(&json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}))]});
        assert_eq!(charge(&two, &json!({})), Charge { gpus: 2, memory_mib: 8000, cores: 60 });
        let half = json!({"containers": [container(&json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}))]});
        assert_eq!(charge(&half, &json!({})).memory_mib, 40_960);
        assert_eq!(charge(&half, &json!({"nvidia.com/use-gputype": "t4"})).memory_mib, 8192);
        let whole = json!({"containers": [container(&json!({"nvidia.com/gpu": 1}))]});
        assert_eq!(charge(&whole, &json!({"nvidia.com/nouse-gpuuuid": "b"})).memory_mib, 16_384);
    }

    #[test]
    fn the_placement_corrects_the_estimate() {
        let half = json!({"containers": [container(&json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}))]});
        let placed = json!({"hami.io/vgpu-devices-allocated": "a,NVIDIA,8192,0:;"});
        assert_eq!(charge(&half, &placed).memory_mib, 8192);
    }

    /// HAMi's acceptance case 8, with 1000 of 2000 used.
    #[test]
    fn init_containers_count_by_their_peak() {
        let limits = QuotaLimits { memory_mib: Some(2000), ..QuotaLimits::default() };
        let used = Charge { memory_mib: 1000, ..Charge::default() };
        let ask = |gpus: u32, memory: u32| container(&json!({"nvidia.com/gpu": gpus, "nvidia.com/gpumem": memory}));
        let allowed = |spec: serde_json::Value| limits.allow(used, charge(&spec, &json!({})));
        assert!(allowed(json!({"containers": [ask(1, 100)]})));
        assert!(!allowed(json!({"containers": [ask(2, 1024)]})));
        assert!(allowed(json!({"containers": [ask(2, 400)]})));
        assert!(allowed(json!({"initContainers": [ask(1, 800), ask(1, 800)], "containers": [ask(1, 500)]})));
        assert!(!allowed(json!({"initContainers": [ask(1, 1500)], "containers": [ask(1, 1)]})));
    }

    #[test]
    fn several_quotas_leave_the_smallest_and_zero_blocks() {
        let hard = |text: &str| QuotaLimits::of_hard(&serde_json::from_str(text).unwrap(), &RequestDefaults::default());
        let both = hard(r#"{"limits.nvidia.com/gpumem": "8k"}"#)
            .min(hard(r#"{"limits.nvidia.com/gpumem": 4000, "limits.nvidia.com/gpucores": "90"}"#));
        assert_eq!(both, QuotaLimits { gpus: None, memory_mib: Some(4000), cores: Some(90) });
        let zero = hard(r#"{"limits.nvidia.com/gpumem": "0"}"#);
        assert!(!zero.allow(Charge::default(), Charge { memory_mib: 500, ..Charge::default() }));
        assert_eq!(hard(r#"{"limits.nvidia.com/gpumem": "lots"}"#).memory_mib, Some(0));
        assert_eq!(hard(r#"{"pods": "3"}"#), QuotaLimits::default());
    }

    #[test]
    fn hard_keys_are_recognised() {
        assert_eq!(charged_resource("limits.nvidia.com/gpumem"), Some("nvidia.com/gpumem"));
        assert_eq!(charged_resource("requests.nvidia.com/gpu"), Some("nvidia.com/gpu"));
        assert_eq!(charged_resource("nvidia.com/gpumem"), None);
        assert_eq!(charged_resource("limits.cpu"), None);
    }
}
