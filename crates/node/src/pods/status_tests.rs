use super::*;
use crate::runtime::{Exit, PodKey, Sandbox};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "p", "generation": 1}, "spec": spec,
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    }))
    .unwrap()
}

fn record() -> PodRecord {
    let key = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
    let mut record = PodRecord::new(key, NOW);
    record.sandbox = Some(Sandbox { ip: "10.0.0.2".into(), netns: None });
    record
}

fn running(ready: bool) -> ContainerRecord {
    let state = State::Running { id: "abc".into(), started_at: NOW };
    ContainerRecord { state, started: true, ready, ..ContainerRecord::default() }
}

fn ended(exit_code: i32) -> ContainerRecord {
    let exit = Exit { exit_code, signal: None, started_at: Some(NOW), finished_at: NOW, reason: "Error".into(), message: None };
    ContainerRecord { state: State::Ended { id: "abc".into(), exit }, attempt: 2, backoff_seconds: 20, ..Default::default() }
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    status.conditions.iter().flatten().find(|c| c.type_ == kind).unwrap()
}

#[test]
fn a_running_pod_is_ready_with_its_address_and_keeps_foreign_conditions() {
    let pod = pod(serde_json::json!({"containers": [{"name": "m", "image": "i"}]}));
    let mut record = record();
    record.containers.insert("m".into(), running(true));
    let status = pod_status(&pod, &record, &[], "10.0.0.1", NOW);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    for kind in ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&status, kind).status, "True", "{kind}");
    }
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!(container.container_id.as_deref(), Some("host://abc"));
    assert!(container.ready && container.started == Some(true));
}

#[test]
fn an_unready_container_is_named() {
    let pod = pod(serde_json::json!({"containers": [{"name": "m"}, {"name": "n"}]}));
    let mut record = record();
    record.containers.insert("m".into(), running(true));
    record.containers.insert("n".into(), running(false));
    let status = pod_status(&pod, &record, &[], "10.0.0.1", NOW);
    let ready = condition(&status, "Ready");
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [n]"));
}

#[test]
fn a_crash_loop_shows_the_pause_and_the_last_end() {
    let pod = pod(serde_json::json!({"containers": [{"name": "m"}]}));
    let mut record = record();
    record.containers.insert("m".into(), ended(3));
    let status = pod_status(&pod, &record, &["m".to_owned()], "10.0.0.1", NOW);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.unwrap()[0];
    let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert!(waiting.message.as_ref().unwrap().starts_with("back-off 20s restarting failed container=m"));
    assert_eq!(container.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 3);
    assert_eq!(container.restart_count, 2);
}

#[test]
fn phases_follow_the_restart_policy() {
    let phase_of = |policy: &str, code: i32| {
        let pod = pod(serde_json::json!({"restartPolicy": policy, "containers": [{"name": "m"}]}));
        let mut record = record();
        record.containers.insert("m".into(), ended(code));
        pod_status(&pod, &record, &[], "10.0.0.1", NOW).phase.unwrap()
    };
    assert_eq!(phase_of("Never", 0), "Succeeded");
    assert_eq!(phase_of("Never", 1), "Failed");
    assert_eq!(phase_of("OnFailure", 1), "Running");
    assert_eq!(phase_of("Always", 0), "Running");
}

#[test]
fn init_containers_hold_the_pod_pending() {
    let pod = pod(serde_json::json!({"initContainers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "m"}]}));
    let mut record = record();
    record.containers.insert("a".into(), ended(0));
    let status = pod_status(&pod, &record, &[], "10.0.0.1", NOW);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let initialized = condition(&status, "Initialized");
    assert_eq!(initialized.message.as_deref(), Some("containers with incomplete status: [b]"));
    let main = &status.container_statuses.unwrap()[0];
    assert_eq!(main.state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref(), Some("PodInitializing"));
    assert!(status.init_container_statuses.unwrap()[0].ready);
}

#[test]
fn a_refused_pod_is_failed_with_its_reason() {
    let pod = pod(serde_json::json!({"containers": [{"name": "m"}]}));
    let mut record = record();
    record.failed = Some(("UnexpectedAdmissionError".into(), "Pod was rejected: no devices".into()));
    record.rejected = true;
    let status = pod_status(&pod, &record, &[], "10.0.0.1", NOW);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no devices"));
    assert_eq!(status.container_statuses, None, "it has no containers that could wait for anything");
    let kinds: Vec<String> = status.conditions.into_iter().flatten().map(|c| c.type_).collect();
    assert_eq!(kinds, ["PodScheduled"]);
}

#[test]
fn what_never_started_within_the_deadline_is_over_too() {
    let pod = pod(serde_json::json!({"containers": [{"name": "m"}, {"name": "n"}]}));
    let mut record = record();
    record.containers.insert("m".into(), ended(0));
    record.failed = Some(("DeadlineExceeded".into(), "too long".into()));
    let status = pod_status(&pod, &record, &[], "10.0.0.1", NOW);
    let never = &status.container_statuses.unwrap()[1];
    let state = never.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((state.exit_code, state.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(condition(&pod_status(&pod, &record, &[], "", NOW), "Ready").reason.as_deref(), Some("PodFailed"));
}
