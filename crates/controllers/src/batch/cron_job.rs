//! `cronjob-controller`: Jobs by the clock.

use super::cron::Schedule;
use super::job::{has, is_finished};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::owner_key;
use crate::workload::{pods, template};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use kube::Resource;
use std::sync::Arc;
use std::time::Duration;

/// Annotation of a Job: the time it stands for.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Missed times that are looked through at most.
const MISSED_MAX: usize = 100;

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (cron_jobs, jobs) = (env.informer::<CronJob>(), env.informer::<Job>());
    let user = "system:serviceaccount:kube-system:cronjob-controller";
    let builder = Builder::new(env, "cronjob-controller", user)
        .each(&cron_jobs)
        .on(&jobs, |job| owner_key(&job.metadata, "CronJob").into_iter().collect());
    vec![builder.plan(move |key, now| {
        let Some(cron_job) = cron_jobs.get(key) else { return Vec::new() };
        plan(&cron_job, &jobs.owned_by(cron_job.metadata.uid.as_deref().unwrap_or_default()), now)
    })]
}

/// The last time that has passed since the last start, and the next one to come.
fn times(cron_job: &CronJob, spec: &CronJobSpec, now: Timestamp) -> Option<(Option<Timestamp>, Option<Timestamp>)> {
    let schedule = Schedule::parse(&spec.schedule)?;
    let zone = match spec.time_zone.as_deref() {
        Some(name) => TimeZone::get(name).ok()?,
        None => TimeZone::UTC,
    };
    let last = cron_job.status.as_ref().and_then(|s| s.last_schedule_time.as_ref());
    let mut from = last.or(cron_job.metadata.creation_timestamp.as_ref()).map_or(now, |t| t.0);
    if let Some(seconds) = spec.starting_deadline_seconds {
        let earliest = now.checked_sub(k8s_openapi::jiff::SignedDuration::from_secs(seconds)).ok()?;
        from = from.max(earliest);
    }
    let mut due = None;
    let mut next = schedule.next(from, &zone);
    for _ in 0..MISSED_MAX {
        match next {
            Some(at) if at <= now => {
                due = Some(at);
                next = schedule.next(at, &zone);
            }
            _ => return Some((due, next)),
        }
    }
    // Too many were missed to look through them all: the search starts again an hour ago.
    let recent = now.checked_sub(k8s_openapi::jiff::SignedDuration::from_hours(1)).ok()?;
    let mut at = schedule.next(due?.max(recent), &zone);
    while let Some(time) = at.filter(|time| *time <= now) {
        due = Some(time);
        at = schedule.next(time, &zone);
    }
    Some((due, at))
}

/// Starts what is due as far as the policy allows, tidies up, and looks again at the next time.
fn plan(cron_job: &CronJob, owned: &[Arc<Job>], now: Timestamp) -> Vec<Action> {
    let spec = &cron_job.spec;
    if cron_job.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut actions = tidy(spec, owned);
    let active: Vec<&Arc<Job>> = owned.iter().filter(|job| !is_finished(job)).collect();
    let mut status = CronJobStatus { active: None, ..cron_job.status.clone().unwrap_or_default() };
    let mut references: Vec<_> = active.iter().map(|job| job.object_ref(&())).collect();
    references.iter_mut().for_each(|r| r.resource_version = None);
    let ended = owned.iter().filter(|job| has(job, "Complete")).filter_map(|job| job.status.as_ref()?.completion_time.clone());
    status.last_successful_time = ended.max().max(status.last_successful_time);
    let mut due = None;
    if !spec.suspend.unwrap_or(false) {
        match times(cron_job, spec, now) {
            None => {
                actions.push(Action::warn(cron_job, "UnparseableSchedule", format!("cannot use schedule {:?}", spec.schedule)))
            }
            Some((passed, next)) => {
                due = next.map(|at| pods::until(at, 0, now).unwrap_or(Duration::from_secs(1)));
                if let Some(at) = passed {
                    let policy = spec.concurrency_policy.as_deref().unwrap_or("Allow");
                    if policy == "Replace" {
                        actions
                            .extend(active.iter().map(|job| Action::delete(job.as_ref()).told_about(cron_job.object_ref(&()))));
                        references.clear();
                    }
                    // A forbidden start is not lost: it is due until the running Job ends.
                    if policy != "Forbid" || active.is_empty() {
                        actions.push(Action::create(&job_for(cron_job, spec, at)).told_about(cron_job.object_ref(&())));
                        status.last_schedule_time = Some(Time(at));
                    }
                }
            }
        }
    }
    status.active = (!references.is_empty()).then_some(references);
    if cron_job.status.clone().unwrap_or_default() != status {
        actions.push(Action::update_sub(&CronJob { status: Some(status), ..cron_job.clone() }, "status"));
    }
    actions.extend(due.map(Action::After));
    actions
}

/// The Job of one time; its name makes starting it twice impossible.
fn job_for(cron_job: &CronJob, spec: &CronJobSpec, at: Timestamp) -> Job {
    let given = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = given.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.into(), at.to_string());
    let name = cron_job.metadata.name.as_deref().unwrap_or_default();
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", at.as_second() / 60)),
            namespace: cron_job.metadata.namespace.clone(),
            labels: given.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![template::controller_ref(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

/// Finished Jobs beyond the limits, oldest first.
fn tidy(spec: &CronJobSpec, owned: &[Arc<Job>]) -> Vec<Action> {
    let limits =
        [("Complete", spec.successful_jobs_history_limit.unwrap_or(3)), ("Failed", spec.failed_jobs_history_limit.unwrap_or(1))];
    let surplus = |(type_, limit): (&str, i32)| {
        let mut ended: Vec<&Arc<Job>> = owned.iter().filter(|job| has(job, type_)).collect();
        ended.sort_by_key(|job| job.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0));
        let count = ended.len().saturating_sub(limit.max(0) as usize);
        ended.into_iter().take(count).map(|job| Action::delete(job.as_ref())).collect::<Vec<_>>()
    };
    limits.into_iter().flat_map(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::{from_value, json};

    fn cron_job(policy: &str, last: Option<&str>) -> CronJob {
        from_value(json!({"metadata": {"name": "c", "namespace": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedule": "*/5 * * * *", "concurrencyPolicy": policy, "jobTemplate": {"spec": {"template": {}}}},
            "status": {"lastScheduleTime": last}}))
        .unwrap()
    }

    fn run(cron_job: &CronJob, owned: &[Arc<Job>], now: &str) -> Vec<(Verb, String)> {
        let of = |a: &Action| match a {
            Action::Write(Write { verb, body, path, .. }) if !path.ends_with("/status") => {
                Some((*verb, body["metadata"]["name"].as_str().unwrap_or(path.rsplit('/').next()?).to_owned()))
            }
            _ => None,
        };
        plan(cron_job, owned, now.parse().unwrap()).iter().filter_map(of).collect()
    }

    #[test]
    fn the_last_missed_time_is_started_as_the_policy_allows() {
        let running: Arc<Job> =
            Arc::new(from_value(json!({"metadata": {"name": "r", "namespace": "a"}, "spec": {"template": {}}})).unwrap());
        let now = "2026-01-01T00:12:00Z";
        let start = (Verb::Create, "c-29453770".to_owned());
        assert_eq!(run(&cron_job("Allow", None), std::slice::from_ref(&running), now), std::slice::from_ref(&start));
        assert_eq!(run(&cron_job("Forbid", None), std::slice::from_ref(&running), now), []);
        assert_eq!(run(&cron_job("Replace", None), &[running], now), [(Verb::Delete, "r".into()), start]);
        assert_eq!(run(&cron_job("Allow", Some("2026-01-01T00:10:00Z")), &[], now), []);
    }
}
