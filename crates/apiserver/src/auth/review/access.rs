//! The access reviews and the rules review.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::auth::follow::text;
use crate::auth::node::is_node;
use crate::auth::rbac::{Rule, UserRules, aggregate};
use crate::auth::{Attributes, Decision, UserInfo};
use crate::error::{ApiError, Cause, Result};
use crate::virtual_resource::VirtualRequest;

const GROUP: &str = "authorization.k8s.io";
const RESOURCE_ATTRIBUTES: &str = "spec.resourceAttributes";
const NON_RESOURCE_ATTRIBUTES: &str = "spec.nonResourceAttributes";

fn invalid_cause(field: &str, value: impl std::fmt::Display, why: &str) -> Cause {
    Cause::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
}

fn given<'a>(spec: &'a Value, field: &str) -> Option<&'a Value> {
    spec.get(field).filter(|value| !value.is_null())
}

fn strings(value: &Value, field: &str) -> Vec<String> {
    value.get(field).and_then(|list| serde_json::from_value(list.clone()).ok()).unwrap_or_default()
}

/// A path rule's attributes as messages print them.
fn shown_path(attributes: &Value) -> String {
    format!("{{\"Path\":{:?},\"Verb\":{:?}}}", text(attributes, "path"), text(attributes, "verb"))
}

/// Exactly one of the two kinds of attributes, and selectors that say one thing.
fn check_spec(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match (given(spec, "resourceAttributes"), given(spec, "nonResourceAttributes")) {
        (Some(_), Some(path)) => causes.push(invalid_cause(
            NON_RESOURCE_ATTRIBUTES,
            shown_path(path),
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => causes.push(invalid_cause(
            RESOURCE_ATTRIBUTES,
            "null",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    for kind in ["fieldSelector", "labelSelector"] {
        let Some(selector) = given(spec, "resourceAttributes").and_then(|a| given(a, kind)) else { continue };
        let field = format!("{RESOURCE_ATTRIBUTES}.{kind}");
        let has_requirements = selector.get("requirements").and_then(Value::as_array).is_some_and(|r| !r.is_empty());
        match (text(selector, "rawSelector"), has_requirements) {
            ("", false) => causes.push(Cause::new(
                "FieldValueRequired",
                format!("{field}.requirements"),
                format!("Required value: when {field} is specified, requirements or rawSelector is required"),
            )),
            (raw, true) if !raw.is_empty() => causes.push(invalid_cause(
                &format!("{field}.rawSelector"),
                format!("{raw:?}"),
                "may not specified at the same time as requirements",
            )),
            _ => {}
        }
    }
    causes
}

/// Metadata is refused, except for managedFields and what the kind needs.
fn check_metadata(object: &Value, allowed: &[&str]) -> Option<Cause> {
    let metadata = object.get("metadata").and_then(Value::as_object)?;
    let is_foreign = |key: &String| key != "managedFields" && !allowed.contains(&key.as_str());
    let is_set = |value: &Value| !value.is_null() && value.as_str() != Some("");
    metadata
        .iter()
        .any(|(key, value)| is_foreign(key) && is_set(value))
        .then(|| invalid_cause("metadata", object.get("metadata").cloned().unwrap_or_default(), "must be empty"))
}

fn refuse(causes: Vec<Cause>) -> Result<()> {
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(GROUP, "", "", causes)) }
}

fn check_subject(spec: &Value) -> Option<Cause> {
    let is_nobody = text(spec, "user").is_empty() && strings(spec, "groups").is_empty();
    is_nobody.then(|| invalid_cause("spec.user", "\"\"", "at least one of user or group must be specified"))
}

/// The user that a review asks about.
fn subject(spec: &Value) -> UserInfo {
    let extra: BTreeMap<String, Vec<String>> =
        spec.get("extra").and_then(|e| serde_json::from_value(e.clone()).ok()).unwrap_or_default();
    UserInfo {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: strings(spec, "groups"),
        extra: extra.into_iter().map(|(key, values)| (key.to_lowercase(), values)).collect(),
    }
}

/// A selector as a request would carry it. Only requirements of one value can be told that way; others select more.
fn selector(attributes: &Value, kind: &str) -> String {
    let Some(selector) = given(attributes, kind) else { return String::new() };
    let raw = text(selector, "rawSelector");
    if !raw.is_empty() {
        return raw.to_owned();
    }
    let terms = selector.get("requirements").and_then(Value::as_array).into_iter().flatten().filter_map(|requirement| {
        let values = strings(requirement, "values");
        let is_equality = text(requirement, "operator") == "In" && values.len() == 1;
        is_equality.then(|| format!("{}={}", text(requirement, "key"), values[0]))
    });
    terms.collect::<Vec<_>>().join(",")
}

fn attributes(spec: &Value, user: UserInfo) -> Attributes {
    if let Some(path) = given(spec, "nonResourceAttributes") {
        let verb = text(path, "verb").to_owned();
        return Attributes { user, verb, path: text(path, "path").to_owned(), ..Attributes::default() };
    }
    let asked = given(spec, "resourceAttributes").unwrap_or(&Value::Null);
    let field = |name: &str| text(asked, name).to_owned();
    Attributes {
        user,
        verb: field("verb"),
        is_resource: true,
        group: field("group"),
        version: field("version"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        path: String::new(),
        field_selector: selector(asked, "fieldSelector"),
        label_selector: selector(asked, "labelSelector"),
    }
}

async fn status(request: &VirtualRequest<'_>, spec: &Value, user: UserInfo) -> Value {
    let decision = request.authorizers.authorize(&attributes(spec, user), request.cluster).await;
    let mut status = json!({"allowed": matches!(decision, Decision::Allow(_))});
    if matches!(decision, Decision::Deny(_)) {
        status["denied"] = true.into();
    }
    let (Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason)) = decision;
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

fn spec_of(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

pub(super) async fn own(request: &VirtualRequest<'_>, object: &Value) -> Result<Value> {
    let spec = spec_of(object);
    refuse(check_spec(spec).into_iter().chain(check_metadata(object, &[])).collect())?;
    Ok(status(request, spec, request.user.clone()).await)
}

pub(super) async fn of_subject(request: &VirtualRequest<'_>, object: &Value) -> Result<Value> {
    let spec = spec_of(object);
    refuse(check_spec(spec).into_iter().chain(check_subject(spec)).chain(check_metadata(object, &[])).collect())?;
    Ok(status(request, spec, subject(spec)).await)
}

pub(super) async fn of_local_subject(request: &VirtualRequest<'_>, object: &Value) -> Result<Value> {
    let spec = spec_of(object);
    let mut causes = check_spec(spec);
    causes.extend(check_subject(spec));
    causes.extend(check_metadata(object, &["namespace"]));
    if let Some(asked) = given(spec, "resourceAttributes").map(|a| text(a, "namespace")).filter(|ns| *ns != request.namespace) {
        let field = format!("{RESOURCE_ATTRIBUTES}.namespace");
        causes.push(invalid_cause(&field, format!("{asked:?}"), "must match metadata.namespace"));
    }
    if let Some(path) = given(spec, "nonResourceAttributes") {
        causes.push(invalid_cause(NON_RESOURCE_ATTRIBUTES, shown_path(path), "disallowed on this kind of request"));
    }
    refuse(causes)?;
    Ok(status(request, spec, subject(spec)).await)
}

/// What the user may do in a namespace, as far as rules can say it.
pub(super) async fn rules(request: &VirtualRequest<'_>, object: &Value) -> Result<Value> {
    let namespace = text(spec_of(object), "namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let found = match &request.authorizers.rbac {
        Some(rbac) => rbac.rules_for(request.user, namespace, request.cluster).await?,
        None => UserRules::default(),
    };
    let mut errors = found.errors;
    if is_node(request.user) {
        errors.push("node authorizer does not support user rule resolution".to_owned());
    }
    let (paths, resources): (Vec<Rule>, Vec<Rule>) = found.rules.into_iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": !errors.is_empty()});
    if !errors.is_empty() {
        status["evaluationError"] = aggregate(&errors).into();
    }
    Ok(status)
}
