//! Small programs that guides and tests run in Pods.

pub mod gpu_work;
pub mod look;
pub mod webhook;
