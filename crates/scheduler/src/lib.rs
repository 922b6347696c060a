//! `atoll-scheduler` places Pods on nodes.
//!
//! It owns: the pure planner ([`planner::plan`]: a [`snapshot::Snapshot`] and a Pod in, a node or the reasons out), the
//! plugin points ([`plugin::Plugin`]), the default profile ([`plugins::default_profile`]), and the shell ([`run()`]) that
//! watches Pods and nodes and sends bindings, events and conditions.
//!
//! Invariants:
//! - The planner has no clock, no randomness and no IO; of equal nodes the first by name is taken.
//! - A Pod that is being bound takes its place in every later plan (it is *assumed*) until the API server's answer is
//!   known. An answer that was lost is found out by reading the Pod, never guessed.
//! - What a plugin set aside ([`plugin::Reservation`]) is committed exactly when the binding stands and given back otherwise.
//! - A Pod that did not fit is tried again when something changed that a rule reads, also if it changed during the attempt.
//!
//! It deliberately knows no devices: `gpu` fills the plugin points. It does not preempt yet. It keeps no leases: whoever
//! starts two schedulers of one name against one cluster gets conflicts (which are safe), not speed.

pub mod cache;
pub mod error;
pub mod limits;
pub mod planner;
pub mod plugin;
pub mod plugins;
pub mod quantity;
pub mod queue;
pub mod resources;
pub mod selector;
pub mod snapshot;

mod bind;
mod listing;
mod report;
mod run;

pub use error::{Error, Result};
pub use run::{SchedulerOptions, Wake, run};
