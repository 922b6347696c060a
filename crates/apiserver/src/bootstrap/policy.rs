//! Default roles and bindings, from the table in `rbac.txt` (its first lines tell its form).

use serde_json::{Map, Value, json};

use crate::auth::rbac::Rule;

const TABLE: &str = include_str!("rbac.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
const AGGREGATE_PREFIX: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// Marks what is brought back to its default at each start.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// One role of the table, as it stands there.
#[derive(Clone, Debug, Default)]
struct Role<'a> {
    /// Empty for a ClusterRole.
    namespace: &'a str,
    name: &'a str,
    aggregates_to: Vec<&'a str>,
    aggregates_from: Option<&'a str>,
    rules: Vec<Rule>,
}

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

fn roles() -> Vec<Role<'static>> {
    let mut roles: Vec<Role<'static>> = Vec::new();
    for line in lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("clusterrole" | "role") => {
                let name = words.next().unwrap_or_default();
                let (namespace, name) = name.split_once('/').unwrap_or(("", name));
                let mut role = Role { namespace, name, ..Role::default() };
                for word in words {
                    if let Some(target) = word.strip_prefix('>') {
                        role.aggregates_to.push(target);
                    }
                    role.aggregates_from = word.strip_prefix('<').or(role.aggregates_from);
                }
                roles.push(role);
            }
            Some(_) if line.starts_with(' ') => {
                if let Some(role) = roles.last_mut() {
                    role.rules.push(rule(line));
                }
            }
            _ => break,
        }
    }
    fill_aggregated(&mut roles);
    roles
}

/// Gives aggregated roles the rules that the controller would, so that they are complete from the first moment.
fn fill_aggregated(roles: &mut [Role<'_>]) {
    // A role that feeds another is filled before it: `view`, then `edit`, then `admin`.
    for target in ["view", "edit", "admin"] {
        let mut rules: Vec<Rule> = Vec::new();
        for rule in roles.iter().filter(|r| r.aggregates_to.contains(&target)).flat_map(|r| &r.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        if let Some(role) = roles.iter_mut().find(|r| r.aggregates_from == Some(target)) {
            role.rules = rules;
        }
    }
}

fn rule(line: &str) -> Rule {
    let list = |text: Option<&str>| -> Vec<String> { text.into_iter().flat_map(|t| t.split(',')).map(str::to_owned).collect() };
    let mut words = line.split_whitespace();
    let verbs = verbs(words.next().unwrap_or_default());
    match words.next() {
        Some("@") => Rule { verbs, non_resource_urls: list(words.next()), ..Rule::default() },
        groups => Rule {
            verbs,
            api_groups: list(groups).into_iter().map(|g| if g == "core" { String::new() } else { g }).collect(),
            resources: list(words.next()),
            resource_names: list(words.next()),
            non_resource_urls: vec![],
        },
    }
}

fn verbs(packed: &str) -> Vec<String> {
    if let Some(names) = packed.strip_prefix('=') {
        return names.split(',').map(str::to_owned).collect();
    }
    let name = |letter: char| match letter {
        'g' => "get",
        'l' => "list",
        'w' => "watch",
        'c' => "create",
        'u' => "update",
        'p' => "patch",
        'd' => "delete",
        _ => "deletecollection",
    };
    packed.chars().map(|letter| name(letter).to_owned()).collect()
}

fn metadata(namespace: &str, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": {AUTOUPDATE: "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

fn object(kind: &str, metadata: Value) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("apiVersion".into(), format!("{GROUP}/v1").into());
    object.insert("kind".into(), kind.into());
    object.insert("metadata".into(), metadata);
    object
}

fn role_object(role: &Role<'_>) -> Value {
    let mut metadata = metadata(role.namespace, role.name);
    for target in &role.aggregates_to {
        metadata["labels"][format!("{AGGREGATE_PREFIX}{target}")] = "true".into();
    }
    let mut object = object(if role.namespace.is_empty() { "ClusterRole" } else { "Role" }, metadata);
    if let Some(source) = role.aggregates_from {
        let label = format!("{AGGREGATE_PREFIX}{source}");
        object.insert("aggregationRule".into(), json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}));
    }
    object.insert("rules".into(), json!(role.rules));
    Value::Object(object)
}

fn subject(word: &str) -> Value {
    match word.split_once(':').unwrap_or_default() {
        ("s", account) => {
            let (namespace, name) = account.split_once('/').unwrap_or_default();
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        ("g", name) => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        (_, name) => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
    }
}

fn binding_object(line: &str) -> Option<Value> {
    let mut words = line.split_whitespace();
    let (kind, role_kind) = match words.next()? {
        "clusterrolebinding" => ("ClusterRoleBinding", "ClusterRole"),
        "rolebinding" => ("RoleBinding", "Role"),
        _ => return None,
    };
    let name = words.next()?;
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let role = words.next().filter(|role| *role != "=").unwrap_or(name);
    let mut object = object(kind, metadata(namespace, name));
    object.insert("roleRef".into(), json!({"apiGroup": GROUP, "kind": role_kind, "name": role}));
    let subjects: Vec<Value> = words.map(subject).collect();
    if !subjects.is_empty() {
        object.insert("subjects".into(), subjects.into());
    }
    Some(Value::Object(object))
}

/// All default roles.
pub fn role_objects() -> Vec<Value> {
    roles().iter().map(role_object).collect()
}

/// All default bindings.
pub fn binding_objects() -> Vec<Value> {
    lines().filter_map(binding_object).collect()
}

/// The rules of one default ClusterRole.
pub fn cluster_role_rules(name: &str) -> Vec<Rule> {
    roles().into_iter().find(|role| role.namespace.is_empty() && role.name == name).map(|role| role.rules).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(objects: &[Value], kind: &str, name: &str) -> Value {
        objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).cloned().unwrap_or_default()
    }

    #[test]
    fn the_table_holds_all_default_roles_and_bindings() {
        let (roles, bindings) = (role_objects(), binding_objects());
        let count = |objects: &[Value], kind: &str| objects.iter().filter(|o| o["kind"] == kind).count();
        assert_eq!((count(&roles, "ClusterRole"), count(&roles, "Role")), (70, 7));
        // Upstream has one less: the approver of serving certificates is our own.
        assert_eq!((count(&bindings, "ClusterRoleBinding"), count(&bindings, "RoleBinding")), (52, 7));
        assert!(roles.iter().all(|r| r["rules"].as_array().is_some_and(|rules| !rules.is_empty())), "no role is empty");
        let admin = named(&bindings, "ClusterRoleBinding", "cluster-admin");
        assert_eq!(admin["subjects"], json!([{"apiGroup": GROUP, "kind": "Group", "name": "system:masters"}]));
        let node = named(&bindings, "ClusterRoleBinding", "system:node");
        assert_eq!(node.get("subjects"), None, "nodes get their rights from the Node authorizer");
        let signer = named(&roles, "Role", "system:controller:bootstrap-signer");
        assert_eq!(signer["metadata"]["namespace"], "kube-public");
    }

    #[test]
    fn packed_rules_read_back() {
        let everything = cluster_role_rules("cluster-admin");
        assert_eq!(everything, Rule::everything());
        let info = cluster_role_rules("system:public-info-viewer");
        assert_eq!(info[0].non_resource_urls, ["/healthz", "/livez", "/readyz", "/version", "/version/"]);
        assert_eq!(info[0].verbs, ["get"]);
    }

    #[test]
    fn aggregated_roles_hold_what_feeds_them() {
        let (admin, edit, view) = (cluster_role_rules("admin"), cluster_role_rules("edit"), cluster_role_rules("view"));
        assert_eq!(view, cluster_role_rules("system:aggregate-to-view"));
        assert!(view.iter().all(|rule| edit.contains(rule)));
        assert!(edit.iter().all(|rule| admin.contains(rule)));
        assert!(admin.iter().any(|rule| rule.resources.contains(&"rolebindings".to_owned())));
        assert!(!edit.iter().any(|rule| rule.resources.contains(&"rolebindings".to_owned())));
    }
}
