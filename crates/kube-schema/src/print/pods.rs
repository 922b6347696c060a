//! The cells of a Pod: readiness, status and restarts follow the containers, not the phase alone.

use jiff::Timestamp;
use serde_json::Value;

use super::{at, int, list, since, text};

struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: i64,
    last_restart: String,
}

fn is_restartable_init(pod: &Value, name: &str) -> bool {
    list(pod, "spec.initContainers").iter().any(|c| text(c, "name") == name && text(c, "restartPolicy") == "Always")
}

fn has_true_condition(pod: &Value, kind: &str) -> bool {
    list(pod, "status.conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True")
}

/// Why a container ended, in words or as signal or exit code.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), int(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Counts of one kind of container; RFC 3339 texts in UTC compare as times.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: String,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += int(container, "restartCount");
        let finished = text(container, "lastState.terminated.finishedAt");
        if finished > self.last.as_str() {
            finished.clone_into(&mut self.last);
        }
    }
}

struct Init {
    is_running: bool,
    status: Option<String>,
    ready: usize,
    all: Restarts,
    restartable: Restarts,
}

fn init_containers(pod: &Value) -> Init {
    let mut out = Init { is_running: false, status: None, ready: 0, all: Restarts::default(), restartable: Restarts::default() };
    for (index, container) in list(pod, "status.initContainerStatuses").iter().enumerate() {
        out.all.add(container);
        let is_restartable = is_restartable_init(pod, text(container, "name"));
        if is_restartable {
            out.restartable.add(container);
        }
        let terminated = at(container, "state.terminated");
        if terminated.is_object() && int(terminated, "exitCode") == 0 {
            continue;
        }
        if is_restartable && at(container, "started") == true {
            out.ready += usize::from(at(container, "ready") == true);
            continue;
        }
        let waiting = text(container, "state.waiting.reason");
        out.status = Some(if terminated.is_object() {
            format!("Init:{}", ended(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", list(pod, "spec.initContainers").len())
        });
        out.is_running = true;
        break;
    }
    out
}

/// Status words of the ordinary containers, the first one's last.
fn containers(pod: &Value, summary: &mut Summary, restarts: &mut Restarts) {
    let (mut has_running, mut failure) = (false, String::new());
    for container in list(pod, "status.containerStatuses").iter().rev() {
        restarts.add(container);
        let waiting = text(container, "state.waiting.reason");
        let terminated = at(container, "state.terminated");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.status);
        } else if terminated.is_object() {
            summary.status = ended(terminated);
            if int(terminated, "exitCode") != 0 {
                failure.clone_from(&summary.status);
            }
        } else if at(container, "ready") == true && at(container, "state.running").is_object() {
            has_running = true;
            summary.ready += 1;
        }
    }
    if summary.status == "Completed" {
        if has_running && has_true_condition(pod, "Ready") {
            summary.status = "Running".to_owned();
        } else if !failure.is_empty() {
            summary.status = failure;
        } else if has_running {
            summary.status = "NotReady".to_owned();
        }
    }
}

fn summary(pod: &Value) -> Summary {
    let phase = text(pod, "status.phase");
    let reason = text(pod, "status.reason");
    let is_gated = list(pod, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated");
    let restartable = list(pod, "spec.initContainers").iter().filter(|c| text(c, "restartPolicy") == "Always").count();
    let mut summary = Summary {
        ready: 0,
        total: list(pod, "spec.containers").len() + restartable,
        status: if is_gated {
            "SchedulingGated".to_owned()
        } else if reason.is_empty() {
            phase.to_owned()
        } else {
            reason.to_owned()
        },
        restarts: 0,
        last_restart: String::new(),
    };
    let init = init_containers(pod);
    summary.ready = init.ready;
    let mut restarts = init.all;
    if let Some(status) = init.status {
        summary.status = status;
    }
    if !init.is_running || has_true_condition(pod, "Initialized") {
        restarts = init.restartable;
        containers(pod, &mut summary, &mut restarts);
    }
    if !text(pod, "metadata.deletionTimestamp").is_empty() {
        if reason == "NodeLost" {
            summary.status = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.status = "Terminating".to_owned();
        }
    }
    summary.restarts = restarts.count;
    summary.last_restart = restarts.last;
    summary
}

pub(super) fn ready(pod: &Value) -> String {
    let summary = summary(pod);
    format!("{}/{}", summary.ready, summary.total)
}

pub(super) fn status(pod: &Value) -> String {
    summary(pod).status
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> String {
    let summary = summary(pod);
    if summary.restarts == 0 || summary.last_restart.is_empty() {
        return summary.restarts.to_string();
    }
    format!("{} ({} ago)", summary.restarts, since(&summary.last_restart, now))
}

pub(super) fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|g| has_true_condition(pod, text(g, "conditionType"))).count();
    format!("{met}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_follows_the_containers() {
        let pod = |status: Value| {
            json!({"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}]}, "status": status})
        };
        for (given, wanted) in [
            (json!({"phase": "Pending"}), "Pending"),
            (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
            (json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}), "Init:0/1"),
            (
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}}]}),
                "Init:ExitCode:3",
            ),
            (
                json!({"phase": "Running", "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                {"name": "b", "ready": true, "state": {"running": {}}}]}),
                "CrashLoopBackOff",
            ),
            (
                json!({"phase": "Succeeded", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
                "Completed",
            ),
        ] {
            assert_eq!(status(&pod(given)), wanted);
        }
        let mut deleted = pod(json!({"phase": "Running"}));
        deleted["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        assert_eq!(status(&deleted), "Terminating");
    }

    #[test]
    fn restarts_tell_when_the_last_one_was() {
        let pod = json!({"spec": {"containers": [{"name": "a"}]}, "status": {"containerStatuses": [{"name": "a", "restartCount": 3,
            "lastState": {"terminated": {"finishedAt": "2024-01-01T00:00:00Z"}}}]}});
        assert_eq!(restarts(&pod, "2024-01-01T00:01:00Z".parse().unwrap()), "3 (60s ago)");
        assert_eq!(ready(&pod), "0/1");
    }
}
