//! The tunnel between a worker and its tenant's control plane: Konnectivity's agent protocol.
//!
//! The worker's agent dials out; connections to addresses on the worker's side (webhooks, kubelets, Pods, aggregated API
//! servers) come back in over that stream. [`server::TunnelServer`] is the control plane's side and hands out connections;
//! [`agent::run`] is the worker's side and dials them.
//!
//! Invariants:
//! - An address is dialled by an agent or not at all; nothing here ever connects from the hosting side.
//! - The loop that reads an agent's stream never waits for a connection's reader: the protocol has no window update, so each
//!   connection has a byte budget, and one that passes it is closed alone.
//! - A connection belongs to the session (stream) it was dialled over, never to an agent's name: when a session ends, all its
//!   pending dials and connections end with it.
//! - A peer that does not answer for [`limits::SILENCE_MAX`] is gone.
//!
//! It deliberately does not know Kubernetes: who an agent is, is answered by an [`server::AgentAuthenticator`].

pub mod agent;
mod flow;
mod io;
pub mod limits;
pub mod packet;
pub mod server;
mod stream;

pub use server::{AgentAuthenticator, AgentCredentials, DialError, TunnelServer, TunnelSession};
pub use stream::TunnelStream;

/// The generated messages and service.
pub(crate) mod wire {
    #![allow(clippy::all, clippy::pedantic)]
    tonic::include_proto!("_");
}
