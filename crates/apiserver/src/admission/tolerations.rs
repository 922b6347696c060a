//! `DefaultTolerationSeconds` and `TaintNodesByCondition`: how long Pods stay on a node that fails, and that a new node is
//! taken for not ready until it says otherwise.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attributes, Operation, Plugin};
use crate::cluster::Cluster;
use crate::error::Result;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// How long a Pod stays, in seconds.
const STAY_SECONDS: i64 = 300;

#[derive(Debug, Default)]
pub struct DefaultTolerationSeconds;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn admit(&self, attributes: &mut Attributes, _cluster: &Cluster) -> Result<()> {
        if attributes.is_resource("", "pods") {
            add_tolerations(&mut attributes.object);
        }
        Ok(())
    }
}

fn add_tolerations(pod: &mut Value) {
    let tolerates = |key: &str| {
        pod["spec"]["tolerations"].as_array().into_iter().flatten().any(|t| {
            let keyed = t["key"].as_str().unwrap_or_default();
            let effect = t["effect"].as_str().unwrap_or_default();
            (keyed.is_empty() || keyed == key) && (effect.is_empty() || effect == "NoExecute")
        })
    };
    let missing: Vec<&str> = [NOT_READY, UNREACHABLE].into_iter().filter(|key| !tolerates(key)).collect();
    if missing.is_empty() {
        return;
    }
    if !pod["spec"]["tolerations"].is_array() {
        pod["spec"]["tolerations"] = json!([]);
    }
    if let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() {
        for key in missing {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAY_SECONDS,
            }));
        }
    }
}

#[derive(Debug, Default)]
pub struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, attributes: &mut Attributes, _cluster: &Cluster) -> Result<()> {
        if !attributes.is_resource("", "nodes") {
            return Ok(());
        }
        let taints = &mut attributes.object["spec"]["taints"];
        let is_tainted = taints.as_array().into_iter().flatten().any(|t| t["key"] == NOT_READY && t["effect"] == "NoSchedule");
        if is_tainted {
            return Ok(());
        }
        if !taints.is_array() {
            *taints = json!([]);
        }
        if let Some(taints) = taints.as_array_mut() {
            taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_pod_tolerates_already_is_left_alone() {
        let mut pod = json!({ "spec": { "tolerations": [{ "key": NOT_READY, "operator": "Exists", "effect": "NoExecute" }] } });
        add_tolerations(&mut pod);
        let keys: Vec<&str> =
            pod["spec"]["tolerations"].as_array().expect("list").iter().filter_map(|t| t["key"].as_str()).collect();
        assert_eq!(keys, [NOT_READY, UNREACHABLE]);
        let mut all = json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } });
        add_tolerations(&mut all);
        assert_eq!(all["spec"]["tolerations"].as_array().map(Vec::len), Some(1));
    }
}
