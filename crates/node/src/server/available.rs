//! Which run of a container has the logs that a client asks for, and what to say if none has: the kubelet's words.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// Which run, counted back from the latest: 0 or 1.
pub type RunsBack = u32;

/// Judges by the container's status, which is what the client saw too.
pub fn log_run(status: Option<&PodStatus>, pod: &str, container: &str, previous: bool) -> Result<RunsBack, String> {
    let statuses = status.into_iter().flat_map(|s| {
        let inits = s.init_container_statuses.iter().flatten();
        s.container_statuses.iter().flatten().chain(inits)
    });
    let Some(found) = statuses.into_iter().find(|s| s.name == container) else {
        return Err(format!("container {container:?} in pod {pod:?} is not available"));
    };
    let has_earlier = found.last_state.as_ref().is_some_and(|s| s.terminated.is_some());
    let waiting = waiting_reason(found);
    match (previous, waiting) {
        // While the container waits, the run that ended last is the latest one.
        (_, Some(_)) if has_earlier => Ok(0),
        (true, None) if has_earlier => Ok(1),
        (true, _) => Err(format!("previous terminated container {container:?} in pod {pod:?} not found")),
        (false, Some(reason)) => {
            let why = match reason {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                other => other,
            };
            Err(format!("container {container:?} in pod {pod:?} is waiting to start: {why}"))
        }
        (false, None) if found.container_id.is_none() && is_terminated(found) => {
            Err(format!("container {container:?} in pod {pod:?} is terminated"))
        }
        (false, None) => Ok(0),
    }
}

fn waiting_reason(status: &ContainerStatus) -> Option<&str> {
    let state = status.state.as_ref()?;
    let is_other = state.running.is_some() || state.terminated.is_some();
    let reason = state.waiting.as_ref().and_then(|w| w.reason.as_deref());
    (!is_other).then_some(reason.unwrap_or("no logs yet"))
}

fn is_terminated(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.terminated.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn run(status: Value, previous: bool) -> Result<RunsBack, String> {
        let status = json!({ "containerStatuses": [status] });
        let status: PodStatus = serde_json::from_value(status).unwrap();
        log_run(Some(&status), "p", "c", previous)
    }

    fn container(state: Value, last: Value) -> Value {
        json!({
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "containerID": "host://1",
            "state": state, "lastState": last,
        })
    }

    #[test]
    fn a_pod_that_was_never_taken_has_no_logs() {
        let rejected = PodStatus { phase: Some("Failed".into()), ..PodStatus::default() };
        let why = log_run(Some(&rejected), "p", "c", false);
        assert_eq!(why, Err("container \"c\" in pod \"p\" is not available".into()));
    }

    #[test]
    fn what_waits_says_for_what() {
        let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
        for (reason, why) in [("ContainerCreating", "ContainerCreating"), ("ErrImagePull", "image can't be pulled")] {
            let said = run(container(waiting(reason), json!({})), false);
            assert_eq!(said, Err(format!("container \"c\" in pod \"p\" is waiting to start: {why}")));
        }
        let ended = json!({ "terminated": { "exitCode": 1, "containerID": "host://1" } });
        assert_eq!(run(container(waiting("CrashLoopBackOff"), ended.clone()), false), Ok(0));
        assert_eq!(run(container(waiting("CrashLoopBackOff"), ended), true), Ok(0), "the one that crashed");
    }

    #[test]
    fn the_previous_run_is_the_one_before() {
        let (running, ended) = (json!({ "running": {} }), json!({ "terminated": { "exitCode": 1 } }));
        assert_eq!(run(container(running.clone(), ended.clone()), true), Ok(1));
        assert_eq!(run(container(running.clone(), json!({})), false), Ok(0));
        let none = run(container(running, json!({})), true);
        assert_eq!(none, Err("previous terminated container \"c\" in pod \"p\" not found".into()));
        assert_eq!(run(container(ended, json!({})), false), Ok(0));
    }
}
