//! Which controllers there are.

use crate::controller::Controller;
use crate::env::Env;

/// A controller that can be run.
pub struct Entry {
    /// Its name in `--controllers`, as upstream calls it.
    pub name: &'static str,
    /// Whether `*` includes it.
    pub by_default: bool,
    /// Puts it together.
    pub start: fn(&Env) -> Vec<Controller>,
}

const fn on(name: &'static str, start: fn(&Env) -> Vec<Controller>) -> Entry {
    Entry { name, by_default: true, start }
}

/// All controllers.
pub const CONTROLLERS: &[Entry] = &[
    on("serviceaccount-controller", crate::service_account::start),
    on("root-ca-certificate-publisher-controller", crate::service_account::start_root_ca),
    on("namespace-controller", crate::namespace::start),
    on("garbage-collector-controller", crate::gc::start),
    on("deployment-controller", crate::workload::deployment::start),
    on("daemonset-controller", crate::workload::daemon_set::start),
    on("replicaset-controller", crate::workload::replicas::start),
    on("replicationcontroller-controller", crate::workload::replicas::start_replication),
];

/// Controllers of upstream's controller manager that are not here yet.
pub const MISSING: &[&str] = &[];

/// The entries that `names` select (`*`, `NAME`, `-NAME`; nothing means `*`).
pub fn select<'a>(names: &'a [String]) -> impl Iterator<Item = &'static Entry> + 'a {
    CONTROLLERS.iter().filter(move |entry| {
        if names.iter().any(|name| name.strip_prefix('-') == Some(entry.name)) {
            return false;
        }
        let all = names.iter().all(|name| name.starts_with('-')) || names.iter().any(|name| name == "*");
        (all && entry.by_default) || names.iter().any(|name| name == entry.name)
    })
}
