//! What the node's device plugins offer: the ledger knows the cards, the node agent hands out what its plugins have told it.

use std::borrow::Cow;

use atoll_devices::names::resource;
use atoll_scheduler::plugin::{Cycle, Plugin, Rejection};
use atoll_scheduler::snapshot::{NodeInfo, PodInfo};

/// Asks `status.allocatable` about HAMi's resources, after the ledger has had its say, so that HAMi's reasons come first.
///
/// `nvidia.com/gpu` has to be offered. HAMi's other names are counted where a plugin offers them: without HAMi's mock device
/// plugin nobody does. What a Pod requests is never more than what it really gets, so this refuses nothing that a kubelet
/// would admit.
pub struct Offered;

impl Plugin for Offered {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn filter(&self, _: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        let mut unresolvable = false;
        for name in resource::ALL {
            let wanted = pod.requests.get(name);
            let offered = node.allocatable.iter().find(|(known, _)| *known == name).map(|(_, amount)| amount);
            let Some(capacity) = offered.or((name == resource::GPU).then_some(0)) else { continue };
            if wanted > 0 && wanted > capacity.saturating_sub(node.requested.get(name)) {
                reasons.push(format!("Insufficient {name}").into());
                unresolvable |= wanted > capacity;
            }
        }
        if reasons.is_empty() { Ok(()) } else { Err(Rejection { reasons, unresolvable }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};
    use std::sync::Arc;

    fn judge(allocatable: Value, limits: Value) -> Result<(), Vec<String>> {
        let node = json!({ "metadata": { "name": "n" }, "status": { "allocatable": allocatable } });
        let container = json!({ "name": "c", "resources": { "requests": limits, "limits": limits } });
        let pod = json!({ "metadata": { "name": "p", "uid": "p" }, "spec": { "containers": [container] } });
        let node = NodeInfo::new(Arc::new(from_value(node).unwrap()));
        let pod = PodInfo::new(Arc::new(from_value(pod).unwrap()));
        let verdict = Offered.filter(&Cycle::default(), &pod, &node);
        verdict.map_err(|rejection| rejection.reasons.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn a_node_whose_plugins_have_not_come_up_takes_nothing() {
        let wanted = json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "30" });
        let insufficient = |name: &str| Err(vec![format!("Insufficient {name}")]);
        assert_eq!(judge(json!({}), wanted.clone()), insufficient("nvidia.com/gpu"));
        let none_yet = json!({ "nvidia.com/gpu": "10", "nvidia.com/gpumem": "0", "nvidia.com/gpucores": "100" });
        assert_eq!(judge(none_yet, wanted.clone()), insufficient("nvidia.com/gpumem"));
        assert_eq!(judge(json!({ "nvidia.com/gpu": "10" }), wanted.clone()), Ok(()), "a worker without the mock plugin");
        let whole = json!({ "nvidia.com/gpu": "10", "nvidia.com/gpumem": "81920", "nvidia.com/gpucores": "100" });
        assert_eq!(judge(whole, wanted), Ok(()));
    }
}
