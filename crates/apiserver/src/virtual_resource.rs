//! Resources and subresources that are answered rather than stored: reviews, tokens.

use async_trait::async_trait;
use serde_json::Value;

use crate::auth::{Authenticators, Authorizers, UserInfo};
use crate::cluster::Cluster;
use crate::error::Result;
use crate::warnings::Warnings;

/// A create of a virtual resource.
pub struct VirtualRequest<'a> {
    pub user: &'a UserInfo,
    /// `tokenreviews`; the parent's plural for a subresource.
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Empty for cluster scope.
    pub namespace: &'a str,
    /// Name of the parent for a subresource, else empty.
    pub name: &'a str,
    pub dry_run: bool,
    pub warnings: &'a Warnings,
    pub authenticators: &'a Authenticators,
    pub authorizers: &'a Authorizers,
    pub cluster: &'a Cluster,
}

/// Answers creates of some virtual resources.
#[async_trait]
pub trait VirtualResource: Send + Sync {
    fn serves(&self, group: &str, resource: &str, subresource: &str) -> bool;

    /// `object` is decoded, in canonical form and defaulted; what comes back is answered with 201.
    async fn create(&self, request: &VirtualRequest<'_>, object: Value) -> Result<Value>;
}
