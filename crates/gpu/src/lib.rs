//! HAMi's components on Atoll's own parts, each a function that the command line calls.
//!
//! Owns: the admission [`webhook`], the `hami-scheduler` ([`scheduler`]), the device plugins ([`plugin`]), their manifests
//! ([`manifests()`]).
//!
//! Invariants:
//! - What fits where, and who has what, is decided in `devices` alone; this crate reads, asks, and writes down the answer.
//! - A decision is on the Pod, in one patch, before the Pod is bound.
//! - A plugin hands out what the scheduler recorded for that Pod and container, or nothing.
//! - No role needs another one to be alive in order to start.
//!
//! Does not know: how certificates are made (`pki`), how nodes are chosen (`scheduler`), who runs its processes.

mod error;
mod http;
pub mod limits;
mod manifests;
pub mod plugin;
pub mod scheduler;
mod tls;
pub mod webhook;

pub use error::{Error, Result};
pub use manifests::{ManifestOptions, manifests};

/// The fields of a Pod that `devices` reads; `None` if it has none of the expected shape, which the typed Pod rules out.
fn view(pod: &k8s_openapi::api::core::v1::Pod) -> Option<atoll_devices::PodView> {
    let json = serde_json::to_value(pod).ok()?;
    atoll_devices::PodView::from_json(&json).ok()
}

/// Writes a line of evidence to standard output, where a Pod's log is read. A reader that went away ends no role.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
