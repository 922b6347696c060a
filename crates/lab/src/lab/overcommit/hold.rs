//! A webhook that holds binds, and the end of the scheduler's process.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, LogParams, Patch, PatchParams};
use kube::{Api, Client};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::lab::{Lab, eventually, pods, processes};
use crate::platform::cluster;

const NAME: &str = "lab-hold";
/// Binds in namespaces with this label are held.
const LABEL: &str = "lab.atoll.dev/hold";

/// The webhook, and the namespace whose binds it can hold.
pub struct Webhook {
    client: Client,
    namespace: String,
}

/// Starts the webhook and waits until it has registered.
pub async fn install(lab: &Lab, namespace: &str) -> Result<Webhook, String> {
    let client = lab.a.client.clone();
    pods::open(&client, NAME).await?;
    for object in objects(&lab.image) {
        cluster::apply(&client, &object).await.map_err(|e| format!("{}: {e}", object["kind"]))?;
    }
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    eventually("the holding webhook has registered", pods::PATIENCE, || async {
        let found = configurations.get(NAME).await.map_err(|e| e.to_string())?;
        let registered = found.webhooks.unwrap_or_default().iter().any(|w| w.client_config.ca_bundle.is_some());
        if registered { Ok(()) } else { Err("it has no caBundle".to_owned()) }
    })
    .await?;
    pods::running(&Api::namespaced(client.clone(), NAME), NAME).await?;
    Ok(Webhook { client, namespace: namespace.to_owned() })
}

impl Webhook {
    /// From now on binds are held.
    pub async fn hold(&self) -> Result<(), String> {
        self.label(json!("true")).await
    }

    /// Binds are held no more.
    pub async fn release(&self) -> Result<(), String> {
        self.label(Value::Null).await
    }

    async fn label(&self, value: Value) -> Result<(), String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { LABEL: value } } }));
        let patched = namespaces.patch(&self.namespace, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|e| format!("label {}: {e}", self.namespace))
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

fn objects(image: &str) -> [Value; 5] {
    let service = json!({ "name": NAME, "namespace": NAME, "path": "/", "port": 443 });
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": NAME },
            "rules": [{
                "apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
                "resourceNames": [NAME], "verbs": ["get", "update"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": NAME },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": NAME }],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": NAME },
            "webhooks": [{
                "name": "hold.lab.atoll.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 10, "clientConfig": { "service": service },
                "namespaceSelector": { "matchLabels": { LABEL: "true" } },
                "rules": [{
                    "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"],
                }],
            }],
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": NAME, "namespace": NAME },
            "spec": { "selector": { "app": NAME }, "ports": [{ "port": 443, "targetPort": 8443 }] },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": NAME, "namespace": NAME, "labels": { "app": NAME } },
            "spec": { "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "webhook", "image": image, "command": ["atoll"],
                "args": ["example", "webhook", "--hold", "5s", "--names", format!("{NAME}.{NAME}.svc"),
                    "--register", format!("validating/{NAME}")],
            }] },
        }),
    ]
}

/// Removes what `install` made.
pub async fn remove(lab: &Lab) -> Result<(), String> {
    let client = lab.a.client.clone();
    let gone = |outcome: Result<(), kube::Error>| match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map_err(|e| format!("remove {NAME}: {e}")),
    };
    let parameters = DeleteParams::default();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    gone(configurations.delete(NAME, &parameters).await.map(drop))?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    gone(bindings.delete(NAME, &parameters).await.map(drop))?;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    gone(roles.delete(NAME, &parameters).await.map(drop))?;
    pods::close(&client, NAME).await
}

/// Kills the process of tenant-a's scheduler and answers its id.
pub fn kill_scheduler(lab: &Lab) -> Result<i32, String> {
    let own = processes::of_worker(lab, &lab.a)?;
    let scheduler = own.iter().find(|p| p.runs(&["gpu", "scheduler"])).ok_or("the scheduler has no process")?;
    scheduler.signal(Signal::SIGKILL)?;
    Ok(scheduler.pid)
}
