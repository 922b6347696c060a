//! Disruption budgets, roles and bindings, priority classes, runtime classes, leases, conditions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, flag, has, int, list, same, text};
use super::resources::{container_resource_name, resource_quantity};
use super::workloads::{not_more_than_all, positive_int_or_percent};

const RBAC: &str = "rbac.authorization.k8s.io";
const USER_PRIORITY_MAX: i64 = 1_000_000_000;
const SYSTEM_PRIORITY: i64 = 2 * USER_PRIORITY_MAX;
const CONDITION_REASON_BYTES_MAX: usize = 1024;
const CONDITION_MESSAGE_BYTES_MAX: usize = 32 * 1024;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "disruption_budget" => disruption_budget,
        "conditions" => conditions,
        "role_rule" => role_rule,
        "role_subject" => role_subject,
        "role_ref_fixed" => role_ref_fixed,
        "priority_class" => priority_class,
        "runtime_overhead" => runtime_overhead,
        "repeated_tolerations" => repeated_tolerations,
        _ => return None,
    };
    Some(rule)
}

fn disruption_budget<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        c.invalid(path, spec.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        positive_int_or_percent(c, at(spec, field), &path.field(field));
        not_more_than_all(c, at(spec, field), &path.field(field));
    }
}

/// `meta/v1 Condition` in a list.
pub fn conditions<'a>(c: &mut Check<'a>, conditions: &'a Value, path: &Path<'_>) {
    let all = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, condition) in all.iter().enumerate() {
        let path = path.index(i);
        let (kind, status, reason) = (text(condition, "type"), text(condition, "status"), text(condition, "reason"));
        if all[..i].iter().any(|o| text(o, "type") == kind) {
            c.duplicate(&path.field("type"), kind);
        }
        c.qualified_name(&path.field("type"), kind);
        if !matches!(status, "True" | "False" | "Unknown") {
            c.not_supported(&path.field("status"), status, &["False", "True", "Unknown"]);
        }
        if int(condition, "observedGeneration") < 0 {
            let found = int(condition, "observedGeneration");
            c.invalid(&path.field("observedGeneration"), found, "must be greater than or equal to zero");
        }
        if !has(condition, "lastTransitionTime") {
            c.required(&path.field("lastTransitionTime"), "");
        }
        if reason.is_empty() {
            c.required(&path.field("reason"), "");
        } else if !is_reason(reason) {
            let pattern = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
            let message = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
            let text =
                names::pattern_text(message, pattern, &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"]);
            c.invalid(&path.field("reason"), reason, text);
        }
        if reason.len() > CONDITION_REASON_BYTES_MAX {
            c.too_long(&path.field("reason"), CONDITION_REASON_BYTES_MAX);
        }
        if text(condition, "message").len() > CONDITION_MESSAGE_BYTES_MAX {
            c.too_long(&path.field("message"), CONDITION_MESSAGE_BYTES_MAX);
        }
    }
}

fn is_reason(reason: &str) -> bool {
    reason.starts_with(|ch: char| ch.is_ascii_alphabetic())
        && reason.ends_with(|ch: char| ch.is_ascii_alphanumeric() || ch == '_')
        && reason.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'))
}

fn role_rule<'a>(c: &mut Check<'a>, rule: &'a Value, path: &Path<'_>) {
    let is_namespaced = text(c.write.object, "kind") == "Role";
    if list(rule, "verbs").is_empty() {
        c.required(&path.field("verbs"), "verbs must contain at least one value");
    }
    let urls = list(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let place = path.field("nonResourceURLs");
        if is_namespaced {
            c.invalid(&place, urls.to_vec(), "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|f| !list(rule, f).is_empty()) {
            c.invalid(&place, urls.to_vec(), "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if list(rule, "apiGroups").is_empty() {
        c.required(&path.field("apiGroups"), "resource rules must supply at least one api group");
    }
    if list(rule, "resources").is_empty() {
        c.required(&path.field("resources"), "resource rules must supply at least one resource");
    }
}

fn role_subject<'a>(c: &mut Check<'a>, subject: &'a Value, path: &Path<'_>) {
    let is_namespaced = text(c.write.object, "kind") == "RoleBinding";
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        c.required(&path.field("name"), "");
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                c.subdomain(&path.field("name"), name);
            }
            if !group.is_empty() {
                c.not_supported(&path.field("apiGroup"), group, &[""]);
            }
            if !is_namespaced && text(subject, "namespace").is_empty() {
                c.required(&path.field("namespace"), "");
            }
        }
        "User" | "Group" if group != RBAC => c.not_supported(&path.field("apiGroup"), group, &[RBAC]),
        "User" | "Group" => {}
        other => c.not_supported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

fn role_ref_fixed<'a>(c: &mut Check<'a>, binding: &'a Value, root: &Path<'_>) {
    let reference = at(binding, "roleRef");
    if c.is_update() && !same(reference, at(c.old, "roleRef")) {
        c.invalid(&root.field("roleRef"), reference.clone(), "cannot change roleRef");
    }
}

fn priority_class<'a>(c: &mut Check<'a>, class: &'a Value, root: &Path<'_>) {
    let (name, value) = (text(class, "metadata.name"), int(class, "value"));
    if !name.starts_with("system-") {
        if value > USER_PRIORITY_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
            c.forbidden(&root.field("value"), detail);
        }
        return;
    }
    let wanted = match name {
        "system-node-critical" => SYSTEM_PRIORITY + 1000,
        "system-cluster-critical" => SYSTEM_PRIORITY,
        _ => -1,
    };
    let problem = if wanted < 0 {
        format!("{name} is not a known system priority class")
    } else if value != wanted {
        format!("value of {name} PriorityClass must be {wanted}")
    } else if flag(class, "globalDefault") {
        format!("globalDefault of {name} PriorityClass must be false")
    } else {
        return;
    };
    let detail = format!("priority class names with 'system-' prefix are reserved for system use only. error: {problem}");
    c.forbidden(&root.field("metadata.name"), detail);
}

fn runtime_overhead<'a>(c: &mut Check<'a>, overhead: &'a Value, _: &Path<'_>) {
    let root = Path::ROOT;
    let path = root.field("overhead.limits");
    for (name, amount) in overhead.as_object().into_iter().flatten() {
        container_resource_name(c, name, &path.key(name));
        resource_quantity(c, name, amount, &path.key(name));
    }
}

fn repeated_tolerations<'a>(c: &mut Check<'a>, tolerations: &'a Value, path: &Path<'_>) {
    let mut seen = BTreeSet::new();
    for (i, toleration) in tolerations.as_array().into_iter().flatten().enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|f| text(toleration, f));
        if !seen.insert(key) {
            c.duplicate(&path.index(i), toleration.clone());
        }
    }
}
