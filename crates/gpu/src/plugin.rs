//! Device plugins: what a node's kubelet is told of its cards, and what a container is given.

mod allocate;
mod annotation;
mod inventory;
mod mock;
mod record;
mod settle;
mod socket;

use std::path::PathBuf;

pub use allocate::Hook;
pub use annotation::run as run_annotation;
pub use mock::run as run_mock;

/// What a device plugin is run with.
#[derive(Clone, Debug)]
pub struct PluginOptions {
    /// Name of the node that it runs on.
    pub node_name: String,
    /// Directory with `kubelet.sock`.
    pub socket_directory: PathBuf,
    /// Socket of the PodResources interface, by which a kubelet that names no Pod on Allocate is asked afterwards; not
    /// there is no error.
    pub pod_resources_socket: PathBuf,
    /// MiB that one unit of `nvidia.com/gpumem` stands for; more than 1 where a kubelet's gRPC limit of 4 MiB is too small
    /// for a device per MiB.
    pub memory_factor: u64,
    /// HAMi-core on this node; `None` on a node without it, where limits are declared and not enforced.
    pub hook: Option<Hook>,
}

impl PluginOptions {
    /// The defaults, for a node.
    pub fn for_node(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            socket_directory: PathBuf::from(atoll_node_protocol::device_plugin::DIRECTORY),
            pod_resources_socket: PathBuf::from(atoll_node_protocol::pod_resources::SOCKET),
            memory_factor: 1,
            hook: None,
        }
    }
}
