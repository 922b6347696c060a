//! OpenAPI documents, rendered from a snapshot of the registry and thrown away after sending: v3 per group and version, v2 for all (JSON
//! or protobuf).
//!
//! Structure is upstream's: definitions with list types, merge keys and defaults, paths with their parameters (clients look there for
//! `fieldValidation` and `dryRun`). Descriptions are left out.

mod custom;
mod operations;
mod paths;
mod schemas;
mod v2;
mod v2_protobuf;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::registry::{Registry, ResourceDef};
use schemas::Dialect;

pub use v2::document as v2_document;
pub use v2_protobuf::encode as v2_protobuf;

/// URL path of a group and version under the server's root (`api/v1`, `apis/apps/v1`).
pub fn root_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// A hash that changes whenever the document of a group and version does.
pub fn v3_hash(registry: &Registry, group: &str, version: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(root_path(group, version));
    for def in registry.version_rows(group, version) {
        hasher.update(format!("{}/{}/{:?}/{}", def.plural, def.kind, def.verbs, def.namespaced));
        for sub in &def.subresources {
            hasher.update(format!("{}{:?}", sub.name, sub.verbs));
        }
        if let Some(schema) = custom::structural(def) {
            hasher.update(custom::to_json(schema).to_string());
        }
    }
    hasher.finalize()[..16].iter().map(|b| format!("{b:02X}")).collect()
}

/// `GET /openapi/v3`: where the documents are. `extra` names paths of documents served by others (aggregated APIs) with their hash.
pub fn v3_index(registry: &Registry, extra: &[(String, String)]) -> Value {
    let mut paths = Map::new();
    let mut add = |path: String, hash: &str| {
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    for group in registry.groups() {
        for (version, _) in &group.versions {
            add(root_path(&group.name, version), &v3_hash(registry, &group.name, version));
        }
    }
    for (path, hash) in extra {
        add(path.clone(), hash);
    }
    json!({"paths": paths})
}

/// `GET /openapi/v3/apis/GROUP/VERSION`; `None` if it is not served.
pub fn v3_document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    registry.group(group)?.versions.iter().find(|v| v.0 == version)?;
    let defs: Vec<&ResourceDef> = registry.version_rows(group, version).map(AsRef::as_ref).collect();
    let mut schemas = schemas::Schemas::new(Dialect::V3, Some((group, version)));
    let paths = paths::of_version(group, version, &defs, &mut schemas);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::API_VERSION},
        "paths": paths,
        "components": {
            "schemas": schemas.finish(&[]),
            "securitySchemes": {"BearerToken": {"description": "Bearer Token authentication", "in": "header", "name": "authorization",
                "type": "apiKey"}},
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_resolves_all_its_references() {
        let registry = Registry::builtin();
        for group in registry.groups() {
            for (version, _) in &group.versions {
                let document = v3_document(&registry, &group.name, version).unwrap();
                let schemas = document["components"]["schemas"].as_object().unwrap();
                let text = document.to_string();
                for reference in text.split("\"#/components/schemas/").skip(1) {
                    let name = reference.split('"').next().unwrap();
                    assert!(schemas.contains_key(name), "{name}");
                }
            }
        }
    }

    #[test]
    fn clients_find_field_validation_and_merge_keys() {
        let document = v3_document(&Registry::builtin(), "", "v1").unwrap();
        let post = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
        assert!(post["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
        let containers = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    }

    #[test]
    fn custom_kinds_are_documented_and_change_the_hash() {
        let crd = json!({"spec": {"group": "e.io", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}}}}}]}});
        let registry = Registry::builtin().with(ResourceDef::from_crd(&crd).unwrap());
        let document = v3_document(&registry, "e.io", "v1").unwrap();
        let schema = &document["components"]["schemas"]["io.e.v1.W"];
        assert_eq!(schema["properties"]["spec"]["properties"]["size"]["minimum"], 1);
        assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "W");
        let mut changed = crd.clone();
        changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["minimum"] =
            2.into();
        let other = Registry::builtin().with(ResourceDef::from_crd(&changed).unwrap());
        assert_ne!(v3_hash(&registry, "e.io", "v1"), v3_hash(&other, "e.io", "v1"));
    }
}
