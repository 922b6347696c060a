//! `disruption-controller`: how many Pods of each budget may be evicted now.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::{Key, controller_of};
use crate::selector;
use crate::workload::pods;
use crate::workload::scaled;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long an eviction that was granted counts although the Pod is still there.
const GRANT_SECONDS: i64 = 120;

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (budgets, all_pods) = (env.informer::<PodDisruptionBudget>(), env.informer::<Pod>());
    let (deployments, sets) = (env.informer::<Deployment>(), env.informer::<ReplicaSet>());
    let (stateful, replication) = (env.informer::<StatefulSet>(), env.informer::<ReplicationController>());
    let for_pods = budgets.clone();
    let user = "system:serviceaccount:kube-system:disruption-controller";
    let builder = Builder::new(env, "disruption-controller", user)
        .each(&budgets)
        .reads(&deployments)
        .reads(&sets)
        .reads(&stateful)
        .reads(&replication)
        .on(&all_pods, move |pod| {
            let here = for_pods.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
            here.iter().filter(|budget| selects(budget, pod)).map(|budget| Key::of(&budget.metadata)).collect()
        });
    vec![builder.plan(move |key, now| {
        let Some(budget) = budgets.get(key) else { return Vec::new() };
        let namespace = key.namespace.as_str();
        // Uid and size of what stands behind a Pod: the deployment rather than its replica set.
        let size = |pod: &Pod| -> Option<(String, i32)> {
            let owner = controller_of(&pod.metadata)?;
            match owner.kind.as_str() {
                "ReplicaSet" => {
                    let set = sets.find(namespace, &owner.name)?;
                    let above = controller_of(&set.metadata).filter(|o| o.kind == "Deployment");
                    match above.and_then(|o| deployments.find(namespace, &o.name)) {
                        Some(d) => Some((d.metadata.uid.clone()?, d.spec.as_ref()?.replicas.unwrap_or(1))),
                        None => Some((owner.uid.clone(), set.spec.as_ref()?.replicas.unwrap_or(1))),
                    }
                }
                "StatefulSet" => {
                    Some((owner.uid.clone(), stateful.find(namespace, &owner.name)?.spec.as_ref()?.replicas.unwrap_or(1)))
                }
                "ReplicationController" => {
                    Some((owner.uid.clone(), replication.find(namespace, &owner.name)?.spec.as_ref()?.replicas.unwrap_or(1)))
                }
                _ => None,
            }
        };
        plan(&budget, all_pods.in_namespace(namespace), &size, now)
    })]
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
    selector.is_some_and(|s| selector::matches(s, pod.metadata.labels.as_ref()))
}

/// Healthy Pods that must stay, and Pods that should exist; or why that cannot be known.
fn demand(
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
    size: &dyn Fn(&Pod) -> Option<(String, i32)>,
) -> Result<(i32, i32), String> {
    let Some(spec) = &budget.spec else { return Ok((0, 0)) };
    let expected = || -> Result<i32, String> {
        let mut sizes = BTreeMap::new();
        for pod in covered {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let (uid, replicas) = size(pod).ok_or_else(|| format!("found no controller with a scale for pod {name:?}"))?;
            sizes.insert(uid, replicas);
        }
        Ok(sizes.values().sum())
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = expected()?;
            Ok(((expected - scaled(most, expected, true)).max(0), expected))
        }
        (None, Some(IntOrString::Int(least))) => Ok((*least, covered.len() as i32)),
        (None, Some(least)) => {
            let expected = expected()?;
            Ok((scaled(least, expected, true), expected))
        }
        (None, None) => Ok((0, covered.len() as i32)),
    }
}

/// Counts the budget's Pods and writes what may go.
fn plan(
    budget: &PodDisruptionBudget,
    namespace_pods: Vec<Arc<Pod>>,
    size: &dyn Fn(&Pod) -> Option<(String, i32)>,
    now: Timestamp,
) -> Vec<Action> {
    let old = budget.status.clone().unwrap_or_default();
    let covered: Vec<Arc<Pod>> = namespace_pods.into_iter().filter(|p| selects(budget, p) && !pods::is_finished(p)).collect();
    let mut status = PodDisruptionBudgetStatus { observed_generation: budget.metadata.generation, ..old.clone() };
    let mut due = None::<Duration>;
    // A granted eviction counts until the Pod is on its way out, or the grant is too old to come true.
    let granted: BTreeMap<String, Time> = old
        .disrupted_pods
        .clone()
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, at)| {
            let pod = covered.iter().find(|p| p.metadata.name.as_ref() == Some(name));
            let left = pods::until(at.0, GRANT_SECONDS, now);
            let counts = pod.is_some_and(|p| p.metadata.deletion_timestamp.is_none()) && left.is_some();
            if let (true, Some(left)) = (counts, left) {
                due = Some(due.map_or(left, |d| d.min(left)));
            }
            counts
        })
        .collect();
    match demand(budget, &covered, size) {
        Err(why) => {
            status.disruptions_allowed = Some(0);
            set_condition(&mut status, "False", "SyncFailed", &why, budget.metadata.generation, now);
        }
        Ok((desired, expected)) => {
            let healthy = |p: &&Arc<Pod>| {
                p.metadata.deletion_timestamp.is_none()
                    && pods::is_ready(p)
                    && !granted.contains_key(p.metadata.name.as_deref().unwrap_or_default())
            };
            let healthy = covered.iter().filter(healthy).count() as i32;
            status.current_healthy = Some(healthy);
            status.desired_healthy = Some(desired);
            status.expected_pods = Some(expected);
            let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
            status.disruptions_allowed = Some(allowed);
            let (word, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            set_condition(&mut status, word, reason, "", budget.metadata.generation, now);
        }
    }
    status.disrupted_pods = (!granted.is_empty()).then_some(granted);
    let mut actions = Vec::new();
    if status != old {
        actions.push(Action::update_sub(&PodDisruptionBudget { status: Some(status), ..budget.clone() }, "status"));
    }
    actions.extend(due.map(Action::After));
    actions
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    word: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let mut fresh = Condition {
        type_: "DisruptionAllowed".into(),
        status: word.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    match conditions.iter_mut().find(|c| c.type_ == fresh.type_) {
        None => conditions.push(fresh),
        Some(known) => {
            if known.status == fresh.status {
                fresh.last_transition_time = known.last_transition_time.clone();
            }
            *known = fresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{Value, from_value, json};

    fn pod(name: &str, ready: &str) -> Arc<Pod> {
        Arc::new(from_value(json!({"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})).unwrap())
    }

    fn allowed(spec: Value, status: Value, pods: Vec<Arc<Pod>>) -> (i64, String) {
        let mut full = json!({"selector": {"matchLabels": {"a": "b"}}});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let budget = from_value(json!({"metadata": {"name": "x", "namespace": "n"}, "spec": full, "status": status})).unwrap();
        let actions = plan(&budget, pods, &|_| Some(("d".into(), 4)), Timestamp::from_second(1000).unwrap());
        let Some(Action::Write(Write { body, .. })) = actions.first() else { panic!() };
        let status = &body["status"];
        (status["disruptionsAllowed"].as_i64().unwrap(), status["conditions"][0]["reason"].as_str().unwrap().to_owned())
    }

    #[test]
    fn numbers_and_percentages() {
        let four = || vec![pod("a", "True"), pod("b", "True"), pod("c", "True"), pod("d", "False")];
        assert_eq!(allowed(json!({"minAvailable": 2}), Value::Null, four()), (1, "SufficientPods".into()));
        assert_eq!(allowed(json!({"maxUnavailable": "25%"}), Value::Null, four()), (0, "InsufficientPods".into()));
        assert_eq!(allowed(json!({"maxUnavailable": 2}), Value::Null, four()), (1, "SufficientPods".into()));
        let granted = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            "disruptedPods": {"a": "1970-01-01T00:16:00Z"}});
        assert_eq!(allowed(json!({"minAvailable": 2}), granted, four()).0, 0);
    }
}
