//! `resourcequota-controller`: what is used of each quota. Admission charges before a write; this counts what is there.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::error::Result;
use crate::executor::send;
use crate::key::Key;
use crate::workload::pods;
use atoll_apiserver::quota::{DeviceView, Usage, applies, covered, plus, usage_of};
use atoll_kube_schema::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often kinds that are not watched for quotas are counted again.
const RECOUNT: Duration = Duration::from_secs(5);

/// How long a quota must be unchanged before a smaller count than the charge is believed.
const SETTLE: Duration = Duration::from_millis(300);

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let quotas = env.informer::<ResourceQuota>();
    let (all_pods, services) = (env.informer::<Pod>(), env.informer::<Service>());
    let (claims, nodes) = (env.informer::<PersistentVolumeClaim>(), env.informer::<Node>());
    let in_namespace = {
        let quotas = quotas.clone();
        move |namespace: Option<&String>| -> Vec<Key> {
            let here = quotas.in_namespace(namespace.map(String::as_str).unwrap_or_default());
            here.iter().map(|quota| Key::of(&quota.metadata)).collect()
        }
    };
    let (for_pods, for_services, for_claims) = (in_namespace.clone(), in_namespace.clone(), in_namespace);
    let user = "system:serviceaccount:kube-system:resourcequota-controller";
    // What appears was charged by admission before it appeared; only a quota whose limits are news, and what goes or shrinks,
    // needs a count.
    let builder = Builder::new(env, "resourcequota-controller", user)
        .on(&quotas, |quota| if is_counted(quota) { Vec::new() } else { vec![Key::of(&quota.metadata)] })
        .reads(&nodes)
        .reads(&all_pods)
        .reads(&services)
        .reads(&claims);
    let (pods_queue, services_queue, claims_queue) = (builder.queue.clone(), builder.queue.clone(), builder.queue.clone());
    all_pods.on_change(move |old, new| {
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.spec != old.spec || pods::phase(new) != pods::phase(old))) {
            for_pods(old.metadata.namespace.as_ref()).into_iter().for_each(|key| pods_queue.add(key));
        }
    });
    services.on_change(move |old, new| {
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.spec != old.spec)) {
            for_services(old.metadata.namespace.as_ref()).into_iter().for_each(|key| services_queue.add(key));
        }
    });
    claims.on_change(move |old, new| {
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.spec != old.spec)) {
            for_claims(old.metadata.namespace.as_ref()).into_iter().for_each(|key| claims_queue.add(key));
        }
    });
    let client = builder.client.clone();
    let settling = Arc::new(Settling::default());
    vec![builder.ask(move |key| {
        let quota = quotas.get(&key);
        let cached = Cached {
            pods: values(&all_pods.in_namespace(&key.namespace)),
            services: values(&services.in_namespace(&key.namespace)),
            claims: values(&claims.in_namespace(&key.namespace)),
        };
        let (client, nodes, settling) = (client.clone(), nodes.clone(), settling.clone());
        async move {
            let Some(quota) = quota.filter(|q| q.metadata.deletion_timestamp.is_none()) else {
                settling.forget(&key);
                return Ok(Vec::new());
            };
            let unchanged_for = settling.unchanged_for(&key, quota.metadata.resource_version.as_deref(), Instant::now());
            let devices = if cached.pods.iter().any(DeviceView::is_needed) {
                DeviceView::of_nodes(&values(&nodes.all()))
            } else {
                DeviceView::default()
            };
            let counts = counts(&client, &key.namespace, &quota).await?;
            Ok(plan(&quota, &cached, &devices, &counts, unchanged_for))
        }
    })]
}

fn values<K: Serialize>(objects: &[Arc<K>]) -> Vec<Value> {
    objects.iter().filter_map(|object| serde_json::to_value(object.as_ref()).ok()).collect()
}

/// The objects of a namespace that are watched.
#[derive(Default)]
struct Cached {
    pods: Vec<Value>,
    services: Vec<Value>,
    claims: Vec<Value>,
}

/// Kinds whose amounts come from the caches.
const CACHED: [&str; 3] = ["pods", "services", "persistentvolumeclaims"];

fn hard(quota: &ResourceQuota) -> BTreeMap<String, Text> {
    quota.spec.as_ref().and_then(|s| s.hard.clone()).unwrap_or_default()
}

/// The kinds that have to be counted by asking: group and resource.
fn asked(quota: &ResourceQuota) -> BTreeSet<(String, String)> {
    let named = |key: &String| {
        let counted = key.strip_prefix("count/");
        let plain = ["configmaps", "secrets", "replicationcontrollers", "resourcequotas"].contains(&key.as_str());
        let name = counted.or(plain.then_some(key.as_str()))?;
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        Some((group.to_owned(), resource.to_owned()))
    };
    let all = hard(quota).keys().filter_map(named).collect::<BTreeSet<_>>();
    all.into_iter().filter(|(group, resource)| !(group.is_empty() && CACHED.contains(&resource.as_str()))).collect()
}

/// How many objects of each asked kind there are: a list of one that says how many remain.
async fn counts(client: &kube::Client, namespace: &str, quota: &ResourceQuota) -> Result<BTreeMap<(String, String), i64>> {
    let mut counts = BTreeMap::new();
    for (group, resource) in asked(quota) {
        let root = if group.is_empty() { Some("/api/v1".to_owned()) } else { preferred(client, &group).await? };
        // A kind that is not served has no objects.
        let Some(root) = root else { continue };
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let path = format!("{root}/namespaces/{namespace}/{resource}?limit=1");
        match send(client, http::Request::get(path).header("accept", accept).body(Vec::new())?).await {
            Ok(list) => {
                let first = list["items"].as_array().map_or(0, |items| items.len() as i64);
                counts.insert((group, resource), first + list["metadata"]["remainingItemCount"].as_i64().unwrap_or(0));
            }
            Err(error) if error.code() == Some(404) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(counts)
}

async fn preferred(client: &kube::Client, group: &str) -> Result<Option<String>> {
    match send(client, http::Request::get(format!("/apis/{group}")).body(Vec::new())?).await {
        Ok(answer) => Ok(answer["preferredVersion"]["groupVersion"].as_str().map(|version| format!("/apis/{version}"))),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(amounts: &BTreeMap<String, Text>) -> Usage {
    amounts.iter().filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0).ok()?))).collect()
}

/// Whether the status speaks of the limits that stand now.
fn is_counted(quota: &ResourceQuota) -> bool {
    asked(quota).is_empty() && quota.status.as_ref().and_then(|s| s.hard.clone()).unwrap_or_default() == hard(quota)
}

/// Since when each quota has had its present version.
#[derive(Default)]
struct Settling(Mutex<HashMap<Key, (Option<String>, Instant)>>);

impl Settling {
    fn unchanged_for(&self, key: &Key, version: Option<&str>, now: Instant) -> Duration {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.entry(key.clone()).or_insert_with(|| (version.map(str::to_owned), now));
        if entry.0.as_deref() != version {
            *entry = (version.map(str::to_owned), now);
        }
        now.duration_since(entry.1)
    }

    fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Counts, and writes the status if it says something else. What admission has charged may belong to an object that is not
/// there yet, so less than the charge is written only when nothing was charged for a while (the version is the precondition).
fn plan(
    quota: &ResourceQuota,
    cached: &Cached,
    devices: &DeviceView,
    counts: &BTreeMap<(String, String), i64>,
    unchanged_for: Duration,
) -> Vec<Action> {
    let hard_text = hard(quota);
    let limits = parse(&hard_text);
    let zero = |limit: &Quantity| Quantity::from_units(0, limit.format());
    let mut used: Usage = limits.iter().map(|(name, limit)| (name.clone(), zero(limit))).collect();
    let as_value = serde_json::to_value(quota).unwrap_or_default();
    let kinds = [("pods", &cached.pods), ("services", &cached.services), ("persistentvolumeclaims", &cached.claims)];
    for (resource, objects) in kinds {
        for object in objects.iter().filter(|object| applies(&as_value, "", resource, object)) {
            used = plus(&used, &covered(&usage_of("", resource, object, devices), &limits));
        }
    }
    for ((group, resource), count) in counts {
        if applies(&as_value, group, resource, &Value::Null) {
            let each = usage_of(group, resource, &Value::Null, devices);
            let all = each.into_keys().map(|name| (name, Quantity::from_units(*count, Format::Decimal))).collect();
            used = plus(&used, &covered(&all, &limits));
        }
    }
    let mut actions = Vec::new();
    let old = quota.status.clone().unwrap_or_default();
    let charged = parse(&old.used.clone().unwrap_or_default());
    let less = used.iter().any(|(name, amount)| charged.get(name).is_some_and(|charged| amount < charged));
    if less && unchanged_for < SETTLE {
        return vec![Action::After(SETTLE - unchanged_for)];
    }
    if old.hard.as_ref() != Some(&hard_text) || charged != used {
        let used = used.into_iter().map(|(name, amount)| (name, Text(amount.to_string()))).collect();
        let status = ResourceQuotaStatus { hard: Some(hard_text), used: Some(used) };
        actions.push(Action::update_sub(&ResourceQuota { status: Some(status), ..quota.clone() }, "status"));
    }
    if !asked(quota).is_empty() {
        actions.push(Action::After(RECOUNT));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{from_value, json};

    fn status(hard: Value, cached: &Cached, counts: &BTreeMap<(String, String), i64>) -> Value {
        let quota: ResourceQuota =
            from_value(json!({"metadata": {"name": "q", "namespace": "a"}, "spec": {"hard": hard}})).unwrap();
        let actions = plan(&quota, cached, &DeviceView::default(), counts, SETTLE);
        let Some(Action::Write(Write { body, .. })) = actions.into_iter().next() else { panic!() };
        body["status"]["used"].clone()
    }

    #[test]
    fn pods_and_counted_objects_are_summed() {
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "600m"}}}]}});
        let cached = Cached { pods: vec![pod.clone(), pod], ..Cached::default() };
        let counts = [(("apps".to_owned(), "deployments".to_owned()), 3)].into();
        let hard = json!({"pods": "5", "requests.cpu": "2", "count/deployments.apps": "4", "limits.memory": "1Gi"});
        assert_eq!(
            status(hard, &cached, &counts),
            json!({"pods": "2", "requests.cpu": "1200m", "count/deployments.apps": "3", "limits.memory": "0"})
        );
    }

    #[test]
    fn a_charge_whose_object_is_not_there_yet_is_not_taken_back() {
        let quota: ResourceQuota =
            from_value(json!({"metadata": {"name": "q", "namespace": "a"}, "spec": {"hard": {"pods": "2"}},
            "status": {"hard": {"pods": "2"}, "used": {"pods": "1"}}}))
            .unwrap();
        let run = |age| plan(&quota, &Cached::default(), &DeviceView::default(), &BTreeMap::new(), age);
        assert_eq!(run(Duration::from_millis(100)), [Action::After(Duration::from_millis(200))]);
        assert!(matches!(run(SETTLE)[..], [Action::Write(_)]));
        let settling = Settling::default();
        let (key, now) = (Key::new("a", "q"), Instant::now());
        assert_eq!(settling.unchanged_for(&key, Some("1"), now), Duration::ZERO);
        assert_eq!(settling.unchanged_for(&key, Some("1"), now + SETTLE), SETTLE);
        assert_eq!(settling.unchanged_for(&key, Some("2"), now + SETTLE), Duration::ZERO);
    }
}
