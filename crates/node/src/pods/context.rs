//! What all Pods of a node share.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use parking_lot::{Mutex, RwLock};

use super::downward::Allocatable;
use crate::devices::Devices;
use crate::events::Events;
use crate::network::services::Services;
use crate::paths::NodePaths;
use crate::runtime::{Runtime, Sandbox};
use crate::volumes::Volumes;

/// One node, as its Pods see it.
pub struct Node<R: Runtime> {
    pub name: String,
    pub host_ip: String,
    pub client: Client,
    pub paths: NodePaths,
    pub runtime: R,
    pub volumes: Volumes,
    pub events: Events,
    pub devices: Arc<Devices>,
    pub services: Arc<Services>,
    /// Amounts in thousandths, without what device plugins offer.
    pub allocatable: RwLock<Allocatable>,
    /// Address of the API that Pods are told instead of the Service's, where Services cannot be programmed.
    pub api_address: Option<(String, u16)>,
    /// Name servers of Pods with `dnsPolicy: ClusterFirst`; none leaves them the node's.
    pub dns: Vec<String>,
    pub cluster_domain: String,
    /// Pods that the node has taken, by UID.
    pub pods: Mutex<BTreeMap<String, Placed>>,
}

/// A Pod on this node.
#[derive(Clone)]
pub struct Placed {
    pub pod: Arc<Pod>,
    /// Latest run of each container.
    pub attempts: BTreeMap<String, u32>,
    pub sandbox: Option<Sandbox>,
    /// It counts against the node's resources.
    pub active: bool,
}
