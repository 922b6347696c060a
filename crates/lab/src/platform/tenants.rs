//! Tenants as the command line makes them: control plane, worker and GPU parts in one go.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{Dirs, Error, cluster, up, workers};

/// How long a tenant may take to answer, and its worker to be Ready.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// The manifest of a tenant, in Kamaji's form.
pub fn manifest(name: &str) -> Value {
    json!({
        "apiVersion": "kamaji.clastix.io/v1alpha1",
        "kind": "TenantControlPlane",
        "metadata": { "name": name, "namespace": cluster::TENANTS },
        "spec": {
            "controlPlane": { "deployment": { "replicas": 1 }, "service": { "serviceType": "LoadBalancer" } },
            "kubernetes": {
                "version": "v1.36.0",
                "kubelet": {},
                "admissionControllers": [
                    "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition",
                    "Priority", "DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection",
                    "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning",
                    "CertificateSubjectRestriction", "DefaultIngressClass", "MutatingAdmissionWebhook",
                    "ValidatingAdmissionWebhook", "ResourceQuota",
                ],
            },
            "networkProfile": { "port": 6443 },
            "addons": { "konnectivity": {} },
        },
    })
}

/// Applies a tenant and waits until it is Ready. Answers its kubeconfig.
pub async fn create(management: &Client, name: &str) -> Result<String, Error> {
    if name.is_empty() || name.len() > 63 || !is_dns_label(name) {
        return Err(Error::Invalid(format!(
            "{name:?} cannot name a tenant: lower-case letters, digits and '-', beginning with a letter, 63 characters at most"
        )));
    }
    if cluster::tenant_status(management, name).await?.is_some() {
        return Err(Error::Invalid(format!("there is a tenant {name} already: 'atoll tenant list' shows it")));
    }
    cluster::apply(management, &manifest(name)).await?;
    let start = Instant::now();
    loop {
        let status = cluster::tenant_status(management, name).await?.unwrap_or(Value::Null);
        let word = status.pointer("/kubernetesResources/version/status").and_then(Value::as_str);
        if word == Some("Ready")
            && let Some(kubeconfig) = cluster::tenant_kubeconfig(management, name).await?
        {
            return Ok(kubeconfig);
        }
        if let Some(refusal) = refusal(&status) {
            return Err(Error::Invalid(format!("tenant {name} is refused: {refusal}")));
        }
        if start.elapsed() > PATIENCE {
            let state = word.unwrap_or("unknown");
            return Err(Error::Invalid(format!(
                "tenant {name} is {state} after {} s: see 'kubectl describe tcp {name}' and 'kubectl describe pods'",
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn is_dns_label(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Why the operator will not serve this tenant.
fn refusal(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let refused = conditions.iter().find(|c| c["type"] == "Accepted" && c["status"] == "False")?;
    refused["message"].as_str().map(str::to_owned)
}

/// Adds a worker to a tenant and waits until its Node is Ready.
pub async fn add_worker(
    management: &Client,
    tenant: &str,
    cards: Option<&str>,
    simulate: bool,
) -> Result<workers::Declaration, Error> {
    let kubeconfig = cluster::tenant_kubeconfig(management, tenant)
        .await?
        .ok_or_else(|| Error::Invalid(format!("there is no tenant {tenant}: 'atoll tenant list' shows those there are")))?;
    let declaration = workers::declare(management, tenant, cards, simulate).await?;
    let client = cluster::client_of(&kubeconfig).await?;
    let nodes: Api<Node> = Api::all(client);
    let start = Instant::now();
    loop {
        let node = nodes.get_opt(&declaration.name).await.ok().flatten();
        let conditions = node.and_then(|n| n.status).and_then(|s| s.conditions).unwrap_or_default();
        if conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True") {
            return Ok(declaration);
        }
        if start.elapsed() > PATIENCE {
            return Err(Error::Invalid(format!(
                "worker {} is not Ready after {} s: see its log under the state directory ('atoll status')",
                declaration.name,
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Deletes a tenant and waits until it is gone with its workers. Those are the supervisor's to end.
pub async fn delete(dirs: &Dirs, management: &Client, name: &str) -> Result<(), Error> {
    let own: Vec<String> =
        workers::declared(management).await?.into_iter().filter(|d| d.tenant == name).map(|d| d.name).collect();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kamaji.clastix.io", "v1alpha1", "TenantControlPlane"));
    let api: Api<DynamicObject> = Api::namespaced_with(management.clone(), cluster::TENANTS, &resource);
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(Error::Invalid(format!("there is no tenant {name}: 'atoll tenant list' shows those there are")));
        }
        other => drop(other.map_err(Error::api(format!("delete tenant {name}")))?),
    }
    let start = Instant::now();
    loop {
        let is_there = api.get_opt(name).await.map_err(Error::api(format!("read tenant {name}")))?.is_some();
        let worker = own.iter().find(|worker| workers::remains(dirs, worker));
        if !is_there && worker.is_none() {
            break;
        }
        if start.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(Error::Invalid(match worker {
                Some(worker) if !is_there => {
                    format!("worker {worker} is still there after {seconds} s: is the supervisor ('atoll up') running?")
                }
                _ => format!("tenant {name} is still there after {seconds} s: see 'kubectl describe tcp {name}'"),
            }));
        }
        tokio::time::sleep(LOOK).await;
    }
    let _ = std::fs::remove_file(dirs.tenant_kubeconfig(name));
    Ok(())
}

/// One tenant for a list.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub status: String,
    pub endpoint: String,
    pub workers: Vec<String>,
}

/// All tenants, by name.
pub async fn list(management: &Client) -> Result<Vec<Row>, Error> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kamaji.clastix.io", "v1alpha1", "TenantControlPlane"));
    let api: Api<DynamicObject> = Api::all_with(management.clone(), &resource);
    let declared = workers::declared(management).await?;
    let listed = api.list(&ListParams::default()).await.map_err(Error::api("list tenants"))?;
    let mut rows: Vec<Row> = listed
        .iter()
        .map(|object| {
            let name = object.name_any();
            let status = &object.data["status"];
            let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let own = declared.iter().filter(|d| d.tenant == name).map(|d| d.name.clone()).collect();
            Row {
                status: text("/kubernetesResources/version/status"),
                endpoint: text("/controlPlaneEndpoint"),
                workers: own,
                name,
            }
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// A kubeconfig of a user of the tenant, signed by the tenant's own CA. What the user may is RBAC's to say.
pub async fn user_kubeconfig(
    management: &Client,
    tenant: &str,
    admin: &str,
    user: &str,
    group: Option<&str>,
    namespace: Option<&str>,
    ttl: Duration,
) -> Result<String, Error> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(management.clone(), cluster::TENANTS);
    let secret = secrets.get(&format!("{tenant}-ca")).await.map_err(Error::api("read the tenant's CA"))?;
    let data = secret.data.unwrap_or_default();
    let text = |key: &str| data.get(key).and_then(|b| String::from_utf8(b.0.clone()).ok()).unwrap_or_default();
    let (ca_pem, key_pem) = (text("ca.crt"), text("ca.key"));
    let failed = |e: atoll_pki::Error| Error::Invalid(format!("cannot sign for {user}: {e}"));
    let ca = atoll_pki::CertificateAuthority::from_pem(&ca_pem, &key_pem).map_err(failed)?;
    let organizations: Vec<&str> = group.into_iter().collect();
    let spec = atoll_pki::LeafSpec {
        common_name: user,
        organizations: &organizations,
        names: &[],
        usages: atoll_pki::Usages::CLIENT,
        ttl,
    };
    let pair = ca.issue(&spec, jiff::Timestamp::now()).map_err(failed)?;
    let parsed = kube::config::Kubeconfig::from_yaml(admin).map_err(|e| Error::Invalid(e.to_string()))?;
    let server = parsed.clusters.first().and_then(|c| c.cluster.as_ref()?.server.clone()).unwrap_or_default();
    let kubeconfig = atoll_pki::Kubeconfig {
        cluster: atoll_pki::ClusterEntry { name: tenant, server: &server, ca_pem: &ca_pem, tls_server_name: None },
        user_name: user,
        credentials: atoll_pki::UserCredentials::Certificate { certificate_pem: &pair.certificate_pem, key_pem: &pair.key_pem },
        namespace,
    };
    Ok(kubeconfig.to_yaml())
}

/// Writes a tenant's kubeconfig beside the others and answers where.
pub fn write_kubeconfig(dirs: &Dirs, tenant: &str, text: &str) -> Result<PathBuf, Error> {
    let path = dirs.tenant_kubeconfig(tenant);
    up::write_secret(&path, text)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tenants_are_dns_labels() {
        for good in ["a", "tenant-a", "t1"] {
            assert!(is_dns_label(good), "{good}");
        }
        for bad in ["1a", "-a", "a-", "A", "a.b", "a_b"] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }
}
