//! Sends a Pod's status, newest first: while one is on its way or cannot be sent, older ones are skipped.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::limits;
use crate::runtime::PodKey;

/// The latest status and its number.
type Latest = (u64, Option<PodStatus>);

/// One Pod's reporter.
pub struct Reporter {
    latest: watch::Sender<Latest>,
    sent: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Reporter {
    /// Starts the sender of a Pod's status.
    pub fn start(client: Client, key: PodKey) -> Reporter {
        let (latest, changes) = watch::channel((0, None));
        let (done, sent) = watch::channel(0);
        let task = tokio::spawn(send(client, key, changes, done));
        Reporter { latest, sent, task }
    }

    /// Has a status sent, unless it is the one that is sent or on its way already.
    pub fn report(&self, status: &PodStatus) {
        self.latest.send_if_modified(|(number, latest)| {
            let changed = latest.as_ref() != Some(status);
            if changed {
                *number += 1;
                *latest = Some(status.clone());
            }
            changed
        });
    }

    /// Waits until the latest status is sent or the Pod is gone; gives up after a while.
    pub async fn flush(&mut self) {
        let number = self.latest.borrow().0;
        let _ = tokio::time::timeout(limits::START_TIMEOUT, self.sent.wait_for(|sent| *sent >= number)).await;
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send(client: Client, key: PodKey, mut changes: watch::Receiver<Latest>, done: watch::Sender<u64>) {
    let api: Api<Pod> = Api::namespaced(client, &key.namespace);
    while changes.changed().await.is_ok() {
        let mut pause = limits::POD_RETRY;
        loop {
            let (number, status) = changes.borrow_and_update().clone();
            let Some(status) = status else { break };
            match api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(body(&key, &status))).await {
                Ok(_) => {
                    let _ = done.send(number);
                    break;
                }
                // Gone, or another Pod of the same name: nothing to report on.
                Err(kube::Error::Api(e)) if matches!(e.code, 404 | 409) && is_over(&e.reason) => {
                    let _ = done.send(u64::MAX);
                    return;
                }
                Err(e) => tracing::warn!(pod = %key, "status not sent: {e}"),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = changes.changed() => if changed.is_err() { return },
            }
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }
}

fn is_over(reason: &str) -> bool {
    matches!(reason, "NotFound" | "Conflict" | "Gone")
}

/// The patch: the UID makes it fail for another Pod of the name; fields that a status no longer has are taken out.
fn body(key: &PodKey, status: &PodStatus) -> serde_json::Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    for field in ["reason", "message"] {
        if value.get(field).is_none() {
            value[field] = serde_json::Value::Null;
        }
    }
    for condition in value["conditions"].as_array_mut().into_iter().flatten() {
        for field in ["reason", "message"] {
            if condition.get(field).is_none() {
                condition[field] = serde_json::Value::Null;
            }
        }
    }
    serde_json::json!({ "metadata": { "uid": key.uid }, "status": value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodCondition;

    #[test]
    fn a_patch_names_the_uid_and_clears_what_is_over() {
        let key = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let condition = PodCondition { type_: "Ready".into(), status: "True".into(), ..PodCondition::default() };
        let status = PodStatus { conditions: Some(vec![condition]), ..PodStatus::default() };
        let body = body(&key, &status);
        assert_eq!(body["metadata"]["uid"], "u");
        assert!(body["status"]["reason"].is_null());
        assert!(body["status"]["conditions"][0].as_object().unwrap()["message"].is_null());
    }
}
