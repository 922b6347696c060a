//! Roles and bindings by subject: what a user may do is found without looking at what others may.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::rule::Rule;
use crate::auth::UserInfo;
use crate::auth::follow::{meta, text};

/// One user or group. A ServiceAccount is the user that its tokens name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
}

/// A role as bindings name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// A ClusterRole, or a Role of the binding's namespace.
    pub is_cluster_role: bool,
    pub name: String,
}

impl RoleRef {
    pub fn of_binding(binding: &Value) -> RoleRef {
        let role = binding.get("roleRef").unwrap_or(&Value::Null);
        RoleRef { is_cluster_role: text(role, "kind") == "ClusterRole", name: text(role, "name").to_owned() }
    }
}

#[derive(Debug)]
struct Binding {
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The bindings of one scope.
#[derive(Debug, Default)]
struct Scope {
    by_name: HashMap<String, Arc<Binding>>,
    by_subject: HashMap<Subject, Vec<Arc<Binding>>>,
}

impl Scope {
    fn remove(&mut self, name: &str) {
        let Some(old) = self.by_name.remove(name) else { return };
        for subject in &old.subjects {
            if let Some(list) = self.by_subject.get_mut(subject) {
                list.retain(|b| b.name != name);
                if list.is_empty() {
                    self.by_subject.remove(subject);
                }
            }
        }
    }

    fn insert(&mut self, binding: Binding) {
        self.remove(&binding.name);
        let binding = Arc::new(binding);
        for subject in &binding.subjects {
            let list = self.by_subject.entry(subject.clone()).or_default();
            if !list.iter().any(|b| Arc::ptr_eq(b, &binding)) {
                list.push(binding.clone());
            }
        }
        self.by_name.insert(binding.name.clone(), binding);
    }

    /// Bindings of a user and its groups, each once, by name.
    fn of_user(&self, user: &UserInfo) -> Vec<&Arc<Binding>> {
        let groups = user.groups.iter().map(|g| Subject::Group(g.clone()));
        let subjects = std::iter::once(Subject::User(user.name.clone())).chain(groups);
        let mut found: Vec<_> = subjects.filter_map(|s| self.by_subject.get(&s)).flatten().collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| Arc::ptr_eq(a, b));
        found
    }
}

/// The four kinds of `rbac.authorization.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::ClusterRole, Kind::Role, Kind::ClusterRoleBinding, Kind::RoleBinding];

    pub fn plural(self) -> &'static str {
        match self {
            Kind::Role => "roles",
            Kind::ClusterRole => "clusterroles",
            Kind::RoleBinding => "rolebindings",
            Kind::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// A role that a user is bound to.
pub struct Grant<'a> {
    /// Empty for a ClusterRoleBinding.
    pub namespace: &'a str,
    pub binding: &'a str,
    pub role: &'a RoleRef,
    /// None if there is no such role.
    pub rules: Option<&'a Arc<[Rule]>>,
}

/// Everything that authorization by roles needs to know.
#[derive(Debug, Default)]
pub struct Index {
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    /// By namespace, then name.
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    cluster_bindings: Scope,
    bindings: HashMap<String, Scope>,
}

impl Index {
    pub fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::Role => self.roles.clear(),
            Kind::ClusterRole => self.cluster_roles.clear(),
            Kind::RoleBinding => self.bindings.clear(),
            Kind::ClusterRoleBinding => self.cluster_bindings = Scope::default(),
        }
    }

    pub fn put(&mut self, kind: Kind, object: &Value) {
        let (namespace, name) = (meta(object, "namespace").to_owned(), meta(object, "name").to_owned());
        match kind {
            Kind::ClusterRole => {
                self.cluster_roles.insert(name, Rule::all_of(object).into());
            }
            Kind::Role => {
                self.roles.entry(namespace).or_default().insert(name, Rule::all_of(object).into());
            }
            Kind::ClusterRoleBinding => self.cluster_bindings.insert(binding(object, name, &namespace)),
            Kind::RoleBinding => {
                let bound = binding(object, name, &namespace);
                self.bindings.entry(namespace).or_default().insert(bound);
            }
        }
    }

    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::ClusterRole => {
                self.cluster_roles.remove(name);
            }
            Kind::ClusterRoleBinding => self.cluster_bindings.remove(name),
            Kind::Role => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            Kind::RoleBinding => {
                if let Some(scope) = self.bindings.get_mut(namespace) {
                    scope.remove(name);
                    if scope.by_name.is_empty() {
                        self.bindings.remove(namespace);
                    }
                }
            }
        }
    }

    /// The rules of a role that a binding in `namespace` (empty for cluster scope) names.
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        if role.is_cluster_role { self.cluster_roles.get(&role.name) } else { self.roles.get(namespace)?.get(&role.name) }
    }

    /// All roles that a user has in a namespace (empty: at cluster scope), those of the whole cluster first.
    pub fn grants<'a>(&'a self, user: &UserInfo, namespace: &str) -> Vec<Grant<'a>> {
        let grant = |namespace: &'a str, binding: &'a Arc<Binding>| Grant {
            namespace,
            binding: &binding.name,
            role: &binding.role,
            rules: self.rules_of(&binding.role, namespace),
        };
        let mut grants: Vec<_> = self.cluster_bindings.of_user(user).into_iter().map(|b| grant("", b)).collect();
        if let Some((namespace, scope)) = self.bindings.get_key_value(namespace).filter(|_| !namespace.is_empty()) {
            grants.extend(scope.of_user(user).into_iter().map(|b| grant(namespace, b)));
        }
        grants
    }
}

fn binding(object: &Value, name: String, namespace: &str) -> Binding {
    let subjects = object.get("subjects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let subjects = subjects.iter().filter_map(|subject| {
        let name = text(subject, "name");
        match text(subject, "kind") {
            "User" => Some(Subject::User(name.to_owned())),
            "Group" => Some(Subject::Group(name.to_owned())),
            "ServiceAccount" => {
                let own = text(subject, "namespace");
                let namespace = if own.is_empty() { namespace } else { own };
                // Without a namespace it names nobody.
                (!namespace.is_empty()).then(|| Subject::User(format!("system:serviceaccount:{namespace}:{name}")))
            }
            _ => None,
        }
    });
    Binding { name, role: RoleRef::of_binding(object), subjects: subjects.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(index: &Index, user: &UserInfo, namespace: &str) -> Vec<String> {
        index.grants(user, namespace).iter().map(|g| g.binding.to_owned()).collect()
    }

    fn bind(index: &mut Index, namespace: &str, name: &str, subjects: Value) {
        let kind = if namespace.is_empty() { Kind::ClusterRoleBinding } else { Kind::RoleBinding };
        let object = json!({
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": subjects,
        });
        index.put(kind, &object);
    }

    #[test]
    fn a_user_has_what_it_and_its_groups_are_bound_to_and_each_once() {
        let mut index = Index::default();
        let both = json!([{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "devs"}]);
        bind(&mut index, "", "all", both.clone());
        bind(&mut index, "a", "in-a", json!([{"kind": "Group", "name": "devs"}]));
        bind(&mut index, "b", "in-b", json!([{"kind": "User", "name": "jane"}]));
        let jane = UserInfo::new("jane", &["devs"]);
        assert_eq!(names(&index, &jane, ""), ["all"]);
        assert_eq!(names(&index, &jane, "a"), ["all", "in-a"]);
        assert_eq!(names(&index, &UserInfo::new("devs", &["jane"]), "b"), Vec::<String>::new(), "a user is not a group");
        bind(&mut index, "", "all", json!([{"kind": "User", "name": "joe"}]));
        assert_eq!(names(&index, &jane, "b"), ["in-b"]);
        index.remove(Kind::RoleBinding, "b", "in-b");
        assert_eq!(names(&index, &jane, "b"), Vec::<String>::new());
    }

    #[test]
    fn a_service_account_is_the_user_of_its_tokens() {
        let mut index = Index::default();
        bind(&mut index, "a", "own", json!([{"kind": "ServiceAccount", "name": "bot"}]));
        bind(&mut index, "a", "other", json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "b"}]));
        assert_eq!(names(&index, &UserInfo::new("system:serviceaccount:a:bot", &[]), "a"), ["own"]);
        assert_eq!(names(&index, &UserInfo::new("system:serviceaccount:b:bot", &[]), "a"), ["other"]);
    }

    #[test]
    fn a_role_that_is_gone_is_told_apart_from_one_without_rules() {
        let mut index = Index::default();
        bind(&mut index, "", "all", json!([{"kind": "User", "name": "jane"}]));
        let jane = UserInfo::new("jane", &[]);
        assert!(index.grants(&jane, "")[0].rules.is_none());
        index.put(Kind::ClusterRole, &json!({"metadata": {"name": "r"}, "rules": null}));
        assert_eq!(index.grants(&jane, "")[0].rules.map(|r| r.len()), Some(0));
    }
}
