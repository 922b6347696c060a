//! What a node agent is told.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Taint;

use crate::network::NetworkMode;
use crate::network::range::Ipv4Range;

/// How the agent proves to the API who it is.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A kubeconfig of the node's own.
    Kubeconfig(PathBuf),
    /// A kubeconfig with a bootstrap token: the agent asks for a client certificate and renews it.
    Bootstrap(PathBuf),
}

/// Options of a node agent.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the Node.
    pub name: String,
    pub credentials: Credentials,
    /// Everything the agent writes, and what `hostPath: /` shows, lies below this directory.
    pub root: PathBuf,
    /// Where paths of `hostPath` and of PersistentVolumes start, if not at `root`. A management node whose volumes are
    /// made and removed by a program beside it takes `/`.
    pub host_root: Option<PathBuf>,
    /// The program that the only image consists of; also run in the hidden roles.
    pub program: PathBuf,
    /// Exact name of the only image.
    pub image: String,
    /// Containers of other images count as running without a process.
    pub simulate: bool,
    /// Address of the node; found by the route to the API if there is none.
    pub node_ip: Option<Ipv4Addr>,
    /// Port of the kubelet API; 0 takes a free one.
    pub port: u16,
    /// `None` decides by rights and installed programs.
    pub network: Option<NetworkMode>,
    /// Addresses of Pods; `None` waits for the Node's `podCIDR`, in loopback mode derives one from the name.
    pub pod_cidr: Option<Ipv4Range>,
    /// Pods leave the node under the node's address.
    pub masquerade: bool,
    /// Program Services. A cluster with a service proxy of its own does not want that.
    pub services: bool,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Taints that the Node is created with.
    pub taints: Vec<Taint>,
    pub pods_max: u32,
    /// Quantities that replace what the machine has, such as `cpu` and `memory`.
    pub capacity: BTreeMap<String, String>,
    /// Control group, in each hierarchy, below which all Pods are.
    pub cgroup_parent: String,
    /// PEM file of the authority whose client certificates the kubelet API accepts; the kubeconfig's if there is none.
    pub client_ca: Option<PathBuf>,
    pub dns: Vec<String>,
    pub cluster_domain: String,
}

impl NodeOptions {
    /// Options of a node with everything at its default.
    pub fn new(name: &str, credentials: Credentials, root: PathBuf, program: PathBuf, image: &str) -> NodeOptions {
        NodeOptions {
            name: name.to_owned(),
            credentials,
            root,
            host_root: None,
            program,
            image: image.to_owned(),
            simulate: false,
            node_ip: None,
            port: 10250,
            network: None,
            pod_cidr: None,
            masquerade: true,
            services: true,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            pods_max: crate::limits::PODS_MAX,
            capacity: BTreeMap::new(),
            cgroup_parent: format!("atoll/{name}"),
            client_ca: None,
            dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
        }
    }
}
