//! Sources of environment variables and the downward API.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::formats;
use super::super::path::Path;
use super::super::view::{has, list, text};

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] =
    ["limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"];
const SOURCES: [(&str, &str); 5] = [
    ("fieldRef", "EnvSource.fieldRef"),
    ("resourceFieldRef", "EnvSource.resourceFieldRef"),
    ("configMapKeyRef", "EnvSource.configMapKeyRef"),
    ("secretKeyRef", "EnvSource.secretKeyRef"),
    ("fileKeyRef", "EnvSource.fileKeyRef"),
];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "env_value_from" => value_from,
        "env_field_ref" => |c, v, p| field_selector(c, v, &ENV_FIELDS, p),
        "env_resource_ref" => |c, v, p| resource_selector(c, v, p, false),
        "env_from" => env_from,
        "downward_file" => downward_file,
        "file_key_volumes" => file_key_volumes,
        _ => return None,
    };
    Some(rule)
}

fn value_from<'a>(c: &mut Check<'a>, variable: &'a Value, path: &Path<'_>) {
    let Some(source) = variable.get("valueFrom").filter(|v| !v.is_null()) else { return };
    let path = path.field("valueFrom");
    let mut count = 0;
    for (field, section) in SOURCES {
        if has(source, field) {
            count += 1;
            c.section(section, &source[field], &path.field(field));
        }
    }
    if count == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        c.invalid(&path, "", detail);
    } else if !text(variable, "value").is_empty() {
        c.invalid(&path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        c.invalid(&path, "", "may not have more than one field specified at a time");
    }
}

/// `name['key']` in parts.
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (name, rest) = field.strip_suffix("']")?.split_once("['")?;
    Some((name, rest))
}

/// Whether the downward API knows the field at all.
fn is_convertible(field: &str) -> bool {
    if let Some((name, _)) = subscript(field) {
        return matches!(name, "metadata.annotations" | "metadata.labels");
    }
    matches!(
        field,
        "metadata.annotations"
            | "metadata.labels"
            | "spec.restartPolicy"
            | "spec.schedulerName"
            | "status.phase"
            | "status.nominatedNodeName"
            | "spec.hostNetwork"
    ) || ENV_FIELDS.contains(&field)
        || field == "spec.host"
}

fn field_selector(c: &mut Check<'_>, selector: &Value, allowed: &[&str], path: &Path<'_>) {
    let (version, field) = (text(selector, "apiVersion"), text(selector, "fieldPath"));
    if version.is_empty() {
        return c.required(&path.field("apiVersion"), "");
    }
    let field_path = path.field("fieldPath");
    if field.is_empty() {
        return c.required(&field_path, "");
    }
    if version != "v1" || !is_convertible(field) {
        let why = if version == "v1" {
            format!("field label not supported: {}", subscript(field).map_or(field, |(name, _)| name))
        } else {
            format!("unsupported pod version: {version}")
        };
        return c.invalid(&field_path, field, format!("error converting fieldPath: {why}"));
    }
    match subscript(field) {
        Some(("metadata.annotations", key)) => c.qualified_name(path, &key.to_lowercase()),
        Some(("metadata.labels", key)) => c.qualified_name(path, key),
        Some((name, _)) => c.invalid(path, name, "does not support subscript"),
        None if !allowed.contains(&field) => c.not_supported(&field_path, field, allowed),
        None => {}
    }
}

fn resource_selector(c: &mut Check<'_>, selector: &Value, path: &Path<'_>, is_volume: bool) {
    let resource = text(selector, "resource");
    let is_huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if is_volume && text(selector, "containerName").is_empty() {
        c.required(&path.field("containerName"), "");
    } else if resource.is_empty() {
        c.required(&path.field("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge {
        c.not_supported(&path.field("resource"), resource, &RESOURCES);
    }
    let divisor = text(selector, "divisor");
    if matches!(divisor, "" | "0") {
        return;
    }
    const BYTES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let (allowed, name) = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => ("1m and 1", "cpu"),
        "memory" => (BYTES, "memory"),
        "ephemeral-storage" => (BYTES, "local ephemeral storage"),
        _ if is_huge => (BYTES, "hugepages"),
        _ => return,
    };
    if !allowed.split(", ").flat_map(|part| part.split(" and ")).any(|d| d == divisor) {
        let detail = format!("only divisor's values {allowed} are supported with the {name} resource");
        c.invalid(&path.field("divisor"), resource, detail);
    }
}

fn env_from<'a>(c: &mut Check<'a>, sources: &'a Value, list_path: &Path<'_>) {
    for (i, source) in sources.as_array().into_iter().flatten().enumerate() {
        let path = list_path.index(i);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            c.invalid_each(&path.field("prefix"), prefix, formats::env_name(prefix));
        }
        let mut count = 0;
        for field in ["configMapRef", "secretRef"] {
            if !has(source, field) {
                continue;
            }
            count += 1;
            let reference = path.field(field);
            let name = text(&source[field], "name");
            if name.is_empty() {
                c.required(&reference.field("name"), "");
            } else {
                let problems = super::super::names::by_rule(crate::registry::NameRule::Subdomain, name, true);
                c.invalid_each(&reference.field("name"), name, problems);
            }
        }
        match count {
            0 => c.invalid(list_path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => c.invalid(list_path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn downward_file<'a>(c: &mut Check<'a>, file: &'a Value, path: &Path<'_>) {
    match (has(file, "fieldRef"), has(file, "resourceFieldRef")) {
        (true, other) => {
            field_selector(c, &file["fieldRef"], &VOLUME_FIELDS, &path.field("fieldRef"));
            if other {
                c.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (false, true) => resource_selector(c, &file["resourceFieldRef"], &path.field("resourceFieldRef"), true),
        (false, false) => c.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
}

fn file_key_volumes<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    super::containers::visit(spec, path, &mut |container, path| {
        let env = path.field("env");
        for (i, variable) in list(container, "env").iter().enumerate() {
            if !has(variable, "valueFrom.fileKeyRef") {
                continue;
            }
            let name = text(variable, "valueFrom.fileKeyRef.volumeName");
            let variable_path = env.index(i);
            let place = variable_path.field("valueFrom.fileKeyRef.volumeName");
            match list(spec, "volumes").iter().find(|v| text(v, "name") == name) {
                None => c.not_found(&place, name),
                Some(volume) if !has(volume, "emptyDir") => {
                    c.invalid(&place, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
