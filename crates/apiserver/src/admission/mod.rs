//! Admission: what may still change or refuse a write after its user was allowed to make it.
//!
//! Plugins run in the order of the [`Chain`]: all `admit` (they may change the object), then, after the object was validated, all
//! `validate`. A patch or an unconditional update that meets a concurrent write runs through all of it again.

mod limit_ranger;
mod namespace_lifecycle;
mod priority;
mod resource_quota;
mod selector;
mod service_account;
mod storage;
mod tolerations;
pub mod webhook;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::auth::UserInfo;
use crate::cluster::Cluster;
use crate::error::{ApiError, GroupResource, Result};
use crate::warnings::Warnings;

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// As AdmissionReview spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A group, version and kind or resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gvk {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// A write on its way to the store.
#[derive(Clone, Debug)]
pub struct Attributes {
    pub operation: Operation,
    pub group: String,
    pub version: String,
    /// Plural of the resource.
    pub resource: String,
    /// Empty for the resource itself.
    pub subresource: String,
    /// Kind of `object` (`Binding` for pods/binding).
    pub kind: Gvk,
    /// Empty for a create with `generateName` until the name is made (it is made before admission).
    pub name: String,
    pub namespace: String,
    /// As it is stored, in the version of the request; none for a create.
    pub old: Option<Arc<Value>>,
    /// As it would be stored; null for a delete (there `old` is what goes).
    pub object: Value,
    /// `CreateOptions`, `UpdateOptions`, `PatchOptions` or `DeleteOptions` of the request.
    pub options: Value,
    pub dry_run: bool,
    pub user: UserInfo,
    /// Becomes `Warning` headers of the answer.
    pub warnings: Warnings,
    /// `key → value` pairs for the audit log.
    pub audit_annotations: Vec<(String, String)>,
}

impl Attributes {
    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource { group: &self.group, resource: &self.resource }
    }

    /// Whether this is a write of `group`/`resource` itself, not of a subresource.
    pub fn is_resource(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.group == group && self.resource == resource
    }

    /// The 403 of a plugin that refuses.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> ApiError {
        ApiError::forbidden(self.group_resource(), &self.name, why)
    }
}

/// One admission plugin.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Upstream's name, as it stands in `--enable-admission-plugins`.
    fn name(&self) -> &'static str;

    fn handles(&self, operation: Operation) -> bool;

    /// May change `attributes.object`.
    async fn admit(&self, _attributes: &mut Attributes, _cluster: &Cluster) -> Result<()> {
        Ok(())
    }

    /// Sees the final object.
    async fn validate(&self, _attributes: &Attributes, _cluster: &Cluster) -> Result<()> {
        Ok(())
    }
}

/// Plugins in upstream's order.
#[derive(Clone, Default)]
pub struct Chain {
    pub plugins: Vec<Arc<dyn Plugin>>,
}

impl Chain {
    pub async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        let operation = attributes.operation;
        for plugin in self.plugins.iter().filter(|p| p.handles(operation)) {
            plugin.admit(attributes, cluster).await?;
        }
        Ok(())
    }

    pub async fn validate(&self, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
        for plugin in self.plugins.iter().filter(|p| p.handles(attributes.operation)) {
            plugin.validate(attributes, cluster).await?;
        }
        Ok(())
    }
}

/// All plugins that this server has and upstream switches on by default, in upstream's order. `NodeRestriction` is
/// the assembler's to add.
pub fn default_plugins() -> Vec<Arc<dyn Plugin>> {
    let webhooks = Arc::new(webhook::Webhooks::default());
    vec![
        Arc::new(namespace_lifecycle::NamespaceLifecycle),
        Arc::new(limit_ranger::LimitRanger),
        Arc::new(service_account::ServiceAccount),
        Arc::new(tolerations::TaintNodesByCondition),
        Arc::new(priority::Priority),
        Arc::new(tolerations::DefaultTolerationSeconds),
        Arc::new(storage::DefaultStorageClass),
        Arc::new(storage::StorageObjectInUseProtection),
        Arc::new(storage::PersistentVolumeClaimResize),
        Arc::new(storage::RuntimeClass),
        Arc::new(storage::DefaultIngressClass),
        Arc::new(webhook::MutatingAdmissionWebhook(webhooks.clone())),
        Arc::new(webhook::ValidatingAdmissionWebhook(webhooks)),
        Arc::new(resource_quota::ResourceQuota::default()),
    ]
}
