//! `replicaset-controller` and `replicationcontroller-controller`: as many Pods as asked for.

use super::{pods, template};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::informer::{Cached, Informer};
use crate::key::{Key, owner_key};
use crate::limits;
use crate::selector;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController, ReplicationControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// What ReplicaSet and ReplicationController have in common. The status is in the form of a ReplicaSet's.
pub trait Replicated: Cached + Serialize {
    /// Whether its status counts Pods on their way out (KEP-3973).
    const COUNTS_TERMINATING: bool;
    /// Pods wanted.
    fn wanted(&self) -> i32;
    /// Whether a Pod belongs to it by labels.
    fn selects(&self, pod: &Pod) -> bool;
    /// What its Pods are made from.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// How long a Pod has to be ready to count as available.
    fn min_ready_seconds(&self) -> i32;
    /// The status as reported.
    fn status(&self) -> ReplicaSetStatus;
    /// The same object with another status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Replicated for ReplicaSet {
    const COUNTS_TERMINATING: bool = true;

    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn selects(&self, pod: &Pod) -> bool {
        self.spec
            .as_ref()
            .is_some_and(|s| !selector::is_empty(&s.selector) && selector::matches(&s.selector, pod.metadata.labels.as_ref()))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

impl Replicated for ReplicationController {
    const COUNTS_TERMINATING: bool = false;

    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn selects(&self, pod: &Pod) -> bool {
        selector::map_matches(self.spec.as_ref().and_then(|s| s.selector.as_ref()), pod.metadata.labels.as_ref())
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }

    fn status(&self) -> ReplicaSetStatus {
        let value = self.status.as_ref().and_then(|s| serde_json::to_value(s).ok());
        value.and_then(|v| serde_json::from_value(v).ok()).unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let value = serde_json::to_value(status).unwrap_or_default();
        let status: Option<ReplicationControllerStatus> = serde_json::from_value(value).ok();
        Self { status, ..self.clone() }
    }
}

/// `replicaset-controller`.
pub fn start(env: &Env) -> Vec<Controller> {
    vec![build::<ReplicaSet>(env, "replicaset-controller", "system:serviceaccount:kube-system:replicaset-controller")]
}

/// `replicationcontroller-controller`.
pub fn start_replication(env: &Env) -> Vec<Controller> {
    let user = "system:serviceaccount:kube-system:replication-controller";
    vec![build::<ReplicationController>(env, "replicationcontroller-controller", user)]
}

fn build<R: Replicated>(env: &Env, name: &'static str, user: &str) -> Controller {
    let (sets, all_pods) = (env.informer::<R>(), env.informer::<Pod>());
    let for_pods = sets.clone();
    let on_failure = sets.clone();
    Builder::new(env, name, user)
        .each(&sets)
        .on(&all_pods, move |pod| keys_of_pod(&for_pods, pod))
        .on_failure(move |key, message, now| {
            on_failure.get(key).map(|set| plan_failure(set.as_ref(), message, now)).unwrap_or_default()
        })
        .plan(move |key, now| {
            let Some(set) = sets.get(key) else { return Vec::new() };
            plan(set.as_ref(), all_pods.in_namespace(&key.namespace), now)
        })
}

/// The owner of a Pod, or for an orphan all that would adopt it.
fn keys_of_pod<R: Replicated>(sets: &Arc<Informer<R>>, pod: &Pod) -> Vec<Key> {
    if crate::key::controller_of(&pod.metadata).is_some() {
        return owner_key(&pod.metadata, &R::kind(&())).into_iter().collect();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    sets.in_namespace(namespace).iter().filter(|set| set.selects(pod)).map(|set| Key::of(set.meta())).collect()
}

/// Brings the number of Pods to what is wanted and the status up to date.
pub fn plan<R: Replicated>(set: &R, namespace_pods: Vec<Arc<Pod>>, now: Timestamp) -> Vec<Action> {
    let (claimed, mut actions) = pods::claim(set, namespace_pods, |pod| set.selects(pod));
    let terminating = claimed.iter().filter(|p| p.metadata.deletion_timestamp.is_some() && !pods::is_finished(p)).count();
    let active: Vec<Arc<Pod>> = claimed.into_iter().filter(|p| pods::is_active(p)).collect();
    let deleting = set.meta().deletion_timestamp.is_some();
    let missing = i64::from(set.wanted()) - active.len() as i64;
    let owner = set.object_ref(&());
    if !deleting && missing > 0 {
        if let Some(template) = set.template() {
            let pod = template::pod(set, template);
            let create = Action::create(&pod).told_about(owner);
            actions.extend(std::iter::repeat_n(create, (missing as usize).min(limits::BURST_MAX)));
        }
    } else if !deleting && missing < 0 {
        let surplus = ((-missing) as usize).min(limits::BURST_MAX);
        let doomed = pods::by_uselessness(active.clone()).into_iter().take(surplus);
        actions.extend(doomed.map(|pod| Action::delete(pod.as_ref()).told_about(owner.clone())));
    }
    let (status, due) = new_status(set, &active, terminating, missing == 0, now);
    if status != set.status() {
        actions.push(Action::update_sub(&set.with_status(status), "status"));
    }
    actions.extend(due.map(Action::After));
    actions
}

fn plan_failure<R: Replicated>(set: &R, message: &str, now: Timestamp) -> Vec<Action> {
    let mut status = set.status();
    let conditions = status.conditions.get_or_insert_default();
    if conditions.iter().any(|c| c.type_ == "ReplicaFailure" && c.message.as_deref() == Some(message)) {
        return Vec::new();
    }
    conditions.retain(|c| c.type_ != "ReplicaFailure");
    conditions.push(ReplicaSetCondition {
        type_: "ReplicaFailure".into(),
        status: "True".into(),
        reason: Some("FailedCreate".into()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
    });
    vec![Action::update_sub(&set.with_status(status), "status")]
}

/// 0 is left out of the stored form.
fn some(count: usize) -> Option<i32> {
    (count > 0).then_some(count as i32)
}

fn new_status<R: Replicated>(
    set: &R,
    active: &[Arc<Pod>],
    terminating: usize,
    satisfied: bool,
    now: Timestamp,
) -> (ReplicaSetStatus, Option<Duration>) {
    let old = set.status();
    let template_labels = set.template().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.as_ref());
    let labelled = |pod: &Pod| {
        let labels = pod.metadata.labels.as_ref();
        template_labels.into_iter().flatten().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
    };
    let waits: Vec<Option<Duration>> =
        active.iter().map(|pod| pods::until_available(pod, set.min_ready_seconds(), now)).collect();
    let mut conditions = old.conditions.clone().unwrap_or_default();
    if satisfied {
        conditions.retain(|c| c.type_ != "ReplicaFailure");
    }
    let status = ReplicaSetStatus {
        replicas: active.len() as i32,
        fully_labeled_replicas: some(active.iter().filter(|p| labelled(p)).count()),
        ready_replicas: some(active.iter().filter(|p| pods::is_ready(p)).count()),
        available_replicas: some(waits.iter().filter(|w| w.is_none()).count()),
        terminating_replicas: R::COUNTS_TERMINATING.then_some(terminating as i32),
        observed_generation: set.meta().generation,
        conditions: (!conditions.is_empty()).then_some(conditions),
    };
    (status, waits.into_iter().flatten().filter(|w| *w != Duration::MAX).min())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::{Value, from_value, json};

    fn set(replicas: i32, status: Value) -> ReplicaSet {
        from_value(json!({"metadata": {"name": "r", "namespace": "a", "uid": "u", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}}, "status": status}))
        .unwrap()
    }

    fn pod(name: &str, owner: Option<&str>) -> Arc<Pod> {
        let owners = owner
            .map(|uid| json!([{"uid": uid, "controller": true, "kind": "ReplicaSet", "name": "r", "apiVersion": "apps/v1"}]));
        Arc::new(from_value(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "x"}, "ownerReferences": owners}})).unwrap())
    }

    fn verbs(actions: &[Action]) -> Vec<Verb> {
        actions.iter().filter_map(|a| if let Action::Write(w) = a { Some(w.verb) } else { None }).collect()
    }

    #[test]
    fn missing_pods_are_made_and_surplus_ones_deleted() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(verbs(&plan(&set(2, json!({"replicas": 0})), vec![], now)), [Verb::Create, Verb::Create, Verb::Update]);
        let two = vec![pod("p", Some("u")), pod("q", Some("u"))];
        let actions = plan(
            &set(1, json!({"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1, "terminatingReplicas": 0})),
            two,
            now,
        );
        assert_eq!(verbs(&actions), [Verb::Delete]);
    }

    #[test]
    fn orphans_are_adopted_and_others_left_alone() {
        let actions = plan(&set(1, json!({"replicas": 0})), vec![pod("p", None), pod("q", Some("other"))], Timestamp::UNIX_EPOCH);
        assert_eq!(verbs(&actions), [Verb::MergePatch, Verb::Update]);
        let Action::Write(Write { body, .. }) = &actions[1] else { panic!() };
        assert_eq!(body["status"]["replicas"], 1);
    }

    #[test]
    fn nothing_to_do_writes_nothing() {
        let settled =
            set(1, json!({"replicas": 1, "fullyLabeledReplicas": 1, "observedGeneration": 1, "terminatingReplicas": 0}));
        assert!(plan(&settled, vec![pod("p", Some("u"))], Timestamp::UNIX_EPOCH).is_empty());
    }
}
