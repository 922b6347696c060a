//! Resource quotas and limit ranges.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, entries, list, map, text, texts};
use super::resources::{
    container_resource_name, is_overcommit_allowed, is_standard_quota, quantity, resource_name, resource_quantity,
};
use crate::Quantity;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "resource_quota" => resource_quota,
        "quota_status" => quota_status,
        "quota_scopes_fixed" => quota_scopes_fixed,
        "limit_range" => limit_range,
        _ => return None,
    };
    Some(rule)
}

fn quota_amounts(c: &mut Check<'_>, holder: &Value, field: &str, path: &Path<'_>) {
    let path = path.field(field);
    for (name, amount) in entries(holder, field) {
        let path = path.key(name);
        resource_name(c, name, &path);
        if !name.contains('/') && !is_standard_quota(name) {
            c.invalid(&path, name, "must be a standard resource for quota");
        }
        resource_quantity(c, name, amount, &path);
    }
}

fn quota_status<'a>(c: &mut Check<'a>, status: &'a Value, path: &Path<'_>) {
    quota_amounts(c, status, "hard", path);
    quota_amounts(c, status, "used", path);
}

/// Whether pods or claims of a scope use the resource.
fn scope_fits(scope: &str, resource: &str) -> bool {
    let is_compute = matches!(resource, "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory");
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ if SCOPES.contains(&scope) => resource == "pods" || is_compute,
        _ => true,
    }
}

fn has_conflict(scopes: &BTreeSet<&str>) -> bool {
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]]
        .iter()
        .any(|pair| pair.iter().all(|s| scopes.contains(s)))
}

fn resource_quota<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    quota_amounts(c, spec, "hard", path);
    let hard: Vec<&str> = entries(spec, "hard").into_iter().map(|(n, _)| n).filter(|n| is_standard_quota(n)).collect();
    let scopes = texts(spec, "scopes");
    let shown = Value::from(list(spec, "scopes").to_vec());
    let place = path.field("scopes");
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            c.invalid(&place, shown.clone(), "unsupported scope");
        }
        for _ in hard.iter().filter(|r| !scope_fits(scope, r)) {
            c.invalid(&place, shown.clone(), "unsupported scope applied to resource");
        }
    }
    if has_conflict(&scopes.into_iter().collect()) {
        c.invalid(&place, shown.clone(), "conflicting scopes");
    }
    let selector = at(spec, "scopeSelector");
    let place = path.field("scopeSelector.matchExpressions");
    let mut seen = BTreeSet::new();
    for requirement in list(selector, "matchExpressions") {
        let scope = text(requirement, "scopeName");
        seen.insert(scope);
        if !SCOPES.contains(&scope) {
            c.invalid(&place.field("scopeName"), scope, "unsupported scope");
        }
        for _ in hard.iter().filter(|r| !scope_fits(scope, r)) {
            c.invalid(&place, selector.clone(), "unsupported scope applied to resource");
        }
        scope_requirement(c, requirement, &place);
    }
    if has_conflict(&seen) {
        c.invalid(&place, shown, "conflicting scopes");
    }
}

fn scope_requirement(c: &mut Check<'_>, requirement: &Value, path: &Path<'_>) {
    let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
    let takes_values = matches!(scope, "PriorityClass" | "VolumeAttributesClass") || !SCOPES.contains(&scope);
    if !takes_values && operator != "Exists" {
        c.invalid(
            &path.field("operator"),
            operator,
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
        );
    }
    let values = list(requirement, "values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            c.required(&path.field("values"), detail);
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            c.invalid(&path.field("values"), values.to_vec(), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => c.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
}

fn quota_scopes_fixed<'a>(c: &mut Check<'a>, quota: &'a Value, root: &Path<'_>) {
    let set = |object: &'a Value| texts(object, "spec.scopes").into_iter().collect::<BTreeSet<_>>();
    if set(quota) != set(c.old) {
        let shown = list(quota, "spec.scopes").to_vec();
        c.invalid(&root.field("spec.scopes"), shown, "field is immutable");
    }
}

fn limit_range<'a>(c: &mut Check<'a>, limits: &'a Value, path: &Path<'_>) {
    let all = limits.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, limit) in all.iter().enumerate() {
        let path = path.index(i);
        let kind = text(limit, "type");
        let problems = names::qualified_name(kind);
        if problems.is_empty() && !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            c.invalid(&path.field("type"), kind, "must be a standard limit type or fully qualified");
        }
        c.invalid_each(&path.field("type"), kind, problems);
        if all[..i].iter().any(|o| text(o, "type") == kind) {
            c.duplicate(&path.field("type"), kind);
        }
        limit_item(c, limit, &path);
    }
}

fn limit_item(c: &mut Check<'_>, limit: &Value, path: &Path<'_>) {
    let kind = text(limit, "type");
    let mut keys = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest"] {
        let amounts = entries(limit, field);
        let place = path.field(field);
        if kind == "Pod" && matches!(field, "default" | "defaultRequest") {
            if !amounts.is_empty() {
                c.forbidden(&place, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, _) in amounts {
            limit_resource_name(c, kind, name, &place.key(name));
            keys.insert(name);
        }
    }
    let has_storage = |field: &str| map(limit, field).is_some_and(|m| m.contains_key("storage"));
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        c.required(&path.field("limits"), detail);
    }
    let ratios = path.field("maxLimitRequestRatio");
    for (name, _) in entries(limit, "maxLimitRequestRatio") {
        limit_resource_name(c, kind, name, &ratios.key(name));
        keys.insert(name);
    }
    for name in keys {
        limit_amounts(c, limit, name, path);
    }
}

fn limit_resource_name(c: &mut Check<'_>, kind: &str, name: &str, path: &Path<'_>) {
    if matches!(kind, "Pod" | "Container") {
        container_resource_name(c, name, path);
    } else {
        resource_name(c, name, path);
    }
}

/// One bound with its text.
#[derive(Clone, Copy)]
struct Amount<'a> {
    value: Quantity,
    shown: &'a str,
}

fn limit_amounts(c: &mut Check<'_>, limit: &Value, name: &str, path: &Path<'_>) {
    let is_pod = text(limit, "type") == "Pod";
    let amount = |field: &str| {
        let found = map(limit, field).and_then(|m| m.get(name))?;
        Some(Amount { value: quantity(found)?, shown: found.as_str().unwrap_or_default() })
    };
    let unless_pod = |field: &str| if is_pod { None } else { amount(field) };
    let (min, max) = (amount("min"), amount("max"));
    let (default, request) = (unless_pod("default"), unless_pod("defaultRequest"));
    // Lesser, greater, field that is blamed, value that is shown, and the words for both.
    let rules = [
        (min, max, "min", min, "min value", "max value"),
        (min, request, "defaultRequest", request, "min value", "default request value"),
        (request, max, "defaultRequest", request, "default request value", "max value"),
        (request, default, "defaultRequest", request, "default request value", "default limit value"),
        (min, default, "default", min, "min value", "default value"),
        (default, max, "default", max, "default value", "max value"),
    ];
    for (lesser, greater, field, shown, lesser_words, greater_words) in rules {
        let (Some(lesser), Some(greater), Some(shown)) = (lesser, greater, shown) else { continue };
        if lesser.value > greater.value {
            let detail = format!("{lesser_words} {} is greater than {greater_words} {}", lesser.shown, greater.shown);
            c.invalid(&path.field(field).key(name), shown.shown, detail);
        }
    }
    if let Some(ratio) = amount("maxLimitRequestRatio") {
        let place = path.field("maxLimitRequestRatio");
        let place = place.key(name);
        if ratio.value.milli() < 1000 {
            c.invalid(&place, ratio.shown, format!("ratio {} is less than 1", ratio.shown));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let bound = max.value.nano() as f64 / min.value.nano() as f64;
            if ratio.value.nano() as f64 / 1e9 > bound {
                c.invalid(&place, ratio.shown, format!("ratio {} is greater than max/min = {bound:.6}", ratio.shown));
            }
        }
    }
    if let (Some(default), Some(request)) = (default, request)
        && !is_overcommit_allowed(name)
        && default.value != request.value
    {
        let detail = format!("default value {} must equal to defaultRequest value {} in {name}", default.shown, request.shown);
        c.invalid(&path.field("defaultRequest").key(name), request.shown, detail);
    }
}
