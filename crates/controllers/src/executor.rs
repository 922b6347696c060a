//! Carries out a plan: writes in order, runs of creations and deletions side by side.

use crate::action::{Action, Note, Verb, Write};
use crate::error::{Error, Result};
use crate::events::Events;
use crate::informer::Written;
use crate::key::Key;
use crate::limits;
use futures::stream::{self, StreamExt};
use serde_json::Value;
use std::time::Duration;

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Writes that the API server acknowledged.
    pub written: Vec<Written>,
    /// When to look at the key again, if a time was named.
    pub after: Option<Duration>,
    /// The first failure; what stood behind it was not tried.
    pub failure: Option<Error>,
}

/// Sends one request under the call timeout.
pub async fn send(client: &kube::Client, request: http::Request<Vec<u8>>) -> Result<Value> {
    match tokio::time::timeout(limits::CALL_TIMEOUT, client.request::<Value>(request)).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::Timeout(limits::CALL_TIMEOUT)),
    }
}

fn batchable(action: &Action) -> bool {
    matches!(action, Action::Write(Write { verb: Verb::Create | Verb::Delete, .. }))
}

/// Carries out the actions until one fails.
pub async fn execute(client: &kube::Client, events: &Events, actions: Vec<Action>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut actions = actions.into_iter().peekable();
    let mut batch_size = 1;
    while let Some(action) = actions.next() {
        match action {
            Action::After(wait) => outcome.after = Some(outcome.after.map_or(wait, |known| known.min(wait))),
            Action::Note(note) => events.record(client, note),
            Action::Write(first) => {
                let mut batch = vec![first];
                if matches!(batch[0].verb, Verb::Create | Verb::Delete) {
                    while batch.len() < batch_size
                        && let Some(Action::Write(next)) = actions.next_if(batchable)
                    {
                        batch.push(next);
                    }
                    batch_size = (batch_size * 2).min(limits::BATCH_MAX);
                }
                let results = stream::iter(batch).map(|write| one(client, events, write)).buffered(limits::BATCH_MAX);
                for result in results.collect::<Vec<_>>().await {
                    match result {
                        Ok(written) => outcome.written.extend(written),
                        Err(error) => outcome.failure = outcome.failure.or(Some(error)),
                    }
                }
                if outcome.failure.is_some() {
                    return outcome;
                }
            }
        }
    }
    outcome
}

async fn one(client: &kube::Client, events: &Events, write: Write) -> Result<Option<Written>> {
    let answer = send(client, write.request()?).await;
    if let Some(owner) = &write.told_about {
        tell(client, events, &write, owner, &answer);
    }
    match answer {
        Ok(object) => Ok(written(&write, &object)),
        Err(error) if write.verb == Verb::Delete && error.code() == Some(404) => Ok(None),
        Err(error) if write.verb == Verb::Create && error.is_namespace_terminating() => Ok(None),
        Err(error) => Err(error),
    }
}

fn written(write: &Write, object: &Value) -> Option<Written> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = text("/kind");
    let deleted = write.verb == Verb::Delete;
    if kind == "Status" || kind.is_empty() {
        let name = write.path.rsplit('/').next().unwrap_or_default();
        let namespace = write.path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next());
        let uid = object.pointer("/details/uid").and_then(Value::as_str)?;
        let kind = singular(object.pointer("/details/kind").and_then(Value::as_str)?);
        return Some(Written { kind, key: Key::new(namespace.unwrap_or_default(), name), uid: uid.into(), version: None });
    }
    let version = if deleted { None } else { text("/metadata/resourceVersion").parse().ok() };
    Some(Written {
        kind,
        key: Key::new(text("/metadata/namespace"), text("/metadata/name")),
        uid: text("/metadata/uid"),
        version,
    })
}

/// A Status names the resource (`pods`) where a cache is known by kind; only kinds that controllers delete matter.
fn singular(resource: &str) -> String {
    match resource {
        "pods" => "Pod",
        "replicasets" => "ReplicaSet",
        "jobs" => "Job",
        "controllerrevisions" => "ControllerRevision",
        "endpointslices" => "EndpointSlice",
        other => other,
    }
    .to_owned()
}

fn tell(
    client: &kube::Client,
    events: &Events,
    write: &Write,
    owner: &k8s_openapi::api::core::v1::ObjectReference,
    answer: &Result<Value>,
) {
    let name = |v: &Value| v.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = if write.path.contains("/jobs") { "job" } else { "pod" };
    let (reason, warning, message) = match (write.verb, answer) {
        (Verb::Create, Ok(object)) => ("SuccessfulCreate", false, format!("Created {kind}: {}", name(object))),
        (Verb::Create, Err(error)) if error.is_namespace_terminating() => return,
        (Verb::Create, Err(error)) => ("FailedCreate", true, format!("Error creating: {}", said(error))),
        (_, Ok(_)) => {
            let gone = write.path.rsplit('/').next().unwrap_or_default();
            ("SuccessfulDelete", false, format!("Deleted {kind}: {gone}"))
        }
        (_, Err(error)) if error.code() == Some(404) => return,
        (_, Err(error)) => ("FailedDelete", true, format!("Error deleting: {}", said(error))),
    };
    events.record(client, Note { regarding: Box::new(owner.clone()), warning, reason, message });
}

/// What the API server said, without this side's words around it.
pub fn said(error: &Error) -> String {
    match error {
        Error::Api(kube::Error::Api(status)) => status.message.clone(),
        other => other.to_string(),
    }
}
