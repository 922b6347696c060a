//! The one document of OpenAPI v2, with all groups in it.

use serde_json::{Map, Value, json};

use super::paths;
use super::schemas::{Dialect, Schemas};
use crate::registry::{Registry, ResourceDef};

/// `GET /openapi/v2` as JSON.
pub fn document(registry: &Registry) -> Value {
    let mut schemas = Schemas::new(Dialect::V2, None);
    let mut all = Map::new();
    for group in registry.groups() {
        for (version, _) in &group.versions {
            let defs: Vec<&ResourceDef> = registry.version_rows(&group.name, version).map(AsRef::as_ref).collect();
            if let Value::Object(paths) = paths::of_version(&group.name, version, &defs, &mut schemas) {
                all.extend(paths);
            }
        }
    }
    let groups: Vec<(&str, &str)> =
        registry.groups().iter().flat_map(|g| g.versions.iter().map(|(v, _)| (g.name.as_str(), v.as_str()))).collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": crate::API_VERSION},
        "paths": all,
        "definitions": schemas.finish(&groups),
        "securityDefinitions": {"BearerToken": {"description": "Bearer Token authentication", "in": "header", "name": "authorization",
            "type": "apiKey"}},
        "security": [{"BearerToken": []}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_references_resolve() {
        let document = document(&Registry::builtin());
        let definitions = document["definitions"].as_object().unwrap();
        assert!(definitions.len() > 500, "{}", definitions.len());
        for reference in document.to_string().split("\"#/definitions/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(definitions.contains_key(name), "{name}");
        }
    }
}
