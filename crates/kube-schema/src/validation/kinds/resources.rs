//! Compute resources: their names and amounts, of containers, pods and quotas.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, entries, has, list, text};
use crate::Quantity;

const NOT_INTEGER: &str = "must be an integer";
/// Standard names that count objects.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const COMPUTE: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "container_resources" => container_requirements,
        "pod_level_resources" => pod_level,
        "overhead" => overhead,
        "resize_policy" => resize_policy,
        _ => return None,
    };
    Some(rule)
}

pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Kubernetes' own resource.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Whether a quota has this name of its own accord.
pub fn is_standard_quota(name: &str) -> bool {
    name != "storage" && (COUNTED.contains(&name) || COMPUTE.contains(&name)) || is_quota_huge_page(name)
}

/// A name of a resource, qualified or standard.
pub fn resource_name(c: &mut Check<'_>, name: &str, path: &Path<'_>) -> bool {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        c.invalid_each(path, name, problems);
        return false;
    }
    if !name.contains('/') && !COUNTED.contains(&name) && !COMPUTE.contains(&name) && !is_quota_huge_page(name) {
        c.invalid(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// A name that a container may ask for.
pub fn container_resource_name(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    resource_name(c, name, path);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            c.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        c.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource_name(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    if resource_name(c, name, path) && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
        c.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// An amount: not negative, and whole where it counts things.
pub fn resource_quantity(c: &mut Check<'_>, name: &str, value: &Value, path: &Path<'_>) {
    let Some(amount) = quantity(value) else { return };
    if amount.is_negative() {
        c.invalid(path, value.clone(), "must be greater than or equal to 0");
    }
    let is_whole = amount.nano() % 1_000_000_000 == 0;
    if !is_whole && (COUNTED.contains(&name) || is_extended(name)) {
        c.invalid(path, value.clone(), NOT_INTEGER);
    }
}

/// An amount above nothing.
pub fn positive_quantity(c: &mut Check<'_>, value: &Value, path: &Path<'_>) -> bool {
    let is_positive = quantity(value).is_some_and(|q| !q.is_zero() && !q.is_negative());
    if !is_positive {
        c.invalid(path, value.clone(), "must be greater than zero");
    }
    is_positive
}

type NameRule = fn(&mut Check<'_>, &str, &Path<'_>);

fn huge_pages_fit(c: &mut Check<'_>, name: &str, value: &Value, path: &Path<'_>) {
    let page = Quantity::parse(name.trim_start_matches("hugepages-")).ok();
    let fits = match (quantity(value), page) {
        (Some(amount), Some(page)) if page.units() > 0 => amount.units() % page.units() == 0,
        _ => false,
    };
    if !fits {
        let shown = value.as_str().unwrap_or_default();
        c.invalid(path, value.clone(), format!("{shown} is not positive integer multiple of {name}"));
    }
}

fn requirements(c: &mut Check<'_>, value: &Value, path: &Path<'_>, name_rule: NameRule) {
    let (limits, requests) = (entries(value, "limits"), entries(value, "requests"));
    let (limits_path, requests_path) = (path.field("limits"), path.field("requests"));
    for (name, limit) in &limits {
        let path = limits_path.key(name);
        name_rule(c, name, &path);
        resource_quantity(c, name, limit, &path);
        if is_huge_page(name) {
            huge_pages_fit(c, name, limit, &path);
        }
    }
    for (name, request) in &requests {
        let path = requests_path.key(name);
        name_rule(c, name, &path);
        resource_quantity(c, name, request, &path);
        match limits.iter().find(|(n, _)| n == name) {
            Some((_, limit)) => compare(c, name, request, limit, &requests_path),
            None if !is_overcommit_allowed(name) => {
                c.required(&limits_path, "Limit must be set for non overcommitable resources");
            }
            None => {}
        }
        if is_huge_page(name) {
            huge_pages_fit(c, name, request, &path);
        }
    }
    let has_any = |wanted: fn(&str) -> bool| limits.iter().chain(&requests).any(|(n, _)| wanted(n));
    if has_any(is_huge_page) && !has_any(|n| matches!(n, "cpu" | "memory")) {
        c.forbidden(path, "HugePages require cpu or memory");
    }
    claim_names(c, list(value, "claims"), &path.field("claims"));
}

fn compare(c: &mut Check<'_>, name: &str, request: &Value, limit: &Value, path: &Path<'_>) {
    let (Some(asked), Some(bound)) = (quantity(request), quantity(limit)) else { return };
    let shown = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
    if asked != bound && !is_overcommit_allowed(name) {
        c.invalid(path, request.clone(), format!("must be equal to {name} limit of {shown}"));
    } else if asked > bound {
        c.invalid(path, request.clone(), format!("must be less than or equal to {name} limit of {shown}"));
    }
}

fn claim_names(c: &mut Check<'_>, claims: &[Value], path: &Path<'_>) {
    let known: Vec<&str> = list(c.pod.spec, "resourceClaims").iter().map(|o| text(o, "name")).collect();
    let mut seen: Vec<String> = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            c.required(&path, "");
            continue;
        }
        if seen.iter().any(|s| s == name) {
            c.duplicate(&path, name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                c.label(&path.field("request"), request);
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                c.duplicate(&path, key.as_str());
            } else if request.is_empty() {
                for _ in seen.iter().filter(|s| s.split_once('/').is_some_and(|(n, _)| n == name)) {
                    c.errors.push(super::super::FieldError::duplicate(&path, name));
                }
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut error = super::super::FieldError::not_found(&path, name);
            let mut sorted = known.clone();
            sorted.sort_unstable();
            let tail = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", sorted.join(", ")) };
            error.detail = format!("must be one of the names in pod.spec.resourceClaims{tail}");
            c.errors.push(error);
        }
    }
}

fn container_requirements<'a>(c: &mut Check<'a>, value: &'a Value, path: &Path<'_>) {
    requirements(c, value, path, container_resource_name);
}

fn overhead<'a>(c: &mut Check<'a>, value: &'a Value, path: &Path<'_>) {
    let path = path.field("limits");
    for (name, amount) in value.as_object().into_iter().flatten() {
        let path = path.key(name);
        container_resource_name(c, name, &path);
        resource_quantity(c, name, amount, &path);
    }
}

fn pod_level<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if !has(spec, "resources") {
        return;
    }
    let path = path.field("resources");
    if text(spec, "os.name") == "windows" {
        return c.forbidden(&path, "may not be set for a windows pod");
    }
    let resources = at(spec, "resources");
    if has(resources, "claims") {
        c.forbidden(&path.field("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(c, resources, &path, pod_resource_name);
    let requests_path = path.field("requests");
    for (name, request) in entries(resources, "requests") {
        let total = aggregate_requests(spec, name);
        if let (Some(total), Some(asked)) = (total, quantity(request))
            && total > asked
        {
            let detail = format!("must be greater than or equal to aggregate container requests of {total}");
            c.invalid(&requests_path.key(name), request.clone(), detail);
        }
    }
    let containers_path = path.field("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        for (name, limit) in entries(container, "resources.limits") {
            let bound = at(resources, "limits").get(name);
            if let (Some(bound_value), Some(own)) = (bound, quantity(limit))
                && quantity(bound_value).is_some_and(|b| own > b)
            {
                let shown = bound_value.as_str().unwrap_or_default();
                let container_path = containers_path.index(i);
                let detail = format!("must be less than or equal to pod limits of {shown}");
                c.invalid(&container_path.key(name).field("limits"), limit.clone(), detail);
            }
        }
    }
}

/// What the containers ask for at once: regular ones and sidecars together, or an init container beside the sidecars before it.
fn aggregate_requests(spec: &Value, name: &str) -> Option<Quantity> {
    let asked = |container: &Value| at(container, "resources.requests").get(name).and_then(quantity);
    let mut total: Option<Quantity> = None;
    let add = |sum: Option<Quantity>, more: Option<Quantity>| match (sum, more) {
        (Some(a), Some(b)) => Some(a.plus(b)),
        (a, b) => a.or(b),
    };
    for container in list(spec, "containers") {
        total = add(total, asked(container));
    }
    let (mut sidecars, mut peak) = (None, None::<Quantity>);
    for container in list(spec, "initContainers") {
        let here = if super::containers::is_sidecar(container) {
            total = add(total, asked(container));
            sidecars = add(sidecars, asked(container));
            sidecars
        } else {
            add(sidecars, asked(container))
        };
        peak = match (peak, here) {
            (Some(p), Some(h)) if h > p => Some(h),
            (p, h) => p.or(h),
        };
    }
    match (total, peak) {
        (Some(t), Some(p)) if p > t => Some(p),
        (t, p) => t.or(p),
    }
}

fn resize_policy<'a>(c: &mut Check<'a>, policies: &'a Value, path: &Path<'_>) {
    let policies = policies.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, policy) in policies.iter().enumerate() {
        let (name, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if policies[..i].iter().any(|o| text(o, "resourceName") == name) {
            c.duplicate(&path.index(i), name);
        }
        match name {
            "cpu" | "memory" => {}
            "" => c.required(path, ""),
            _ => c.not_supported(path, name, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => c.required(path, ""),
            _ => c.not_supported(path, restart, &["NotRequired", "RestartContainer"]),
        }
        if text(c.pod.spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            c.invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}
