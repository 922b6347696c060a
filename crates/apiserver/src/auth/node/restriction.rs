//! Admission plugin NodeRestriction: what a kubelet writes concerns itself and its own Pods, and cannot widen what it may do.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::graph::MIRROR_ANNOTATION;
use super::{LEASE_NAMESPACE, node_of, restriction_nodes};
use crate::admission::{Attributes, Operation, Plugin};
use crate::auth::follow::{meta, text};
use crate::cluster::{Cluster, Resource};
use crate::error::{ApiError, GroupResource, Result};

/// Fields by which a Pod would use other objects.
const PLAIN_POD_FIELDS: [&str; 3] = ["serviceAccountName", "imagePullSecrets", "resourceClaims"];
const REFERENCE_FIELDS: [&str; 9] = [
    "secret",
    "configMap",
    "projected",
    "persistentVolumeClaim",
    "secretRef",
    "secretKeyRef",
    "configMapRef",
    "configMapKeyRef",
    "nodePublishSecretRef",
];

#[derive(Debug, Default)]
pub struct NodeRestriction;

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update | Operation::Delete)
    }

    async fn admit(&self, write: &mut Attributes, cluster: &Cluster) -> Result<()> {
        let Some(node) = node_of(&write.user).map(str::to_owned) else { return Ok(()) };
        if node.is_empty() {
            return Err(write.forbidden("could not determine node from user"));
        }
        match (write.group.as_str(), write.resource.as_str(), write.subresource.as_str()) {
            ("", "pods", "") => pod(write, &node, cluster).await,
            ("", "pods", "status") => pod_status(write, &node),
            ("", "pods", "eviction") => eviction(write, &node, cluster).await,
            ("", "pods", sub) => {
                Err(write.forbidden(format!("unexpected pod subresource {sub:?}, only 'status' and 'eviction' are allowed")))
            }
            ("", "nodes", _) => restriction_nodes::node(write, &node),
            ("", "persistentvolumeclaims", "status") => claim_status(write, &node),
            ("", "persistentvolumeclaims", _) => Err(write.forbidden("a node may only update the status of a claim")),
            ("", "serviceaccounts", "token") => token(write, &node, cluster).await,
            ("coordination.k8s.io", "leases", _) => {
                if write.namespace != LEASE_NAMESPACE {
                    return Err(write.forbidden(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace")));
                }
                own_name(write, &node)
            }
            ("storage.k8s.io", "csinodes", _) => own_name(write, &node),
            ("resource.k8s.io", "resourceslices", _) => resource_slice(write, &node),
            _ => Ok(()),
        }
    }
}

/// The name of what is written, also of what is only being created.
pub(super) fn name_of(write: &Attributes) -> &str {
    if write.name.is_empty() { meta(&write.object, "name") } else { &write.name }
}

fn own_name(write: &Attributes, node: &str) -> Result<()> {
    if name_of(write) == node {
        return Ok(());
    }
    Err(write.forbidden(format!("can only access the {} with the same name as the requesting node", write.resource)))
}

fn node_name(pod: &Value) -> &str {
    pod.get("spec").map(|spec| text(spec, "nodeName")).unwrap_or_default()
}

async fn pod(write: &Attributes, node: &str, cluster: &Cluster) -> Result<()> {
    match write.operation {
        Operation::Create => mirror_pod(write, node),
        Operation::Delete => {
            let old = match &write.old {
                Some(old) => Some(old.clone()),
                None => cluster.get(Resource::core("pods"), &write.namespace, &write.name).await?,
            };
            match old {
                Some(old) if node_name(&old) != node => {
                    Err(write.forbidden(format!("node {node:?} can only delete pods with spec.nodeName set to itself")))
                }
                _ => Ok(()),
            }
        }
        _ => Err(write.forbidden(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            write.operation.as_str()
        ))),
    }
}

fn mirror_pod(write: &Attributes, node: &str) -> Result<()> {
    let pod = &write.object;
    let annotations = pod.get("metadata").and_then(|m| m.get("annotations"));
    if annotations.and_then(|a| a.get(MIRROR_ANNOTATION)).is_none() {
        return Err(write.forbidden(format!(
            "pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods"
        )));
    }
    if node_name(pod) != node {
        return Err(write.forbidden(format!("node {node:?} can only create pods with spec.nodeName set to itself")));
    }
    let owners = pod.get("metadata").and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
    let is_own = |owner: &Value| {
        text(owner, "apiVersion") == "v1"
            && text(owner, "kind") == "Node"
            && text(owner, "name") == node
            && owner.get("controller") == Some(&Value::Bool(true))
            && owner.get("blockOwnerDeletion") != Some(&Value::Bool(true))
    };
    if !owners.is_some_and(|owners| owners.len() == 1 && is_own(&owners[0])) {
        return Err(write.forbidden(format!("node {node:?} can only create pods with an owner reference set to itself")));
    }
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let set = |field: &&&str| {
        spec.get(**field).is_some_and(|v| !v.is_null() && v.as_str() != Some("") && v.as_array().is_none_or(|l| !l.is_empty()))
    };
    if let Some(field) = PLAIN_POD_FIELDS.iter().find(set).copied().or_else(|| reference_field(spec)) {
        return Err(write.forbidden(format!("node {node:?} can not create pods that reference other objects ({field})")));
    }
    Ok(())
}

/// A field anywhere in a Pod's spec by which it would use another object.
fn reference_field(value: &Value) -> Option<&'static str> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, inner)| {
            let own = REFERENCE_FIELDS.iter().find(|field| **field == key && inner.is_object()).copied();
            own.or_else(|| reference_field(inner))
        }),
        Value::Array(items) => items.iter().find_map(reference_field),
        _ => None,
    }
}

fn pod_status(write: &Attributes, node: &str) -> Result<()> {
    let Some(old) = &write.old else { return Ok(()) };
    if node_name(old) != node {
        return Err(
            write.forbidden(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"))
        );
    }
    let labels = |pod: &Value| pod.get("metadata").and_then(|m| m.get("labels")).cloned().unwrap_or_default();
    if labels(old) != labels(&write.object) {
        return Err(write.forbidden(format!("node {node:?} cannot update labels through pod status")));
    }
    let claims = |pod: &Value| pod.get("status").and_then(|s| s.get("resourceClaimStatuses")).cloned().unwrap_or_default();
    if claims(old) != claims(&write.object) {
        return Err(write.forbidden(format!("node {node:?} cannot update resource claim statuses")));
    }
    Ok(())
}

async fn eviction(write: &Attributes, node: &str, cluster: &Cluster) -> Result<()> {
    match cluster.get(Resource::core("pods"), &write.namespace, name_of(write)).await? {
        Some(pod) if node_name(&pod) == node => Ok(()),
        Some(_) => Err(write.forbidden(format!("node {node:?} can only evict pods with spec.nodeName set to itself"))),
        None => Err(ApiError::not_found(GroupResource { group: "", resource: "pods" }, name_of(write))),
    }
}

/// A kubelet tells how far it has grown a volume, nothing else.
fn claim_status(write: &Attributes, node: &str) -> Result<()> {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            for field in ["capacity", "allocatedResources", "allocatedResourceStatuses", "conditions"] {
                status.remove(field);
            }
            if status.is_empty() {
                object.as_object_mut().map(|fields| fields.remove("status"));
            }
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        object
    };
    let Some(old) = &write.old else { return Ok(()) };
    if stripped(old) != stripped(&write.object) {
        return Err(write.forbidden(format!("node {node:?} may only update size and resize conditions of a claim's status")));
    }
    Ok(())
}

/// A token is for a Pod that runs on the node, and for an audience that the Pod itself asks for.
async fn token(write: &Attributes, node: &str, cluster: &Cluster) -> Result<()> {
    let spec = write.object.get("spec").unwrap_or(&Value::Null);
    let reference = spec.get("boundObjectRef").filter(|r| !r.is_null());
    let Some(reference) =
        reference.filter(|r| text(r, "apiVersion") == "v1" && text(r, "kind") == "Pod" && !text(r, "name").is_empty())
    else {
        return Err(write.forbidden("node requested token not bound to a pod"));
    };
    let uid = text(reference, "uid");
    if uid.is_empty() {
        return Err(write.forbidden("node requested token with a pod binding without a uid"));
    }
    let pod = cluster.get(Resource::core("pods"), &write.namespace, text(reference, "name")).await?;
    let Some(pod) = pod else { return Err(write.forbidden("node requested token bound to a pod that does not exist")) };
    if meta(&pod, "uid") != uid {
        return Err(write.forbidden("the UID in the bound object reference does not match the UID in record"));
    }
    if node_name(&pod) != node {
        return Err(write.forbidden("node requested token bound to a pod scheduled on a different node"));
    }
    let audiences = spec.get("audiences").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for audience in audiences.iter().filter_map(Value::as_str).filter(|a| !a.is_empty()) {
        if !asks_for(&pod, audience, cluster).await? {
            return Err(write.forbidden(format!("audience {audience:?} not found in pod spec volume")));
        }
    }
    Ok(())
}

/// Whether a volume of the Pod needs tokens for the audience: a projected one, or one of a CSI driver that asks for them.
async fn asks_for(pod: &Value, audience: &str, cluster: &Cluster) -> Result<bool> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    for volume in list(pod.get("spec").and_then(|s| s.get("volumes"))) {
        let sources = list(volume.get("projected").and_then(|p| p.get("sources")));
        if sources.iter().filter_map(|s| s.get("serviceAccountToken")).any(|t| text(t, "audience") == audience) {
            return Ok(true);
        }
        let Some(driver) = volume.get("csi").map(|csi| text(csi, "driver")) else { continue };
        let driver: Option<Arc<Value>> = cluster.get(Resource::new("storage.k8s.io", "csidrivers"), "", driver).await?;
        let requests = list(driver.as_ref().and_then(|d| d.get("spec")).and_then(|s| s.get("tokenRequests")));
        if requests.iter().any(|r| text(r, "audience") == audience) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn resource_slice(write: &Attributes, node: &str) -> Result<()> {
    let of = |slice: &Value| slice.get("spec").map(|spec| text(spec, "nodeName") == node).unwrap_or_default();
    let is_own = match write.operation {
        Operation::Delete => write.old.as_deref().is_none_or(of),
        _ => of(&write.object),
    };
    if is_own {
        Ok(())
    } else {
        Err(write.forbidden("can only access ResourceSlices with the same nodeName as the requesting node"))
    }
}
