//! Events of controllers. Best effort: written behind the controllers' backs, dropped when too many wait.

use crate::action::Note;
use crate::executor::send;
use crate::limits;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use tokio::sync::mpsc;

struct Order {
    client: kube::Client,
    component: &'static str,
    note: Note,
}

/// Where one controller leaves its Events.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Order>,
    component: &'static str,
}

impl Events {
    /// Starts the writer; it ends when the last `Events` is dropped.
    pub fn start() -> Self {
        let (sender, receiver) = mpsc::channel(limits::EVENTS_QUEUED_MAX);
        tokio::spawn(write_all(receiver));
        Self { sender, component: "controllers" }
    }

    /// The same writer under another component's name.
    pub fn named(&self, component: &'static str) -> Self {
        Self { sender: self.sender.clone(), component }
    }

    /// Leaves an Event to be written.
    pub fn record(&self, client: &kube::Client, note: Note) {
        let order = Order { client: client.clone(), component: self.component, note };
        if self.sender.try_send(order).is_err() {
            tracing::debug!("too many events are waiting; one was dropped");
        }
    }
}

/// What makes two Events the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    uid: String,
    kind: String,
    name: String,
    reason: &'static str,
    message: String,
    component: &'static str,
}

#[derive(Default)]
struct Remembered {
    counts: HashMap<Identity, (String, i64)>,
    order: VecDeque<Identity>,
}

impl Remembered {
    /// Name and count of the Event if it was written before, with this occurrence counted.
    fn again(&mut self, identity: &Identity) -> Option<(String, i64)> {
        let (name, count) = self.counts.get_mut(identity)?;
        *count += 1;
        Some((name.clone(), *count))
    }

    fn remember(&mut self, identity: Identity, name: String) {
        if self.order.len() >= limits::EVENTS_REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(identity.clone());
        self.counts.insert(identity, (name, 1));
    }
}

async fn write_all(mut receiver: mpsc::Receiver<Order>) {
    let mut remembered = Remembered::default();
    while let Some(order) = receiver.recv().await {
        let regarding = &order.note.regarding;
        let identity = Identity {
            uid: regarding.uid.clone().unwrap_or_default(),
            kind: regarding.kind.clone().unwrap_or_default(),
            name: regarding.name.clone().unwrap_or_default(),
            reason: order.note.reason,
            message: order.note.message.clone(),
            component: order.component,
        };
        if let Some((name, count)) = remembered.again(&identity)
            && repeat(&order, &name, count).await.is_ok()
        {
            continue;
        }
        match create(&order).await {
            Ok(answer) => {
                let name = answer.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                remembered.remember(identity, name);
            }
            Err(error) => tracing::debug!(%error, "event was not written"),
        }
    }
}

fn path(order: &Order) -> String {
    format!("/api/v1/namespaces/{}/events", namespace(order))
}

fn namespace(order: &Order) -> &str {
    order.note.regarding.namespace.as_deref().filter(|ns| !ns.is_empty()).unwrap_or("default")
}

async fn create(order: &Order) -> crate::error::Result<Value> {
    let now = Time(Timestamp::now());
    let note = &order.note;
    let name = note.regarding.name.as_deref().unwrap_or_default();
    let suffix: u64 = rand::random();
    let body = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{suffix:016x}"), "namespace": namespace(order)},
        "involvedObject": note.regarding, "reason": note.reason, "message": note.message,
        "type": if note.warning { "Warning" } else { "Normal" },
        "source": {"component": order.component}, "reportingComponent": order.component, "reportingInstance": "",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let request = http::Request::post(path(order)).header("content-type", "application/json");
    send(&order.client, request.body(body.to_string().into_bytes())?).await
}

async fn repeat(order: &Order, name: &str, count: i64) -> crate::error::Result<Value> {
    let body = json!({"count": count, "lastTimestamp": Time(Timestamp::now())});
    let request = http::Request::patch(format!("{}/{name}", path(order))).header("content-type", "application/merge-patch+json");
    send(&order.client, request.body(body.to_string().into_bytes())?).await
}
