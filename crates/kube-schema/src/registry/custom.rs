//! Rows made from a `CustomResourceDefinition`.

use std::sync::Arc;

use serde_json::Value;

use super::rows::selectable;
use super::{
    GroupDef, ResourceDef, ScalePaths, SchemaSource, SelectableField, StorageIdentity, Strategy, SubresourceDef, compare_versions,
};
use crate::structural::Structural;

/// `groupPriorityMinimum` and first `versionPriority` of custom groups.
const CUSTOM_GROUP_PRIORITY: i32 = 1000;
const CUSTOM_VERSION_PRIORITY: i32 = 100;

/// Verbs of custom resources, in the order of upstream's discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// A definition that cannot become rows; CRD validation refuses these before.
#[derive(Debug, thiserror::Error)]
#[error("custom resource definition lacks {0}")]
pub struct CustomError(&'static str);

/// `additionalPrinterColumns` of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub type_name: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub json_path: String,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A simple JSON path of the CRD form (`.spec.replicas`) as a dotted path.
fn dotted(path: &str) -> String {
    path.trim_start_matches('.').to_owned()
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let list = version.get("additionalPrinterColumns").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|c| PrinterColumn {
            name: text(c, "name").to_owned(),
            type_name: text(c, "type").to_owned(),
            format: text(c, "format").to_owned(),
            description: text(c, "description").to_owned(),
            priority: c.get("priority").and_then(Value::as_i64).unwrap_or_default() as i32,
            json_path: text(c, "jsonPath").to_owned(),
        })
        .collect()
}

fn strategy(version: &Value, has_status: bool, namespaced: bool) -> Strategy {
    let mut fields: Vec<SelectableField> = vec![selectable("metadata.name")];
    if namespaced {
        fields.push(selectable("metadata.namespace"));
    }
    for field in version.get("selectableFields").and_then(Value::as_array).into_iter().flatten() {
        fields.push(selectable(&dotted(text(field, "jsonPath"))));
    }
    Strategy {
        sets_generation: true,
        generation_follows_all: true,
        reset_fields: if has_status { vec!["status".to_owned()] } else { Vec::new() },
        selectable: fields,
        ..Strategy::default()
    }
}

fn subresources(version: &Value, own: (&str, &str, &str)) -> (Vec<SubresourceDef>, Option<ScalePaths>) {
    let stated = version.get("subresources");
    let row = |name: &str, (group, version, kind): (&str, &str, &str), reset: &[&str]| SubresourceDef {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
        reset_fields: reset.iter().map(|r| (*r).to_owned()).collect(),
    };
    let mut out = Vec::new();
    if stated.and_then(|s| s.get("status")).is_some_and(|s| !s.is_null()) {
        // All but the status is reset: the walk over `spec` and its sisters is the caller's, `*` says so.
        out.push(row("status", own, &["*", "metadata"]));
    }
    let scale = stated.and_then(|s| s.get("scale")).filter(|s| s.is_object());
    let paths = scale.map(|s| ScalePaths {
        spec_replicas: dotted(text(s, "specReplicasPath")),
        status_replicas: dotted(text(s, "statusReplicasPath")),
        selector: Some(dotted(text(s, "labelSelectorPath"))).filter(|p| !p.is_empty()),
    });
    if paths.is_some() {
        out.push(row("scale", ("autoscaling", "v1", "Scale"), &[]));
    }
    (out, paths)
}

impl ResourceDef {
    /// One row per served version of a `CustomResourceDefinition`; names are taken from `status.acceptedNames` where they were
    /// accepted, else from `spec.names`.
    pub fn from_crd(crd: &Value) -> Result<Vec<ResourceDef>, CustomError> {
        let spec = crd.get("spec").ok_or(CustomError("spec"))?;
        let accepted = crd.pointer("/status/acceptedNames").filter(|n| !text(n, "plural").is_empty());
        let names = accepted.or_else(|| spec.get("names")).ok_or(CustomError("spec.names"))?;
        let versions = spec.get("versions").and_then(Value::as_array).ok_or(CustomError("spec.versions"))?;
        let stored = versions
            .iter()
            .find(|v| v.get("storage").and_then(Value::as_bool).unwrap_or(false))
            .ok_or(CustomError("a storage version"))?;
        let storage = StorageIdentity {
            group: text(spec, "group").to_owned(),
            plural: text(names, "plural").to_owned(),
            version: text(stored, "name").to_owned(),
            kind: text(names, "kind").to_owned(),
        };
        let served = versions.iter().filter(|v| v.get("served").and_then(Value::as_bool).unwrap_or(false));
        Ok(served.map(|version| row(spec, names, version, &storage)).collect())
    }
}

fn row(spec: &Value, names: &Value, version: &Value, storage: &StorageIdentity) -> ResourceDef {
    let (group, name, kind) = (&storage.group, text(version, "name"), &storage.kind);
    let namespaced = text(spec, "scope") == "Namespaced";
    let (subresources, scale) = subresources(version, (group, name, kind));
    let has_status = subresources.iter().any(|s| s.name == "status");
    let list_kind = text(names, "listKind");
    let is_deprecated = version.get("deprecated").and_then(Value::as_bool).unwrap_or(false);
    let warning = version.get("deprecationWarning").and_then(Value::as_str).map(str::to_owned);
    // `preserveUnknownFields: true` of the definition (from v1beta1 times) opens the root.
    let preserve = spec.get("preserveUnknownFields").and_then(Value::as_bool).unwrap_or(false);
    let schema = match version.pointer("/schema/openAPIV3Schema") {
        Some(json) => {
            let mut root = Structural::parse_root(json);
            root.preserve_unknown |= preserve;
            SchemaSource::Custom(Arc::new(root))
        }
        None => SchemaSource::None,
    };
    ResourceDef {
        group: group.clone(),
        version: name.to_owned(),
        kind: kind.clone(),
        list_kind: if list_kind.is_empty() { format!("{kind}List") } else { list_kind.to_owned() },
        plural: storage.plural.clone(),
        singular: Some(text(names, "singular")).filter(|s| !s.is_empty()).map_or_else(|| kind.to_lowercase(), str::to_owned),
        short_names: texts(names, "shortNames"),
        categories: texts(names, "categories"),
        namespaced,
        verbs: VERBS.iter().map(|v| (*v).to_owned()).collect(),
        strategy: strategy(version, has_status, namespaced),
        subresources,
        storage: storage.clone(),
        schema,
        is_stored: true,
        scale,
        printer_columns: columns(version),
        deprecation_warning: is_deprecated.then(|| warning.unwrap_or_else(|| format!("{group}/{name} {kind} is deprecated"))),
    }
}

/// Groups of a snapshot: the built-in ones as they are, custom ones from their rows.
pub(super) fn groups(old: &[GroupDef], rows: &[Arc<ResourceDef>]) -> Vec<GroupDef> {
    let mut out: Vec<GroupDef> = old.iter().filter(|g| g.priority != CUSTOM_GROUP_PRIORITY).cloned().collect();
    let built_in = out.len();
    for row in rows.iter().filter(|r| r.is_custom()) {
        if out[..built_in].iter().any(|g| g.name == row.group) {
            continue;
        }
        let at = out.iter().position(|g| g.name == row.group).unwrap_or_else(|| {
            out.push(GroupDef { name: row.group.clone(), priority: CUSTOM_GROUP_PRIORITY, versions: Vec::new() });
            out.len() - 1
        });
        if !out[at].versions.iter().any(|(v, _)| *v == row.version) {
            out[at].versions.push((row.version.clone(), CUSTOM_VERSION_PRIORITY));
        }
    }
    for group in &mut out[built_in..] {
        group.versions.sort_by(|a, b| compare_versions(&a.0, &b.0));
    }
    out.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    out
}

#[cfg(test)]
mod tests {
    use super::super::Registry;
    use super::*;
    use serde_json::json;

    fn crd() -> Value {
        json!({"spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
        "versions": [
            {"name": "v1beta1", "served": true, "storage": false},
            {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}},
        ]}})
    }

    #[test]
    fn a_definition_is_served_and_can_be_taken_away() {
        let registry = Registry::builtin().with(ResourceDef::from_crd(&crd()).unwrap());
        let row = registry.get("example.com", "v1", "widgets").unwrap();
        assert_eq!(row.strategy.reset_fields, ["status"]);
        assert_eq!(registry.get("example.com", "v1beta1", "widgets").unwrap().storage.version, "v1");
        let group = registry.group("example.com").unwrap();
        assert_eq!(group.versions.iter().map(|v| v.0.as_str()).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        let without = registry.without("example.com", "widgets");
        assert!(without.group("example.com").is_none());
        assert_eq!(without.groups(), Registry::builtin().groups());
    }
}
