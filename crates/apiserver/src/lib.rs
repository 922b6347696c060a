//! The Kubernetes API server.
//!
//! Owns the request pipeline: every request takes the same steps, each step's result is a type, and the next step needs it:
//! parsed, authenticated, authorized, decoded, mutated, validated, admitted, committed, encoded. Kinds are rows of
//! `atoll_kube_schema`'s registry; there is no handler per kind.
//!
//! Invariants:
//! - nothing is written to the store that was not admitted against the very revision it replaces;
//! - objects are bytes with a parsed head: lists and watch frames are spliced from what is stored;
//! - every failure is a `Status`, made in [`error`] alone; every bound has a name in [`limits`];
//! - nothing inside the cluster is dialled but through the [`egress::Dialer`].
//!
//! It deliberately does not know tenants, nodes' workings, controllers or where its store keeps the data.

pub mod admission;
pub mod auth;
pub mod bootstrap;
pub mod cluster;
mod connect;
mod convert;
mod definitions;
pub mod egress;
mod encoding;
pub mod error;
mod hooks;
mod http_types;
pub mod limits;
mod managed;
mod negotiate;
mod objects;
mod own;
mod path;
mod pipeline;
pub mod quota;
mod read;
mod request;
mod resources;
mod server;
mod services;
pub mod serving;
mod stored;
mod strategy;
mod system;
pub mod virtual_resource;
pub mod warnings;
mod write;

pub use error::{ApiError, Result};
pub use http_types::Body;
pub use pipeline::Origin;
pub use server::{ApiServer, Config, InProcess};
