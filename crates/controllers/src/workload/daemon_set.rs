//! `daemonset-controller`: one Pod on each node that fits.

use super::history::{self, REVISION_HASH};
use super::rollout::scaled;
use super::{pods, template};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::{Key, owner_key};
use crate::limits;
use crate::selector;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Taints that a daemon's Pod lives with: it is what makes a node work again.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (sets, all_pods, nodes) = (env.informer::<DaemonSet>(), env.informer::<Pod>(), env.informer::<Node>());
    let revisions = env.informer::<ControllerRevision>();
    let (for_nodes, for_pods) = (sets.clone(), sets.clone());
    let user = "system:serviceaccount:kube-system:daemon-set-controller";
    let builder = Builder::new(env, "daemonset-controller", user).each(&sets).reads(&revisions).reads(&nodes);
    let queue = builder.queue.clone();
    nodes.on_change(move |old, new| {
        // Heartbeats change nothing here.
        if let (Some(old), Some(new)) = (old, new)
            && (&old.spec, &old.metadata.labels) == (&new.spec, &new.metadata.labels)
        {
            return;
        }
        for_nodes.all().iter().for_each(|set| queue.add(Key::of(&set.metadata)));
    });
    let builder = builder.on(&all_pods, move |pod| {
        if let Some(key) = owner_key(&pod.metadata, "DaemonSet") {
            return vec![key];
        }
        let orphan = crate::key::controller_of(&pod.metadata).is_none();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let adopting = for_pods.in_namespace(namespace).into_iter().filter(|set| orphan && selects(set, pod));
        adopting.map(|set| Key::of(&set.metadata)).collect()
    });
    vec![builder.plan(move |key, now| {
        let Some(set) = sets.get(key) else { return Vec::new() };
        let owned = revisions.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
        plan(&set, &nodes.all(), all_pods.in_namespace(&key.namespace), &owned, now)
    })]
}

fn selects(set: &DaemonSet, pod: &Pod) -> bool {
    let selector = set.spec.as_ref().map(|s| &s.selector);
    selector.is_some_and(|s| !selector::is_empty(s) && selector::matches(s, pod.metadata.labels.as_ref()))
}

/// One node as a daemon set sees it.
struct Site {
    should_run: bool,
    pods: Vec<Arc<Pod>>,
}

/// Brings Pods, history and status to what the nodes and the template ask for.
pub fn plan(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    namespace_pods: Vec<Arc<Pod>>,
    revisions: &[Arc<ControllerRevision>],
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &set.spec else { return Vec::new() };
    if selector::is_empty(&spec.selector) {
        return Vec::new();
    }
    let (claimed, mut actions) = pods::claim(set, namespace_pods, |pod| selects(set, pod));
    if set.metadata.deletion_timestamp.is_some() {
        return actions;
    }
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    let history = history::current(set, &spec.template, &spec.selector, collisions, revisions);
    let in_use: BTreeSet<String> =
        claimed.iter().filter_map(|p| p.metadata.labels.as_ref()?.get(REVISION_HASH).cloned()).collect();
    actions.extend(history.actions);
    actions.extend(history::clean_up(revisions, spec.revision_history_limit.unwrap_or(10), &in_use, &history.name));
    let mut sites: BTreeMap<String, Site> = BTreeMap::new();
    let mut doomed: Vec<Arc<Pod>> = Vec::new();
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in claimed {
        by_node.entry(node_of(&pod)).or_default().push(pod);
    }
    let mut to_create: Vec<String> = Vec::new();
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        let here = by_node.remove(&name).unwrap_or_default();
        let site = visit(spec, node, here, &mut doomed);
        if site.should_run && site.pods.is_empty() {
            to_create.push(name.clone());
        }
        sites.insert(name, site);
    }
    // Pods of nodes that are gone.
    doomed.extend(by_node.into_values().flatten().filter(|p| p.metadata.deletion_timestamp.is_none()));
    let owner = set.object_ref(&());
    for node in to_create.iter().take(limits::BURST_MAX) {
        actions.push(Action::create(&pod_for(set, spec, &history.hash, node)).told_about(owner.clone()));
    }
    if to_create.is_empty() {
        doomed.extend(outdated(spec, &sites, &history.hash, now));
    }
    actions.extend(doomed.iter().map(|pod| Action::delete(pod.as_ref()).told_about(owner.clone())));
    let (status, due) = new_status(set, spec, &sites, &history.hash, now);
    if set.status.as_ref() != Some(&status) {
        actions.push(Action::update_sub(&DaemonSet { status: Some(status), ..set.clone() }, "status"));
    }
    actions.extend(due.map(Action::After));
    actions
}

/// Decides about the Pods of one node: finished and surplus ones go, and all where the daemon must not run on.
fn visit(spec: &DaemonSetSpec, node: &Node, here: Vec<Arc<Pod>>, doomed: &mut Vec<Arc<Pod>>) -> Site {
    let (should_run, may_stay) = verdict(spec, node);
    let (finished, mut living): (Vec<_>, Vec<_>) = here.into_iter().partition(|pod| pods::is_finished(pod));
    doomed.extend(finished.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()));
    living.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
        (pod.metadata.deletion_timestamp.is_some(), created, pod.metadata.name.clone())
    });
    let keep = usize::from(may_stay);
    doomed.extend(living.iter().skip(keep).filter(|pod| pod.metadata.deletion_timestamp.is_none()).cloned());
    Site { should_run, pods: living }
}

/// Whether a daemon should be started on the node, and whether one that runs there may stay.
fn verdict(spec: &DaemonSetSpec, node: &Node) -> (bool, bool) {
    let Some(pod) = &spec.template.spec else { return (false, false) };
    let name = node.metadata.name.as_deref();
    let named = pod.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || Some(wanted) == name);
    let labels = node.metadata.labels.as_ref();
    let selected = pod.node_selector.iter().flatten().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v));
    let required = pod
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let affine = required.is_none_or(|r| r.node_selector_terms.iter().any(|t| selector::node_term_matches(t, node)));
    if !(named && selected && affine) {
        return (false, false);
    }
    let tolerations = tolerations(pod);
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let bars = |taint: &&Taint| !tolerations.iter().any(|t| selector::tolerates(t, taint));
    let keeps_out = taints.iter().filter(bars).any(|t| t.effect != "PreferNoSchedule");
    let drives_out = taints.iter().filter(bars).any(|t| t.effect == "NoExecute");
    (!keeps_out, !drives_out)
}

fn tolerations(pod: &PodSpec) -> Vec<Toleration> {
    let mut all = pod.tolerations.clone().unwrap_or_default();
    let host_network = pod.host_network.unwrap_or(false).then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(host_network) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// The node a Pod is on or, while it waits for the scheduler, was made for.
fn node_of(pod: &Pod) -> String {
    let Some(spec) = &pod.spec else { return String::new() };
    if let Some(name) = spec.node_name.as_ref().filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|r| r.node_selector_terms.as_slice()).unwrap_or_default();
    let fields = terms.iter().flat_map(|t| t.match_fields.iter().flatten());
    fields.filter(|f| f.key == "metadata.name").find_map(|f| f.values.as_ref()?.first().cloned()).unwrap_or_default()
}

fn pod_for(set: &DaemonSet, spec: &DaemonSetSpec, hash: &str, node: &str) -> Pod {
    let mut pod = template::pod(set, &spec.template);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_HASH.into(), hash.to_owned());
    if let Some(generation) = set.metadata.generation {
        labels.insert("pod-template-generation".into(), generation.to_string());
    }
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.tolerations = Some(tolerations(pod_spec));
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = pod_spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let required = affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = serde_json::from_value(json!([field])).ok();
    }
    pod
}

/// Pods of earlier templates to be replaced now. A surge is spent as unavailability: one Pod leaves, its successor comes.
fn outdated(spec: &DaemonSetSpec, sites: &BTreeMap<String, Site>, hash: &str, now: Timestamp) -> Vec<Arc<Pod>> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
        return Vec::new();
    }
    let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
    let desired = sites.values().filter(|site| site.should_run).count() as i32;
    let number = |value: Option<&_>, default| value.map_or(default, |v| scaled(v, desired, true));
    let unavailable = number(rolling.and_then(|r| r.max_unavailable.as_ref()), 1);
    let allowed = unavailable.max(number(rolling.and_then(|r| r.max_surge.as_ref()), 0)).max(1);
    let available =
        |pod: &Pod| pods::is_active(pod) && pods::until_available(pod, spec.min_ready_seconds.unwrap_or(0), now).is_none();
    let missing = sites.values().filter(|s| s.should_run && !s.pods.iter().any(|p| available(p))).count() as i32;
    let mut budget = (allowed - missing).max(0);
    let mut out = Vec::new();
    for site in sites.values().filter(|site| site.should_run) {
        let Some(pod) = site.pods.first().filter(|p| p.metadata.deletion_timestamp.is_none() && !is_updated(p, hash)) else {
            continue;
        };
        if !available(pod) {
            out.push(pod.clone());
        } else if budget > 0 {
            budget -= 1;
            out.push(pod.clone());
        }
    }
    out
}

fn is_updated(pod: &Pod, hash: &str) -> bool {
    pod.metadata.labels.as_ref().and_then(|l| l.get(REVISION_HASH)).is_some_and(|h| h == hash)
}

fn new_status(
    set: &DaemonSet,
    spec: &DaemonSetSpec,
    sites: &BTreeMap<String, Site>,
    hash: &str,
    now: Timestamp,
) -> (DaemonSetStatus, Option<Duration>) {
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let old = set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: old.collision_count,
        conditions: old.conditions,
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated, mut due) = (0, 0, None::<Duration>);
    for site in sites.values() {
        let first = site.pods.first();
        if !site.should_run {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        updated += i32::from(is_updated(pod, hash));
        if pods::is_ready(pod) {
            status.number_ready += 1;
            match pods::until_available(pod, min_ready, now) {
                None => available += 1,
                Some(wait) => due = Some(due.map_or(wait, |d| d.min(wait))),
            }
        }
    }
    let some = |n: i32| (n > 0).then_some(n);
    status.updated_number_scheduled = some(updated);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    (status, due.filter(|d| *d != Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::{Value, from_value};

    fn set() -> DaemonSet {
        from_value(
            json!({"metadata": {"name": "d", "namespace": "a", "uid": "u"}, "spec": {"selector": {"matchLabels": {"x": "y"}},
            "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [], "nodeSelector": {"gpu": "on"}}}}}),
        )
        .unwrap()
    }

    fn node(name: &str, taints: Value) -> Arc<Node> {
        Arc::new(from_value(json!({"metadata": {"name": name, "labels": {"gpu": "on"}}, "spec": {"taints": taints}})).unwrap())
    }

    fn pod(name: &str, node: &str, hash: &str) -> Arc<Pod> {
        Arc::new(
            from_value(
                json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"x": "y", REVISION_HASH: hash},
            "ownerReferences": [{"uid": "u", "controller": true, "kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1"}]},
            "spec": {"nodeName": node, "containers": []}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            )
            .unwrap(),
        )
    }

    fn pod_writes(actions: &[Action]) -> Vec<(Verb, String)> {
        let of = |a: &Action| match a {
            Action::Write(Write { verb, path, body, .. }) if path.contains("/pods") => {
                let node = body.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0");
                Some((*verb, node.and_then(Value::as_str).unwrap_or(path.rsplit('/').next()?).to_owned()))
            }
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    }

    #[test]
    fn one_pod_per_fitting_node() {
        let nodes = [
            node("n1", json!([])),
            node("n2", json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])),
            node("n3", json!([{"key": "mine", "effect": "NoSchedule"}])),
        ];
        let actions = plan(&set(), &nodes, vec![], &[], Timestamp::UNIX_EPOCH);
        assert_eq!(pod_writes(&actions), [(Verb::Create, "n1".into()), (Verb::Create, "n2".into())]);
    }

    #[test]
    fn leaves_nodes_that_no_longer_fit_and_updates_one_at_a_time() {
        let hash = history::current(&set(), &set().spec.unwrap().template, &LabelSelector::default(), None, &[]).hash;
        let mut bare = node("n2", json!([])).as_ref().clone();
        bare.metadata.labels = None;
        let nodes = [node("n1", json!([])), Arc::new(bare), node("n3", json!([]))];
        let pods = vec![pod("p1", "n1", "old"), pod("p2", "n2", &hash), pod("p3", "n3", "old")];
        let actions = plan(&set(), &nodes, pods, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(pod_writes(&actions), [(Verb::Delete, "p2".into()), (Verb::Delete, "p1".into())]);
    }

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
}
