//! Rules in code, by the name that rows use: what spans fields, compares with what is stored, or depends on the pod around it.

mod admission;
mod affinity;
mod autoscaling;
mod certificates;
mod containers;
mod cron;
mod definition_schema;
mod definitions;
mod devices;
mod env;
mod events;
mod flow;
mod job_status;
mod jobs;
mod networking;
mod objects;
mod pod;
mod pod_status;
mod pod_update;
mod policy;
mod probes;
mod quota;
mod resources;
mod reviews;
mod security;
mod services;
mod storage;
mod tolerations;
mod volumes;
mod workloads;

use super::check::Hook;

/// The rule of this name.
pub fn hook(name: &str) -> Option<Hook> {
    const MODULES: [fn(&str) -> Option<Hook>; 29] = [
        pod::hook,
        pod_status::hook,
        pod_update::hook,
        containers::hook,
        env::hook,
        probes::hook,
        resources::hook,
        security::hook,
        affinity::hook,
        tolerations::hook,
        volumes::hook,
        workloads::hook,
        jobs::hook,
        job_status::hook,
        cron::hook,
        storage::hook,
        objects::hook,
        events::hook,
        quota::hook,
        services::hook,
        admission::hook,
        autoscaling::hook,
        certificates::hook,
        flow::hook,
        networking::hook,
        policy::hook,
        definitions::hook,
        devices::hook,
        reviews::hook,
    ];
    MODULES.iter().find_map(|find| find(name))
}
