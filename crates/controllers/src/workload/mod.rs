//! Controllers that own Pods.

pub mod daemon_set;
pub mod deployment;
mod deployment_status;
pub mod history;
pub mod pods;
pub mod replicas;
mod rollout;
pub mod stateful_set;
pub mod template;

pub(crate) use rollout::scaled;
