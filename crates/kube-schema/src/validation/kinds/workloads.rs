//! Controllers of pods: selectors that match their templates, update strategies, counts.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, has, int, list, maybe_int, same, text, with_field_of};
use super::super::{formats, selectors};
use crate::LabelSelector;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "template_selector" => template_selector,
        "replica_template" => replica_template,
        "deployment_strategy" => deployment_strategy,
        "progress_deadline" => progress_deadline,
        "replica_counts" => replica_counts,
        "stateful_set" => stateful_set,
        "first_ordinal" => first_ordinal,
        "daemon_set" => daemon_set,
        "daemon_set_strategy" => daemon_set_strategy,
        "revision_data" => revision_data,
        "replication_controller" => replication_controller,
        _ => return None,
    };
    Some(rule)
}

/// What messages call the kind that is written.
fn kind_word(c: &Check<'_>) -> &'static str {
    match text(c.write.object, "kind") {
        "StatefulSet" => "statefulset",
        "DaemonSet" => "daemonset",
        _ => "deployment",
    }
}

/// A selector that is demanded and must select something.
fn template_selector<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let selector = at(spec, "selector");
    let path = path.field("selector");
    if selector.is_null() {
        return c.required(&path, "");
    }
    selectors::label_selector(c, selector, &path);
    if selectors::is_empty(selector) {
        let detail = format!("empty selector is invalid for {}", kind_word(c));
        c.invalid(&path, selector.clone(), detail);
    }
}

/// Whether the selector lets the template's pods go by; `None` for a malformed one.
fn selects(selector: &Value, template: &Value) -> Option<bool> {
    let selector = LabelSelector::from_object(selector).ok()?;
    let none = serde_json::Map::new();
    Some(selector.matches(at(template, "metadata.labels").as_object().unwrap_or(&none)))
}

fn mismatch(c: &mut Check<'_>, template: &Value, path: &Path<'_>) {
    let labels = at(template, "metadata.labels").clone();
    c.invalid(&path.field("metadata.labels"), labels, "`selector` does not match template `labels`");
}

/// Templates of what runs forever.
fn always_restarting(c: &mut Check<'_>, template: &Value, path: &Path<'_>, kind: &str) {
    let policy = text(template, "spec.restartPolicy");
    if policy != "Always" {
        c.not_supported(&path.field("spec.restartPolicy"), policy, &["Always"]);
    }
    if has(template, "spec.activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        c.forbidden(&path.field("spec.activeDeadlineSeconds"), detail);
    }
}

fn replica_template<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (selector, template) = (at(spec, "selector"), at(spec, "template"));
    let template_path = path.field("template");
    match selects(selector, template) {
        None => return c.invalid(&path.field("selector"), selector.clone(), "invalid label selector"),
        // A null selector selects nothing, an empty one everything.
        Some(matches) if selector.is_null() || (!matches && !selectors::is_empty(selector)) => {
            mismatch(c, template, &template_path);
        }
        Some(_) => {}
    }
    c.section("PodTemplate", template, &template_path);
    always_restarting(c, template, &template_path, "ReplicaSet");
}

/// A number, or a share in percent.
pub fn positive_int_or_percent(c: &mut Check<'_>, value: &Value, path: &Path<'_>) {
    match value {
        Value::String(share) => {
            for problem in formats::percent(share) {
                c.invalid(path, value.clone(), problem);
            }
        }
        Value::Number(_) => c.nonnegative(path, value.as_i64().unwrap_or_default()),
        _ => {}
    }
}

pub fn not_more_than_all(c: &mut Check<'_>, value: &Value, path: &Path<'_>) {
    if value.is_string() && int_or_percent(value) > 100 {
        c.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// The number itself, or that before the percent sign; zero for anything else.
fn int_or_percent(value: &Value) -> i64 {
    match value {
        Value::String(share) if formats::percent(share).is_empty() => share.trim_end_matches('%').parse().unwrap_or_default(),
        Value::String(number) => number.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

fn deployment_strategy<'a>(c: &mut Check<'a>, strategy: &'a Value, path: &Path<'_>) {
    let rolling = at(strategy, "rollingUpdate");
    let place = path.field("rollingUpdate");
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                c.forbidden(&place, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" if rolling.is_null() => c.required(&place, "this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            positive_int_or_percent(c, unavailable, &place.field("maxUnavailable"));
            positive_int_or_percent(c, surge, &place.field("maxSurge"));
            if int_or_percent(unavailable) == 0 && int_or_percent(surge) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                c.invalid(&place.field("maxUnavailable"), unavailable.clone(), detail);
            }
            not_more_than_all(c, unavailable, &place.field("maxUnavailable"));
        }
        _ => c.not_supported(path, strategy.clone(), &["Recreate", "RollingUpdate"]),
    }
}

fn progress_deadline<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if let Some(deadline) = maybe_int(spec, "progressDeadlineSeconds")
        && deadline <= int(spec, "minReadySeconds")
    {
        c.invalid(&path.field("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

/// Parts of a count that are greater than the whole.
fn replica_counts<'a>(c: &mut Check<'a>, status: &'a Value, path: &Path<'_>) {
    let is_set = text(c.write.object, "kind") == "StatefulSet";
    let replicas = int(status, "replicas");
    for field in ["fullyLabeledReplicas", "updatedReplicas", "readyReplicas", "currentReplicas", "availableReplicas"] {
        if int(status, field) > replicas {
            c.invalid(&path.field(field), int(status, field), "cannot be greater than status.replicas");
        }
    }
    let available = int(status, "availableReplicas");
    if available > int(status, "readyReplicas") {
        let what = if is_set { "status.readyReplicas" } else { "readyReplicas" };
        c.invalid(&path.field("availableReplicas"), available, format!("cannot be greater than {what}"));
    }
}

fn first_ordinal<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    c.nonnegative(&path.field("ordinals.start"), int(spec, "ordinals.start"));
}

fn stateful_set<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    match text(spec, "podManagementPolicy") {
        "" => c.required(&path.field("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => c.invalid(&path.field("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = at(spec, "updateStrategy");
    let strategy_path = path.field("updateStrategy");
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "" => c.required(&strategy_path, ""),
        "OnDelete" if !rolling.is_null() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            c.invalid(&strategy_path.field("rollingUpdate"), rolling.clone(), detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let place = strategy_path.field("rollingUpdate");
            c.nonnegative(&place.field("partition"), int(rolling, "partition"));
            let unavailable = at(rolling, "maxUnavailable");
            if !unavailable.is_null() {
                let place = place.field("maxUnavailable");
                positive_int_or_percent(c, unavailable, &place);
                if int_or_percent(unavailable) == 0 {
                    c.invalid(&place, unavailable.clone(), "cannot be 0");
                }
                not_more_than_all(c, unavailable, &place);
            }
        }
        _ => c.invalid(&strategy_path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
    c.section("StatefulSet.strategies", spec, path);
    stateful_template(c, spec, path);
    stateful_update(c, spec, path);
}

fn stateful_template<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (selector, template) = (at(spec, "selector"), at(spec, "template"));
    let template_path = path.field("template");
    match selects(selector, template) {
        None => c.invalid(&path.field("selector"), selector.clone(), ""),
        Some(matches) => {
            if selector.is_null() || (!matches && !selectors::is_empty(selector)) {
                mismatch(c, template, &template_path);
            }
            c.claim_templates = list(spec, "volumeClaimTemplates").iter().map(|t| text(t, "metadata.name")).collect();
            c.section("PodTemplate", template, &template_path);
            c.claim_templates.clear();
            // Upstream judges the metadata once more.
            c.section("PodTemplate.metadata", template, &template_path);
        }
    }
    always_restarting(c, template, &template_path, "StatefulSet");
}

fn stateful_update<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    if !c.is_update() {
        return;
    }
    let old = at(c.old, "spec");
    let mut kept = spec.clone();
    for field in MUTABLE {
        with_field_of(&mut kept, old, field);
    }
    if !same(&kept, old) {
        c.forbidden(
            path,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

fn daemon_set<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (selector, template) = (at(spec, "selector"), at(spec, "template"));
    let template_path = path.field("template");
    selectors::label_selector(c, selector, &path.field("selector"));
    if selector.is_null() || selects(selector, template) == Some(false) {
        mismatch(c, template, &template_path);
    }
    if !selector.is_null() && selectors::is_empty(selector) {
        c.invalid(&path.field("selector"), selector.clone(), "empty selector is invalid for daemonset");
    }
    c.section("PodTemplate", template, &template_path);
    always_restarting(c, template, &template_path, "DaemonSet");
}

fn daemon_set_strategy<'a>(c: &mut Check<'a>, strategy: &'a Value, path: &Path<'_>) {
    let rolling = at(strategy, "rollingUpdate");
    let place = path.field("rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => c.required(&place, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            let (unavailable_path, surge_path) = (place.field("maxUnavailable"), place.field("maxSurge"));
            positive_int_or_percent(c, unavailable, &unavailable_path);
            positive_int_or_percent(c, surge, &surge_path);
            not_more_than_all(c, unavailable, &unavailable_path);
            not_more_than_all(c, surge, &surge_path);
            match (int_or_percent(unavailable) != 0, int_or_percent(surge) != 0) {
                (true, true) => c.invalid(&surge_path, surge.clone(), "may not be set when maxUnavailable is non-zero"),
                (false, false) => c.required(&unavailable_path, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => c.not_supported(path, strategy.clone(), &["RollingUpdate", "OnDelete"]),
    }
}

fn revision_data<'a>(c: &mut Check<'a>, data: &'a Value, path: &Path<'_>) {
    match data {
        Value::Null => c.required(path, "data is mandatory"),
        Value::Object(_) => {}
        _ => c.required(path, "data must be a valid JSON object"),
    }
}

fn replication_controller<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let template = at(spec, "template");
    let path = path.field("template");
    if template.is_null() {
        return c.required(&path, "");
    }
    let labels = at(template, "metadata.labels");
    let selector = at(spec, "selector").as_object();
    if selector.into_iter().flatten().any(|(k, v)| labels.get(k) != Some(v)) {
        mismatch(c, template, &path);
    }
    c.section("PodTemplate", template, &path);
    always_restarting(c, template, &path, "ReplicationController");
}
