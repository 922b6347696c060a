//! Nodes that fail, and the Pods on them.

pub mod eviction;
pub mod lifecycle;
pub mod pod_gc;
