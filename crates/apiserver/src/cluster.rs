//! The cluster's own objects, as authentication, authorization, admission and bootstrap see them.
//!
//! Reads come from the store's memory and cost no IO. Writes run through the whole pipeline under the server's own identity, so
//! they are validated, admitted and owned like any other. It is a trait so that a plugin's tests need no server.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::Result;

/// A stored resource, in its storage version: `("", "secrets")`, `("rbac.authorization.k8s.io", "roles")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl<'a> Resource<'a> {
    pub const fn new(group: &'a str, plural: &'a str) -> Self {
        Resource { group, plural }
    }

    pub const fn core(plural: &'a str) -> Self {
        Resource { group: "", plural }
    }
}

/// One object that changed.
#[derive(Clone, Debug)]
pub struct Change {
    pub namespace: String,
    pub name: String,
    pub revision: u64,
    /// None when it was deleted.
    pub object: Option<Arc<Value>>,
}

/// A cursor over the changes of one resource.
#[async_trait]
pub trait Changes: Send {
    /// The next changes in order; waits until there is one. Cancel-safe.
    async fn next(&mut self) -> Result<Vec<Change>>;
}

/// All objects of a resource, and the revision they were read at.
#[derive(Clone, Debug)]
pub struct Listed {
    pub items: Vec<Arc<Value>>,
    pub revision: u64,
}

#[async_trait]
pub trait ClusterApi: Send + Sync {
    /// An object as it is stored now, with `apiVersion`, `kind` and `metadata.resourceVersion`. `namespace` is empty for cluster scope.
    async fn get(&self, resource: Resource<'_>, namespace: &str, name: &str) -> Result<Option<Arc<Value>>>;

    /// All objects of a resource, of one namespace or (if it is empty) of all.
    async fn list(&self, resource: Resource<'_>, namespace: &str) -> Result<Listed>;

    /// What changes after `revision` (that of a [`Listed`]).
    async fn watch(&self, resource: Resource<'_>, revision: u64) -> Result<Box<dyn Changes>>;

    /// The newest revision of anything, if that can be told without waiting: nothing has changed while it stays the same.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Creates `object` (`apiVersion`, `kind`, `metadata.name` and `metadata.namespace` say where) and answers what was stored.
    async fn create(&self, object: Value) -> Result<Value>;

    /// Replaces an object or one of its subresources (empty for the object itself). With a `metadata.resourceVersion` it fails
    /// with 409 if the object has changed.
    async fn update(&self, object: Value, subresource: &str) -> Result<Value>;

    /// Deletes an object as a client's plain delete would.
    async fn delete(&self, resource: Resource<'_>, namespace: &str, name: &str) -> Result<()>;

    /// The way into the cluster, for webhooks.
    fn dialer(&self) -> crate::egress::SharedDialer;
}

/// What plugins are handed.
pub type Cluster = dyn ClusterApi;
