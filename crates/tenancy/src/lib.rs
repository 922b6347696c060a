//! The tenancy operator: `TenantControlPlane` objects become control planes, load-balancer Services get addresses.
//!
//! Owns Kamaji's kinds (CRDs in `deploy/crds`), names, Secret keys and status words, and MetalLB's address pools. An ordinary
//! operator: it speaks to the management cluster, Atoll's own or any other, through a `kube::Client`, and to each tenant through
//! the tenant's API.
//!
//! Invariants: reconciling is a function of what is observed ([`desired`] is pure) and may run any number of times; a tenant
//! that fails holds up no other; a status says `Ready` only after a request to that tenant went through; a Secret's key
//! material is made once and replaced only when it is to be renewed. It deliberately does not know how Pods run, how addresses
//! are routed or what a GPU is.

pub mod addons;
pub mod crd;
pub mod desired;
mod error;
pub mod limits;
pub mod names;
mod operator;
pub mod pool;
mod pool_controller;
pub mod secrets;
pub mod spec;
pub mod status;
mod tenant_client;

pub use error::Error;
pub use operator::{OperatorOptions, run};
