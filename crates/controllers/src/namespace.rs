//! `namespace-controller`: a namespace that is being deleted is emptied, then let go.

use crate::action::{Action, Verb};
use crate::controller::{Builder, Controller};
use crate::discovery::{self, Served};
use crate::env::Env;
use crate::error::Result;
use crate::executor::send;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const FINALIZER: &str = "kubernetes";

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let namespaces = env.informer::<Namespace>();
    let user = "system:serviceaccount:kube-system:namespace-controller";
    let builder = Builder::new(env, "namespace-controller", user).each(&namespaces);
    let client = builder.client.clone();
    vec![builder.ask(move |key| {
        let (client, namespace) = (client.clone(), namespaces.get(&key));
        async move {
            match namespace.filter(|ns| ns.metadata.deletion_timestamp.is_some() && holds(ns)) {
                None => Ok(Vec::new()),
                Some(namespace) => Ok(plan(&namespace, &empty(&client, &key.name).await?, Timestamp::now())),
            }
        }
    })]
}

fn holds(namespace: &Namespace) -> bool {
    namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref()).is_some_and(|f| f.iter().any(|f| f == FINALIZER))
}

/// What one pass over a namespace found and left.
#[derive(Debug, Default)]
pub struct Pass {
    /// Objects left, by resource.
    remaining: BTreeMap<String, usize>,
    /// Finalizers of objects left, with how many have them.
    finalizers: BTreeMap<String, usize>,
    /// Group versions that were not discovered.
    undiscovered: Vec<String>,
    /// Deletions that failed.
    failures: Vec<String>,
}

/// Deletes what is in the namespace: Pods first, the rest when they are gone (KEP-5080).
async fn empty(client: &kube::Client, namespace: &str) -> Result<Pass> {
    let found = discovery::discover(client).await?;
    let mut pass = Pass { undiscovered: found.failed, ..Pass::default() };
    let (pods, others): (Vec<Served>, Vec<Served>) =
        found.kinds.into_iter().filter(|kind| kind.namespaced).partition(|k| k.group.is_empty() && k.plural == "pods");
    for kind in &pods {
        clear(client, namespace, kind, &mut pass).await;
    }
    if pass.remaining.is_empty() && pass.failures.is_empty() {
        for kind in &others {
            clear(client, namespace, kind, &mut pass).await;
        }
    }
    Ok(pass)
}

/// Deletes the objects of one kind and counts what is left. Only what the first list shows costs more than that list.
async fn clear(client: &kube::Client, namespace: &str, kind: &Served, pass: &mut Pass) {
    let mut attempt = async || -> Result<()> {
        let items = list(client, namespace, kind).await?;
        if items.is_empty() {
            return Ok(());
        }
        if kind.deletes_collections {
            delete(client, kind.collection(namespace)).await?;
        } else {
            for name in items.iter().filter_map(|item| item.pointer("/metadata/name").and_then(Value::as_str)) {
                delete(client, format!("{}/{name}", kind.collection(namespace))).await?;
            }
        }
        let left = list(client, namespace, kind).await?;
        let name = if kind.group.is_empty() { kind.plural.clone() } else { format!("{}.{}", kind.plural, kind.group) };
        if !left.is_empty() {
            pass.remaining.insert(name, left.len());
        }
        for item in &left {
            for finalizer in item.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten() {
                *pass.finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
        Ok(())
    };
    if let Err(error) = attempt().await
        && !matches!(error.code(), Some(404 | 405))
    {
        pass.failures.push(error.to_string());
    }
}

async fn list(client: &kube::Client, namespace: &str, kind: &Served) -> Result<Vec<Value>> {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let request = http::Request::get(kind.collection(namespace)).header("accept", accept).body(Vec::new())?;
    let mut answer = send(client, request).await?;
    match answer["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

async fn delete(client: &kube::Client, path: String) -> Result<()> {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let request =
        http::Request::delete(path).header("content-type", "application/json").body(options.to_string().into_bytes())?;
    match send(client, request).await {
        Err(error) if error.code() != Some(404) => Err(error),
        _ => Ok(()),
    }
}

/// Lets an empty namespace go; says of any other what holds it and looks again, less often the longer it takes.
fn plan(namespace: &Namespace, pass: &Pass, now: Timestamp) -> Vec<Action> {
    if pass.remaining.is_empty() && pass.failures.is_empty() && pass.undiscovered.is_empty() {
        let mut free = namespace.clone();
        if let Some(finalizers) = free.spec.as_mut().and_then(|s| s.finalizers.as_mut()) {
            finalizers.retain(|f| f != FINALIZER);
        }
        return vec![Action::update_sub(&free, "finalize")];
    }
    let mut told = namespace.clone();
    let conditions = told.status.get_or_insert_default().conditions.get_or_insert_default();
    for (type_, reason, message, status) in conditions_of(pass) {
        set(conditions, type_, status, reason, message, now);
    }
    let since = namespace.metadata.deletion_timestamp.as_ref().map_or(0, |t| now.duration_since(t.0).as_millis().max(0));
    let wait = Duration::from_millis((since / 4).clamp(200, 30_000) as u64);
    let mut actions = Vec::new();
    if told != *namespace {
        actions.push(Action::write(Verb::Update, status_path(namespace), serde_json::to_value(&told).unwrap_or_default()));
    }
    actions.push(Action::After(wait));
    actions
}

fn status_path(namespace: &Namespace) -> String {
    format!("/api/v1/namespaces/{}/status", namespace.metadata.name.as_deref().unwrap_or_default())
}

fn counted(things: &BTreeMap<String, usize>, what: &str) -> String {
    let parts: Vec<String> = things.iter().map(|(name, count)| format!("{name} has {count} {what}")).collect();
    parts.join(", ")
}

/// Type, reason, message and status of each condition.
fn conditions_of(pass: &Pass) -> [(&'static str, &'static str, String, bool); 5] {
    let pick = |bad: bool, yes: &'static str, no: &'static str| if bad { yes } else { no };
    let undiscovered = !pass.undiscovered.is_empty();
    let failed = !pass.failures.is_empty();
    let remaining = !pass.remaining.is_empty();
    let held = !pass.finalizers.is_empty();
    let say = |bad: bool, yes: String, no: &str| if bad { yes } else { no.to_owned() };
    [
        (
            "NamespaceDeletionDiscoveryFailure",
            pick(undiscovered, "DiscoveryFailed", "ResourcesDiscovered"),
            say(undiscovered, format!("not discovered: {}", pass.undiscovered.join(", ")), "All resources are known"),
            undiscovered,
        ),
        ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All group versions are known".into(), false),
        (
            "NamespaceDeletionContentFailure",
            pick(failed, "ContentDeletionFailed", "ContentDeleted"),
            say(
                failed,
                format!("failed to delete: {}", pass.failures.join(", ")),
                "All content is deleted or waits for its finalizers",
            ),
            failed,
        ),
        (
            "NamespaceContentRemaining",
            pick(remaining, "SomeResourcesRemain", "ContentRemoved"),
            say(
                remaining,
                format!("Some resources are remaining: {}", counted(&pass.remaining, "objects")),
                "All content is gone",
            ),
            remaining,
        ),
        (
            "NamespaceFinalizersRemaining",
            pick(held, "SomeFinalizersRemain", "ContentHasNoFinalizers"),
            say(
                held,
                format!("Some content waits for finalizers: {}", counted(&pass.finalizers, "objects")),
                "No content has finalizers",
            ),
            held,
        ),
    ]
}

fn set(conditions: &mut Vec<NamespaceCondition>, type_: &str, status: bool, reason: &str, message: String, now: Timestamp) {
    let status = if status { "True" } else { "False" };
    let mut fresh = NamespaceCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_transition_time: Some(Time(now)),
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
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
    use serde_json::from_value;

    fn namespace() -> Namespace {
        from_value(json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"finalizers": ["kubernetes", "other"]}, "status": {"phase": "Terminating"}}))
        .unwrap()
    }

    #[test]
    fn an_empty_namespace_is_let_go_and_other_finalizers_stay() {
        let actions = plan(&namespace(), &Pass::default(), Timestamp::UNIX_EPOCH);
        let [Action::Write(Write { path, body, .. })] = &actions[..] else { panic!() };
        assert_eq!((path.as_str(), &body["spec"]["finalizers"]), ("/api/v1/namespaces/a/finalize", &json!(["other"])));
    }

    #[test]
    fn what_remains_is_said_and_looked_at_again() {
        let pass = Pass { remaining: [("pods".to_owned(), 2)].into(), ..Pass::default() };
        let now = "2026-01-01T00:00:08Z".parse().unwrap();
        let actions = plan(&namespace(), &pass, now);
        let [Action::Write(Write { body, .. }), Action::After(wait)] = &actions[..] else { panic!() };
        let types: Vec<_> = body["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["status"] == "True")
            .filter_map(|c| c["type"].as_str())
            .collect();
        assert_eq!((types, *wait), (vec!["NamespaceContentRemaining"], Duration::from_secs(2)));
    }
}
