//! What a Pod needs next: a pure function of its spec, what its containers do, and the time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::record::{ContainerRecord, PodRecord, State};
use super::resources::is_sidecar;
use crate::limits;

/// The next steps of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Containers to start now, in order.
    pub start: Vec<String>,
    /// Containers to end.
    pub stop: Vec<String>,
    /// Containers that wait for their pause to be over.
    pub backing_off: Vec<String>,
    /// When to plan again, if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// All containers have ended for good.
    pub finished: bool,
}

fn policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

/// Whether a container that ended like this is to run again.
fn restarts(policy: &str, exit_code: i32) -> bool {
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

/// The policy that holds for one container: init containers run until they succeed, sidecars always.
fn policy_of<'a>(spec: &'a PodSpec, container: &'a Container, init: bool) -> &'a str {
    match (container.restart_policy.as_deref(), policy(spec)) {
        (Some(own), _) => own,
        (None, "Always") if init => "OnFailure",
        (None, policy) => policy,
    }
}

/// Plans the next steps. `ending` is set when the Pod is deleted, evicted or past its deadline.
pub fn plan(pod: &Pod, record: &PodRecord, ending: bool, now: Timestamp) -> Plan {
    let Some(spec) = &pod.spec else { return Plan::default() };
    let mut planner = Planner { spec, record, now, plan: Plan::default() };
    if ending || record.failed.is_some() {
        planner.wind_down();
    } else {
        planner.go_on();
    }
    planner.plan
}

struct Planner<'a> {
    spec: &'a PodSpec,
    record: &'a PodRecord,
    now: Timestamp,
    plan: Plan,
}

impl Planner<'_> {
    fn of(&self, container: &Container) -> Option<&ContainerRecord> {
        self.record.containers.get(&container.name)
    }

    /// Ends main containers first and sidecars after them, the last one first.
    fn wind_down(&mut self) {
        let running = |c: &&Container| self.of(c).is_some_and(ContainerRecord::is_running);
        let inits: Vec<&Container> = self.spec.init_containers.iter().flatten().collect();
        let mut stop: Vec<String> = self.spec.containers.iter().filter(running).map(|c| c.name.clone()).collect();
        stop.extend(inits.iter().copied().filter(running).filter(|c| !is_sidecar(c)).map(|c| c.name.clone()));
        if stop.is_empty() {
            let last = inits.iter().rev().copied().find(|c| is_sidecar(c) && running(c));
            stop.extend(last.map(|c| c.name.clone()));
        }
        self.plan.finished = stop.is_empty();
        self.plan.stop = stop;
    }

    fn go_on(&mut self) {
        if self.main_is_over() {
            self.wind_down();
            return;
        }
        let mains_have_run = self.spec.containers.iter().any(|c| self.of(c).is_some_and(ContainerRecord::has_run));
        for container in self.spec.init_containers.iter().flatten() {
            if is_sidecar(container) {
                if !self.keep(container, true) && !mains_have_run {
                    return;
                }
                continue;
            }
            // What ran before the main containers is not run again for their sake.
            if mains_have_run {
                continue;
            }
            match self.of(container).map(|r| &r.state) {
                Some(State::Ended { exit, .. }) if exit.exit_code == 0 => {}
                Some(State::Ended { exit, .. }) if !restarts(policy_of(self.spec, container, true), exit.exit_code) => {
                    self.wind_down();
                    return;
                }
                _ => {
                    self.keep(container, true);
                    return;
                }
            }
        }
        for container in &self.spec.containers {
            self.keep(container, false);
        }
    }

    /// Whether every main container has ended and none runs again.
    fn main_is_over(&self) -> bool {
        self.spec.containers.iter().all(|c| match self.of(c).map(|r| &r.state) {
            Some(State::Ended { exit, .. }) => !restarts(policy_of(self.spec, c, false), exit.exit_code),
            _ => false,
        })
    }

    /// Sees to it that a container runs; `true` once it has started.
    fn keep(&mut self, container: &Container, init: bool) -> bool {
        let name = container.name.clone();
        let Some(record) = self.of(container) else {
            self.plan.start.push(name);
            return false;
        };
        match &record.state {
            State::Running { .. } => return record.started,
            State::Waiting { .. } => match record.last.as_ref() {
                Some((_, exit)) => self.after_pause(name, record.backoff_seconds, exit.finished_at),
                None => self.plan.start.push(name),
            },
            State::Ended { exit, .. } => {
                if restarts(policy_of(self.spec, container, init), exit.exit_code) {
                    self.after_pause(name, record.backoff_seconds, exit.finished_at);
                }
            }
        }
        false
    }

    fn after_pause(&mut self, name: String, seconds: u64, ended: Timestamp) {
        let due = ended + SignedDuration::from_secs(seconds as i64);
        if due <= self.now {
            self.plan.start.push(name);
        } else {
            self.plan.backing_off.push(name);
            self.plan.wake_at = Some(self.plan.wake_at.map_or(due, |at| at.min(due)));
        }
    }
}

/// The pause that the next failure will cost, taken at a restart: the first restart is immediate, the next after a second, then doubling.
pub fn next_backoff(before: u64) -> u64 {
    match before {
        0 => limits::RESTART_BACKOFF_START.as_secs(),
        _ => (before * 2).min(limits::RESTART_BACKOFF_MAX.as_secs()),
    }
}

/// The pause after a run that has ended: a long run starts over.
pub fn backoff_after(before: u64, ran: SignedDuration) -> u64 {
    if ran.as_secs() >= limits::RESTART_BACKOFF_RESET.as_secs() as i64 { 0 } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Exit, PodKey};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn record(states: &[(&str, State)]) -> PodRecord {
        let key = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let mut record = PodRecord::new(key, NOW);
        for (name, state) in states {
            let started = matches!(state, State::Running { .. });
            let c = ContainerRecord { state: state.clone(), started, ..ContainerRecord::default() };
            record.containers.insert((*name).to_owned(), c);
        }
        record
    }

    fn running() -> State {
        State::Running { id: "x".into(), started_at: NOW }
    }

    fn ended(exit_code: i32) -> State {
        let exit = Exit { exit_code, signal: None, started_at: None, finished_at: NOW, reason: "Error".into(), message: None };
        State::Ended { id: "x".into(), exit }
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn init_containers_run_one_by_one_and_a_sidecar_stays() {
        let pod = pod(serde_json::json!({
            "initContainers": [{"name": "a"}, {"name": "s", "restartPolicy": "Always"}, {"name": "b"}],
            "containers": [{"name": "m"}, {"name": "n"}]
        }));
        let next = |states: &[(&str, State)]| plan(&pod, &record(states), false, NOW).start;
        assert_eq!(next(&[]), names(&["a"]));
        assert_eq!(next(&[("a", running())]), names(&[]));
        assert_eq!(next(&[("a", ended(0))]), names(&["s"]));
        assert_eq!(next(&[("a", ended(0)), ("s", running())]), names(&["b"]));
        assert_eq!(next(&[("a", ended(0)), ("s", running()), ("b", ended(0))]), names(&["m", "n"]));
    }

    #[test]
    fn a_finished_job_ends_its_sidecar_and_is_done() {
        let pod = pod(serde_json::json!({
            "restartPolicy": "Never",
            "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "m"}]
        }));
        let done = plan(&pod, &record(&[("s", running()), ("m", ended(0))]), false, NOW);
        assert_eq!((done.stop, done.finished), (names(&["s"]), false));
        assert!(plan(&pod, &record(&[("s", ended(143)), ("m", ended(0))]), false, NOW).finished);
    }

    #[test]
    fn a_failed_init_container_ends_a_pod_that_never_restarts() {
        let spec = |policy| {
            pod(serde_json::json!({"restartPolicy": policy, "initContainers": [{"name": "a"}], "containers": [{"name": "m"}]}))
        };
        let failed = record(&[("a", ended(1))]);
        assert!(plan(&spec("Never"), &failed, false, NOW).finished);
        assert_eq!(plan(&spec("Always"), &failed, false, NOW).start, names(&["a"]));
    }

    #[test]
    fn a_crash_waits_for_its_pause() {
        let pod = pod(serde_json::json!({"containers": [{"name": "m"}]}));
        let mut crashed = record(&[("m", ended(1))]);
        crashed.containers.get_mut("m").unwrap().backoff_seconds = 10;
        let waiting = plan(&pod, &crashed, false, NOW);
        assert_eq!(waiting.backing_off, names(&["m"]));
        let due = waiting.wake_at.unwrap();
        assert_eq!(plan(&pod, &crashed, false, due).start, names(&["m"]));
    }

    #[test]
    fn deletion_ends_main_containers_before_sidecars() {
        let pod = pod(serde_json::json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "t", "restartPolicy": "Always"}],
            "containers": [{"name": "m"}]
        }));
        let stop = |states: &[(&str, State)]| plan(&pod, &record(states), true, NOW).stop;
        assert_eq!(stop(&[("s", running()), ("t", running()), ("m", running())]), names(&["m"]));
        assert_eq!(stop(&[("s", running()), ("t", running()), ("m", ended(0))]), names(&["t"]));
        assert!(plan(&pod, &record(&[("s", ended(0))]), true, NOW).finished);
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let mut pause = 0;
        let mut seen = Vec::new();
        for _ in 0..7 {
            pause = next_backoff(pause);
            seen.push(pause);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(backoff_after(60, SignedDuration::from_secs(599)), 60);
        assert_eq!(backoff_after(60, SignedDuration::from_secs(601)), 0);
    }
}
