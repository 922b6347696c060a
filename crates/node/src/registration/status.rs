//! The Node's status: computed from facts, sent when it changed and every five minutes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node as NodeObject, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus,
    NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::time::Instant;

use super::machine::Machine;
use crate::devices::Amounts;
use crate::limits;
use crate::pods::context::Node;
use crate::runtime::Runtime;

/// What does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Facts {
    pub name: String,
    pub node_ip: Ipv4Addr,
    pub port: u16,
    pub machine: Machine,
    pub system: NodeSystemInfo,
    pub image: String,
    pub pods_max: u32,
    pub capacity: BTreeMap<String, String>,
    pub limits_memory: bool,
}

type Quantities = BTreeMap<String, Quantity>;

/// What the node has without plugins.
pub fn capacity(facts: &Facts) -> Quantities {
    let machine = &facts.machine;
    let mut all = BTreeMap::from([
        ("cpu".to_owned(), machine.cpus.to_string()),
        ("memory".to_owned(), format!("{}Ki", machine.memory_kib)),
        ("ephemeral-storage".to_owned(), format!("{}Ki", machine.disk_kib)),
        ("pods".to_owned(), facts.pods_max.to_string()),
    ]);
    all.extend(facts.capacity.clone());
    all.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect()
}

/// Computes the status. Times of conditions are as in `before` where nothing changed.
pub fn status(facts: &Facts, devices: &BTreeMap<String, Amounts>, before: &NodeStatus, now: Timestamp) -> NodeStatus {
    let mut capacity = capacity(facts);
    let mut allocatable = capacity.clone();
    for (name, amounts) in devices {
        capacity.insert(name.clone(), Quantity(amounts.capacity.to_string()));
        allocatable.insert(name.clone(), Quantity(amounts.allocatable.to_string()));
    }
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    NodeStatus {
        addresses: Some(vec![address("InternalIP", facts.node_ip.to_string()), address("Hostname", facts.name.clone())]),
        capacity: Some(capacity),
        allocatable: Some(allocatable),
        conditions: Some(conditions(facts, before, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(facts.port) }) }),
        // An API server passes WebSocket requests straight through only to a node that says so.
        declared_features: Some(vec!["ExtendWebSocketsToKubelet".to_owned()]),
        images: Some(vec![ContainerImage { names: Some(vec![facts.image.clone()]), size_bytes: None }]),
        node_info: Some(facts.system.clone()),
        ..NodeStatus::default()
    }
}

fn conditions(facts: &Facts, before: &NodeStatus, now: Timestamp) -> Vec<NodeCondition> {
    let mut all = vec![
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    if !facts.limits_memory {
        all.push((
            "LimitsNotEnforced",
            "True",
            "NoMemoryController",
            "no control group hierarchy with the memory controller is writable: memory and CPU limits of containers do not hold",
        ));
    }
    all.push(("Ready", "True", "KubeletReady", "kubelet is posting ready status"));
    let condition = |(kind, status, reason, message): (&str, &str, &str, &str)| {
        let same = before.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status);
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: same.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now))),
        }
    };
    all.into_iter().map(condition).collect()
}

/// Whether a status says something new, heartbeats aside.
fn differs(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status
    };
    still(a) != still(b)
}

/// Keeps the Node's status until the Node is gone. A change of devices is sent at once.
pub async fn keep<R: Runtime>(node: Arc<Node<R>>, facts: Facts, first: NodeStatus) {
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let mut devices = node.devices.changes();
    let mut sent = first;
    let mut sent_at: Option<Instant> = None;
    loop {
        let status = status(&facts, &node.devices.amounts(), &sent, Timestamp::now());
        let due = sent_at.is_none_or(|at| at.elapsed() >= limits::STATUS_FORCED);
        let mut pause = limits::STATUS_PERIOD;
        if due || differs(&sent, &status) {
            let body = Patch::Strategic(body(&status));
            match api.patch_status(&facts.name, &PatchParams::default(), &body).await {
                Ok(_) => {
                    sent = status;
                    sent_at = Some(Instant::now());
                }
                // Somebody deleted the Node: it has to be registered again.
                Err(kube::Error::Api(e)) if e.code == 404 => return,
                Err(e) => {
                    tracing::warn!("node status not sent: {e}");
                    pause = limits::POD_RETRY;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = devices.changed() => {}
        }
    }
}

/// The patch. Addresses are replaced as a whole: merged by type, an old one of a kind that is gone would stay.
fn body(status: &NodeStatus) -> serde_json::Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(addresses) = value["addresses"].as_array_mut() {
        addresses.push(serde_json::json!({"$patch": "replace"}));
    }
    serde_json::json!({ "status": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "n".into(),
            node_ip: Ipv4Addr::new(10, 0, 0, 1),
            port: 10250,
            machine: Machine { cpus: 2, memory_kib: 1024, disk_kib: 2048 },
            system: NodeSystemInfo::default(),
            image: "atoll".into(),
            pods_max: 110,
            capacity: BTreeMap::from([("cpu".to_owned(), "8".to_owned())]),
            limits_memory: false,
        }
    }

    #[test]
    fn plugins_resources_are_beside_the_machines() {
        let devices = BTreeMap::from([("nvidia.com/gpu".to_owned(), Amounts { capacity: 20, allocatable: 0 })]);
        let status = status(&facts(), &devices, &NodeStatus::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(status.capacity.as_ref().unwrap()["nvidia.com/gpu"].0, "20");
        assert_eq!(status.allocatable.as_ref().unwrap()["nvidia.com/gpu"].0, "0");
        assert_eq!(status.capacity.as_ref().unwrap()["cpu"].0, "8");
        assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "LimitsNotEnforced" && c.status == "True"));
    }

    #[test]
    fn a_heartbeat_alone_is_no_change() {
        let at = |s| status(&facts(), &BTreeMap::new(), &NodeStatus::default(), Timestamp::from_second(s).unwrap());
        let first = at(0);
        let later = status(&facts(), &BTreeMap::new(), &first, Timestamp::from_second(60).unwrap());
        assert!(!differs(&first, &later));
        let devices = BTreeMap::from([("a.b/c".to_owned(), Amounts::default())]);
        assert!(differs(&first, &status(&facts(), &devices, &first, Timestamp::UNIX_EPOCH)));
    }
}
