//! `atoll-controllers` is the control loops of kube-controller-manager.
//!
//! It owns: one module per controller, each a function `plan` from cached state to [`action::Action`]s, and what they share:
//! the caches ([`informer`]), the work queue ([`queue`]), the loop ([`controller`]) and the executor ([`executor`]).
//!
//! Invariants:
//! - Plans have no IO and no clock; they see caches that include the controller's own earlier writes.
//! - Every write names what it was planned against: an update the resourceVersion, a patch or deletion the uid.
//! - Each controller acts under its own identity; only the shared caches read as `system:kube-controller-manager`.
//! - A kind is watched once, and only if a controller that runs needs it.
//!
//! It deliberately does not know: the API server (it is a client like any other), leader election (one process per control
//! plane runs it), devices (what a Pod uses of a quota is `atoll_apiserver::quota`'s word, so that admission and status agree).

pub mod action;
pub mod controller;
pub mod env;
pub mod error;
pub mod executor;
pub mod informer;
pub mod key;
pub mod limits;
pub mod queue;
pub mod table;

mod batch;
mod bootstrap;
mod cached;
mod certificates;
mod discovery;
mod disruption;
mod events;
mod gc;
mod namespace;
mod network;
mod node;
mod quantity;
mod quota;
mod rbac;
mod selector;
mod service_account;
mod token;
mod volume;
mod workload;

pub use env::{ClientFor, ControllersOptions, Env, LegacyTokens};
pub use error::{Error, Result};
pub use table::{CONTROLLERS, MISSING};
pub use token::EcTokens;

/// Runs the selected controllers until `shutdown` resolves. No failure of a controller ends it.
pub async fn run(options: ControllersOptions, clients: ClientFor, shutdown: impl Future<Output = ()> + Send) {
    let names = options.controllers.clone();
    let env = Env::new(options, clients);
    let mut loops = tokio::task::JoinSet::new();
    for controller in table::select(&names).flat_map(|entry| (entry.start)(&env)) {
        loops.spawn(controller.run());
    }
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            Some(ended) = loops.join_next() => tracing::error!(?ended, "a controller ended"),
        }
    }
}
