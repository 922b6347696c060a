//! The Node authorizer.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio::sync::Mutex;

use super::graph::{Kind, PodGraph, VolumeGraph};
use super::{LEASE_NAMESPACE, node_of};
use crate::auth::follow::{Follower, text};
use crate::auth::rbac::Rule;
use crate::auth::{Attributes, Authorizer, Decision};
use crate::cluster::{Cluster, Resource};
use crate::error::Result;

/// Allows nodes what they need for the Pods that are bound to them.
pub struct NodeAuthorizer {
    /// What every node may do whatever runs on it; reads of what is listed in [`NodeAuthorizer::authorize`] excepted.
    rules: Vec<Rule>,
    pods: RwLock<PodGraph>,
    volumes: RwLock<VolumeGraph>,
    followers: Mutex<(Follower, Follower)>,
    synced: AtomicU64,
}

impl NodeAuthorizer {
    /// `rules` are those of the role `system:node`.
    pub fn new(rules: Vec<Rule>) -> NodeAuthorizer {
        NodeAuthorizer {
            rules,
            pods: RwLock::default(),
            volumes: RwLock::default(),
            followers: Mutex::new((Follower::new(Resource::core("pods")), Follower::new(Resource::core("persistentvolumes")))),
            synced: AtomicU64::new(0),
        }
    }

    async fn sync(&self, cluster: &Cluster) -> Result<()> {
        let revision = cluster.revision();
        if revision.is_some_and(|revision| self.synced.load(Ordering::Acquire) >= revision) {
            return Ok(());
        }
        let mut followers = self.followers.lock().await;
        let pods = followers.0.news(cluster).await?;
        let volumes = followers.1.news(cluster).await?;
        if !pods.is_empty() {
            let mut graph = self.pods.write();
            pods.into_iter().for_each(|news| graph.apply(news));
        }
        if !volumes.is_empty() {
            let mut graph = self.volumes.write();
            volumes.into_iter().for_each(|news| graph.apply(news));
        }
        self.synced.fetch_max(revision.unwrap_or_default(), Ordering::AcqRel);
        Ok(())
    }

    /// Whether a Pod on the node leads to the object.
    async fn related(&self, node: &str, kind: Kind, attributes: &Attributes, cluster: &Cluster) -> Decision {
        if attributes.name.is_empty() {
            return no_opinion("a node can only read single objects of this kind");
        }
        if let Err(e) = self.sync(cluster).await {
            return no_opinion(&e.to_string());
        }
        let (namespace, name) = (&attributes.namespace, &attributes.name);
        let pods = self.pods.read();
        let through_volume = || {
            let volumes = self.volumes.read();
            volumes.claims_with(namespace, name).any(|(ns, claim)| pods.is_used_on(node, Kind::Claim, ns, claim))
        };
        if pods.is_used_on(node, kind, namespace, name) || (kind == Kind::Secret && through_volume()) {
            return allow();
        }
        unrelated(node)
    }

    async fn volume(&self, node: &str, attributes: &Attributes, cluster: &Cluster) -> Decision {
        if let Err(e) = self.sync(cluster).await {
            return no_opinion(&e.to_string());
        }
        let (volumes, pods) = (self.volumes.read(), self.pods.read());
        match volumes.claim_of(&attributes.name) {
            Some((namespace, claim)) if pods.is_used_on(node, Kind::Claim, namespace, claim) => allow(),
            _ => unrelated(node),
        }
    }

    async fn pod(&self, node: &str, attributes: &Attributes, cluster: &Cluster) -> Decision {
        match attributes.verb.as_str() {
            "get" => {
                if let Err(e) = self.sync(cluster).await {
                    return no_opinion(&e.to_string());
                }
                let pods = self.pods.read();
                if pods.is_on(node, &attributes.namespace, &attributes.name) { allow() } else { unrelated(node) }
            }
            "list" | "watch" => selects_own(attributes, "spec.nodeName", node),
            _ => self.by_rules(attributes),
        }
    }

    async fn attachment(&self, node: &str, attributes: &Attributes, cluster: &Cluster) -> Decision {
        let resource = Resource::new("storage.k8s.io", "volumeattachments");
        match cluster.get(resource, "", &attributes.name).await {
            Ok(Some(found)) if found.get("spec").is_some_and(|spec| text(spec, "nodeName") == node) => allow(),
            Ok(_) => unrelated(node),
            Err(e) => no_opinion(&e.to_string()),
        }
    }

    fn by_rules(&self, attributes: &Attributes) -> Decision {
        let path = attributes.resource_path();
        if self.rules.iter().any(|rule| rule.allows(attributes, &path)) { allow() } else { no_opinion("") }
    }
}

fn allow() -> Decision {
    Decision::Allow(String::new())
}

fn no_opinion(why: &str) -> Decision {
    Decision::NoOpinion(why.to_owned())
}

fn unrelated(node: &str) -> Decision {
    no_opinion(&format!("no relationship found between node '{node}' and this object"))
}

/// A list or watch that asks for the node's own only.
fn selects_own(attributes: &Attributes, field: &str, node: &str) -> Decision {
    let own = |term: &str| {
        let (key, value) = term.split_once("==").or_else(|| term.split_once('=')).unwrap_or_default();
        key == field && value == node
    };
    if attributes.field_selector.split(',').any(own) {
        allow()
    } else {
        no_opinion(&format!("node '{node}' can only list and watch with the field selector {field}={node}"))
    }
}

/// An object that carries the node's name; its name is not known yet when it is created (NodeRestriction sees it then).
fn own_object(attributes: &Attributes, verbs: &[&str], node: &str) -> Decision {
    let verb = attributes.verb.as_str();
    if !attributes.subresource.is_empty() || !verbs.contains(&verb) {
        return no_opinion("");
    }
    if verb != "create" && attributes.name != node {
        return no_opinion(&format!("node '{node}' can only access the {} of its own name", attributes.resource));
    }
    allow()
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes, cluster: &Cluster) -> Decision {
        let Some(node) = node_of(&attributes.user) else { return no_opinion("") };
        if node.is_empty() {
            return no_opinion("unknown node for user");
        }
        if !attributes.is_resource {
            return self.by_rules(attributes);
        }
        let (verb, subresource) = (attributes.verb.as_str(), attributes.subresource.as_str());
        let reads = matches!(verb, "get" | "list" | "watch") && subresource.is_empty();
        let gets = verb == "get" && subresource.is_empty();
        let not_served = no_opinion("a node can only read objects of this kind");
        match (attributes.group.as_str(), attributes.resource.as_str()) {
            ("", "secrets") if reads => self.related(node, Kind::Secret, attributes, cluster).await,
            ("", "configmaps") if reads => self.related(node, Kind::ConfigMap, attributes, cluster).await,
            ("", "secrets" | "configmaps") => not_served,
            ("", "persistentvolumeclaims") if gets || (subresource == "status" && matches!(verb, "get" | "update" | "patch")) => {
                self.related(node, Kind::Claim, attributes, cluster).await
            }
            ("", "persistentvolumes") if gets => self.volume(node, attributes, cluster).await,
            ("", "persistentvolumeclaims" | "persistentvolumes") => not_served,
            ("resource.k8s.io", "resourceclaims") if gets => self.related(node, Kind::ResourceClaim, attributes, cluster).await,
            ("resource.k8s.io", "resourceclaims") => not_served,
            ("storage.k8s.io", "volumeattachments") if gets => self.attachment(node, attributes, cluster).await,
            ("storage.k8s.io", "volumeattachments") => not_served,
            ("", "serviceaccounts") if gets || (verb == "create" && subresource == "token") => {
                self.related(node, Kind::ServiceAccount, attributes, cluster).await
            }
            ("", "serviceaccounts") => no_opinion("a node can only read service accounts and ask for their tokens"),
            ("coordination.k8s.io", "leases") if attributes.namespace != LEASE_NAMESPACE => {
                no_opinion(&format!("node '{node}' can only access leases in the namespace {LEASE_NAMESPACE}"))
            }
            ("coordination.k8s.io", "leases") => own_object(attributes, &["get", "create", "update", "patch", "delete"], node),
            ("storage.k8s.io", "csinodes") => own_object(attributes, &["get", "create", "update", "patch", "delete"], node),
            ("resource.k8s.io", "resourceslices") => match verb {
                "list" | "watch" | "deletecollection" => selects_own(attributes, "spec.nodeName", node),
                "get" | "create" | "update" | "patch" | "delete" => allow(),
                _ => no_opinion(""),
            },
            ("", "nodes") if verb == "get" && matches!(subresource, "" | "status") => {
                if attributes.name == node {
                    allow()
                } else {
                    no_opinion(&format!("node '{node}' cannot read other nodes"))
                }
            }
            ("", "nodes") if reads => selects_own(attributes, "metadata.name", node),
            ("", "pods") if subresource.is_empty() => self.pod(node, attributes, cluster).await,
            _ => self.by_rules(attributes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::UserInfo;
    use crate::auth::testing::FakeCluster;
    use crate::bootstrap::policy;
    use serde_json::json;

    fn asks(verb: &str, path: &str, name: &str, selector: &str) -> Attributes {
        let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
        Attributes {
            user: UserInfo::new("system:node:n1", &["system:nodes"]),
            verb: verb.into(),
            is_resource: true,
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: if resource == "nodes" { String::new() } else { "a".into() },
            name: name.into(),
            field_selector: selector.into(),
            ..Attributes::default()
        }
    }

    #[tokio::test]
    async fn a_node_gets_what_it_needs_and_nothing_else() {
        let (cluster, node) = (FakeCluster::default(), NodeAuthorizer::new(policy::cluster_role_rules("system:node")));
        let pod = json!({
            "metadata": {"namespace": "a", "name": "p"},
            "spec": {"nodeName": "n1", "serviceAccountName": "bot", "volumes": [{"secret": {"secretName": "s"}}]},
        });
        cluster.put("", "pods", pod);
        let allowed = async |attributes: Attributes| matches!(node.authorize(&attributes, &cluster).await, Decision::Allow(_));
        for (verb, path, name, selector) in [
            ("get", "secrets", "s", ""),
            ("watch", "secrets", "s", "metadata.name=s"),
            ("get", "pods", "p", ""),
            ("list", "pods", "", "spec.nodeName=n1"),
            ("create", "serviceaccounts/token", "bot", ""),
            ("get", "nodes", "n1", ""),
            ("patch", "nodes/status", "n1", ""),
            ("watch", "nodes", "n1", "metadata.name=n1"),
            ("list", "services", "", ""),
            ("patch", "pods/status", "p", ""),
        ] {
            assert!(allowed(asks(verb, path, name, selector)).await, "{verb} {path} {name}");
        }
        for (verb, path, name, selector) in [
            ("get", "secrets", "other", ""),
            ("list", "secrets", "", ""),
            ("update", "secrets", "s", ""),
            ("get", "pods", "other", ""),
            ("list", "pods", "", "spec.nodeName=n2"),
            ("create", "serviceaccounts/token", "other", ""),
            ("get", "nodes", "n2", ""),
            ("list", "nodes", "", ""),
            ("delete", "namespaces", "a", ""),
        ] {
            assert!(!allowed(asks(verb, path, name, selector)).await, "{verb} {path} {name}");
        }
        let user = UserInfo::new("system:node:n1", &[]);
        assert!(!allowed(Attributes { user, ..asks("get", "secrets", "s", "") }).await, "the group makes a node");
    }
}
