//! `NamespaceLifecycle`: nothing is created in a namespace that is missing or ending, and the system's namespaces stay.

use async_trait::async_trait;
use serde_json::Value;

use super::{Attributes, Operation, Plugin};
use crate::cluster::{Cluster, Resource};
use crate::error::{ApiError, Cause, GroupResource, Result};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

#[derive(Debug, Default)]
pub struct NamespaceLifecycle;

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update | Operation::Delete)
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        if attributes.is_resource("", "namespaces") {
            let kept = attributes.operation == Operation::Delete && IMMORTAL.contains(&attributes.name.as_str());
            return if kept { Err(attributes.forbidden("this namespace may not be deleted")) } else { Ok(()) };
        }
        // A review is an answer, not an object: it is given in an ending namespace too.
        let is_review = attributes.group == "authorization.k8s.io" && attributes.resource == "localsubjectaccessreviews";
        if attributes.namespace.is_empty() || attributes.operation != Operation::Create || is_review {
            return Ok(());
        }
        let namespaces = Resource::core("namespaces");
        let Some(namespace) = cluster.get(namespaces, "", &attributes.namespace).await? else {
            let resource = GroupResource { group: "", resource: "namespaces" };
            return Err(ApiError::not_found(resource, &attributes.namespace));
        };
        if namespace.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating") {
            return Ok(());
        }
        let name = &attributes.namespace;
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let message = format!("namespace {name} is being terminated");
        Err(attributes.forbidden(why).with_cause(Cause::new("NamespaceTerminating", "metadata.namespace", message)))
    }
}
