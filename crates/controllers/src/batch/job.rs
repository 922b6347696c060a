//! `job-controller`: Pods until enough of them have succeeded.
//!
//! Every Pod carries a finalizer until its end is counted (KEP-2307): its uid is first written down in the status, then the
//! finalizer goes, then the uid becomes a number. So none is counted twice or lost, whoever deletes Pods meanwhile.

use super::indexes;
use super::job_status::{Ends, Verdict, new_status};
use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::{is_controlled_by, owner_key};
use crate::limits;
use crate::workload::{pods, template};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Finalizer of Pods whose end is not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label of an indexed Job's Pods.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// First wait after a failed Pod; doubles with each further failure in a row.
const BACKOFF_SECONDS: i64 = 10;
const BACKOFF_SECONDS_MAX: i64 = 600;

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (jobs, all_pods) = (env.informer::<Job>(), env.informer::<Pod>());
    let user = "system:serviceaccount:kube-system:job-controller";
    let builder = Builder::new(env, "job-controller", user)
        .each(&jobs)
        .on(&all_pods, |pod| owner_key(&pod.metadata, "Job").into_iter().collect());
    // A Pod whose Job is gone must not keep the finalizer.
    let orphans = Builder::new(env, "job-controller", user).each(&all_pods).reads(&jobs);
    let (all_jobs, orphan_pods) = (jobs.clone(), all_pods.clone());
    vec![
        builder.plan(move |key, now| {
            let Some(job) = jobs.get(key) else { return Vec::new() };
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            plan(&job, all_pods.owned_by(uid), now)
        }),
        orphans.plan(move |key, _| {
            let Some(pod) = orphan_pods.get(key).filter(|pod| is_tracked(pod)) else { return Vec::new() };
            let job = owner_key(&pod.metadata, "Job").and_then(|key| all_jobs.get(&key));
            let owned = job.is_some_and(|job| is_controlled_by(&pod.metadata, job.metadata.uid.as_deref().unwrap_or_default()));
            if owned { Vec::new() } else { vec![untrack(&pod)] }
        }),
    ]
}

/// Whether the Pod's end is still to be counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|f| f == TRACKING)
}

fn untrack(pod: &Pod) -> Action {
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
    Action::patch(pod, Verb::StrategicPatch, patch)
}

/// Whether a condition of the Job is True.
pub(super) fn has(job: &Job, type_: &str) -> bool {
    job.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == type_ && c.status == "True")
}

/// Whether the Job has ended.
pub(super) fn is_finished(job: &Job) -> bool {
    has(job, "Complete") || has(job, "Failed")
}

pub(super) fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|s| s.completion_mode.as_deref()) == Some("Indexed")
}

/// The index of an indexed Job's Pod.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// Counting, then Pods, then the status.
pub fn plan(job: &Job, owned: Vec<Arc<Pod>>, now: Timestamp) -> Vec<Action> {
    let Some(spec) = &job.spec else { return Vec::new() };
    let ours = spec.managed_by.as_deref().is_none_or(|by| by == "kubernetes.io/job-controller");
    if !ours {
        return Vec::new();
    }
    let ends = Ends::of(job, &owned);
    let mut actions: Vec<Action> = ends.to_release.iter().map(|pod| untrack(pod)).collect();
    if is_finished(job) || job.metadata.deletion_timestamp.is_some() {
        // What ends now is not counted any more, but must not be held either.
        actions.extend(
            owned
                .iter()
                .filter(|p| is_tracked(p) && (pods::is_finished(p) || p.metadata.deletion_timestamp.is_some()))
                .map(|p| untrack(p)),
        );
        return actions;
    }
    let active: Vec<Arc<Pod>> = owned.iter().filter(|p| pods::is_active(p)).cloned().collect();
    let verdict = Verdict::of(job, &ends, &active, now);
    let mut due = verdict.due;
    let (doomed, missing) = match &verdict.ended {
        Some(_) => (active.clone(), 0),
        None if spec.suspend.unwrap_or(false) => (active.clone(), 0),
        None => steer(job, &ends, &active),
    };
    let owner = job.object_ref(&());
    actions.extend(doomed.iter().map(|pod| Action::delete(pod.as_ref()).told_about(owner.clone())));
    if missing > 0 {
        match wait_after_failures(&owned, now) {
            Some(wait) => due = Some(due.map_or(wait, |d| d.min(wait))),
            None => actions.extend(create(job, &ends, &active, missing).into_iter().map(|a| a.told_about(owner.clone()))),
        }
    }
    let terminating =
        owned.iter().filter(|p| p.metadata.deletion_timestamp.is_some() && !pods::is_finished(p)).count() + doomed.len();
    let status = new_status(job, &ends, &verdict, &active, doomed.len(), terminating, now);
    if job.status.as_ref() != Some(&status) {
        actions.extend(verdict.note(job, &status));
        actions.push(Action::update_sub(&Job { status: Some(status), ..job.clone() }, "status"));
    }
    actions.extend(due.map(Action::After));
    actions
}

/// Surplus Pods, and how many are missing.
fn steer(job: &Job, ends: &Ends, active: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, usize) {
    let Some(spec) = &job.spec else { return (Vec::new(), 0) };
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    let wanted = match spec.completions {
        Some(completions) => parallelism.min(completions - ends.succeeded),
        // Without a number the first success ends the work: no new Pods after it.
        None if ends.succeeded > 0 => active.len() as i32,
        None => parallelism,
    }
    .max(0) as usize;
    if active.len() > wanted {
        let surplus = active.len() - wanted;
        return (pods::by_uselessness(active.to_vec()).into_iter().take(surplus).collect(), 0);
    }
    let waits_for_terminating = spec.pod_replacement_policy.as_deref() == Some("Failed");
    let leaving = if waits_for_terminating { ends.terminating } else { 0 };
    (Vec::new(), (wanted - active.len()).saturating_sub(leaving))
}

/// How long to wait before the next Pod, after failures in a row.
fn wait_after_failures(owned: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let last_success = owned.iter().filter(|p| pods::phase(p) == "Succeeded").filter_map(|p| finished_at(p)).max();
    let failures: Vec<Timestamp> = owned
        .iter()
        .filter(|p| pods::phase(p) == "Failed")
        .filter_map(|p| finished_at(p))
        .filter(|at| last_success.is_none_or(|success| *at > success))
        .collect();
    let latest = failures.iter().max()?;
    let exponent = u32::try_from(failures.len() - 1).unwrap_or(u32::MAX).min(10);
    pods::until(*latest, (BACKOFF_SECONDS << exponent).min(BACKOFF_SECONDS_MAX), now)
}

fn finished_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let ends =
        status.container_statuses.iter().flatten().filter_map(|s| s.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|t| t.0).max().or_else(|| pod.metadata.creation_timestamp.as_ref().map(|t| t.0))
}

fn create(job: &Job, ends: &Ends, active: &[Arc<Pod>], missing: usize) -> Vec<Action> {
    let Some(spec) = &job.spec else { return Vec::new() };
    let mut base = template::pod(job, &spec.template);
    base.metadata.finalizers.get_or_insert_default().push(TRACKING.into());
    let missing = missing.min(limits::BURST_MAX);
    if !is_indexed(job) {
        return vec![Action::create(&base); missing];
    }
    let taken: BTreeSet<i32> = active.iter().filter_map(|p| index_of(p)).chain(ends.completed.iter().copied()).collect();
    let free = (0..spec.completions.unwrap_or(0)).filter(|index| !taken.contains(index));
    free.take(missing).map(|index| Action::create(&with_index(job, base.clone(), index))).collect()
}

/// The Pod of one index: named, labelled and told so.
fn with_index(job: &Job, mut pod: Pod, index: i32) -> Pod {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    pod.metadata.generate_name = Some(format!("{name}-{index}-"));
    pod.metadata.annotations.get_or_insert_default().insert(INDEX.into(), index.to_string());
    pod.metadata.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let env = container.env.get_or_insert_default();
            if !env.iter().any(|e| e.name == "JOB_COMPLETION_INDEX") {
                let field = json!({"fieldRef": {"fieldPath": format!("metadata.annotations['{INDEX}']")}});
                let value_from = serde_json::from_value(field).ok();
                env.push(EnvVar { name: "JOB_COMPLETION_INDEX".into(), value: None, value_from });
            }
        }
    }
    pod
}

/// The completed indexes as the status writes them.
pub(super) fn completed_text(job: &Job, completed: &BTreeSet<i32>) -> Option<String> {
    is_indexed(job).then(|| indexes::format(completed)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{Value, from_value};

    fn job(spec: Value, status: Value) -> Job {
        let mut full = json!({"template": {"spec": {"containers": [{"name": "c"}]}}, "backoffLimit": 6});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        from_value(json!({"metadata": {"name": "j", "namespace": "a", "uid": "u"}, "spec": full, "status": status})).unwrap()
    }

    fn pod(name: &str, phase: &str, tracked: bool) -> Arc<Pod> {
        let finalizers = if tracked { json!([TRACKING]) } else { json!([]) };
        Arc::new(
            from_value(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "finalizers": finalizers,
            "creationTimestamp": "1970-01-01T00:00:00Z"}, "status": {"phase": phase}}))
            .unwrap(),
        )
    }

    fn status(actions: &[Action]) -> Value {
        let of = |a: &Action| match a {
            Action::Write(Write { body, path, .. }) if path.ends_with("/status") => Some(body["status"].clone()),
            _ => None,
        };
        actions.iter().find_map(of).unwrap_or_default()
    }

    fn verbs(actions: &[Action]) -> Vec<Verb> {
        actions.iter().filter_map(|a| if let Action::Write(w) = a { Some(w.verb) } else { None }).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_end_is_written_down_then_released_then_counted() {
        let spec = json!({"completions": 1, "parallelism": 1});
        let started = json!({"startTime": "1970-01-01T00:00:00Z"});
        let seen = status(&plan(&job(spec.clone(), started), vec![pod("p", "Succeeded", true)], at(10)));
        assert_eq!(seen["uncountedTerminatedPods"]["succeeded"], json!(["p"]));
        assert_eq!(seen.get("succeeded"), None);
        let released = plan(&job(spec.clone(), seen.clone()), vec![pod("p", "Succeeded", true)], at(10));
        assert_eq!(verbs(&released)[0], Verb::StrategicPatch);
        let counted = status(&plan(&job(spec, seen), vec![pod("p", "Succeeded", false)], at(10)));
        assert_eq!((&counted["succeeded"], &counted["uncountedTerminatedPods"]), (&json!(1), &json!({})));
        let types: Vec<&Value> = counted["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
        assert_eq!(types, ["SuccessCriteriaMet", "Complete"]);
        assert_eq!(counted["completionTime"], "1970-01-01T00:00:10Z");
    }

    #[test]
    fn failures_are_retried_after_a_wait_and_in_the_end_fail_the_job() {
        let spec = json!({"completions": 1, "parallelism": 1, "backoffLimit": 1});
        let once = json!({"startTime": "1970-01-01T00:00:00Z", "failed": 1, "uncountedTerminatedPods": {}, "ready": 0, "terminating": 0});
        let waiting = plan(&job(spec.clone(), once.clone()), vec![pod("p", "Failed", false)], at(4));
        assert_eq!(waiting, [Action::After(Duration::from_secs(6))]);
        assert_eq!(verbs(&plan(&job(spec.clone(), once), vec![pod("p", "Failed", false)], at(10)))[0], Verb::Create);
        let twice = json!({"startTime": "1970-01-01T00:00:00Z", "failed": 2, "uncountedTerminatedPods": {}});
        let failed = status(&plan(&job(spec, twice), vec![], at(99)));
        assert_eq!(failed["conditions"][1]["reason"], "BackoffLimitExceeded");
    }

    #[test]
    fn indexes_are_handed_out_once() {
        let spec = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"});
        let mut running = pod("p", "Running", true).as_ref().clone();
        running.metadata.annotations = Some([(INDEX.to_owned(), "2".to_owned())].into());
        let status =
            json!({"startTime": "1970-01-01T00:00:00Z", "succeeded": 1, "completedIndexes": "0", "uncountedTerminatedPods": {}});
        let actions = plan(&job(spec, status), vec![Arc::new(running)], at(9));
        let of = |a: &Action| match a {
            Action::Write(Write { verb: Verb::Create, body, .. }) => {
                body["metadata"]["annotations"][INDEX].as_str().map(str::to_owned)
            }
            _ => None,
        };
        assert_eq!(actions.iter().filter_map(of).collect::<Vec<_>>(), ["1", "3"]);
    }

    #[test]
    fn a_suspended_job_has_no_pods() {
        let spec = json!({"completions": 1, "parallelism": 1, "suspend": true});
        let actions = plan(&job(spec, json!({})), vec![pod("p", "Running", true)], at(9));
        assert_eq!(verbs(&actions), [Verb::Delete, Verb::Update]);
        assert_eq!(status(&actions)["conditions"][0]["type"], "Suspended");
    }
}
