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
    on("serviceaccount-token-controller", crate::token::start),
    on("root-ca-certificate-publisher-controller", crate::service_account::start_root_ca),
    on("namespace-controller", crate::namespace::start),
    on("garbage-collector-controller", crate::gc::start),
    on("deployment-controller", crate::workload::deployment::start),
    on("daemonset-controller", crate::workload::daemon_set::start),
    on("replicaset-controller", crate::workload::replicas::start),
    on("endpoints-controller", crate::network::endpoints::start),
    on("endpointslice-controller", crate::network::endpoint_slices::start),
    on("endpointslice-mirroring-controller", crate::network::endpoint_slices::start_mirroring),
    on("node-lifecycle-controller", crate::node::lifecycle::start),
    on("taint-eviction-controller", crate::node::eviction::start),
    on("pod-garbage-collector-controller", crate::node::pod_gc::start),
    on("persistentvolume-binder-controller", crate::volume::binder::start),
    on("persistentvolumeclaim-protection-controller", crate::volume::protection::start_claims),
    on("persistentvolume-protection-controller", crate::volume::protection::start_volumes),
    on("clusterrole-aggregation-controller", crate::rbac::start),
    on("certificatesigningrequest-approving-controller", crate::certificates::start_approving),
    on("certificatesigningrequest-signing-controller", crate::certificates::start_signing),
    on("certificatesigningrequest-cleaner-controller", crate::certificates::start_cleaner),
    on("bootstrap-signer-controller", crate::bootstrap::start_signer),
    on("token-cleaner-controller", crate::bootstrap::start_cleaner),
    on("resourcequota-controller", crate::quota::start),
    on("job-controller", crate::batch::job::start),
    on("cronjob-controller", crate::batch::cron_job::start),
    on("ttl-after-finished-controller", crate::batch::ttl::start),
    on("statefulset-controller", crate::workload::stateful_set::start),
    on("disruption-controller", crate::disruption::start),
    on("replicationcontroller-controller", crate::workload::replicas::start_replication),
];

/// Controllers of upstream's controller manager that are not here yet.
pub const MISSING: &[&str] = &[
    "horizontal-pod-autoscaler-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "ephemeral-volume-controller",
    "resourceclaim-controller",
    "service-cidr-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selection: &[&str]) -> Vec<&'static str> {
        let selection: Vec<String> = selection.iter().map(|s| (*s).to_owned()).collect();
        select(&selection).map(|entry| entry.name).collect()
    }

    #[test]
    fn selection_by_name_star_and_minus() {
        let all = names(&[]).len();
        assert_eq!((names(&["*"]).len(), names(&["-job-controller"]).len()), (all, all - 1));
        assert_eq!(names(&["job-controller"]), ["job-controller"]);
        assert!(MISSING.iter().all(|missing| CONTROLLERS.iter().all(|entry| entry.name != *missing)));
    }
}
