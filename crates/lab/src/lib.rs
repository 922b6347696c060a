//! The one-machine platform: supervisor, networks, workers, example programs and the lab's tests.
//!
//! It deliberately does not know how an API server, a node agent or a scheduler works: it starts them and looks at them through
//! the Kubernetes API.

pub mod example;
pub mod lab;
pub mod platform;
