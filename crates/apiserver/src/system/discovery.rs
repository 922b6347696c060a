//! Discovery: which groups, versions and resources are served; legacy documents and the aggregated ones.

use atoll_kube_schema::registry::GroupDef;
use atoll_kube_schema::{Registry, ResourceDef, SubresourceDef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::{ApiError, Result};
use crate::stored::api_version;

/// A document and, where the client asked for a special form, its media type.
pub struct Document {
    pub value: Value,
    pub media_type: Option<&'static str>,
}

const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

pub fn serve(registry: &Registry, segments: &[&str], headers: &HeaderMap) -> Result<Document> {
    let plain = |value| Ok(Document { value, media_type: None });
    match segments {
        ["api"] | ["apis"] => {
            if let Some((version, media_type)) = aggregated(headers) {
                let value = group_discovery_list(registry, segments[0] == "api", version);
                return Ok(Document { value, media_type: Some(media_type) });
            }
            if segments[0] == "api" { plain(core_versions()) } else { plain(group_list(registry)) }
        }
        ["api", version] => plain(resource_list(registry, "", version)?),
        ["apis", group] => plain(group_document(registry, group)?),
        ["apis", group, version] => plain(resource_list(registry, group, version)?),
        _ => Err(ApiError::no_such_path()),
    }
}

/// The version of aggregated discovery that the client prefers, if it takes one.
fn aggregated(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    for clause in accept.split(',') {
        let has = |word: &str| clause.split(';').any(|w| w.trim() == word);
        if !has("as=APIGroupDiscoveryList") || !has("g=apidiscovery.k8s.io") || !clause.trim().starts_with("application/json") {
            if clause.trim() == "application/json" || clause.trim() == "*/*" {
                return None;
            }
            continue;
        }
        if has("v=v2") {
            return Some(("v2", AGGREGATED_V2));
        }
        if has("v=v2beta1") {
            return Some(("v2beta1", AGGREGATED_V2BETA1));
        }
    }
    None
}

fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }] })
}

fn group_value(group: &GroupDef) -> Value {
    let version = |v: &str| json!({ "groupVersion": api_version(&group.name, v), "version": v });
    let versions: Vec<Value> = group.versions.iter().map(|(v, _)| version(v)).collect();
    json!({ "name": group.name, "versions": versions, "preferredVersion": versions.first() })
}

fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry.groups().iter().filter(|g| !g.name.is_empty()).map(group_value).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn group_document(registry: &Registry, name: &str) -> Result<Value> {
    let group = registry.group(name).filter(|g| !g.name.is_empty()).ok_or_else(ApiError::no_such_path)?;
    let mut value = group_value(group);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Ok(value)
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Result<Value> {
    let is_served = registry.group(group).is_some_and(|g| g.versions.iter().any(|(v, _)| v == version));
    if !is_served {
        return Err(ApiError::no_such_path());
    }
    let mut resources: Vec<Value> = Vec::new();
    for row in registry.version_rows(group, version) {
        resources.push(resource(row));
        resources.extend(row.subresources.iter().map(|s| subresource(row, s)));
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    Ok(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": resources,
    }))
}

fn resource(row: &ResourceDef) -> Value {
    let mut value = json!({
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": row.verbs,
    });
    if !row.short_names.is_empty() {
        value["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        value["categories"] = json!(row.categories);
    }
    if row.is_stored {
        value["storageVersionHash"] = storage_version_hash(row).into();
    }
    value
}

fn subresource(row: &ResourceDef, sub: &SubresourceDef) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", row.plural, sub.name),
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if (&sub.group, &sub.version) != (&row.group, &row.version) {
        value["group"] = sub.group.as_str().into();
        value["version"] = sub.version.as_str().into();
    }
    value
}

/// Tells clients when the storage version changes: the first eight bytes of a hash of group, version and kind, in base64.
fn storage_version_hash(row: &ResourceDef) -> String {
    let storage = &row.storage;
    let digest = Sha256::digest(format!("{}/{}/{}", storage.group, storage.version, storage.kind));
    STANDARD.encode(&digest[..8])
}

fn group_discovery_list(registry: &Registry, is_core: bool, discovery_version: &str) -> Value {
    let groups = registry.groups().iter().filter(|g| g.name.is_empty() == is_core);
    let items: Vec<Value> = groups.map(|g| group_discovery(registry, g)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{discovery_version}"),
        "metadata": {},
        "items": items,
    })
}

fn group_discovery(registry: &Registry, group: &GroupDef) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, _)| {
            let resources: Vec<Value> = registry.version_rows(&group.name, version).map(|r| resource_discovery(r)).collect();
            json!({ "version": version, "resources": resources, "freshness": "Current" })
        })
        .collect();
    let mut metadata = json!({ "creationTimestamp": null });
    if !group.name.is_empty() {
        metadata["name"] = group.name.as_str().into();
    }
    json!({ "metadata": metadata, "versions": versions })
}

fn resource_discovery(row: &ResourceDef) -> Value {
    let response_kind = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let mut value = json!({
        "resource": row.plural,
        "responseKind": response_kind(&row.group, &row.version, &row.kind),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": row.verbs,
    });
    if !row.short_names.is_empty() {
        value["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        value["categories"] = json!(row.categories);
    }
    if !row.subresources.is_empty() {
        let mut subresources: Vec<&SubresourceDef> = row.subresources.iter().collect();
        subresources.sort_by(|a, b| a.name.cmp(&b.name));
        value["subresources"] = subresources
            .iter()
            .map(|s| {
                json!({
                    "subresource": s.name,
                    "responseKind": response_kind(&s.group, &s.version, &s.kind),
                    "verbs": s.verbs,
                })
            })
            .collect();
    }
    value
}
