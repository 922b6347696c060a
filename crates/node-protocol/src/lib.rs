//! What a node agent and the programs on its node say to each other.
//!
//! Owns: the messages, clients and servers of the kubelet device plugin interface ([`device_plugin`], `v1beta1`) and of
//! the PodResources interface ([`pod_resources`], `v1`), the constants that go with them, and [`identity`], the keys by
//! which Atoll's node agent tells a plugin whose devices it is asked to allocate.
//!
//! Invariants: the wire is the kubelet's, so third-party plugins and kubelets work as they are; what Atoll adds
//! travels as gRPC metadata, which a peer that does not know it ignores.
//!
//! Does not know: sockets, directories in use, devices, Pods.

/// Generated code; its names are those of the wire, hence the lints that do not apply to it.
mod wire {
    #![allow(clippy::doc_markdown, clippy::missing_errors_doc, missing_docs)]

    pub mod v1beta1 {
        tonic::include_proto!("v1beta1");
    }

    pub mod v1 {
        tonic::include_proto!("v1");
    }
}

pub mod identity;

/// Device plugin interface, `v1beta1`.
pub mod device_plugin {
    pub use crate::wire::v1beta1::*;

    /// The only version that a kubelet accepts in [`RegisterRequest::version`].
    pub const VERSION: &str = "v1beta1";
    /// Directory that holds `kubelet.sock` and the sockets of the plugins.
    pub const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
    /// File name, in [`DIRECTORY`], of the socket that serves `Registration`.
    pub const KUBELET_SOCKET: &str = "kubelet.sock";
    /// [`Device::health`] of a device that may be allocated.
    pub const HEALTHY: &str = "Healthy";
    /// [`Device::health`] of a device that counts in capacity only.
    pub const UNHEALTHY: &str = "Unhealthy";
    /// Longest [`Device::id`] in bytes.
    pub const DEVICE_ID_BYTES_MAX: usize = 63;
}

/// PodResources interface, `v1`.
pub mod pod_resources {
    pub use crate::wire::v1::*;

    /// Socket that serves `PodResourcesLister`.
    pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
}
