//! A webhook that holds binds, and the end of the scheduler's process.

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::lab::webhooks::{self, Example};
use crate::lab::{Lab, eventually, pods, processes};

const NAME: &str = "lab-hold";
/// Binds in namespaces with this label are held.
const LABEL: &str = "lab.atoll.dev/hold";

/// The webhook, and the namespace whose binds it can hold.
pub struct Webhook {
    client: Client,
    namespace: String,
}

fn example(arguments: &[String]) -> Example<'_> {
    Example { name: NAME, mutating: false, resource: "pods/binding", label: LABEL, arguments }
}

/// Starts the webhook and waits until it has registered.
pub async fn install(lab: &Lab, namespace: &str) -> Result<Webhook, String> {
    let client = lab.a.client.clone();
    example(&["--hold=5s".to_owned()]).install(&client, &lab.image).await?;
    Ok(Webhook { client, namespace: namespace.to_owned() })
}

/// Removes what `install` made.
pub async fn remove(lab: &Lab) -> Result<(), String> {
    example(&[]).remove(&lab.a.client).await
}

impl Webhook {
    /// From now on binds are held.
    pub async fn hold(&self) -> Result<(), String> {
        webhooks::label(&self.client, &self.namespace, LABEL, json!("true")).await
    }

    /// Binds are held no more.
    pub async fn release(&self) -> Result<(), String> {
        webhooks::label(&self.client, &self.namespace, LABEL, Value::Null).await
    }

    /// Waits until the webhook has been asked for a bind.
    pub async fn holds(&self) -> Result<(), String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAME);
        eventually("a bind is held", pods::PATIENCE, || async {
            let log = api.logs(NAME, &LogParams::default()).await.map_err(|e| e.to_string())?;
            if log.contains("AdmissionReview uid=") { Ok(()) } else { Err("the webhook was not asked".to_owned()) }
        })
        .await
    }
}

/// Kills the process of tenant-a's scheduler and answers its id.
pub fn kill_scheduler(lab: &Lab) -> Result<i32, String> {
    let own = processes::of_worker(lab, &lab.a)?;
    let scheduler = own.iter().find(|p| p.runs(&["gpu", "scheduler"])).ok_or("the scheduler has no process")?;
    scheduler.signal(Signal::SIGKILL)?;
    Ok(scheduler.pid)
}
