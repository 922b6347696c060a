//! Label selectors and node selectors as fields.

use serde_json::Value;

use super::check::Check;
use super::names;
use super::path::Path;
use super::view::{list, map, text};

/// `meta/v1 LabelSelector`.
pub fn label_selector(check: &mut Check<'_>, selector: &Value, path: &Path<'_>) {
    if let Some(labels) = selector.get("matchLabels") {
        check.errors.extend(super::meta::labels(labels, &path.field("matchLabels").to_string()));
    }
    let expressions = path.field("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        label_requirement(check, expression, &expressions.index(index));
    }
}

fn label_requirement(check: &mut Check<'_>, requirement: &Value, path: &Path<'_>) {
    let values = list(requirement, "values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            check.required(&path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            check.forbidden(&path.field("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => check.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    check.qualified_name(&path.field("key"), text(requirement, "key"));
    label_values(check, values, &path.field("values"));
}

fn label_values(check: &mut Check<'_>, values: &[Value], path: &Path<'_>) {
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        check.invalid_each(&path.index(index), value, names::label_value(value));
    }
}

/// Whether a selector selects by anything.
pub fn is_empty(selector: &Value) -> bool {
    map(selector, "matchLabels").is_none_or(serde_json::Map::is_empty) && list(selector, "matchExpressions").is_empty()
}

/// `core/v1 NodeSelector`.
pub fn node_selector(check: &mut Check<'_>, selector: &Value, path: &Path<'_>) {
    let terms = list(selector, "nodeSelectorTerms");
    let path = path.field("nodeSelectorTerms");
    if terms.is_empty() {
        return check.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(check, term, &path.index(index), true);
    }
}

/// A term; the values of preferred terms were never checked.
pub fn node_selector_term(check: &mut Check<'_>, term: &Value, path: &Path<'_>, checks_values: bool) {
    let expressions = path.field("matchExpressions");
    for (index, requirement) in list(term, "matchExpressions").iter().enumerate() {
        node_requirement(check, requirement, &expressions.index(index), checks_values);
    }
    let fields = path.field("matchFields");
    for (index, requirement) in list(term, "matchFields").iter().enumerate() {
        node_field_requirement(check, requirement, &fields.index(index));
    }
}

fn node_requirement(check: &mut Check<'_>, requirement: &Value, path: &Path<'_>, checks_values: bool) {
    let values = list(requirement, "values");
    let values_path = path.field("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            check.required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            check.forbidden(&values_path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            check.required(&values_path, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => check.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    check.qualified_name(&path.field("key"), text(requirement, "key"));
    if checks_values {
        label_values(check, values, &values_path);
    }
}

fn node_field_requirement(check: &mut Check<'_>, requirement: &Value, path: &Path<'_>) {
    let values = list(requirement, "values");
    let values_path = path.field("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            check.required(&values_path, detail);
        }
        "In" | "NotIn" => {}
        other => check.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        return check.invalid(&path.field("key"), key, "not a valid field selector key");
    }
    for (index, value) in values.iter().enumerate() {
        check.subdomain(&values_path.index(index), value.as_str().unwrap_or_default());
    }
}
