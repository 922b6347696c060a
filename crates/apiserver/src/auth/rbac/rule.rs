//! Policy rules: what one allows, and whether some rules cover others.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::auth::Attributes;

const ANY: &str = "*";

/// `rbac.authorization.k8s.io/v1 PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub non_resource_urls: Vec<String>,
}

fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default())
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

fn has_or_any(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted || item == ANY)
}

impl Rule {
    /// The rules of a role; what is not a list of rules is none.
    pub fn all_of(role: &Value) -> Vec<Rule> {
        role.get("rules").and_then(|rules| Vec::deserialize(rules).ok()).unwrap_or_default()
    }

    /// The two rules that allow everything.
    pub fn everything() -> [Rule; 2] {
        let any = || vec![ANY.to_owned()];
        [
            Rule { verbs: any(), api_groups: any(), resources: any(), ..Rule::default() },
            Rule { verbs: any(), non_resource_urls: any(), ..Rule::default() },
        ]
    }

    /// Whether this rule allows the request. `resource_path` is the request's `resource/subresource`.
    pub fn allows(&self, attributes: &Attributes, resource_path: &str) -> bool {
        if !has_or_any(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.non_resource_urls.iter().any(|url| url_covers(url, &attributes.path));
        }
        has_or_any(&self.api_groups, &attributes.group)
            && self.resources.iter().any(|r| resource_covers(r, resource_path, &attributes.subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, &attributes.name))
    }

    /// The rule as many rules of one verb and one thing each.
    fn split(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        let names: Vec<Vec<String>> = if self.resource_names.is_empty() {
            vec![vec![]]
        } else {
            self.resource_names.iter().map(|n| vec![n.clone()]).collect()
        };
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    parts.extend(names.iter().map(|names| Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        resource_names: names.clone(),
                        non_resource_urls: vec![],
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            parts.extend(self.verbs.iter().map(|verb| Rule {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..Rule::default()
            }));
        }
        parts
    }

    /// Whether this rule alone allows all that `part` (of one verb and one thing) allows.
    fn covers(&self, part: &Rule) -> bool {
        let all = |own: &[String], asked: &[String]| has(own, ANY) || asked.iter().all(|a| has(own, a));
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty() && part.resource_names.iter().all(|n| has(&self.resource_names, n)));
        let resources = part.resources.iter().all(|asked| {
            let subresource = asked.split_once('/').map(|(_, s)| s).unwrap_or_default();
            self.resources.iter().any(|own| resource_covers(own, asked, subresource))
        });
        all(&self.verbs, &part.verbs)
            && all(&self.api_groups, &part.api_groups)
            && resources
            && names
            && part.non_resource_urls.iter().all(|asked| self.non_resource_urls.iter().any(|own| url_covers(own, asked)))
    }

    /// One line for messages, in the form that clients of Kubernetes know.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |label: &str, list: &[String]| {
            if !list.is_empty() {
                parts.push(format!("{label}:{}", quoted_list(list)));
            }
        };
        part("APIGroups", &self.api_groups);
        part("Resources", &self.resources);
        part("NonResourceURLs", &self.non_resource_urls);
        part("ResourceNames", &self.resource_names);
        part("Verbs", &self.verbs);
        format!("{{{}}}", parts.join(", "))
    }
}

/// `["a" "b"]`, as messages print lists of names.
pub(in crate::auth) fn quoted_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn resource_covers(rule: &str, path: &str, subresource: &str) -> bool {
    rule == ANY || rule == path || (!subresource.is_empty() && rule.strip_prefix("*/") == Some(subresource))
}

fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

/// What `asked` allows and `own` does not: compact, one rule for each thing.
pub fn missing(own: &[Rule], asked: &[Rule]) -> Vec<Rule> {
    let mut missing: Vec<Rule> = Vec::new();
    for part in asked.iter().flat_map(Rule::split).filter(|part| !own.iter().any(|rule| rule.covers(part))) {
        let same_thing = |rule: &&mut Rule| {
            part.non_resource_urls.is_empty()
                && rule.api_groups == part.api_groups
                && rule.resources == part.resources
                && rule.resource_names == part.resource_names
                && rule.non_resource_urls.is_empty()
        };
        match missing.iter_mut().find(same_thing) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => missing.push(part),
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: Value) -> Rule {
        serde_json::from_value(value).unwrap()
    }

    fn request(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            verb: verb.into(),
            is_resource: true,
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        }
    }

    fn allows(rule: &Rule, attributes: &Attributes) -> bool {
        rule.allows(attributes, &attributes.resource_path())
    }

    #[test]
    fn a_subresource_is_a_resource_of_its_own() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]}));
        assert!(allows(&pods, &request("get", "", "pods", "a")));
        assert!(!allows(&pods, &request("get", "", "pods/log", "a")));
        assert!(allows(&pods, &request("get", "", "replicationcontrollers/scale", "a")));
        assert!(!allows(&pods, &request("get", "apps", "pods", "a")));
        assert!(!allows(&pods, &request("list", "", "pods", "")));
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(allows(&all, &request("watch", "x.example.com", "things/status", "")));
    }

    #[test]
    fn names_restrict_and_a_request_without_a_name_has_none_of_them() {
        let named = rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}));
        assert!(allows(&named, &request("get", "", "secrets", "a")));
        assert!(!allows(&named, &request("get", "", "secrets", "b")));
        assert!(!allows(&named, &request("list", "", "secrets", "")));
    }

    #[test]
    fn a_path_rule_ends_with_a_star_or_is_exact() {
        let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]}));
        let get = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        assert!(paths.allows(&get("/healthz"), ""));
        assert!(!paths.allows(&get("/healthz/etcd"), ""));
        assert!(paths.allows(&get("/apis/apps/v1"), ""));
        assert!(!paths.allows(&get("/apis"), ""));
    }

    #[test]
    fn what_is_missing_is_told_thing_by_thing() {
        let own = [
            rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]})),
            rule(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]})),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/logs/*"]})),
        ];
        assert_eq!(missing(&own, &[own[0].clone(), own[1].clone(), own[2].clone()]), []);
        let asked = [
            rule(json!({"verbs": ["get", "watch", "delete"], "apiGroups": [""], "resources": ["pods", "secrets"]})),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/logs/a", "/metrics"]})),
        ];
        let told: Vec<String> = missing(&own, &asked).iter().map(Rule::describe).collect();
        assert_eq!(
            told,
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "watch" "delete"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
        );
        assert_eq!(missing(&Rule::everything(), &asked), []);
    }
}
