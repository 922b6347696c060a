//! Clients of the platform's clusters, and the few objects that the platform itself keeps there.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::Error;

/// Namespace of the platform's own objects in the management cluster.
pub const NAMESPACE: &str = "atoll-system";
/// Namespace of tenants that the command line makes.
pub const TENANTS: &str = "default";
/// The platform's field manager.
pub const FIELD_MANAGER: &str = "atoll";
/// Between two looks at something that is awaited.
const LOOK: Duration = Duration::from_millis(50);

/// A client from the text of a kubeconfig.
pub async fn client_of(text: &str) -> Result<Client, Error> {
    let unusable = |why: String| Error::Invalid(format!("a kubeconfig is not usable: {why}"));
    let parsed = Kubeconfig::from_yaml(text).map_err(|e| unusable(e.to_string()))?;
    let mut config =
        Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(|e| unusable(e.to_string()))?;
    config.connect_timeout = Some(Duration::from_secs(2));
    Client::try_from(config).map_err(|e| unusable(e.to_string()))
}

/// A client from a kubeconfig file.
pub async fn client_of_file(path: &Path) -> Result<Client, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(format!("cannot read {}", path.display()), e))?;
    client_of(&text).await
}

/// Waits until `/readyz` answers.
pub async fn wait_ready(client: &Client, what: &str, log: &Path, patience: Duration) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).map_err(|e| Error::Invalid(e.to_string()))?;
        if client.request_text(request).await.is_ok() {
            return Ok(());
        }
        if start.elapsed() > patience {
            return Err(Error::NotReady { what: what.to_owned(), seconds: patience.as_secs(), log: log.to_owned() });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The API of an object that names its kind.
fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Server-side apply of an object.
pub async fn apply(client: &Client, object: &Value) -> Result<(), Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api_of(client, object)
        .patch(name, &params, &Patch::Apply(object))
        .await
        .map_err(Error::api(format!("apply {kind} {name}")))?;
    Ok(())
}

/// The same, again until the kind is served.
pub async fn apply_once_served(client: &Client, object: &Value, patience: Duration) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match apply(client, object).await {
            Err(_) if start.elapsed() < patience => tokio::time::sleep(LOOK).await,
            settled => return settled,
        }
    }
}

/// The administrator's kubeconfig of a tenant, once there is one.
pub async fn tenant_kubeconfig(management: &Client, tenant: &str) -> Result<Option<String>, Error> {
    let secrets: Api<Secret> = Api::namespaced(management.clone(), TENANTS);
    let secret = secrets.get_opt(&format!("{tenant}-admin-kubeconfig")).await.map_err(Error::api("read a kubeconfig"))?;
    let bytes = secret.and_then(|s| s.data).and_then(|mut data| data.remove("super-admin.conf"));
    Ok(bytes.and_then(|b| String::from_utf8(b.0).ok()))
}

/// The status word of a tenant, Kamaji's.
pub async fn tenant_status(management: &Client, tenant: &str) -> Result<Option<Value>, Error> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kamaji.clastix.io", "v1alpha1", "TenantControlPlane"));
    let api: Api<DynamicObject> = Api::namespaced_with(management.clone(), TENANTS, &resource);
    let object = api.get_opt(tenant).await.map_err(Error::api(format!("read tenant {tenant}")))?;
    Ok(object.map(|o| o.data.get("status").cloned().unwrap_or(Value::Null)))
}

/// Objects of the platform in the management cluster.
pub fn platform_objects() -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        // Where manifests of address pools usually put them.
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "metallb-system" } }),
        node_proxier(),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": "atoll-directory",
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
            },
            "provisioner": "atoll.dev/directory", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        }),
    ]
}

/// Atoll's nodes program Services themselves, so they read what a service proxy reads.
fn node_proxier() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "atoll:node-proxier" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes" }],
    })
}

/// The pool of load-balancer addresses.
pub fn pool_object(pool: &str) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": { "name": "atoll", "namespace": NAMESPACE },
        "spec": { "addresses": [pool], "avoidBuggyIPs": true },
    })
}
