//! Custom resource definitions: names, versions, conversion, columns. What all versions have in common is reported at the top of
//! the spec, where upstream's internal form keeps it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, flag, has, is_empty, list, map, text, texts};
use super::definition_schema;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const SELECTABLE_FIELDS_MAX: usize = 8;
const WARNING_BYTES_MAX: usize = 256;
const APPROVAL: &str = "api-approved.kubernetes.io";

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "definition" => definition,
        "definition_names" => definition_names,
        _ => return None,
    };
    Some(rule)
}

fn definition<'a>(c: &mut Check<'a>, crd: &'a Value, root: &Path<'_>) {
    let spec = at(crd, "spec");
    let path = root.field("spec");
    let (name, group, plural) = (text(crd, "metadata.name"), text(spec, "group"), text(spec, "names.plural"));
    if !c.is_update() && name != format!("{plural}.{group}") {
        c.invalid(&root.field("metadata.name"), name, "must be spec.names.plural+\".\"+spec.group");
    }
    group_and_scope(c, spec, &path);
    versions(c, spec, &path);
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(at(spec, "names"), field).is_empty() {
            c.required(&path.field("names").field(field), "");
        }
    }
    definition_names(c, at(spec, "names"), &path.field("names"));
    shared(c, spec, &path);
    conversion(c, at(spec, "conversion"), &path.field("conversion"));
    if c.is_update() {
        let old = at(c.old, "spec");
        let conditions = list(c.old, "status.conditions");
        let is_established = conditions.iter().any(|o| text(o, "type") == "Established" && text(o, "status") == "True");
        let fixed: &[&str] =
            if is_established { &["scope", "names.kind", "group", "names.plural"] } else { &["group", "names.plural"] };
        for field in fixed {
            c.immutable(&path.field(field), at(spec, field), at(old, field));
        }
    }
    definition_names(c, at(crd, "status.acceptedNames"), &root.field("status.acceptedNames"));
    stored_versions(c, crd, root);
    approval(c, crd, root);
    if flag(spec, "preserveUnknownFields") && !flag(c.old, "spec.preserveUnknownFields") {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        c.invalid(&path.field("preserveUnknownFields"), true, detail);
    }
}

fn group_and_scope(c: &mut Check<'_>, spec: &Value, path: &Path<'_>) {
    let group = text(spec, "group");
    let problems = names::dns_subdomain(group);
    if group.is_empty() {
        c.required(&path.field("group"), "");
    } else if !problems.is_empty() {
        c.invalid(&path.field("group"), group, problems.join(","));
    } else if !group.contains('.') {
        c.invalid(&path.field("group"), group, "should be a domain with at least one dot");
    }
    match text(spec, "scope") {
        "" => c.required(&path.field("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => c.not_supported(&path.field("scope"), other, &["Cluster", "Namespaced"]),
    }
}

/// Whether every version says the same in a field.
fn is_shared(spec: &Value, field: &str) -> bool {
    let versions = list(spec, "versions");
    versions.iter().all(|v| at(v, field) == at(&versions[0], field))
}

fn versions<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let all = list(spec, "versions");
    let place = path.field("versions");
    for (i, _) in all.iter().enumerate().filter(|(_, v)| !has(v, "schema.openAPIV3Schema")) {
        c.required(&place.index(i).field("schema.openAPIV3Schema"), "");
    }
    let mut seen = BTreeSet::new();
    let mut is_unique = true;
    for (i, version) in all.iter().enumerate() {
        let path = place.index(i);
        let name = text(version, "name");
        is_unique &= seen.insert(name);
        let problems = names::dns_1035_label(name);
        if !problems.is_empty() {
            c.invalid(&path.field("name"), name, problems.join(","));
        }
        warning(c, version, &path);
        if !is_shared(spec, "schema") {
            definition_schema::validation(c, version, at(version, "schema"), &path.field("schema"));
        }
        if !is_shared(spec, "subresources") {
            subresources(c, at(version, "subresources"), &path.field("subresources"));
        }
        if !is_shared(spec, "additionalPrinterColumns") {
            columns(c, version, &path);
        }
        if !is_shared(spec, "selectableFields") {
            selectable_fields(c, version, at(version, "schema.openAPIV3Schema"), &path);
        }
    }
    let storage = all.iter().filter(|v| flag(v, "storage")).count();
    if !is_unique {
        c.invalid(&place, all.to_vec(), "must contain unique version names");
    }
    if storage != 1 {
        c.invalid(&place, all.to_vec(), "must have exactly one version marked as storage version");
    }
    if let Some(first) = all.first() {
        let problems = names::dns_1035_label(text(first, "name"));
        if !problems.is_empty() {
            c.invalid(&path.field("version"), text(first, "name"), problems.join(","));
        }
    }
}

fn shared<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let Some(first) = list(spec, "versions").first() else { return };
    if is_shared(spec, "schema") {
        definition_schema::validation(c, first, at(first, "schema"), &path.field("validation"));
    }
    if is_shared(spec, "subresources") {
        subresources(c, at(first, "subresources"), &path.field("subresources"));
    }
    if is_shared(spec, "additionalPrinterColumns") {
        columns(c, first, path);
    }
    if is_shared(spec, "selectableFields") {
        selectable_fields(c, first, at(first, "schema.openAPIV3Schema"), path);
    }
}

fn warning(c: &mut Check<'_>, version: &Value, path: &Path<'_>) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let path = path.field("deprecationWarning");
    if !flag(version, "deprecated") {
        return c.invalid(&path, warning, "can only be set for deprecated versions");
    }
    if warning.len() > WARNING_BYTES_MAX {
        c.invalid(&path, warning, format!("must be <= {WARNING_BYTES_MAX} characters long"));
    }
    if warning.is_empty() {
        c.invalid(&path, warning, "must not be an empty string");
    }
    if let Some((i, _)) = warning.char_indices().find(|(_, ch)| ch.is_control()) {
        let detail = format!("must only contain printable UTF-8 characters; non-printable character found at index {i}");
        c.invalid(&path, warning, detail);
    }
}

fn definition_names<'a>(c: &mut Check<'a>, found: &'a Value, path: &Path<'_>) {
    for field in ["plural", "singular"] {
        let name = text(found, field);
        let problems = names::dns_1035_label(name);
        if !name.is_empty() && !problems.is_empty() {
            c.invalid(&path.field(field), name, problems.join(","));
        }
    }
    for field in ["kind", "listKind"] {
        let name = text(found, field);
        let problems = names::dns_1035_label(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            c.invalid(&path.field(field), name, detail);
        }
    }
    let kind = text(found, "kind");
    for field in ["shortNames", "categories"] {
        if field == "categories" && !kind.is_empty() && kind == text(found, "listKind") {
            c.invalid(&path.field("listKind"), kind, "kind and listKind may not be the same");
        }
        let path = path.field(field);
        for (i, name) in texts(found, field).into_iter().enumerate() {
            let problems = names::dns_1035_label(name);
            if !problems.is_empty() {
                c.invalid(&path.index(i), name, problems.join(","));
            }
        }
    }
}

fn simple_json_path(c: &mut Check<'_>, value: &str, path: &Path<'_>) -> bool {
    let is_dotted = value.starts_with('.');
    if !is_dotted {
        c.invalid(path, value, "must be a simple json path starting with .");
    }
    is_dotted
}

fn subresources(c: &mut Check<'_>, found: &Value, path: &Path<'_>) {
    if !has(found, "scale") {
        return;
    }
    let path = path.field("scale");
    for (field, part) in [("specReplicasPath", "spec"), ("statusReplicasPath", "status")] {
        let value = text(at(found, "scale"), field);
        let place = path.field(field);
        if value.is_empty() {
            c.required(&place, "");
        } else if simple_json_path(c, value, &place) && !value.starts_with(&format!(".{part}.")) {
            c.invalid(&place, value, format!("should be a json path under .{part}"));
        }
    }
    let selector = text(found, "scale.labelSelectorPath");
    let place = path.field("labelSelectorPath");
    let is_inside = selector.starts_with(".spec.") || selector.starts_with(".status.");
    if !selector.is_empty() && simple_json_path(c, selector, &place) && !is_inside {
        c.invalid(&place, selector, "should be a json path under either .spec or .status");
    }
}

fn columns(c: &mut Check<'_>, version: &Value, path: &Path<'_>) {
    let path = path.field("additionalPrinterColumns");
    for (i, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        let path = path.index(i);
        if text(column, "name").is_empty() {
            c.required(&path.field("name"), "");
        }
        let kind = text(column, "type");
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            c.required(&path.field("type"), detail);
        } else if !COLUMN_TYPES.contains(&kind) {
            c.invalid(&path.field("type"), kind, detail);
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            c.invalid(&path.field("format"), format, format!("must be one of {}", COLUMN_FORMATS.join(",")));
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            c.required(&path.field("JSONPath"), "");
        } else {
            simple_json_path(c, json_path, &path.field("JSONPath"));
        }
    }
}

/// The schema of a dotted field path, arrays left out.
fn schema_at<'v>(schema: &'v Value, path: &str) -> Option<&'v Value> {
    path.strip_prefix('.')?.split('.').try_fold(schema, |s, field| match s.get("properties").and_then(|p| p.get(field)) {
        Some(found) => Some(found),
        None => s.get("additionalProperties").filter(|a| a.is_object()),
    })
}

fn selectable_fields(c: &mut Check<'_>, version: &Value, schema: &Value, path: &Path<'_>) {
    let fields = list(version, "selectableFields");
    let path = path.field("selectableFields");
    let mut seen = BTreeSet::new();
    for (i, field) in fields.iter().enumerate() {
        let path = path.index(i);
        let path = path.field("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            c.required(&path, "");
            continue;
        }
        let is_metadata = json_path.starts_with(".metadata.") || json_path == ".metadata";
        let Some(found) = schema_at(schema, json_path).or(if is_metadata { Some(&Value::Null) } else { None }) else {
            c.invalid(&path, json_path, "is an invalid path: does not refer to a valid field");
            continue;
        };
        if is_metadata {
            c.invalid(&path, json_path, "must not point to fields in metadata");
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            c.invalid(&path, json_path, detail);
        }
        if !seen.insert(json_path) {
            c.duplicate(&path, json_path);
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        c.too_many(&path, seen.len(), SELECTABLE_FIELDS_MAX);
    }
}

fn conversion(c: &mut Check<'_>, found: &Value, path: &Path<'_>) {
    if found.is_null() {
        return;
    }
    let (client, versions) = (path.field("webhookClientConfig"), path.field("conversionReviewVersions"));
    let (config, reviews) = (at(found, "webhook.clientConfig"), at(found, "webhook.conversionReviewVersions"));
    let strategy = text(found, "strategy");
    match strategy {
        "" => c.required(&path.field("strategy"), ""),
        "None" | "Webhook" => {}
        other => c.not_supported(&path.field("strategy"), other, &["None", "Webhook"]),
    }
    if strategy != "Webhook" {
        const DETAIL: &str = "should not be set when strategy is not set to Webhook";
        if !config.is_null() {
            c.forbidden(&client, DETAIL);
        }
        if !is_empty(reviews) {
            c.forbidden(&versions, DETAIL);
        }
        return;
    }
    if config.is_null() {
        c.required(&client, "required when strategy is set to Webhook");
    } else {
        super::admission::client_config(c, config, &client);
    }
    let reviews: Vec<&str> = reviews.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if reviews.is_empty() {
        return c.required(&versions, "");
    }
    for (i, version) in reviews.iter().enumerate() {
        if reviews[..i].contains(version) {
            c.invalid(&versions.index(i), *version, "duplicate version");
        } else {
            c.invalid_each(&versions.index(i), version, names::dns_1035_label(version));
        }
    }
    if !reviews.iter().any(|v| matches!(*v, "v1" | "v1beta1")) {
        c.invalid(&versions, reviews.clone(), "must include at least one of v1, v1beta1");
    }
}

fn stored_versions(c: &mut Check<'_>, crd: &Value, root: &Path<'_>) {
    let versions = list(crd, "spec.versions");
    let path = root.field("status.storedVersions");
    let mut stored = texts(crd, "status.storedVersions");
    if stored.is_empty() && !c.is_update() {
        stored = versions.iter().filter(|v| flag(v, "storage")).map(|v| text(v, "name")).take(1).collect();
    }
    if stored.is_empty() {
        return c.invalid(&path, Value::Null, "must have at least one stored version");
    }
    let mut left = stored.clone();
    for version in versions {
        let name = text(version, "name");
        let count = left.len();
        left.retain(|s| *s != name);
        if flag(version, "storage") && left.len() == count {
            c.invalid(&path, stored.clone(), format!("must have the storage version {name}"));
        }
    }
    for name in left {
        let index = stored.iter().position(|s| *s == name).unwrap_or_default();
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        c.invalid(&path.index(index), name, detail);
    }
}

fn approval(c: &mut Check<'_>, crd: &Value, root: &Path<'_>) {
    let group = text(crd, "spec.group");
    let is_protected = ["k8s.io", "kubernetes.io"].iter().any(|d| group == *d || group.ends_with(&format!(".{d}")));
    if !is_protected {
        return;
    }
    let annotation = |object: &Value| {
        let found = map(object, "metadata.annotations").and_then(|a| a.get(APPROVAL));
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let is_fine =
        |a: &str| a.starts_with("unapproved") || a.split_once("://").is_some_and(|(s, r)| !s.is_empty() && !r.is_empty());
    let now = annotation(crd);
    let was_same = c.is_update() && {
        let before = annotation(c.old);
        before.is_empty() == now.is_empty() && is_fine(&before) == is_fine(&now)
    };
    if was_same || is_fine(&now) {
        return;
    }
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let path = root.field("metadata.annotations");
    let path = path.key(APPROVAL);
    if now.is_empty() {
        c.required(&path, format!("protected groups must have approval annotation {APPROVAL:?}, {SEE}"));
    } else {
        let detail = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \"unapproved\", {SEE}"
        );
        c.invalid(&path, now, detail);
    }
}
