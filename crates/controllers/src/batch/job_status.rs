//! What has ended of a Job, what follows from it, and the status that says so.

use super::indexes;
use super::job::{completed_text, has, index_of, is_indexed, is_tracked};
use crate::action::Action;
use crate::workload::pods;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Pods of a Job that have ended, by how far their counting has come.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// All successes, counted, written down or just seen.
    pub succeeded: i32,
    /// All failures.
    pub failed: i32,
    /// Numbers that go into the status.
    counted: (i32, i32),
    /// Uids that stay or are newly written down.
    uncounted: UncountedTerminatedPods,
    /// Pods whose uid is written down and that can be let go.
    pub to_release: Vec<Arc<Pod>>,
    /// Indexes that are done.
    pub completed: BTreeSet<i32>,
    /// Pods on their way out.
    pub terminating: usize,
}

impl Ends {
    /// Sorts the Pods of a Job.
    pub fn of(job: &Job, owned: &[Arc<Pod>]) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let known = status.uncounted_terminated_pods.unwrap_or_default();
        let by_uid: BTreeMap<&str, &Arc<Pod>> = owned.iter().filter_map(|p| Some((p.metadata.uid.as_deref()?, p))).collect();
        let mut ends = Ends {
            counted: (status.succeeded.unwrap_or(0), status.failed.unwrap_or(0)),
            completed: indexes::parse(status.completed_indexes.as_deref().unwrap_or_default()),
            terminating: owned.iter().filter(|p| p.metadata.deletion_timestamp.is_some() && !pods::is_finished(p)).count(),
            ..Ends::default()
        };
        let mut written_down: BTreeSet<String> = BTreeSet::new();
        for (uids, success) in [(known.succeeded, true), (known.failed, false)] {
            for uid in uids.into_iter().flatten() {
                match by_uid.get(uid.as_str()).filter(|pod| is_tracked(pod)) {
                    Some(pod) => {
                        ends.to_release.push(Arc::clone(pod));
                        ends.write_down(uid.clone(), success);
                    }
                    None if success => ends.counted.0 += 1,
                    None => ends.counted.1 += 1,
                }
                written_down.insert(uid);
            }
        }
        let limit = job.spec.as_ref().and_then(|s| s.completions).unwrap_or(i32::MAX);
        for pod in owned.iter().filter(|p| is_tracked(p)) {
            let Some(uid) = pod.metadata.uid.clone().filter(|uid| !written_down.contains(uid)) else { continue };
            // A Pod that is deleted before it ends has failed, as far as the Job is concerned.
            let success = match pods::phase(pod) {
                "Succeeded" => true,
                "Failed" => false,
                _ if pod.metadata.deletion_timestamp.is_some() => false,
                _ => continue,
            };
            if success && is_indexed(job) {
                let fresh = index_of(pod).is_some_and(|index| (0..limit).contains(&index) && ends.completed.insert(index));
                if !fresh {
                    ends.to_release.push(pod.clone());
                    continue;
                }
            }
            ends.write_down(uid, success);
        }
        let pending = |uids: &Option<Vec<String>>| uids.as_ref().map_or(0, Vec::len) as i32;
        ends.succeeded = ends.counted.0 + pending(&ends.uncounted.succeeded);
        ends.failed = ends.counted.1 + pending(&ends.uncounted.failed);
        ends
    }

    fn write_down(&mut self, uid: String, success: bool) {
        let list = if success { &mut self.uncounted.succeeded } else { &mut self.uncounted.failed };
        list.get_or_insert_default().push(uid);
    }

    fn is_settled(&self) -> bool {
        self.uncounted.succeeded.is_none() && self.uncounted.failed.is_none()
    }
}

/// How a Job ends.
#[derive(Debug, PartialEq)]
pub(super) struct End {
    success: bool,
    reason: String,
    message: String,
}

/// What follows from the Pods and the clock.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The Job is over (its Pods may still be leaving).
    pub ended: Option<End>,
    /// When time alone may change that.
    pub due: Option<Duration>,
}

impl Verdict {
    /// Judges a Job that is not finished.
    pub fn of(job: &Job, ends: &Ends, active: &[Arc<Pod>], now: Timestamp) -> Self {
        let decided = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let mut decided =
            decided.filter(|c| c.status == "True" && (c.type_ == "FailureTarget" || c.type_ == "SuccessCriteriaMet"));
        if let Some(c) = decided.next() {
            let (reason, message) = (c.reason.clone().unwrap_or_default(), c.message.clone().unwrap_or_default());
            return Self { ended: Some(End { success: c.type_ == "SuccessCriteriaMet", reason, message }), due: None };
        }
        let failure = |reason: &str, message: &str| Some(End { success: false, reason: reason.into(), message: message.into() });
        let Some(spec) = &job.spec else { return Self { ended: None, due: None } };
        let limit = spec.backoff_limit.unwrap_or(6);
        if ends.failed > limit || restarts(job, active) > limit {
            return Self { ended: failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"), due: None };
        }
        let started = job.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
        let mut due = None;
        if let (Some(started), Some(seconds), false) = (started, spec.active_deadline_seconds, spec.suspend.unwrap_or(false)) {
            due = pods::until(started, seconds, now);
            if due.is_none() {
                return Self { ended: failure("DeadlineExceeded", "Job was active longer than specified deadline"), due: None };
            }
        }
        let complete = match spec.completions {
            Some(completions) => ends.succeeded >= completions,
            None => ends.succeeded > 0 && active.is_empty(),
        };
        let reached = "Reached expected number of succeeded pods";
        let ended = complete.then(|| End { success: true, reason: "CompletionsReached".into(), message: reached.into() });
        Self { ended, due }
    }

    /// The Event of an end that the new status brings.
    pub fn note(&self, job: &Job, status: &JobStatus) -> Option<Action> {
        let last = status.conditions.as_ref()?.last().filter(|c| c.status == "True")?;
        let reason = last.reason.clone().unwrap_or_default();
        match last.type_.as_str() {
            "Complete" => Some(Action::note(job, "Completed", "Job completed")),
            "Failed" if reason == "DeadlineExceeded" => {
                Some(Action::warn(job, "DeadlineExceeded", last.message.clone().unwrap_or_default()))
            }
            "Failed" => Some(Action::warn(job, "BackoffLimitExceeded", last.message.clone().unwrap_or_default())),
            "Suspended" if !has(job, "Suspended") => Some(Action::note(job, "Suspended", "Job suspended")),
            _ => None,
        }
    }
}

/// Restarts in place count too where Pods restart on failure.
fn restarts(job: &Job, active: &[Arc<Pod>]) -> i32 {
    let policy = job.spec.as_ref().and_then(|s| s.template.spec.as_ref()).and_then(|s| s.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return 0;
    }
    let of = |pod: &Arc<Pod>| -> i32 {
        let Some(status) = &pod.status else { return 0 };
        let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
        all.map(|s| s.restart_count).sum()
    };
    active.iter().map(of).sum()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

fn some(count: usize) -> Option<i32> {
    (count > 0).then_some(count as i32)
}

/// The status after this round.
pub(super) fn new_status(
    job: &Job,
    ends: &Ends,
    verdict: &Verdict,
    active: &[Arc<Pod>],
    doomed: usize,
    terminating: usize,
    now: Timestamp,
) -> JobStatus {
    let old = job.status.clone().unwrap_or_default();
    let suspended = job.spec.as_ref().and_then(|s| s.suspend).unwrap_or(false);
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let was_suspended = has(job, "Suspended");
    let mut start_time = old.start_time.clone();
    if suspended && !was_suspended && verdict.ended.is_none() {
        conditions.retain(|c| c.type_ != "Suspended");
        conditions.push(condition("Suspended", "True", "JobSuspended", "Job suspended", now));
        start_time = None;
    } else if !suspended && was_suspended {
        conditions.retain(|c| c.type_ != "Suspended");
        conditions.push(condition("Suspended", "False", "JobResumed", "Job resumed", now));
    }
    if !suspended && start_time.is_none() {
        start_time = Some(Time(now));
    }
    let mut completion_time = None;
    if let Some(end) = &verdict.ended {
        let (first, last) = if end.success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
        if !has(job, first) {
            conditions.push(condition(first, "True", &end.reason, &end.message, now));
        }
        let still = active.len() - doomed + terminating;
        if ends.is_settled() && still == 0 && start_time.is_some() {
            conditions.push(condition(last, "True", &end.reason, &end.message, now));
            completion_time = end.success.then_some(Time(now));
        }
    }
    JobStatus {
        active: some(active.len() - doomed),
        ready: Some(if doomed > 0 { 0 } else { active.iter().filter(|p| pods::is_ready(p)).count() as i32 }),
        terminating: Some(terminating as i32),
        succeeded: some(ends.counted.0 as usize),
        failed: some(ends.counted.1 as usize),
        completed_indexes: completed_text(job, &ends.completed),
        uncounted_terminated_pods: Some(ends.uncounted.clone()),
        start_time,
        completion_time,
        conditions: (!conditions.is_empty()).then_some(conditions),
        failed_indexes: old.failed_indexes,
    }
}
