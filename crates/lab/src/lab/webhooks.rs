//! Webhooks that tests install, and the GPU webhook's scale.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{Tenant, eventually, pods};
use crate::platform::cluster;

/// An `atoll example webhook` with Service, registration and namespace, all of one name.
pub struct Example<'a> {
    pub name: &'a str,
    /// It changes objects, or else only judges them.
    pub mutating: bool,
    /// What it is asked about when it is created, such as `pods/binding`, all of the core group.
    pub resource: &'a str,
    /// It is asked about objects in namespaces with this label.
    pub label: &'a str,
    /// Of the program.
    pub arguments: &'a [String],
}

impl Example<'_> {
    /// Kind, plural and how the program calls it.
    fn kind(&self) -> (&'static str, &'static str, &'static str) {
        if self.mutating {
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutating")
        } else {
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validating")
        }
    }

    fn configurations(&self, client: &Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", self.kind().0);
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// Starts the webhook and waits until it has registered and runs.
    pub async fn install(&self, client: &Client, image: &str) -> Result<(), String> {
        let pods = pods::open(client, self.name).await?;
        for object in self.objects(image) {
            cluster::apply(client, &object).await.map_err(|e| format!("{}: {e}", object["kind"]))?;
        }
        eventually(&format!("the webhook {} has registered", self.name), pods::PATIENCE, || async {
            let found = self.configurations(client).get(self.name).await.map_err(|e| e.to_string())?;
            let bundle = &found.data["webhooks"][0]["clientConfig"]["caBundle"];
            if bundle.is_string() { Ok(()) } else { Err("it has no caBundle".to_owned()) }
        })
        .await?;
        pods::running(&pods, self.name).await.map(drop)
    }

    fn objects(&self, image: &str) -> [Value; 5] {
        let name = self.name;
        let (kind, plural, target) = self.kind();
        let service = json!({ "name": name, "namespace": name, "path": "/", "port": 443 });
        let mut arguments = vec!["example".to_owned(), "webhook".to_owned()];
        arguments.extend(self.arguments.iter().cloned());
        arguments.extend([format!("--names={name}.{name}.svc"), format!("--register={target}/{name}")]);
        [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
                "rules": [{
                    "apiGroups": ["admissionregistration.k8s.io"], "resources": [plural],
                    "resourceNames": [name], "verbs": ["get", "update"],
                }],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
                "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": name }],
            }),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
                "webhooks": [{
                    "name": format!("{name}.atoll.dev"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "failurePolicy": "Fail", "timeoutSeconds": 10, "clientConfig": { "service": service },
                    "namespaceSelector": { "matchLabels": { self.label: "true" } },
                    "rules": [{
                        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [self.resource],
                    }],
                }],
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": name },
                "spec": { "selector": { "app": name }, "ports": [{ "port": 443, "targetPort": 8443 }] },
            }),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": name, "namespace": name, "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 1, "containers": [{
                    "name": "webhook", "image": image, "command": ["atoll"], "args": arguments,
                }] },
            }),
        ]
    }

    /// Removes what `install` made.
    pub async fn remove(&self, client: &Client) -> Result<(), String> {
        let name = self.name;
        let gone = |outcome: Result<(), kube::Error>| match outcome {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map_err(|e| format!("remove {name}: {e}")),
        };
        let parameters = DeleteParams::default();
        gone(self.configurations(client).delete(name, &parameters).await.map(drop))?;
        gone(Api::<ClusterRoleBinding>::all(client.clone()).delete(name, &parameters).await.map(drop))?;
        gone(Api::<ClusterRole>::all(client.clone()).delete(name, &parameters).await.map(drop))?;
        pods::close(client, name).await
    }
}

/// Labels a namespace, or takes the label away.
pub async fn label(client: &Client, namespace: &str, label: &str, value: Value) -> Result<(), String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
    let patched = namespaces.patch(namespace, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|e| format!("label {namespace}: {e}"))
}

/// Scales the GPU webhook.
pub async fn scale_gpu(tenant: &Tenant, replicas: i32) -> Result<(), String> {
    let deployments: Api<Deployment> = Api::namespaced(tenant.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let patched = deployments.patch("hami-webhook", &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|e| format!("scale hami-webhook: {e}"))
}
