//! Events and the `PodScheduled` condition. Best effort: what cannot be written is dropped.

use crate::bind::call;
use crate::limits;
use crate::snapshot::PodInfo;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc;

/// One thing to tell about a Pod.
pub(crate) enum Report {
    /// It was bound.
    Scheduled { pod: Arc<PodInfo>, node: String },
    /// It was not; `reason` is the condition's (`Unschedulable` or `SchedulerError`).
    Failed { pod: Arc<PodInfo>, reason: &'static str, message: String },
}

/// Where the scheduler leaves its reports.
#[derive(Clone)]
pub(crate) struct Reports(mpsc::Sender<Report>);

impl Reports {
    /// Starts the writer; it ends when the last sender is gone.
    pub fn start(client: kube::Client) -> Self {
        let (sender, receiver) = mpsc::channel(limits::REPORTS_QUEUED_MAX);
        tokio::spawn(write(client, receiver));
        Self(sender)
    }

    /// Leaves a report; a full queue drops it.
    pub fn send(&self, report: Report) {
        if self.0.try_send(report).is_err() {
            tracing::warn!("too many reports are waiting; one was dropped");
        }
    }
}

async fn write(client: kube::Client, mut receiver: mpsc::Receiver<Report>) {
    let mut recorder: Option<(String, Recorder)> = None;
    while let Some(report) = receiver.recv().await {
        let (pod, event) = match &report {
            Report::Scheduled { pod, node } => {
                let note = format!("Successfully assigned {}/{} to {node}", pod.namespace(), pod.name());
                (pod, event(EventType::Normal, "Scheduled", "Binding", note))
            }
            Report::Failed { pod, message, .. } => {
                (pod, event(EventType::Warning, "FailedScheduling", "Scheduling", message.clone()))
            }
        };
        let name = pod.pod.spec.as_ref().and_then(|s| s.scheduler_name.clone()).unwrap_or_else(|| "default-scheduler".into());
        let recorder = match &mut recorder {
            Some((known, recorder)) if *known == name => recorder,
            other => {
                let reporter = Reporter { controller: name.clone(), instance: Some(name.clone()) };
                &mut other.insert((name, Recorder::new(client.clone(), reporter))).1
            }
        };
        if let Err(error) = call(recorder.publish(&event, &pod.pod.object_ref(&()))).await {
            tracing::debug!(%error, "event was not written");
        }
        if let Report::Failed { pod, reason, message } = &report
            && let Err(error) = condition(&client, pod, reason, message).await
        {
            tracing::debug!(%error, "condition was not written");
        }
    }
}

fn event(type_: EventType, reason: &str, action: &str, mut note: String) -> Event {
    if note.len() > limits::EVENT_NOTE_BYTES_MAX {
        let cut = (0..=limits::EVENT_NOTE_BYTES_MAX - 3).rev().find(|i| note.is_char_boundary(*i)).unwrap_or(0);
        note.truncate(cut);
        note.push_str("...");
    }
    Event { type_, reason: reason.into(), note: Some(note), action: action.into(), secondary: None }
}

/// Sets `PodScheduled` to False unless it says the same already.
async fn condition(client: &kube::Client, pod: &PodInfo, reason: &str, message: &str) -> crate::error::Result<()> {
    let conditions = pod.pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let old = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if old.is_some_and(|c| c.reason.as_deref() == Some(reason) && c.message.as_deref() == Some(message)) {
        return Ok(());
    }
    let since = old.and_then(|c| c.last_transition_time.clone()).map_or_else(k8s_openapi::jiff::Timestamp::now, |t| t.0);
    let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "observedGeneration": pod.pod.metadata.generation,
        "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since),
    }]}});
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.namespace());
    call(api.patch_status(pod.name(), &PatchParams::default(), &Patch::Strategic(patch))).await.map(drop)
}
