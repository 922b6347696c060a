//! Events that the node writes about its Pods and itself. Advice, not state: what cannot be sent is dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::limits;

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Normal,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    severity: Severity,
    namespace: String,
    kind: &'static str,
    name: String,
    uid: String,
    field: Option<String>,
    reason: String,
    message: String,
}

/// Hands events to the task that sends them.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Note>,
}

impl Events {
    /// Starts the sender. It ends with the last handle.
    pub fn start(client: Client, node: String) -> Events {
        let (queue, notes) = mpsc::channel(limits::EVENT_QUEUE);
        tokio::spawn(Sender { client, node, sent: BTreeMap::new() }.run(notes));
        Events { queue }
    }

    /// An event about a Pod, or about one of its containers.
    pub fn pod(&self, pod: &Pod, container: Option<&str>, severity: Severity, reason: &str, message: impl Into<String>) {
        let init = |name: &str| pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten()).any(|c| c.name == name);
        let list = |name: &str| if init(name) { "initContainers" } else { "containers" };
        self.send(Note {
            severity,
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            kind: "Pod",
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            field: container.map(|name| format!("spec.{}{{{name}}}", list(name))),
            reason: reason.to_owned(),
            message: message.into(),
        });
    }

    /// An event about the Node. The kubelet uses the name as the UID, and `kubectl describe node` looks for that.
    pub fn node(&self, node: &str, severity: Severity, reason: &str, message: impl Into<String>) {
        self.send(Note {
            severity,
            namespace: "default".to_owned(),
            kind: "Node",
            name: node.to_owned(),
            uid: node.to_owned(),
            field: None,
            reason: reason.to_owned(),
            message: message.into(),
        });
    }

    fn send(&self, note: Note) {
        tracing::info!(kind = note.kind, name = %note.name, reason = %note.reason, "{}", note.message);
        if self.queue.try_send(note).is_err() {
            tracing::warn!("event queue is full, an event is dropped");
        }
    }
}

struct Sent {
    name: String,
    count: i32,
}

struct Sender {
    client: Client,
    node: String,
    sent: BTreeMap<Note, Sent>,
}

impl Sender {
    async fn run(mut self, mut notes: mpsc::Receiver<Note>) {
        while let Some(note) = notes.recv().await {
            if let Err(e) = self.send(note).await {
                tracing::debug!("event not sent: {e}");
            }
        }
    }

    /// The same event again only raises the count of the first.
    async fn send(&mut self, note: Note) -> kube::Result<()> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &note.namespace);
        let now = Timestamp::now();
        if let Some(sent) = self.sent.get_mut(&note) {
            let count = sent.count + 1;
            let change = serde_json::json!({"count": count, "lastTimestamp": Time(now)});
            if api.patch(&sent.name, &PatchParams::default(), &Patch::Strategic(change)).await.is_ok() {
                sent.count = count;
                return Ok(());
            }
        }
        let name = format!("{}.{:x}", note.name, now.as_nanosecond());
        api.create(&PostParams::default(), &event(&note, &self.node, &name, now)).await?;
        if self.sent.len() >= limits::EVENT_QUEUE {
            self.sent.pop_first();
        }
        self.sent.insert(note, Sent { name, count: 1 });
        Ok(())
    }
}

fn event(note: &Note, node: &str, name: &str, now: Timestamp) -> Event {
    let severity = match note.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta { name: Some(name.to_owned()), namespace: Some(note.namespace.clone()), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(note.kind.to_owned()),
            name: Some(note.name.clone()),
            namespace: (note.kind == "Pod").then(|| note.namespace.clone()),
            uid: Some(note.uid.clone()),
            field_path: note.field.clone(),
            resource_version: None,
        },
        reason: Some(note.reason.clone()),
        message: Some(note.message.clone()),
        type_: Some(severity.to_owned()),
        source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(node.to_owned()) }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(node.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}
