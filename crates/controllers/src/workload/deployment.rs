//! `deployment-controller`: replica sets per template, rolled over within the allowed surge and unavailability.

use super::rollout::{self, Limits};
use super::{pods, template};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::{Key, controller_of, owner_key};
use crate::selector;
use crate::workload::deployment_status::{Progress, new_status};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation with a revision number, on deployment and replica set.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation of a replica set: replicas its deployment wanted when it was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation of a replica set: replicas its deployment allowed at most then.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a deployment that its replica sets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (deployments, sets, all_pods) = (env.informer::<Deployment>(), env.informer::<ReplicaSet>(), env.informer::<Pod>());
    let (for_sets, for_pods) = (deployments.clone(), sets.clone());
    let user = "system:serviceaccount:kube-system:deployment-controller";
    let builder = Builder::new(env, "deployment-controller", user)
        .each(&deployments)
        .on(&sets, move |set| {
            if controller_of(&set.metadata).is_some() {
                return owner_key(&set.metadata, "Deployment").into_iter().collect();
            }
            let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
            let adopting = for_sets.in_namespace(namespace).into_iter().filter(|d| selects(d, set));
            adopting.map(|d| Key::of(&d.metadata)).collect()
        })
        // Only Recreate looks at Pods: it waits for old ones to be gone.
        .on(&all_pods, move |pod| {
            let set = owner_key(&pod.metadata, "ReplicaSet").and_then(|key| for_pods.get(&key));
            set.and_then(|set| owner_key(&set.metadata, "Deployment")).into_iter().collect()
        });
    vec![builder.plan(move |key, now| {
        let Some(deployment) = deployments.get(key) else { return Vec::new() };
        let running = |set: &ReplicaSet| all_pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
        plan(&deployment, sets.in_namespace(&key.namespace), &running, now)
    })]
}

fn selects(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let selector = deployment.spec.as_ref().map(|s| &s.selector);
    selector.is_some_and(|s| !selector::is_empty(s) && selector::matches(s, set.metadata.labels.as_ref()))
}

/// A deployment with its replica sets, sorted out.
pub(super) struct Rollout<'a> {
    pub deployment: &'a Deployment,
    /// The set of the current template.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
    pub limits: Limits,
}

impl Rollout<'_> {
    /// All sets, the new one last.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }
}

/// One step of a rollout, and the status.
pub fn plan(
    deployment: &Deployment,
    namespace_sets: Vec<Arc<ReplicaSet>>,
    pods_of: &dyn Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &deployment.spec else { return Vec::new() };
    let names: Vec<String> = namespace_sets.iter().filter_map(|s| s.metadata.name.clone()).collect();
    let (owned, mut actions) = claim(deployment, namespace_sets);
    let (mut current, mut old): (Vec<_>, Vec<_>) = owned.into_iter().partition(|set| is_current(deployment, set));
    current.sort_by_key(|set| age(set));
    let new = if current.is_empty() { None } else { Some(current.remove(0)) };
    old.extend(current);
    old.sort_by_key(|set| age(set));
    let rollout = Rollout { deployment, new, old, limits: Limits::of(spec) };
    let mut progress = Progress::default();
    if deployment.metadata.deletion_timestamp.is_none() {
        let step = next_step(&rollout, &names, pods_of, &mut progress);
        actions.extend(step);
    }
    let (changed, due) = new_status(&rollout, &progress, now);
    actions.extend(changed.map(|d| Action::update_sub(&d, "status")));
    actions.extend(due.map(Action::After));
    actions
}

fn next_step(
    rollout: &Rollout<'_>,
    names: &[String],
    pods_of: &dyn Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
    progress: &mut Progress,
) -> Vec<Action> {
    let (deployment, spec) = (rollout.deployment, rollout.deployment.spec.as_ref());
    let paused = spec.and_then(|s| s.paused).unwrap_or(false);
    if paused || rollout::was_scaled(rollout) {
        return rollout::scale_all(rollout);
    }
    let recreate = spec.and_then(|s| s.strategy.as_ref()).and_then(|s| s.type_.as_deref()) == Some("Recreate");
    if recreate {
        let down = rollout::scale_down_to_zero(rollout);
        if !down.is_empty() {
            return down;
        }
        // Also Pods on their way out have to be gone; finished ones do not count.
        if rollout.old.iter().any(|set| pods_of(set).iter().any(|pod| !pods::is_finished(pod))) {
            return Vec::new();
        }
    }
    let Some(new) = &rollout.new else { return create_set(rollout, names, recreate, progress) };
    if let Some(refreshed) = refreshed(rollout, new) {
        return vec![Action::update(&refreshed)];
    }
    let step = if recreate { rollout::scale_new(rollout, rollout.limits.wanted) } else { rollout::roll(rollout) };
    if step.is_empty() && super::deployment_status::is_complete(rollout) {
        return rollout::clean_up(rollout, deployment);
    }
    step
}

fn age(set: &ReplicaSet) -> (Option<Timestamp>, Option<String>) {
    (set.metadata.creation_timestamp.as_ref().map(|t| t.0), set.metadata.name.clone())
}

fn is_current(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = deployment.spec.as_ref().map(|s| &s.template);
    let has = set.spec.as_ref().and_then(|s| s.template.as_ref());
    matches!((wanted, has), (Some(a), Some(b)) if template::equal(a, b))
}

/// The sets it controls and those without a controller that its selector matches.
fn claim(deployment: &Deployment, sets: Vec<Arc<ReplicaSet>>) -> (Vec<Arc<ReplicaSet>>, Vec<Action>) {
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    let living = deployment.metadata.deletion_timestamp.is_none();
    let (mut owned, mut actions) = (Vec::new(), Vec::new());
    for set in sets {
        match controller_of(&set.metadata) {
            Some(owner) if owner.uid == uid => {
                if selects(deployment, &set) {
                    owned.push(set);
                } else if living {
                    let rest: Vec<_> = set.metadata.owner_references.iter().flatten().filter(|o| o.uid != uid).collect();
                    let patch = json!({"metadata": {"ownerReferences": rest}});
                    actions.push(Action::patch(set.as_ref(), crate::action::Verb::MergePatch, patch));
                }
            }
            None if living && selects(deployment, &set) && set.metadata.deletion_timestamp.is_none() => {
                let mut owners = set.metadata.owner_references.clone().unwrap_or_default();
                owners.push(template::controller_ref(deployment));
                let patch = json!({"metadata": {"ownerReferences": owners, "resourceVersion": set.metadata.resource_version}});
                actions.push(Action::patch(set.as_ref(), crate::action::Verb::MergePatch, patch));
            }
            _ => {}
        }
    }
    (owned, actions)
}

fn revision(meta: &ObjectMeta) -> i64 {
    meta.annotations.as_ref().and_then(|a| a.get(REVISION)).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// The revision that the new set has or gets: one more than any old one.
pub(super) fn new_revision(rollout: &Rollout<'_>) -> String {
    let newest_old = rollout.old.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0);
    let own = rollout.new.as_ref().map_or(0, |set| revision(&set.metadata));
    own.max(newest_old + 1).to_string()
}

/// The annotations of a set: the deployment's own, the revision and what scaling needs.
fn set_annotations(rollout: &Rollout<'_>, old: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut annotations = old.cloned().unwrap_or_default();
    let given = rollout.deployment.metadata.annotations.iter().flatten();
    annotations.extend(given.filter(|(k, _)| !NOT_COPIED.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())));
    let revision = new_revision(rollout);
    if let Some(before) = annotations.insert(REVISION.into(), revision.clone()).filter(|before| *before != revision) {
        // A set that becomes current again keeps the numbers it had.
        let history = annotations.entry(REVISION_HISTORY.into()).or_default();
        *history = if history.is_empty() { before } else { format!("{history},{before}") };
    }
    annotations
}

/// The new set with annotations and `minReadySeconds` as they should be, if they are not.
fn refreshed(rollout: &Rollout<'_>, new: &ReplicaSet) -> Option<ReplicaSet> {
    let mut set = new.clone();
    set.metadata.annotations = Some(set_annotations(rollout, new.metadata.annotations.as_ref()));
    if let (Some(set), Some(spec)) = (&mut set.spec, &rollout.deployment.spec) {
        set.min_ready_seconds = spec.min_ready_seconds;
    }
    (set != *new).then_some(set)
}

fn create_set(rollout: &Rollout<'_>, names: &[String], recreate: bool, progress: &mut Progress) -> Vec<Action> {
    let deployment = rollout.deployment;
    let Some(spec) = &deployment.spec else { return Vec::new() };
    let collisions = deployment.status.as_ref().and_then(|s| s.collision_count);
    let hash = template::short_hash(&template::bare(&spec.template), collisions);
    let name = format!("{}-{hash}", deployment.metadata.name.as_deref().unwrap_or_default());
    if names.contains(&name) {
        progress.collision = true;
        return Vec::new();
    }
    let mut pod_template = spec.template.clone();
    let pod_meta = pod_template.metadata.get_or_insert_default();
    pod_meta.labels.get_or_insert_default().insert(template::POD_TEMPLATE_HASH.into(), hash.clone());
    let labels = pod_meta.labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(template::POD_TEMPLATE_HASH.into(), hash);
    let replicas = if recreate { rollout.limits.wanted } else { rollout::first_size(rollout) };
    let mut annotations = set_annotations(rollout, None);
    annotations.insert(DESIRED.into(), rollout.limits.wanted.to_string());
    annotations.insert(MAX.into(), rollout.limits.max().to_string());
    let set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: deployment.metadata.namespace.clone(),
            labels,
            annotations: Some(annotations),
            owner_references: Some(vec![template::controller_ref(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(pod_template),
        }),
        status: None,
    };
    progress.created = Some(name.clone());
    let message = format!("Scaled up replica set {name} from 0 to {replicas}");
    vec![Action::create(&set), Action::note(deployment, "ScalingReplicaSet", message)]
}
