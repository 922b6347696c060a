//! HAMi's events on Pods. Best effort: what cannot be written, or comes too fast, is dropped.

use std::collections::HashMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::mpsc;

use crate::error::call;
use crate::limits;

/// HAMi's four reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// No node has the cards.
    FilteringFailed,
    /// A node was chosen.
    FilteringSucceed,
    /// The Pod could not be bound.
    BindingFailed,
    /// The Pod is bound.
    BindingSucceed,
}

impl What {
    fn reason(self) -> &'static str {
        match self {
            Self::FilteringFailed => "FilteringFailed",
            Self::FilteringSucceed => "FilteringSucceed",
            Self::BindingFailed => "BindingFailed",
            Self::BindingSucceed => "BindingSucceed",
        }
    }

    fn type_(self) -> EventType {
        match self {
            Self::FilteringFailed | Self::BindingFailed => EventType::Warning,
            Self::FilteringSucceed | Self::BindingSucceed => EventType::Normal,
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::FilteringFailed | Self::FilteringSucceed => "Filtering",
            Self::BindingFailed | Self::BindingSucceed => "Binding",
        }
    }
}

/// Where events are left; clones share the writer.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<(What, String, ObjectReference)>,
    said: Arc<Mutex<Said>>,
}

/// What was said last of each Pod.
#[derive(Default)]
struct Said(HashMap<String, (What, String, Instant)>);

impl Said {
    /// Whether this is worth an event; remembers it if so.
    fn is_news(&mut self, uid: &str, what: What, message: &str, now: Instant) -> bool {
        let same = |(said, text, at): &(What, String, Instant)| {
            *said == what && text == message && now.duration_since(*at) < limits::EVENT_REPEAT
        };
        if self.0.get(uid).is_some_and(same) {
            return false;
        }
        if self.0.len() >= limits::EVENTS_REMEMBERED_MAX {
            self.0.retain(|_, (_, _, at)| now.duration_since(*at) < limits::EVENT_REPEAT);
        }
        if self.0.len() < limits::EVENTS_REMEMBERED_MAX {
            self.0.insert(uid.to_owned(), (what, message.to_owned(), now));
        }
        true
    }
}

impl Events {
    /// Starts the writer; it ends when the last clone is gone.
    pub fn start(client: kube::Client, reporter: &str) -> Self {
        let (sender, receiver) = mpsc::channel(limits::EVENTS_QUEUED_MAX);
        let reporter = Reporter { controller: reporter.to_owned(), instance: Some(reporter.to_owned()) };
        tokio::spawn(write(Recorder::new(client, reporter), receiver));
        Self { sender, said: Arc::default() }
    }

    /// Leaves an event, unless the same was left a moment ago.
    pub fn tell(&self, what: What, pod: &Pod, message: String) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if !self.said.lock().is_news(uid, what, &message, Instant::now()) {
            return;
        }
        if self.sender.try_send((what, message, pod.object_ref(&()))).is_err() {
            tracing::debug!("too many events are waiting; one was dropped");
        }
    }
}

async fn write(recorder: Recorder, mut receiver: mpsc::Receiver<(What, String, ObjectReference)>) {
    while let Some((what, mut message, pod)) = receiver.recv().await {
        if message.len() > limits::EVENT_MESSAGE_BYTES_MAX {
            let end = (0..=limits::EVENT_MESSAGE_BYTES_MAX - 3).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
            message.push_str("...");
        }
        let (type_, reason, action) = (what.type_(), what.reason().to_owned(), what.action().to_owned());
        let event = Event { type_, reason, note: Some(message), action, secondary: None };
        if let Err(error) = call(recorder.publish(&event, &pod)).await {
            tracing::debug!(%error, "event was not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_in_a_while() {
        let (mut said, now) = (Said::default(), Instant::now());
        assert!(said.is_news("p", What::FilteringFailed, "1/1 CardInsufficientMemory", now));
        assert!(!said.is_news("p", What::FilteringFailed, "1/1 CardInsufficientMemory", now));
        assert!(said.is_news("q", What::FilteringFailed, "1/1 CardInsufficientMemory", now));
        assert!(said.is_news("p", What::FilteringFailed, "1/1 CardInsufficientCore", now));
        assert!(said.is_news("p", What::FilteringFailed, "1/1 CardInsufficientCore", now + limits::EVENT_REPEAT));
    }
}
