//! Webhook configurations and admission policies. Expressions are compiled elsewhere; here they must be there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, has, int, list, same, text, texts};
use super::super::{names, selectors};

const MATCH_CONDITIONS_MAX: usize = 64;
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const VALUE_EXPRESSION_BYTES_MAX: usize = 5 * 1024;
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "webhooks" => webhooks,
        "webhook_name" => webhook_name,
        "side_effects" => side_effects,
        "webhook_client" => webhook_client,
        "review_versions" => review_versions,
        "match_conditions" => match_conditions,
        "rule_operations" => rule_operations,
        "rule_groups" => |c, v, p| alone(c, v, "apiGroups", "API groups", p),
        "rule_versions" => rule_versions,
        "rule_resources" => rule_resources,
        "selector_present" => |c, v, p| {
            if v.is_null() {
                c.required(p, "");
            } else {
                selectors::label_selector(c, v, p);
            }
        },
        "param_api_version" => param_api_version,
        "param_kind" => param_kind,
        "match_constraints" => match_constraints,
        "policy_validations" => policy_validations,
        "variable_name" => variable_name,
        "expression_present" => |c, v, p| {
            if v.as_str().unwrap_or_default().trim().is_empty() {
                c.required(p, "expression is not specified");
            }
        },
        "validation_messages" => validation_messages,
        "mutating_operations" => |c, v, p| mutating_operations(c, v, "matchConstraints", p),
        "mutating_binding_operations" => |c, v, p| mutating_operations(c, v, "matchResources", p),
        "mutation" => mutation,
        "param_ref" => param_ref,
        "validation_actions" => validation_actions,
        _ => return None,
    };
    Some(rule)
}

fn webhooks<'a>(c: &mut Check<'a>, webhooks: &'a Value, path: &Path<'_>) {
    let all = webhooks.as_array().map(Vec::as_slice).unwrap_or_default();
    let had_repeats = {
        let old = list(c.old, "webhooks");
        old.iter().enumerate().any(|(i, o)| old[..i].iter().any(|p| text(p, "name") == text(o, "name")))
    };
    for (i, hook) in all.iter().enumerate() {
        let path = path.index(i);
        c.section("Webhook", hook, &path);
        let name = text(hook, "name");
        if !had_repeats && !name.is_empty() && all[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path.field("name"), name);
        }
    }
}

fn webhook_name<'a>(c: &mut Check<'a>, name: &'a Value, path: &Path<'_>) {
    let name = name.as_str().unwrap_or_default();
    let problems = names::dns_subdomain(name);
    if name.is_empty() {
        c.required(path, "");
    } else if !problems.is_empty() {
        c.invalid(path, name, problems.join(","));
    } else if name.split('.').count() < 3 {
        c.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

fn side_effects<'a>(c: &mut Check<'a>, hook: &'a Value, path: &Path<'_>) {
    const NONE: [&str; 2] = ["None", "NoneOnDryRun"];
    let path = path.field("sideEffects");
    match text(hook, "sideEffects") {
        "" if !has(hook, "sideEffects") => c.required(&path, "must specify one of None, NoneOnDryRun"),
        found if !NONE.contains(&found) => c.not_supported(&path, found, &NONE),
        _ => {}
    }
}

fn webhook_client<'a>(c: &mut Check<'a>, hook: &'a Value, path: &Path<'_>) {
    client_config(c, at(hook, "clientConfig"), &path.field("clientConfig"));
}

/// A URL or a Service to call.
pub fn client_config(c: &mut Check<'_>, config: &Value, path: &Path<'_>) {
    match (has(config, "url"), has(config, "service")) {
        (true, false) => webhook_url(c, text(config, "url"), &path.field("url")),
        (false, true) => webhook_service(c, at(config, "service"), &path.field("service")),
        _ => c.required(path, "exactly one of url or service is required"),
    }
}

fn webhook_url(c: &mut Check<'_>, url: &str, path: &Path<'_>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    let (before_fragment, fragment) = tail.split_once('#').map_or((tail, None), |(t, f)| (t, Some(f)));
    let query = before_fragment.split_once('?').map(|(_, q)| q);
    if url.chars().any(|ch| ch.is_control() || ch == ' ') {
        return c.required(path, format!("url must be a valid URL: invalid character in URL{FORM}"));
    }
    if scheme != "https" {
        c.invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if scheme.is_empty() || host.is_empty() {
        c.invalid(path, if scheme.is_empty() { "" } else { host }, format!("host must be specified{FORM}"));
    }
    if user.is_some() {
        c.invalid(path, user.unwrap_or_default(), "user information is not permitted in the URL");
    }
    if let Some(fragment) = fragment.filter(|f| !f.is_empty()) {
        c.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if let Some(query) = query.filter(|q| !q.is_empty()) {
        c.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn webhook_service(c: &mut Check<'_>, service: &Value, path: &Path<'_>) {
    // Upstream's check takes the two the other way round, and so do its findings.
    for (field, shown) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            c.required(&path.field(shown), "");
        }
    }
    let port = int(service, "port");
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        c.invalid(&path.field("port"), port, detail);
    }
    let Some(url) = service.get("path").and_then(Value::as_str) else { return };
    let path = path.field("path");
    if url.is_empty() || url == "/" {
        return;
    }
    if url == "//" {
        return c.invalid(&path, url, "segment[0] may not be empty");
    }
    if !url.starts_with('/') {
        c.invalid(&path, url, "must start with a '/'");
    }
    let steps = url.get(1..).unwrap_or_default();
    for (i, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            c.invalid(&path, url, format!("segment[{i}] may not be empty"));
            continue;
        }
        for problem in names::dns_subdomain(step) {
            c.invalid(&path, url, format!("segment[{i}]: {problem}"));
        }
    }
}

fn review_versions<'a>(c: &mut Check<'a>, versions: &'a Value, path: &Path<'_>) {
    let all: Vec<&str> = versions.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if all.is_empty() {
        return c.required(path, "must specify one of v1, v1beta1");
    }
    for (i, version) in all.iter().enumerate() {
        if all[..i].contains(version) {
            c.invalid(&path.index(i), *version, "duplicate version");
        } else {
            c.invalid_each(&path.index(i), version, names::dns_1035_label(version));
        }
    }
    if !all.iter().any(|v| matches!(*v, "v1" | "v1beta1")) {
        c.invalid(path, versions.clone(), "must include at least one of v1, v1beta1");
    }
}

fn match_conditions<'a>(c: &mut Check<'a>, conditions: &'a Value, path: &Path<'_>) {
    if c.is_update() && same(conditions, path.resolve(c.old)) {
        return;
    }
    let all = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.len() > MATCH_CONDITIONS_MAX {
        c.too_many(path, all.len(), MATCH_CONDITIONS_MAX);
    }
    for (i, condition) in all.iter().enumerate() {
        let path = path.index(i);
        if text(condition, "expression").trim().is_empty() {
            c.required(&path.field("expression"), "");
        }
        let name = text(condition, "name");
        if name.is_empty() {
            c.required(&path.field("name"), "");
        } else {
            c.qualified_name(&path.field("name"), name);
            if all[..i].iter().any(|o| text(o, "name") == name) {
                c.duplicate(&path.field("name"), name);
            }
        }
    }
}

/// `*` has no company.
fn alone(c: &mut Check<'_>, rule: &Value, field: &str, what: &str, path: &Path<'_>) {
    let values = texts(rule, field);
    if values.len() > 1 && values.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        c.invalid(&path.field(field), list(rule, field).to_vec(), detail);
    }
}

fn rule_operations<'a>(c: &mut Check<'a>, rule: &'a Value, path: &Path<'_>) {
    alone(c, rule, "operations", "operations", path);
    let path = path.field("operations");
    for (i, operation) in texts(rule, "operations").into_iter().enumerate().filter(|(_, o)| !OPERATIONS.contains(o)) {
        c.not_supported(&path.index(i), operation, &OPERATIONS);
    }
}

fn rule_versions<'a>(c: &mut Check<'a>, rule: &'a Value, path: &Path<'_>) {
    alone(c, rule, "apiVersions", "API versions", path);
    let path = path.field("apiVersions");
    for (i, _) in texts(rule, "apiVersions").iter().enumerate().filter(|(_, v)| v.is_empty()) {
        c.required(&path.index(i), "");
    }
}

fn rule_resources<'a>(c: &mut Check<'a>, resources: &'a Value, path: &Path<'_>) {
    let all: Vec<&str> = resources.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if all.is_empty() {
        c.required(path, "");
    }
    let (mut any_sub, mut any_resource) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for (i, resource) in all.iter().enumerate() {
        if resource.is_empty() {
            c.required(&path.index(i), "");
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else {
            has_plain = *resource != "*";
            continue;
        };
        if any_sub.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            c.invalid(&path.index(i), *resource, detail);
        }
        if any_resource.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {resource}");
            c.invalid(&path.index(i), *resource, detail);
        }
        if sub == "*" {
            any_sub.insert(name);
        }
        if name == "*" {
            any_resource.insert(sub);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        c.invalid(path, resources.clone(), "if '*/*' is present, must not specify other resources");
    }
    if all.contains(&"*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        c.invalid(path, resources.clone(), detail);
    }
}

fn param_api_version<'a>(c: &mut Check<'a>, version: &'a Value, path: &Path<'_>) {
    let found = version.as_str().unwrap_or_default();
    if found.is_empty() {
        return c.required(path, "");
    }
    if found.matches('/').count() > 1 {
        return c.invalid(path, found, format!("unexpected GroupVersion string: {found}"));
    }
    let (group, version) = found.split_once('/').unwrap_or(("", found));
    let problems = if group.is_empty() { Vec::new() } else { names::dns_subdomain(group) };
    if !problems.is_empty() {
        c.invalid(path, group, problems.join(","));
    }
    if version.is_empty() {
        return c.invalid(path, found, "version must be specified");
    }
    let problems = names::dns_1035_label(version);
    if !problems.is_empty() {
        c.invalid(path, version, problems.join(","));
    }
}

fn param_kind<'a>(c: &mut Check<'a>, kind: &'a Value, path: &Path<'_>) {
    let kind = kind.as_str().unwrap_or_default();
    let problems = names::dns_1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        c.required(path, "");
    } else if !problems.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        c.invalid(path, kind, detail);
    }
}

fn match_constraints<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let constraints = at(spec, "matchConstraints");
    let path = path.field("matchConstraints");
    if constraints.is_null() {
        return c.required(&path, "");
    }
    c.section("MatchResources", constraints, &path);
    if list(constraints, "resourceRules").is_empty() {
        c.required(&path.field("resourceRules"), "");
    }
}

fn policy_validations<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    let (validations_path, path) = (path.field("validations"), path.field("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for place in [&validations_path, &path] {
            c.required(place, "validations or auditAnnotations must contain at least one item");
        }
        return;
    }
    for (i, validation) in validations.iter().enumerate() {
        c.section("PolicyValidation", validation, &validations_path.index(i));
    }
    if annotations.len() > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        c.invalid(&path, annotations.to_vec(), detail);
    }
    let policy = text(c.write.object, "metadata.name");
    for (i, annotation) in annotations.iter().enumerate() {
        let path = path.index(i);
        let key = text(annotation, "key");
        if policy.is_empty() {
            c.invalid(&path.field("key"), key, "requires metadata.name be non-empty");
        } else {
            c.qualified_name(&path.field("key"), &format!("{policy}/{key}"));
        }
        let expression = text(annotation, "valueExpression").trim();
        if expression.is_empty() {
            c.required(&path.field("valueExpression"), "valueExpression is not specified");
        } else if expression.len() > VALUE_EXPRESSION_BYTES_MAX {
            let detail = format!("must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length");
            c.required(&path.field("valueExpression"), detail);
        }
        if annotations[..i].iter().any(|o| text(o, "key") == key) {
            c.duplicate(&path.field("key"), key);
        }
    }
}

fn variable_name<'a>(c: &mut Check<'a>, name: &'a Value, path: &Path<'_>) {
    const RESERVED: &str = "true false null in as break const continue else for function if import let loop package namespace return var \
        void while";
    let name = name.as_str().unwrap_or_default();
    if name.trim().is_empty() {
        return c.required(path, "name is not specified");
    }
    let is_identifier = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|ch: char| ch.is_ascii_digit())
        && !RESERVED.split(' ').any(|word| word == name);
    if !is_identifier {
        c.invalid(path, name, "must be a valid CEL identifier");
    }
}

fn validation_messages<'a>(c: &mut Check<'a>, validation: &'a Value, path: &Path<'_>) {
    let (message, expression) = (text(validation, "message"), text(validation, "messageExpression"));
    if !expression.is_empty() && expression.trim().is_empty() {
        c.invalid(&path.field("messageExpression"), expression, "must be non-empty if specified");
    }
    if !message.is_empty() && message.trim().is_empty() {
        c.invalid(&path.field("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        c.invalid(&path.field("message"), message, "must not contain line breaks");
    }
}

fn mutating_operations(c: &mut Check<'_>, spec: &Value, field: &str, path: &Path<'_>) {
    let path = path.field(field);
    for rule in list(at(spec, field), "resourceRules") {
        for operation in texts(rule, "operations").into_iter().filter(|o| !MUTATING_OPERATIONS.contains(o)) {
            c.not_supported(&path.field("resourceRules.operations"), operation, &MUTATING_OPERATIONS);
        }
    }
}

fn mutation<'a>(c: &mut Check<'a>, mutation: &'a Value, path: &Path<'_>) {
    let kind = text(mutation, "patchType");
    let (own, other) = match kind {
        "" => return c.required(&path.field("patchType"), ""),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        _ => return c.not_supported(&path.field("patchType"), kind, &["ApplyConfiguration", "JSONPatch"]),
    };
    let place = path.field(own);
    if !has(mutation, own) {
        c.required(&place, format!("must be specified when patchType is {kind}"));
    } else if text(at(mutation, own), "expression").trim().is_empty() {
        c.required(&place.field("expression"), "");
    }
    if has(mutation, other) {
        c.invalid(&path.field(other), format!("{{{other}}}"), format!("must not be specified when patchType is {kind}"));
    }
}

fn param_ref<'a>(c: &mut Check<'a>, reference: &'a Value, path: &Path<'_>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = text(reference, "name");
    let has_selector = has(reference, "selector");
    if !name.is_empty() {
        c.invalid_each(&path.field("name"), name, names::path_segment(name, false));
        if has_selector {
            c.forbidden(&path.field("name"), EXCLUSIVE);
        }
    }
    if has_selector {
        selectors::label_selector(c, at(reference, "selector"), &path.field("selector"));
        if !name.is_empty() {
            c.forbidden(&path.field("selector"), EXCLUSIVE);
        }
    } else if name.is_empty() {
        c.required(path, "one of name or selector must be specified");
    }
    let action = path.field("parameterNotFoundAction");
    match text(reference, "parameterNotFoundAction") {
        "" => c.required(&action, ""),
        "Deny" | "Allow" => {}
        other => c.not_supported(&action, other, &["Deny", "Allow"]),
    }
}

fn validation_actions<'a>(c: &mut Check<'a>, actions: &'a Value, path: &Path<'_>) {
    let all: Vec<&str> = actions.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (i, action) in all.iter().enumerate() {
        if !matches!(*action, "Audit" | "Deny" | "Warn") {
            c.not_supported(&path.index(i), *action, &["Audit", "Deny", "Warn"]);
        }
        if all[..i].contains(action) {
            c.duplicate(&path.index(i), *action);
        }
    }
    if all.contains(&"Deny") && all.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        c.invalid(path, actions.clone(), detail);
    }
    if all.is_empty() {
        c.required(path, "at least one validation action is required");
    }
}
