//! Access reviews.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, has, is_empty, list, text};

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "access_review" => access_review,
        "access_subject" => access_subject,
        "local_access_review" => local_access_review,
        _ => return None,
    };
    Some(rule)
}

fn access_review<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let other = at(spec, "nonResourceAttributes");
    match (has(spec, "resourceAttributes"), !other.is_null()) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            c.invalid(&path.field("nonResourceAttributes"), other.clone(), detail);
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            c.invalid(&path.field("resourceAttributes"), Value::Null, detail);
        }
        _ => {}
    }
    for field in ["fieldSelector", "labelSelector"] {
        let selector = at(at(spec, "resourceAttributes"), field);
        if selector.is_null() {
            continue;
        }
        let holder = path.field("resourceAttributes");
        let path = holder.field(field);
        let (raw, requirements) = (text(selector, "rawSelector"), list(selector, "requirements"));
        if !raw.is_empty() && !requirements.is_empty() {
            c.invalid(&path.field("rawSelector"), raw, "may not specified at the same time as requirements");
        }
        if raw.is_empty() && requirements.is_empty() {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            c.required(&path.field("requirements"), detail);
        }
    }
}

fn access_subject<'a>(c: &mut Check<'a>, review: &'a Value, root: &Path<'_>) {
    if text(review, "spec.user").is_empty() && is_empty(at(review, "spec.groups")) {
        c.invalid(&root.field("spec.user"), "", "at least one of user or group must be specified");
    }
}

fn local_access_review<'a>(c: &mut Check<'a>, review: &'a Value, root: &Path<'_>) {
    let namespace = text(review, "spec.resourceAttributes.namespace");
    if has(review, "spec.resourceAttributes") && namespace != text(review, "metadata.namespace") {
        let path = root.field("spec.resourceAttributes.namespace");
        c.invalid(&path, namespace, "must match metadata.namespace");
    }
    if has(review, "spec.nonResourceAttributes") {
        let shown = at(review, "spec.nonResourceAttributes").clone();
        c.invalid(&root.field("spec.nonResourceAttributes"), shown, "disallowed on this kind of request");
    }
}
