//! Nobody hands out more than they hold: what a role grants, or a binding gives by its role, its author must hold too, or be
//! allowed to `escalate` the role or `bind` to it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::{GROUP, Rbac, RoleRef, Rule, missing, quoted_list};
use crate::admission::{Attributes as Write, Operation, Plugin};
use crate::auth::{Attributes, Authorizers, Decision, MASTERS_GROUP};
use crate::cluster::Cluster;
use crate::error::{ApiError, Result};

/// Metadata that may change without the check, so that garbage collection can finish.
const UNCHECKED_METADATA: [&str; 4] = ["ownerReferences", "finalizers", "managedFields", "resourceVersion"];

/// The check, as a plugin: it is to run after all plugins that may change an object.
pub struct RoleEscalation {
    pub rbac: Arc<Rbac>,
    pub authorizers: Authorizers,
}

impl RoleEscalation {
    async fn is_allowed(&self, write: &Write, verb: &str, resource: &str, name: &str, cluster: &Cluster) -> bool {
        let attributes = Attributes {
            user: write.user.clone(),
            verb: verb.to_owned(),
            is_resource: true,
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: resource.to_owned(),
            namespace: write.namespace.clone(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        matches!(self.authorizers.authorize(&attributes, cluster).await, Decision::Allow(_))
    }

    /// Refuses if the user lacks any of `asked`.
    async fn check(&self, write: &Write, asked: &[Rule], cluster: &Cluster) -> Result<()> {
        let own = self.rbac.rules_for(&write.user, &write.namespace, cluster).await?;
        let mut lacking: Vec<String> = missing(&own.rules, asked).iter().map(Rule::describe).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        lacking.sort();
        let (user, groups) = (&write.user.name, quoted_list(&write.user.groups));
        let mut why = format!(
            "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
            lacking.join("\n")
        );
        if !own.errors.is_empty() {
            why = format!("{why}; resolution errors: [{}]", super::aggregate(&own.errors));
        }
        Err(write.forbidden(why))
    }

    async fn check_role(&self, write: &Write, cluster: &Cluster) -> Result<()> {
        // The name of the request: a create has none.
        let name = if write.operation == Operation::Create { "" } else { &write.name };
        if self.is_allowed(write, "escalate", &write.resource, name, cluster).await {
            return Ok(());
        }
        self.check(write, &Rule::all_of(&write.object), cluster).await?;
        let aggregates = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if aggregates(&write.object) || write.old.as_deref().is_some_and(aggregates) {
            // An aggregated role gathers whatever carries its labels.
            let full = self.check(write, &Rule::everything(), cluster).await;
            full.map_err(|_| write.forbidden("must have cluster-admin privileges to use the aggregationRule"))?;
        }
        Ok(())
    }

    async fn check_binding(&self, write: &Write, cluster: &Cluster) -> Result<()> {
        let role = RoleRef::of_binding(&write.object);
        let plural = if role.is_cluster_role { "clusterroles" } else { "roles" };
        if self.is_allowed(write, "bind", plural, &role.name, cluster).await {
            return Ok(());
        }
        match self.rbac.rules_of(&role, &write.namespace, cluster).await? {
            Some(rules) => self.check(write, &rules, cluster).await,
            // Upstream names the binding's resource here, and clients see that.
            None => Err(ApiError::not_found(write.group_resource(), &role.name)),
        }
    }
}

/// Whether an update changes nothing but what garbage collection needs.
fn is_only_collection(write: &Write) -> bool {
    let Some(old) = &write.old else { return false };
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            UNCHECKED_METADATA.iter().for_each(|field| {
                metadata.remove(*field);
            });
        }
        object
    };
    stripped(old) == stripped(&write.object)
}

#[async_trait]
impl Plugin for RoleEscalation {
    fn name(&self) -> &'static str {
        "RoleEscalation"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn admit(&self, write: &mut Write, cluster: &Cluster) -> Result<()> {
        if write.group != GROUP || !write.subresource.is_empty() {
            return Ok(());
        }
        if write.user.in_group(MASTERS_GROUP) || is_only_collection(write) {
            return Ok(());
        }
        match write.resource.as_str() {
            "roles" | "clusterroles" => self.check_role(write, cluster).await,
            "rolebindings" | "clusterrolebindings" => self.check_binding(write, cluster).await,
            _ => Ok(()),
        }
    }
}
