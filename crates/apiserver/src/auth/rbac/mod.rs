//! Authorization by roles, from an index that follows the roles and bindings of the server's own store.

mod escalation;
mod index;
mod rule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio::sync::Mutex;

pub use escalation::RoleEscalation;
pub use index::{Grant, Index, Kind, RoleRef};
pub(in crate::auth) use rule::quoted_list;
pub use rule::{Rule, missing};

use super::follow::{Follower, News};
use super::{Attributes, Authorizer, Decision, UserInfo};
use crate::cluster::{Cluster, Resource};
use crate::error::Result;

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What a user may do in a namespace, and which of its roles could not be found.
#[derive(Clone, Debug, Default)]
pub struct UserRules {
    pub rules: Vec<Rule>,
    pub errors: Vec<String>,
}

/// The RBAC authorizer.
pub struct Rbac {
    index: RwLock<Index>,
    followers: Mutex<[(Kind, Follower); 4]>,
    /// The store's revision up to which the index is known to be complete.
    synced: AtomicU64,
}

impl Default for Rbac {
    fn default() -> Self {
        let follow = |kind: Kind| (kind, Follower::new(Resource::new(GROUP, kind.plural())));
        Rbac { index: RwLock::default(), followers: Mutex::new(Kind::ALL.map(follow)), synced: AtomicU64::new(0) }
    }
}

impl Rbac {
    /// Brings the index up to what is stored now. Costs an atomic read if nothing was written since.
    async fn sync(&self, cluster: &Cluster) -> Result<()> {
        let revision = cluster.revision();
        if revision.is_some_and(|revision| self.synced.load(Ordering::Acquire) >= revision) {
            return Ok(());
        }
        let mut followers = self.followers.lock().await;
        for (kind, follower) in followers.iter_mut() {
            let news = follower.news(cluster).await?;
            if !news.is_empty() {
                let mut index = self.index.write();
                news.into_iter().for_each(|item| apply(&mut index, *kind, item));
            }
        }
        self.synced.fetch_max(revision.unwrap_or_default(), Ordering::AcqRel);
        Ok(())
    }

    /// All rules of a user in a namespace (empty: at cluster scope).
    pub async fn rules_for(&self, user: &UserInfo, namespace: &str, cluster: &Cluster) -> Result<UserRules> {
        self.sync(cluster).await?;
        let mut found = UserRules::default();
        for grant in self.index.read().grants(user, namespace) {
            match grant.rules {
                Some(rules) => found.rules.extend(rules.iter().cloned()),
                None => found.errors.push(no_such_role(grant.role)),
            }
        }
        Ok(found)
    }

    /// The rules of a role that a binding in `namespace` names.
    pub async fn rules_of(&self, role: &RoleRef, namespace: &str, cluster: &Cluster) -> Result<Option<Arc<[Rule]>>> {
        self.sync(cluster).await?;
        Ok(self.index.read().rules_of(role, namespace).cloned())
    }

    fn decide(&self, attributes: &Attributes) -> Decision {
        let path = attributes.resource_path();
        let index = self.index.read();
        let mut errors = Vec::new();
        for grant in index.grants(&attributes.user, &attributes.namespace) {
            match grant.rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(attributes, &path)) => {
                    return Decision::Allow(allowed_by(&grant, &attributes.user));
                }
                Some(_) => {}
                None => errors.push(no_such_role(grant.role)),
            }
        }
        Decision::NoOpinion(if errors.is_empty() { String::new() } else { format!("RBAC: {}", aggregate(&errors)) })
    }
}

fn apply(index: &mut Index, kind: Kind, news: News) {
    match news {
        News::All(objects) => {
            index.clear(kind);
            objects.iter().for_each(|object| index.put(kind, object));
        }
        News::Changed(change) => match &change.object {
            Some(object) => index.put(kind, object),
            None => index.remove(kind, &change.namespace, &change.name),
        },
    }
}

fn no_such_role(role: &RoleRef) -> String {
    let kind = if role.is_cluster_role { "clusterrole" } else { "role" };
    format!("{kind}.{GROUP} {:?} not found", role.name)
}

/// Several errors as messages print them: one alone as it is, more in brackets, none twice.
pub(in crate::auth) fn aggregate(errors: &[String]) -> String {
    let mut told: Vec<&str> = Vec::new();
    for error in errors {
        if !told.contains(&error.as_str()) {
            told.push(error);
        }
    }
    if told.len() == 1 { told.concat() } else { format!("[{}]", told.join(", ")) }
}

fn allowed_by(grant: &Grant<'_>, user: &UserInfo) -> String {
    let role_kind = if grant.role.is_cluster_role { "ClusterRole" } else { "Role" };
    let role = &grant.role.name;
    let (binding, name) = match grant.namespace {
        "" => ("ClusterRoleBinding", grant.binding.to_owned()),
        namespace => ("RoleBinding", format!("{}/{namespace}", grant.binding)),
    };
    format!("RBAC: allowed by {binding} {name:?} of {role_kind} {role:?} to User {:?}", user.name)
}

#[async_trait]
impl Authorizer for Rbac {
    async fn authorize(&self, attributes: &Attributes, cluster: &Cluster) -> Decision {
        match self.sync(cluster).await {
            Ok(()) => self.decide(attributes),
            Err(e) => Decision::NoOpinion(format!("RBAC: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::FakeCluster;
    use serde_json::json;

    fn get(user: &str, namespace: &str) -> Attributes {
        Attributes {
            user: UserInfo::new(user, &[]),
            verb: "get".into(),
            is_resource: true,
            resource: "pods".into(),
            namespace: namespace.into(),
            name: "p".into(),
            ..Attributes::default()
        }
    }

    #[tokio::test]
    async fn a_decision_sees_every_write_that_came_before_it() {
        let (cluster, rbac) = (FakeCluster::default(), Rbac::default());
        let allowed = async || matches!(rbac.authorize(&get("jane", "a"), &cluster).await, Decision::Allow(_));
        assert!(!allowed().await);
        let binding = json!({
            "metadata": {"namespace": "a", "name": "b"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "jane"}],
        });
        cluster.put(GROUP, "rolebindings", binding);
        let refused = rbac.authorize(&get("jane", "a"), &cluster).await;
        assert_eq!(refused, Decision::NoOpinion(format!("RBAC: role.{GROUP} \"r\" not found")));
        let role = json!({
            "metadata": {"namespace": "a", "name": "r"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        });
        cluster.put(GROUP, "roles", role);
        let granted = rbac.authorize(&get("jane", "a"), &cluster).await;
        let why = "RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"jane\"";
        assert_eq!(granted, Decision::Allow(why.to_owned()));
        assert!(matches!(rbac.authorize(&get("jane", "b"), &cluster).await, Decision::NoOpinion(_)));
        cluster.remove(GROUP, "rolebindings", "a", "b");
        assert!(!allowed().await);
    }
}
