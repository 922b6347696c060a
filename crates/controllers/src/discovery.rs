//! What the API server serves, one version per resource.

use crate::error::Result;
use crate::executor::send;
use crate::key::Key;
use serde_json::Value;
use std::collections::HashSet;

/// A kind that can be listed and deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    /// Group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name in paths.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether a whole collection can be deleted at once.
    pub deletes_collections: bool,
    /// Whether it can be watched.
    pub watchable: bool,
}

impl Served {
    /// Path of the collection.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if namespace.is_empty() {
            format!("{root}/{}", self.plural)
        } else {
            format!("{root}/namespaces/{namespace}/{}", self.plural)
        }
    }

    /// Path of an object.
    pub fn path(&self, key: &Key) -> String {
        format!("{}/{}", self.collection(&key.namespace), key.name)
    }

    /// `group/version`, or `version` for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// What was found, and the group versions that did not answer.
#[derive(Debug, Default)]
pub struct Discovered {
    /// Deletable, listable kinds in the API server's order.
    pub kinds: Vec<Served>,
    /// Group versions whose resources are not known right now.
    pub failed: Vec<String>,
}

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Asks the API server: two requests where it knows aggregated discovery, else one per group version.
pub async fn discover(client: &kube::Client) -> Result<Discovered> {
    let mut found = Discovered::default();
    let mut seen = HashSet::new();
    for root in ["/api", "/apis"] {
        let request = http::Request::get(root).header("accept", ACCEPT).body(Vec::new())?;
        let answer = send(client, request).await?;
        if answer["kind"] == "APIGroupDiscoveryList" {
            aggregated(&answer, &mut seen, &mut found);
        } else {
            legacy(client, root, &answer, &mut seen, &mut found).await?;
        }
    }
    Ok(found)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn has(verbs: &Value, verb: &str) -> bool {
    list(verbs).any(|v| v == verb)
}

fn keep(served: Served, verbs: &Value, seen: &mut HashSet<(String, String)>, found: &mut Discovered) {
    let useful = has(verbs, "list") && has(verbs, "delete");
    if useful && seen.insert((served.group.clone(), served.plural.clone())) {
        found.kinds.push(served);
    }
}

fn aggregated(answer: &Value, seen: &mut HashSet<(String, String)>, found: &mut Discovered) {
    for group in list(&answer["items"]) {
        let name = text(&group["metadata"]["name"]);
        for version in list(&group["versions"]) {
            if version["freshness"] == "Stale" {
                found.failed.push(format!("{name}/{}", text(&version["version"])));
            }
            for resource in list(&version["resources"]) {
                let verbs = &resource["verbs"];
                let served = Served {
                    group: name.clone(),
                    version: text(&version["version"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    plural: text(&resource["resource"]),
                    namespaced: resource["scope"] == "Namespaced",
                    deletes_collections: has(verbs, "deletecollection"),
                    watchable: has(verbs, "watch"),
                };
                keep(served, verbs, seen, found);
            }
        }
    }
}

fn group_versions(root: &str, answer: &Value) -> Vec<(String, String)> {
    let core = list(&answer["versions"]).map(|v| (String::new(), text(v)));
    let groups = list(&answer["groups"]).flat_map(|g| list(&g["versions"]).map(|v| (text(&g["name"]), text(&v["version"]))));
    if root == "/api" { core.collect() } else { groups.collect() }
}

async fn legacy(
    client: &kube::Client,
    root: &str,
    answer: &Value,
    seen: &mut HashSet<(String, String)>,
    found: &mut Discovered,
) -> Result<()> {
    let versions = group_versions(root, answer);
    for (group, version) in versions {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let Ok(resources) = send(client, http::Request::get(&path).body(Vec::new())?).await else {
            found.failed.push(format!("{group}/{version}"));
            continue;
        };
        for resource in list(&resources["resources"]).filter(|r| !text(&r["name"]).contains('/')) {
            let verbs = &resource["verbs"];
            let served = Served {
                group: group.clone(),
                version: version.clone(),
                kind: text(&resource["kind"]),
                plural: text(&resource["name"]),
                namespaced: resource["namespaced"] == true,
                deletes_collections: has(verbs, "deletecollection"),
                watchable: has(verbs, "watch"),
            };
            keep(served, verbs, seen, found);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_version_of_a_resource_counts_and_stale_ones_are_named() {
        let resource = |name: &str| json!({"resource": name, "scope": "Namespaced", "responseKind": {"kind": "X"}, "verbs": ["list", "delete", "watch"]});
        let answer = json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v2", "resources": [resource("xs"), {"resource": "readonly", "verbs": ["list"]}]},
            {"version": "v1", "resources": [resource("xs"), resource("ys")]},
            {"version": "v0", "freshness": "Stale"}]}]});
        let mut found = Discovered::default();
        aggregated(&answer, &mut HashSet::new(), &mut found);
        let names: Vec<_> = found.kinds.iter().map(|k| k.collection("n")).collect();
        assert_eq!(names, ["/apis/g/v2/namespaces/n/xs", "/apis/g/v1/namespaces/n/ys"]);
        assert_eq!(found.failed, ["g/v0"]);
    }
}
