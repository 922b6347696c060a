//! The status that the node reports for a Pod: a pure function of spec, records and what was reported before.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    Pod, PodCondition, PodIP, PodStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::record::{ContainerRecord, PodRecord, State};
use super::resources::{is_sidecar, qos_class};

/// Conditions that the node owns; all others stay as they are.
const OWNED: [&str; 4] = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"];

/// Whether a condition is the node's own.
pub fn is_own(kind: &str) -> bool {
    OWNED.contains(&kind)
}

/// Computes the status. `backing_off` are the containers that wait for the end of a pause.
pub fn pod_status(pod: &Pod, record: &PodRecord, backing_off: &[String], host_ip: &str, now: Timestamp) -> PodStatus {
    let spec = pod.spec.clone().unwrap_or_default();
    let before = pod.status.clone().unwrap_or_default();
    if record.rejected {
        return rejected(pod, record, before);
    }
    let inits = spec.init_containers.unwrap_or_default();
    let started = initialized(&inits, record) || mains_have_run(&spec.containers, record);
    let list = |containers: &[Container], kind: Kind, waiting: &str| -> Vec<ContainerStatus> {
        containers.iter().map(|c| container_status(c, kind, record, backing_off, waiting)).collect()
    };
    let waiting = if inits.is_empty() || started { "ContainerCreating" } else { "PodInitializing" };
    let init_statuses = list(&inits, Kind::Init, "PodInitializing");
    let statuses = list(&spec.containers, Kind::Main, waiting);
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let phase = phase(record, &inits, &spec.containers, policy);
    let generation = pod.metadata.generation;
    let conditions = Conditions { before: &before, now, generation };
    let ips: Vec<String> = record.sandbox.iter().map(|s| s.ip.clone()).collect();
    let (reason, message) = record.failed.clone().map_or((None, None), |(r, m)| (Some(r), Some(m)));
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions.all(pod, record, phase, &inits, &init_statuses, &statuses)),
        host_ip: Some(host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: host_ip.to_owned() }]),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: Some(Time(record.start_time)),
        qos_class: before.qos_class.or_else(|| Some(qos_class(pod).to_owned())),
        observed_generation: generation,
        init_container_statuses: (!init_statuses.is_empty()).then_some(init_statuses),
        container_statuses: (!statuses.is_empty()).then_some(statuses),
        reason,
        message,
        ..PodStatus::default()
    }
}

/// Of a Pod that the node did not take there is a verdict and nothing else, as the kubelet says it.
fn rejected(pod: &Pod, record: &PodRecord, before: PodStatus) -> PodStatus {
    let (reason, message) = record.failed.clone().unzip();
    PodStatus {
        phase: Some("Failed".to_owned()),
        conditions: before.conditions,
        start_time: Some(Time(record.start_time)),
        qos_class: before.qos_class.or_else(|| Some(qos_class(pod).to_owned())),
        observed_generation: pod.metadata.generation,
        reason,
        message,
        ..PodStatus::default()
    }
}

fn initialized(inits: &[Container], record: &PodRecord) -> bool {
    inits.iter().all(|c| init_done(c, record.containers.get(&c.name)))
}

fn init_done(container: &Container, record: Option<&ContainerRecord>) -> bool {
    record.is_some_and(|r| {
        if is_sidecar(container) {
            r.is_running() && r.started
        } else {
            matches!(&r.state, State::Ended { exit, .. } if exit.exit_code == 0)
        }
    })
}

fn mains_have_run(mains: &[Container], record: &PodRecord) -> bool {
    mains.iter().any(|c| record.containers.get(&c.name).is_some_and(ContainerRecord::has_run))
}

/// Pending until all have started once, Running while any can still run, then the sum of the exit codes.
fn phase(record: &PodRecord, inits: &[Container], mains: &[Container], policy: &str) -> &'static str {
    if record.failed.is_some() {
        return "Failed";
    }
    if !mains_have_run(mains, record) {
        let init_failed = |c: &Container| match record.containers.get(&c.name).map(|r| &r.state) {
            Some(State::Ended { exit, .. }) => exit.exit_code != 0 && policy == "Never" && !is_sidecar(c),
            _ => false,
        };
        return if inits.iter().any(init_failed) { "Failed" } else { "Pending" };
    }
    let (mut waiting, mut running, mut failed, mut succeeded) = (0, 0, 0, 0);
    for record in mains.iter().map(|c| record.containers.get(&c.name)) {
        match record {
            Some(r) if r.is_running() => running += 1,
            Some(r) => match r.exit() {
                Some(exit) if exit.exit_code == 0 => succeeded += 1,
                Some(_) => failed += 1,
                None => waiting += 1,
            },
            None => waiting += 1,
        }
    }
    match policy {
        _ if waiting > 0 => "Pending",
        _ if running > 0 => "Running",
        "Always" => "Running",
        _ if failed == 0 && succeeded > 0 => "Succeeded",
        "OnFailure" => "Running",
        _ => "Failed",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Init,
    Main,
}

fn container_status(
    container: &Container,
    kind: Kind,
    record: &PodRecord,
    backing_off: &[String],
    waiting: &str,
) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    let Some(r) = record.containers.get(&container.name) else {
        // A main container behind init containers that are not through was never going to start.
        let is_over = record.failed.is_some() && waiting == "ContainerCreating";
        return ContainerStatus {
            name: container.name.clone(),
            image,
            started: Some(false),
            state: Some(if is_over { never_started() } else { waiting_state(waiting, None) }),
            last_state: Some(ContainerState::default()),
            ..ContainerStatus::default()
        };
    };
    let held = backing_off.contains(&container.name);
    let (state, last, id) = match &r.state {
        State::Ended { id, exit } if held => {
            let message = format!(
                "back-off {}s restarting failed container={} pod={}_{}({})",
                r.backoff_seconds, container.name, record.key.name, record.key.namespace, record.key.uid
            );
            (waiting_state("CrashLoopBackOff", Some(message)), Some((id, exit)), Some(id))
        }
        State::Ended { id, exit } => (terminated(id, exit), r.last.as_ref().map(|(i, e)| (i, e)), Some(id)),
        State::Running { id, started_at } => {
            let running = ContainerStateRunning { started_at: Some(Time(*started_at)) };
            let state = ContainerState { running: Some(running), ..ContainerState::default() };
            (state, r.last.as_ref().map(|(i, e)| (i, e)), Some(id))
        }
        State::Waiting { reason, message } => {
            let reason = if reason == "ContainerCreating" { waiting } else { reason };
            (waiting_state(reason, message.clone()), r.last.as_ref().map(|(i, e)| (i, e)), r.last.as_ref().map(|(i, _)| i))
        }
    };
    let finished_init = matches!(&r.state, State::Ended { exit, .. } if exit.exit_code == 0);
    let running = r.is_running();
    ContainerStatus {
        name: container.name.clone(),
        image,
        image_id: r.image_id.clone(),
        container_id: id.filter(|id| !id.is_empty()).map(|id| container_id(id)),
        ready: (running && r.ready && r.started) || (finished_init && kind == Kind::Init),
        started: Some(running && r.started),
        restart_count: r.attempt as i32,
        state: Some(state),
        last_state: Some(last.map(|(id, exit)| terminated(id, exit)).unwrap_or_default()),
        resources: if running { container.resources.clone() } else { None },
        allocated_resources: container.resources.as_ref().filter(|_| running).and_then(|r| r.requests.clone()),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    }
}

fn container_id(id: &str) -> String {
    if id.contains("://") { id.to_owned() } else { format!("host://{id}") }
}

fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let status = |m: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only,
        recursive_read_only: m.read_only.filter(|r| *r).map(|_| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    };
    container.volume_mounts.as_ref().map(|mounts| mounts.iter().map(status).collect())
}

fn waiting_state(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

/// The kubelet's words for a container of an ended Pod that there is nothing to say about.
fn never_started() -> ContainerState {
    let state = ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(state), ..ContainerState::default() }
}

fn terminated(id: &str, exit: &crate::runtime::Exit) -> ContainerState {
    let state = ContainerStateTerminated {
        container_id: (!id.is_empty()).then(|| container_id(id)),
        exit_code: exit.exit_code,
        // The kubelet's own field stays empty: runtimes report a signal as exit code 128 + n.
        signal: None,
        finished_at: Some(Time(exit.finished_at)),
        started_at: exit.started_at.map(Time),
        reason: Some(exit.reason.clone()),
        message: exit.message.clone(),
    };
    ContainerState { terminated: Some(state), ..ContainerState::default() }
}

struct Conditions<'a> {
    before: &'a PodStatus,
    now: Timestamp,
    generation: Option<i64>,
}

impl Conditions<'_> {
    fn all(
        &self,
        pod: &Pod,
        record: &PodRecord,
        phase: &str,
        inits: &[Container],
        init_statuses: &[ContainerStatus],
        statuses: &[ContainerStatus],
    ) -> Vec<PodCondition> {
        let kept = self.before.conditions.iter().flatten().filter(|c| !OWNED.contains(&c.type_.as_str()));
        let mut all: Vec<PodCondition> = kept.cloned().collect();
        let has_sandbox = record.sandbox.is_some() && !matches!(phase, "Succeeded" | "Failed");
        all.push(self.condition("PodReadyToStartContainers", has_sandbox, None, None));
        let incomplete: Vec<&str> = inits
            .iter()
            .filter(|c| !init_done(c, record.containers.get(&c.name)) && !mains_have_run_of(pod, record))
            .map(|c| c.name.as_str())
            .collect();
        all.push(match phase {
            "Succeeded" => self.condition("Initialized", true, Some("PodCompleted"), None),
            _ if incomplete.is_empty() => self.condition("Initialized", true, None, None),
            _ => {
                let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
                self.condition("Initialized", false, Some("ContainersNotInitialized"), Some(message))
            }
        });
        let sidecar = |name: &str| inits.iter().any(|c| c.name == name && is_sidecar(c));
        let counted = init_statuses.iter().filter(|s| sidecar(&s.name)).chain(statuses);
        let unready: Vec<&str> = counted.filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
        let containers = match phase {
            "Succeeded" => Err(("PodCompleted", None)),
            "Failed" => Err(("PodFailed", None)),
            _ if unready.is_empty() => Ok(()),
            _ => Err(("ContainersNotReady", Some(format!("containers with unready status: [{}]", unready.join(" "))))),
        };
        all.push(self.verdict("ContainersReady", &containers));
        let ready = containers.and_then(|()| self.gates(pod));
        all.push(self.verdict("Ready", &ready));
        all
    }

    /// `spec.readinessGates`: each names a condition that somebody else sets.
    fn gates(&self, pod: &Pod) -> Result<(), (&'static str, Option<String>)> {
        for gate in pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten()) {
            let condition = self.before.conditions.iter().flatten().find(|c| c.type_ == gate.condition_type);
            let why = match condition {
                Some(c) if c.status == "True" => continue,
                Some(_) => format!("the status of pod readiness gate {:?} is not \"True\"", gate.condition_type),
                None => format!("corresponding condition of pod readiness gate {:?} does not exist.", gate.condition_type),
            };
            return Err(("ReadinessGatesNotReady", Some(why)));
        }
        Ok(())
    }

    fn verdict(&self, kind: &str, verdict: &Result<(), (&'static str, Option<String>)>) -> PodCondition {
        match verdict {
            Ok(()) => self.condition(kind, true, None, None),
            Err((reason, message)) => self.condition(kind, false, Some(reason), message.clone()),
        }
    }

    fn condition(&self, kind: &str, status: bool, reason: Option<&str>, message: Option<String>) -> PodCondition {
        let status = if status { "True" } else { "False" };
        let before = self.before.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status);
        PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message,
            last_transition_time: before.and_then(|c| c.last_transition_time.clone()).or(Some(Time(self.now))),
            observed_generation: self.generation,
            ..PodCondition::default()
        }
    }
}

fn mains_have_run_of(pod: &Pod, record: &PodRecord) -> bool {
    pod.spec.as_ref().is_some_and(|s| mains_have_run(&s.containers, record))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
