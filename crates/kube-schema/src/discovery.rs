//! Discovery documents, legacy and aggregated, rendered from a snapshot of the registry.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::registry::{GroupDef, Registry, ResourceDef, SubresourceDef};

/// Where clients find the server: `serverAddressByClientCIDRs` of the core API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub client_cidr: String,
    /// `host:port`.
    pub server_address: String,
}

/// `GET /api`.
pub fn api_versions(registry: &Registry, addresses: &[ServerAddress]) -> Value {
    let versions: Vec<&str> = registry.group("").map(|g| g.versions.iter().map(|v| v.0.as_str()).collect()).unwrap_or_default();
    let addresses: Vec<Value> =
        addresses.iter().map(|a| json!({"clientCIDR": a.client_cidr, "serverAddress": a.server_address})).collect();
    json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": addresses})
}

fn group_value(group: &GroupDef) -> Value {
    let version = |v: &str| json!({"groupVersion": format!("{}/{v}", group.name), "version": v});
    let versions: Vec<Value> = group.versions.iter().map(|(v, _)| version(v)).collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group.name, "versions": versions, "preferredVersion": preferred})
}

/// `GET /apis`.
pub fn api_groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry.groups().iter().filter(|g| !g.name.is_empty()).map(group_value).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/GROUP`; `None` if the group is not served.
pub fn api_group(registry: &Registry, name: &str) -> Option<Value> {
    let mut value = group_value(registry.group(name).filter(|g| !g.name.is_empty())?);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

/// Hash of the version that a resource is stored in, as upstream computes it.
fn storage_version_hash(def: &ResourceDef) -> String {
    let identity = format!("{}/{}/{}", def.storage.group, def.storage.version, def.storage.kind);
    STANDARD.encode(&Sha256::digest(identity)[..8])
}

fn resource_value(def: &ResourceDef) -> Value {
    let mut value = json!({"name": def.plural, "singularName": def.singular, "namespaced": def.namespaced, "kind": def.kind,
        "verbs": def.verbs});
    if !def.short_names.is_empty() {
        value["shortNames"] = json!(def.short_names);
    }
    if !def.categories.is_empty() {
        value["categories"] = json!(def.categories);
    }
    if def.is_stored {
        value["storageVersionHash"] = storage_version_hash(def).into();
    }
    value
}

/// Whether a subresource's body is of another group or version than its resource.
fn is_foreign(def: &ResourceDef, sub: &SubresourceDef) -> bool {
    sub.group != def.group || sub.version != def.version
}

fn subresource_value(def: &ResourceDef, sub: &SubresourceDef) -> Value {
    let mut value = json!({"name": format!("{}/{}", def.plural, sub.name), "singularName": "", "namespaced": def.namespaced,
        "kind": sub.kind, "verbs": sub.verbs});
    if is_foreign(def, sub) {
        value["group"] = sub.group.as_str().into();
        value["version"] = sub.version.as_str().into();
    }
    value
}

/// `GET /api/v1`, `GET /apis/GROUP/VERSION`; `None` if the version is not served.
pub fn api_resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    registry.group(group)?.versions.iter().find(|v| v.0 == version)?;
    let mut resources = Vec::new();
    for def in registry.version_rows(group, version) {
        resources.push(resource_value(def));
        resources.extend(def.subresources.iter().map(|sub| subresource_value(def, sub)));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut value = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    // The core list has no apiVersion, the others have.
    if !group.is_empty() {
        value["apiVersion"] = "v1".into();
    }
    Some(value)
}

fn aggregated_resource(def: &ResourceDef) -> Value {
    // Built-in kinds leave the group and version of their own kind out.
    let kind = |group: &str, version: &str, kind: &str, is_own: bool| {
        let (group, version) = if is_own && !def.is_custom() { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut value = json!({"resource": def.plural, "responseKind": kind(&def.group, &def.version, &def.kind, true),
        "scope": if def.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": def.singular, "verbs": def.verbs});
    if !def.short_names.is_empty() {
        value["shortNames"] = json!(def.short_names);
    }
    if !def.categories.is_empty() {
        value["categories"] = json!(def.categories);
    }
    let subresources: Vec<Value> = def
        .subresources
        .iter()
        .map(|sub| {
            let response = kind(&sub.group, &sub.version, &sub.kind, !is_foreign(def, sub));
            json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        value["subresources"] = Value::Array(subresources);
    }
    value
}

/// One group of an aggregated document (`apidiscovery.k8s.io/v2`).
pub fn aggregated_group(registry: &Registry, group: &GroupDef) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, _)| {
            let resources: Vec<Value> = registry.version_rows(&group.name, version).map(|def| aggregated_resource(def)).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated(items: Vec<Value>) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// `GET /api` in aggregated form.
pub fn aggregated_core(registry: &Registry) -> Value {
    aggregated(registry.group("").map(|g| aggregated_group(registry, g)).into_iter().collect())
}

/// `GET /apis` in aggregated form.
pub fn aggregated_groups(registry: &Registry) -> Value {
    aggregated(registry.groups().iter().filter(|g| !g.name.is_empty()).map(|g| aggregated_group(registry, g)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_by_priority_with_the_preferred_version_first() {
        let registry = Registry::builtin();
        let groups = api_groups(&registry);
        assert_eq!(groups["groups"][0]["name"], "apiregistration.k8s.io");
        assert_eq!(groups["groups"][1]["name"], "apps");
        assert_eq!(api_group(&registry, "autoscaling").unwrap()["preferredVersion"]["version"], "v2");
        assert!(api_group(&registry, "none").is_none());
    }

    #[test]
    fn foreign_subresources_name_their_group() {
        let list = api_resources(&Registry::builtin(), "", "v1").unwrap();
        let find = |name: &str| list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone();
        assert_eq!(find("pods/eviction")["group"], "policy");
        assert!(find("pods/exec").get("group").is_none());
        assert_eq!(find("pods")["shortNames"], json!(["po"]));
        assert!(find("bindings").get("storageVersionHash").is_none());
    }

    #[test]
    fn the_aggregated_document_has_every_version() {
        let document = aggregated_groups(&Registry::builtin());
        let items = document["items"].as_array().unwrap();
        assert_eq!(items.len(), 20);
        let scaling = items.iter().find(|i| i["metadata"]["name"] == "autoscaling").unwrap();
        assert_eq!(scaling["versions"][1]["version"], "v1");
    }
}
