//! `statefulset-controller`: Pods with names and claims of their own, made and replaced in order.

use super::history::{self, REVISION_HASH};
use super::rollout::scaled;
use super::{pods, template};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::{is_controlled_by, owner_key};
use crate::selector;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (sets, all_pods) = (env.informer::<StatefulSet>(), env.informer::<Pod>());
    let (claims, revisions) = (env.informer::<PersistentVolumeClaim>(), env.informer::<ControllerRevision>());
    let user = "system:serviceaccount:kube-system:statefulset-controller";
    let builder = Builder::new(env, "statefulset-controller", user)
        .each(&sets)
        .reads(&claims)
        .reads(&revisions)
        .on(&all_pods, |pod| owner_key(&pod.metadata, "StatefulSet").into_iter().collect());
    vec![builder.plan(move |key, now| {
        let Some(set) = sets.get(key) else { return Vec::new() };
        let owned = revisions.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
        let has_claim = |name: &str| claims.find(&key.namespace, name).is_some();
        plan(&set, all_pods.in_namespace(&key.namespace), &has_claim, &owned, now)
    })]
}

/// A set with what it consists of.
struct View<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    /// Pods by ordinal.
    pods: BTreeMap<i32, Arc<Pod>>,
    /// Hash and template of the newest revision.
    update: (String, PodTemplateSpec),
    /// The same of the revision that Pods below the partition have.
    current: (String, PodTemplateSpec),
    now: Timestamp,
}

fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    (Some(parent) == set.metadata.name.as_deref()).then(|| ordinal.parse().ok()).flatten()
}

/// One round: history, Pods, status.
pub fn plan(
    set: &StatefulSet,
    namespace_pods: Vec<Arc<Pod>>,
    has_claim: &dyn Fn(&str) -> bool,
    revisions: &[Arc<ControllerRevision>],
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = set.spec.as_ref().filter(|_| set.metadata.deletion_timestamp.is_none()) else { return Vec::new() };
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    let newest = history::current(set, &spec.template, &spec.selector, collisions, revisions);
    let mut actions = newest.actions;
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let selects = |pod: &Pod| selector::matches(&spec.selector, pod.metadata.labels.as_ref());
    let owned = namespace_pods.into_iter().filter(|pod| is_controlled_by(&pod.metadata, uid) && selects(pod));
    let by_ordinal: BTreeMap<i32, Arc<Pod>> = owned.filter_map(|pod| Some((ordinal(set, &pod)?, pod))).collect();
    let current_name = set.status.as_ref().and_then(|s| s.current_revision.clone());
    let current = current_name.as_ref().and_then(|name| revisions.iter().find(|r| r.metadata.name.as_ref() == Some(name)));
    let update = (newest.hash.clone(), spec.template.clone());
    let current_revision = current.and_then(|r| revision_of(r)).unwrap_or_else(|| update.clone());
    let view = View { set, spec, pods: by_ordinal, update, current: current_revision, now };
    let mut due = None;
    actions.extend(step(&view, has_claim, &mut due));
    let status = new_status(&view, current_name, &newest.name);
    let in_use: BTreeSet<String> = view.pods.values().filter_map(|p| hash(p).map(str::to_owned)).collect();
    actions.extend(history::clean_up(revisions, spec.revision_history_limit.unwrap_or(10), &in_use, &newest.name));
    if set.status.as_ref() != Some(&status) {
        actions.push(Action::update_sub(&StatefulSet { status: Some(status), ..set.clone() }, "status"));
    }
    actions.extend(due.map(Action::After));
    actions
}

/// Hash and template of a stored revision.
fn revision_of(revision: &ControllerRevision) -> Option<(String, PodTemplateSpec)> {
    let hash = revision.metadata.labels.as_ref()?.get(REVISION_HASH)?.clone();
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    Some((hash, serde_json::from_value(template).ok()?))
}

fn hash(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(REVISION_HASH).map(String::as_str)
}

impl View<'_> {
    fn first(&self) -> i32 {
        self.spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0)
    }

    fn wanted(&self) -> std::ops::Range<i32> {
        self.first()..self.first() + self.spec.replicas.unwrap_or(1)
    }

    fn in_order(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn partition(&self) -> i32 {
        let rolling = self.spec.update_strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
        rolling.and_then(|r| r.partition).unwrap_or(0)
    }

    /// `None` if the Pod is available, else how long until it will be.
    fn until_available(&self, pod: &Pod) -> Option<Duration> {
        if !pods::is_active(pod) {
            return Some(Duration::MAX);
        }
        pods::until_available(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }
}

/// What happens to the Pods: in order from the lowest when making, from the highest when removing and replacing.
fn step(view: &View<'_>, has_claim: &dyn Fn(&str) -> bool, due: &mut Option<Duration>) -> Vec<Action> {
    let mut actions = Vec::new();
    let owner = view.set.object_ref(&());
    for index in view.wanted() {
        match view.pods.get(&index) {
            None => {
                actions.extend(missing_claims(view, index, has_claim));
                actions.push(Action::create(&pod_for(view, index)).told_about(owner.clone()));
            }
            Some(pod) if pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_none() => {
                actions.push(Action::delete(pod.as_ref()).told_about(owner.clone()));
            }
            Some(pod) => match view.until_available(pod) {
                None => continue,
                Some(wait) if wait != Duration::MAX => *due = Some(due.map_or(wait, |d: Duration| d.min(wait))),
                Some(_) => {}
            },
        }
        if view.in_order() {
            // The next ones wait for this one, but a broken update must not block its own repair.
            if actions.is_empty() {
                return replace_broken(view);
            }
            return actions;
        }
    }
    let surplus = view.pods.iter().rev().filter(|(index, _)| !view.wanted().contains(index));
    for (_, pod) in surplus {
        if pod.metadata.deletion_timestamp.is_none() {
            actions.push(Action::delete(pod.as_ref()).told_about(owner.clone()));
        }
        if view.in_order() {
            return actions;
        }
    }
    if actions.is_empty() { replace_outdated(view) } else { actions }
}

/// In a rolling update an unready Pod of another revision is replaced at once: waiting for it could be for ever.
fn replace_broken(view: &View<'_>) -> Vec<Action> {
    if !is_rolling(view) {
        return Vec::new();
    }
    let broken = view.wanted().rev().filter(|index| *index >= view.partition()).filter_map(|index| view.pods.get(&index));
    let mut broken = broken.filter(|pod| hash(pod) != Some(&view.update.0) && hash(pod) != Some(&view.current.0));
    let pod = broken.find(|pod| pod.metadata.deletion_timestamp.is_none() && view.until_available(pod).is_some());
    pod.map(|pod| vec![Action::delete(pod.as_ref()).told_about(view.set.object_ref(&()))]).unwrap_or_default()
}

fn is_rolling(view: &View<'_>) -> bool {
    view.spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref()) != Some("OnDelete")
}

/// Replaces from the highest ordinal down to the partition, as many at a time as may be unavailable.
fn replace_outdated(view: &View<'_>) -> Vec<Action> {
    if !is_rolling(view) {
        return Vec::new();
    }
    let rolling = view.spec.update_strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let replicas = view.spec.replicas.unwrap_or(1);
    let allowed = rolling.and_then(|r| r.max_unavailable.as_ref()).map_or(1, |m| scaled(m, replicas, true)).max(1) as usize;
    let mut unavailable = view.wanted().filter_map(|i| view.pods.get(&i)).filter(|p| view.until_available(p).is_some()).count();
    let mut actions = Vec::new();
    for pod in view.wanted().rev().filter(|index| *index >= view.partition()).filter_map(|index| view.pods.get(&index)) {
        if unavailable >= allowed {
            break;
        }
        if hash(pod) != Some(&view.update.0) && pod.metadata.deletion_timestamp.is_none() {
            unavailable += 1;
            actions.push(Action::delete(pod.as_ref()).told_about(view.set.object_ref(&())));
        }
    }
    actions
}

fn claim_name(template: &PersistentVolumeClaim, pod_name: &str) -> String {
    format!("{}-{pod_name}", template.metadata.name.as_deref().unwrap_or_default())
}

fn pod_name(view: &View<'_>, index: i32) -> String {
    format!("{}-{index}", view.set.metadata.name.as_deref().unwrap_or_default())
}

fn missing_claims(view: &View<'_>, index: i32, has_claim: &dyn Fn(&str) -> bool) -> Vec<Action> {
    let pod_name = pod_name(view, index);
    let templates = view.spec.volume_claim_templates.iter().flatten();
    let missing = templates.filter(|t| !has_claim(&claim_name(t, &pod_name))).map(|template| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(template, &pod_name));
        claim.metadata.namespace = view.set.metadata.namespace.clone();
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(view.spec.selector.match_labels.clone().unwrap_or_default());
        claim.status = None;
        Action::create(&claim)
    });
    missing.collect()
}

fn pod_for(view: &View<'_>, index: i32) -> Pod {
    let (hash, template) = if index < view.partition() { &view.current } else { &view.update };
    let name = pod_name(view, index);
    let mut pod = template::pod(view.set, template);
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(name.clone());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_HASH.into(), hash.clone());
    labels.insert(POD_NAME.into(), name.clone());
    labels.insert(POD_INDEX.into(), index.to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = view.spec.service_name.clone();
    let templates = view.spec.volume_claim_templates.as_deref().unwrap_or_default();
    if !templates.is_empty() {
        let volumes = spec.volumes.get_or_insert_default();
        for template in templates {
            let volume_name = template.metadata.name.clone().unwrap_or_default();
            volumes.retain(|v| v.name != volume_name);
            let claim_name = claim_name(template, &name);
            let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
            volumes.push(Volume { name: volume_name, persistent_volume_claim: Some(source), ..Volume::default() });
        }
    }
    pod
}

fn new_status(view: &View<'_>, current_name: Option<String>, update_name: &str) -> StatefulSetStatus {
    let old = view.set.status.clone().unwrap_or_default();
    let living: Vec<&Arc<Pod>> = view.pods.values().filter(|p| !pods::is_finished(p)).collect();
    let count = |f: &dyn Fn(&Pod) -> bool| living.iter().filter(|p| f(p)).count() as i32;
    let some = |n: i32| (n > 0).then_some(n);
    let steady = |p: &Pod| p.metadata.deletion_timestamp.is_none();
    let replicas = living.len() as i32;
    let ready = count(&|p| pods::is_ready(p));
    let updated = count(&|p| steady(p) && hash(p) == Some(&view.update.0));
    let wanted = view.spec.replicas.unwrap_or(1);
    let complete = updated == wanted && replicas == wanted && ready == wanted;
    let rolled_out = complete && view.partition() <= view.first();
    let current_name = current_name.filter(|name| !rolled_out && !name.is_empty());
    let is_update = current_name.as_deref().is_none_or(|name| name == update_name);
    let current_hash = if is_update { &view.update.0 } else { &view.current.0 };
    StatefulSetStatus {
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(count(&|p| view.until_available(p).is_none())),
        current_replicas: some(count(&|p| steady(p) && hash(p) == Some(current_hash))),
        updated_replicas: some(updated),
        current_revision: Some(current_name.unwrap_or_else(|| update_name.to_owned())),
        update_revision: Some(update_name.to_owned()),
        observed_generation: view.set.metadata.generation,
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::{Value, from_value, json};

    fn set(replicas: i32, extra: Value) -> StatefulSet {
        let mut spec = json!({"replicas": replicas, "serviceName": "s", "selector": {"matchLabels": {"x": "y"}},
            "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": []}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        from_value(json!({"metadata": {"name": "w", "namespace": "a", "uid": "u"}, "spec": spec})).unwrap()
    }

    fn pod(index: i32, hash: &str, ready: &str) -> Arc<Pod> {
        Arc::new(
            from_value(json!({"metadata": {"name": format!("w-{index}"), "namespace": "a", "uid": format!("{index}"),
            "labels": {"x": "y", REVISION_HASH: hash},
            "ownerReferences": [{"uid": "u", "controller": true, "kind": "StatefulSet", "name": "w", "apiVersion": "apps/v1"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}))
            .unwrap(),
        )
    }

    fn run(set: &StatefulSet, pods: Vec<Arc<Pod>>) -> Vec<(Verb, String)> {
        let of = |a: &Action| match a {
            Action::Write(Write { verb, body, path, .. })
                if !path.contains("/status") && !path.contains("controllerrevisions") =>
            {
                Some((*verb, body["metadata"]["name"].as_str().unwrap_or(path.rsplit('/').next()?).to_owned()))
            }
            _ => None,
        };
        plan(set, pods, &|_| false, &[], Timestamp::UNIX_EPOCH).iter().filter_map(of).collect()
    }

    fn newest(set: &StatefulSet) -> String {
        let spec = set.spec.as_ref().unwrap();
        history::current(set, &spec.template, &spec.selector, None, &[]).hash
    }

    #[test]
    fn one_after_the_other_or_all_at_once() {
        let ordered = set(2, json!({}));
        let hash = newest(&ordered);
        let create = |name: &str| (Verb::Create, name.to_owned());
        assert_eq!(run(&ordered, vec![]), [create("data-w-0"), create("w-0")]);
        assert_eq!(run(&ordered, vec![pod(0, &hash, "False")]), []);
        assert_eq!(run(&ordered, vec![pod(0, &hash, "True")]), [create("data-w-1"), create("w-1")]);
        let parallel = set(2, json!({"podManagementPolicy": "Parallel"}));
        assert_eq!(run(&parallel, vec![]).len(), 4);
    }

    #[test]
    fn the_highest_goes_first() {
        let smaller = set(1, json!({}));
        let hash = newest(&smaller);
        let delete = |name: &str| [(Verb::Delete, name.to_owned())];
        assert_eq!(run(&smaller, (0..3).map(|i| pod(i, &hash, "True")).collect()), delete("w-2"));
        let updated = set(3, json!({}));
        let pods = vec![pod(0, "old", "True"), pod(1, "old", "True"), pod(2, &hash, "True")];
        assert_eq!(run(&updated, pods), delete("w-1"));
        let partitioned = set(3, json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}}));
        let pods = vec![pod(0, "old", "True"), pod(1, "old", "True"), pod(2, &hash, "True")];
        assert_eq!(run(&partitioned, pods), []);
    }
}
