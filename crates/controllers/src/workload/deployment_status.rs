//! What a deployment says about itself.

use super::deployment::{REVISION, Rollout, new_revision};
use super::pods;
use super::rollout::{available, size};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// What the step of this round did that the status has to tell.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// A replica set of this name was made.
    pub created: Option<String>,
    /// The name of the new set is taken by another.
    pub collision: bool,
}

fn some(count: i32) -> Option<i32> {
    (count > 0).then_some(count)
}

fn sum(rollout: &Rollout<'_>, of: impl Fn(&ReplicaSetStatus) -> i32) -> i32 {
    rollout.all().filter_map(|set| set.status.as_ref()).map(of).sum()
}

/// Whether all replicas are of the new template and available.
pub(super) fn is_complete(rollout: &Rollout<'_>) -> bool {
    let Some(new) = &rollout.new else { return false };
    let wanted = rollout.limits.wanted;
    let updated = new.status.as_ref().map_or(0, |s| s.replicas);
    let observed = rollout.deployment.status.as_ref().and_then(|s| s.observed_generation);
    updated == wanted
        && sum(rollout, |s| s.replicas) == wanted
        && sum(rollout, |s| s.available_replicas.unwrap_or(0)) == wanted
        && size(new) == wanted
        && observed >= rollout.deployment.metadata.generation
}

/// The deployment with status and revision up to date if they are not, and when time alone will change them.
pub(super) fn new_status(rollout: &Rollout<'_>, progress: &Progress, now: Timestamp) -> (Option<Deployment>, Option<Duration>) {
    let deployment = rollout.deployment;
    let old = deployment.status.clone().unwrap_or_default();
    let replicas = sum(rollout, |s| s.replicas);
    let available = sum(rollout, |s| s.available_replicas.unwrap_or(0));
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(replicas),
        updated_replicas: some(rollout.new.as_ref().and_then(|n| n.status.as_ref()).map_or(0, |s| s.replicas)),
        ready_replicas: some(sum(rollout, |s| s.ready_replicas.unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some((total_size(rollout) - available).max(0)),
        terminating_replicas: Some(sum(rollout, |s| s.terminating_replicas.unwrap_or(0))),
        collision_count: if progress.collision { Some(old.collision_count.unwrap_or(0) + 1) } else { old.collision_count },
        conditions: old.conditions.clone(),
    };
    let conditions = status.conditions.get_or_insert_default();
    set_available(rollout, conditions, available, now);
    set_failure(rollout, conditions, now);
    let changed = counts(&status) != counts(&old);
    let due = set_progressing(rollout, progress, conditions_of(&mut status), changed, now);
    let mut updated = deployment.clone();
    if rollout.new.is_some() || progress.created.is_some() {
        updated.metadata.annotations.get_or_insert_default().insert(REVISION.into(), new_revision(rollout));
    }
    if status.conditions.as_ref().is_some_and(Vec::is_empty) {
        status.conditions = None;
    }
    updated.status = Some(status);
    ((updated != *deployment).then_some(updated), due)
}

fn conditions_of(status: &mut DeploymentStatus) -> &mut Vec<DeploymentCondition> {
    status.conditions.get_or_insert_default()
}

/// Replicas asked of all sets: more than exist while Pods are being made.
fn total_size(rollout: &Rollout<'_>) -> i32 {
    rollout.all().map(|set| size(set)).sum()
}

fn counts(s: &DeploymentStatus) -> [Option<i32>; 4] {
    [s.replicas, s.updated_replicas, s.ready_replicas, s.available_replicas]
}

/// Sets a condition; the transition time moves with the status, the update time with anything.
fn set(conditions: &mut Vec<DeploymentCondition>, type_: &str, status: &str, reason: &str, message: String, now: Timestamp) {
    let old = conditions.iter().position(|c| c.type_ == type_);
    let mut fresh = DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_transition_time: Some(Time(now)),
        last_update_time: Some(Time(now)),
    };
    let Some(index) = old else { return conditions.push(fresh) };
    let known = &mut conditions[index];
    if known.status == fresh.status {
        fresh.last_transition_time = known.last_transition_time.clone();
    }
    if (&known.status, &known.reason, &known.message) != (&fresh.status, &fresh.reason, &fresh.message) {
        *known = fresh;
    }
}

fn set_available(rollout: &Rollout<'_>, conditions: &mut Vec<DeploymentCondition>, available: i32, now: Timestamp) {
    if available >= rollout.limits.wanted - rollout.limits.unavailable {
        let message = "Deployment has minimum availability.".into();
        set(conditions, "Available", "True", "MinimumReplicasAvailable", message, now);
    } else {
        let message = "Deployment does not have minimum availability.".into();
        set(conditions, "Available", "False", "MinimumReplicasUnavailable", message, now);
    }
}

/// A replica set that cannot make Pods says so; the newest one's word counts.
fn set_failure(rollout: &Rollout<'_>, conditions: &mut Vec<DeploymentCondition>, now: Timestamp) {
    let sets = rollout.new.iter().chain(rollout.old.iter().rev());
    let failure = sets
        .filter_map(|set| set.status.as_ref())
        .flat_map(|s| s.conditions.iter().flatten())
        .find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
    match failure {
        None => conditions.retain(|c| c.type_ != "ReplicaFailure"),
        Some(c) => {
            let (reason, message) = (c.reason.clone().unwrap_or_default(), c.message.clone().unwrap_or_default());
            set(conditions, "ReplicaFailure", "True", &reason, message, now);
        }
    }
}

fn set_progressing(
    rollout: &Rollout<'_>,
    progress: &Progress,
    conditions: &mut Vec<DeploymentCondition>,
    counts_changed: bool,
    now: Timestamp,
) -> Option<Duration> {
    let spec = rollout.deployment.spec.as_ref()?;
    let deadline = spec.progress_deadline_seconds.filter(|s| *s != i32::MAX)?;
    let old = conditions.iter().find(|c| c.type_ == "Progressing").cloned();
    let old_reason = old.as_ref().and_then(|c| c.reason.clone()).unwrap_or_default();
    if spec.paused.unwrap_or(false) {
        set(conditions, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused".into(), now);
        return None;
    }
    if let Some(name) = &progress.created {
        let message = format!("Created new replica set \"{name}\"");
        set(conditions, "Progressing", "True", "NewReplicaSetCreated", message, now);
        return Some(Duration::from_secs(deadline.max(0) as u64));
    }
    if old_reason == "DeploymentPaused" {
        set(conditions, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed".into(), now);
    }
    let name = rollout.new.as_ref().and_then(|n| n.metadata.name.clone());
    let about = name.map_or_else(|| "Deployment".to_owned(), |name| format!("ReplicaSet \"{name}\""));
    if is_complete(rollout) || (old_reason == "NewReplicaSetAvailable" && still_new(rollout)) {
        if is_complete(rollout) {
            let message = format!("{about} has successfully progressed.");
            set(conditions, "Progressing", "True", "NewReplicaSetAvailable", message, now);
        }
        return None;
    }
    if old.is_none() || counts_changed {
        // A step forward restarts the clock even if the words stay the same.
        if counts_changed && old_reason != "NewReplicaSetAvailable" {
            conditions.retain(|c| c.type_ != "Progressing");
        }
        let message = format!("{about} is progressing.");
        set(conditions, "Progressing", "True", "ReplicaSetUpdated", message, now);
        if let (Some(old), Some(fresh)) = (old, conditions.iter_mut().find(|c| c.type_ == "Progressing"))
            && old.status == fresh.status
        {
            fresh.last_transition_time = old.last_transition_time;
        }
        return Some(Duration::from_secs(deadline.max(0) as u64));
    }
    let since = old.as_ref().and_then(|c| c.last_update_time.as_ref()).map_or(now, |t| t.0);
    let left = pods::until(since, i64::from(deadline), now);
    if left.is_none() && old_reason != "ProgressDeadlineExceeded" {
        let message = format!("{about} has timed out progressing.");
        set(conditions, "Progressing", "False", "ProgressDeadlineExceeded", message, now);
    }
    left
}

/// Whether the template has not changed since the last rollout was complete: losing a Pod is not a rollout.
fn still_new(rollout: &Rollout<'_>) -> bool {
    rollout.new.as_ref().is_some_and(|new| size(new) == rollout.limits.wanted && available(new) <= size(new))
        && rollout.old.iter().all(|set| size(set) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::rollout::Limits;
    use serde_json::{from_value, json};
    use std::sync::Arc;

    fn status_of(set: serde_json::Value, old: serde_json::Value) -> DeploymentStatus {
        let deployment: Deployment =
            from_value(json!({"metadata": {"name": "d", "generation": 2}, "status": old, "spec": {"replicas": 2,
            "progressDeadlineSeconds": 600, "selector": {}, "template": {}}}))
            .unwrap();
        let limits = Limits::of(deployment.spec.as_ref().unwrap());
        let new = from_value(json!({"metadata": {"name": "r"}, "spec": {"replicas": 2, "selector": {}}, "status": set})).unwrap();
        let rollout = Rollout { deployment: &deployment, new: Some(Arc::new(new)), old: vec![], limits };
        new_status(&rollout, &Progress::default(), Timestamp::from_second(1000).unwrap()).0.unwrap().status.unwrap()
    }

    fn progressing(status: &DeploymentStatus) -> (String, String) {
        let c = status.conditions.iter().flatten().find(|c| c.type_ == "Progressing").unwrap();
        (c.status.clone(), c.reason.clone().unwrap())
    }

    #[test]
    fn complete_progressing_and_timed_out() {
        let done =
            status_of(json!({"replicas": 2, "availableReplicas": 2, "readyReplicas": 2}), json!({"observedGeneration": 2}));
        assert_eq!(progressing(&done), ("True".into(), "NewReplicaSetAvailable".into()));
        assert_eq!(done.unavailable_replicas, None);
        let going = status_of(json!({"replicas": 2}), json!({"observedGeneration": 2}));
        assert_eq!(progressing(&going), ("True".into(), "ReplicaSetUpdated".into()));
        assert_eq!(going.unavailable_replicas, Some(2));
        let stuck = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "conditions": [{"type": "Progressing",
            "status": "True", "reason": "ReplicaSetUpdated", "lastUpdateTime": "1970-01-01T00:00:00Z"}]});
        assert_eq!(progressing(&status_of(json!({"replicas": 2}), stuck)), ("False".into(), "ProgressDeadlineExceeded".into()));
    }
}
