//! The node agent: what makes a machine, or a part of one, a node of a Kubernetes cluster.
//!
//! Owns: the Node object with its status, lease and certificates ([`registration`]); the life of Pods ([`pods`]) over a
//! container runtime ([`runtime`]), with volumes ([`volumes`]), probes ([`probes`]) and devices of plugins ([`devices`]);
//! the Pod network and Services ([`network`]); the kubelet API ([`server`]); and [`worker`]s, namespaces in which an agent
//! is the root of a machine of its own.
//!
//! Invariants: a container outlives the agent, and a restarted agent takes up what runs and restarts nothing. What was
//! decided (addresses, devices, runs) is written down before it takes effect. Namespaces, ids and limits are set by
//! single-threaded roles of the binary ([`hidden_main`]); no async task enters a namespace. Everything the agent writes
//! lies below its root, and `hostPath` ends there.
//!
//! Does not know: tenants, cards, schedulers, how the API server it talks to is built.

pub mod agent;
pub mod devices;
pub mod error;
pub mod events;
pub mod limits;
pub mod network;
pub mod options;
pub mod paths;
pub mod pods;
pub mod probes;
pub mod registration;
pub mod runtime;
pub mod server;
pub mod volumes;
pub mod worker;

pub use agent::run;
pub use error::{Error, Result};
pub use network::NetworkMode;
pub use network::range::Ipv4Range;
pub use options::{Credentials, NodeOptions};

/// Runs a hidden role of the binary if `args` (without the program's name) ask for one: the shim that holds a container,
/// the launcher that enters namespaces, a worker's first process. Call it first in `main`, before any thread exists; the
/// result is the process's exit code.
pub fn hidden_main(args: &[String]) -> Option<i32> {
    runtime::host::hidden_main(args)
}
