//! What an authorizer judges.

use super::UserInfo;
use crate::error::{ApiError, GroupResource};

/// A request as authorization sees it.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub user: UserInfo,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, or the lower-case HTTP method
    /// of a path that is no resource.
    pub verb: String,
    pub is_resource: bool,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The request's path, for non-resource rules.
    pub path: String,
    /// `fieldSelector` and `labelSelector` of a list, watch or deletecollection, as sent.
    pub field_selector: String,
    pub label_selector: String,
}

impl Attributes {
    /// `resource/subresource` as RBAC rules name it.
    pub fn resource_path(&self) -> String {
        if self.subresource.is_empty() { self.resource.clone() } else { format!("{}/{}", self.resource, self.subresource) }
    }

    /// The 403 of a request that nobody allowed.
    pub fn refusal(&self, reason: &str) -> ApiError {
        let user = &self.user.name;
        let why = if !self.is_resource {
            format!("User \"{user}\" cannot {} path \"{}\"", self.verb, self.path)
        } else {
            let scope = if self.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{}\"", self.namespace)
            };
            format!(
                "User \"{user}\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
                self.verb,
                self.resource_path(),
                self.group
            )
        };
        let why = if reason.is_empty() { why } else { format!("{why}: {reason}") };
        ApiError::forbidden(GroupResource { group: &self.group, resource: &self.resource }, &self.name, why)
    }
}

/// An authorizer's answer, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(String),
    Deny(String),
    /// Another authorizer may allow it; if none does, it is refused.
    NoOpinion(String),
}
