//! `ttl-after-finished-controller`: finished Jobs go when their time is up.

use super::job::is_finished;
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::workload::pods;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let jobs = env.informer::<Job>();
    let user = "system:serviceaccount:kube-system:ttl-after-finished-controller";
    let builder = Builder::new(env, "ttl-after-finished-controller", user).each(&jobs);
    vec![builder.plan(move |key, now| jobs.get(key).map(|job| plan(&job, now)).unwrap_or_default())]
}

fn plan(job: &Job, now: Timestamp) -> Vec<Action> {
    let Some(ttl) = job.spec.as_ref().and_then(|s| s.ttl_seconds_after_finished) else { return Vec::new() };
    if !is_finished(job) || job.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let ends = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ends = ends.filter(|c| c.status == "True" && (c.type_ == "Complete" || c.type_ == "Failed"));
    let Some(finished) = ends.filter_map(|c| c.last_transition_time.as_ref()).map(|t| t.0).max() else { return Vec::new() };
    match pods::until(finished, i64::from(ttl), now) {
        Some(left) => vec![Action::After(left)],
        None => vec![Action::delete_with(job, json!({"propagationPolicy": "Foreground"}))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;
    use std::time::Duration;

    #[test]
    fn goes_after_its_time() {
        let job: Job = from_value(json!({"spec": {"ttlSecondsAfterFinished": 10, "template": {}}, "status": {"conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}}))
        .unwrap();
        let at = |s| Timestamp::from_second(s).unwrap();
        assert_eq!(plan(&job, at(4)), [Action::After(Duration::from_secs(6))]);
        assert_eq!(plan(&job, at(10)).len(), 1);
    }
}
