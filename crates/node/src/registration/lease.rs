//! The Node's heartbeat: a lease in `kube-node-lease`.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::limits;

const NAMESPACE: &str = "kube-node-lease";

/// Renews the lease for ever.
pub async fn keep(client: Client, node: Node) {
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut held: Option<Lease> = None;
    loop {
        match renew(&api, &name, &node, held.take()).await {
            Ok(lease) => {
                held = Some(lease);
                tokio::time::sleep(limits::LEASE_RENEW).await;
            }
            Err(e) => {
                tracing::warn!("lease not renewed: {e}");
                tokio::time::sleep(limits::POD_RETRY).await;
            }
        }
    }
}

/// Writes over the lease that is held; without one looks first.
async fn renew(api: &Api<Lease>, name: &str, node: &Node, held: Option<Lease>) -> kube::Result<Lease> {
    let now = Some(MicroTime(Timestamp::now()));
    let existing = match held {
        Some(lease) => Some(lease),
        None => api.get_opt(name).await?,
    };
    let Some(mut lease) = existing else {
        let spec = LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(limits::LEASE_SECONDS),
            renew_time: now,
            ..LeaseSpec::default()
        };
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), owner_references: Some(vec![owner(node)]), ..ObjectMeta::default() };
        return api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await;
    };
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(name.to_owned());
    spec.lease_duration_seconds = Some(limits::LEASE_SECONDS);
    spec.renew_time = now;
    lease.metadata.managed_fields = None;
    api.replace(name, &PostParams::default(), &lease).await
}

fn owner(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}
