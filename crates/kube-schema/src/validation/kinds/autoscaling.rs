//! HorizontalPodAutoscalers, in the v2 form; the v1 form has a target in percent instead of metrics.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, has, int, list, maybe_int, text};
use super::resources::{container_resource_name, quantity};

const STABILIZATION_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "autoscaler" => autoscaler,
        "target_api_version" => target_api_version,
        "stabilization_window" => stabilization_window,
        "scaling_policy" => scaling_policy,
        _ => return None,
    };
    Some(rule)
}

fn autoscaler<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (min, max) = (maybe_int(spec, "minReplicas"), int(spec, "maxReplicas"));
    // Down to zero only where it has been let in before.
    let bound = if maybe_int(c.old, "spec.minReplicas") == Some(0) { 0 } else { 1 };
    if let Some(min) = min.filter(|n| *n < bound) {
        c.invalid(&path.field("minReplicas"), min, format!("must be greater than or equal to {bound}"));
    }
    let max_path = path.field("maxReplicas");
    if max == 0 {
        c.required(&max_path, "must be set and greater than 0");
    } else if max < 0 {
        c.invalid(&max_path, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        c.invalid(&max_path, max, "must be greater than or equal to `minReplicas`");
    }
    c.section("ScaleTarget", at(spec, "scaleTargetRef"), &path.field("scaleTargetRef"));
    let metrics = list(spec, "metrics");
    let metrics_path = path.field("metrics");
    for (i, metric) in metrics.iter().enumerate() {
        metric_spec(c, metric, &metrics_path.index(i));
    }
    let is_outside = |m: &Value| matches!(text(m, "type"), "Object" | "External");
    if min == Some(0) && !metrics.iter().any(is_outside) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        c.forbidden(&metrics_path, detail);
    }
    for field in ["behavior.scaleUp", "behavior.scaleDown"] {
        if has(spec, field) {
            c.section("ScalingRules", at(spec, field), &path.field(field));
        }
    }
}

fn target_api_version<'a>(c: &mut Check<'a>, target: &'a Value, path: &Path<'_>) {
    let version = text(target, "apiVersion");
    let place = path.field("apiVersion");
    if version.matches('/').count() > 1 {
        return c.invalid(&place, version, format!("unexpected GroupVersion string: {version}"));
    }
    let is_scale_target = path.to_string().ends_with("scaleTargetRef");
    let is_core = !version.contains('/');
    // A target in the core group can be a ReplicationController; anything else names its group.
    let is_known = !is_core || !is_scale_target || text(target, "kind") == "ReplicationController";
    let was_there = same_version(c, version);
    if !is_known && !was_there {
        c.invalid(&place, version, "apiVersion must specify API group");
    }
}

fn same_version(c: &Check<'_>, version: &str) -> bool {
    c.is_update() && text(c.old, "spec.scaleTargetRef.apiVersion") == version
}

fn stabilization_window<'a>(c: &mut Check<'a>, rules: &'a Value, path: &Path<'_>) {
    if let Some(seconds) = maybe_int(rules, "stabilizationWindowSeconds").filter(|s| *s > STABILIZATION_SECONDS_MAX) {
        let detail = format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}");
        c.invalid(&path.field("stabilizationWindowSeconds"), seconds, detail);
    }
}

fn scaling_policy<'a>(c: &mut Check<'a>, policy: &'a Value, path: &Path<'_>) {
    for field in ["value", "periodSeconds"] {
        if int(policy, field) <= 0 {
            c.invalid(&path.field(field), int(policy, field), "must be greater than zero");
        }
    }
    let period = int(policy, "periodSeconds");
    if period > PERIOD_SECONDS_MAX {
        let detail = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
        c.invalid(&path.field("periodSeconds"), period, detail);
    }
}

fn metric_spec<'a>(c: &mut Check<'a>, metric: &'a Value, path: &Path<'_>) {
    let kind = text(metric, "type");
    if kind.is_empty() {
        c.required(&path.field("type"), "must specify a metric source type");
    }
    let is_known = KINDS.contains(&kind);
    if !is_known {
        c.not_supported(&path.field("type"), kind, &KINDS);
    }
    let present: Vec<&str> = SOURCES.into_iter().filter(|s| has(metric, s)).collect();
    if let Some(first) = present.first() {
        metric_source(c, first, at(metric, first), &path.field(first));
    }
    let mut expected = kind.to_owned();
    if let Some(first) = expected.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    if !is_known {
        c.not_supported(&path.field("type"), kind, &KINDS);
    } else if !present.contains(&expected.as_str()) {
        c.required(&path.field(&expected), "must populate information for the given metric source");
    }
    if present.len() != 1 {
        for other in present.iter().filter(|p| **p != expected) {
            c.forbidden(&path.field(other), "must populate the given metric source only");
        }
    }
}

fn metric_source<'a>(c: &mut Check<'a>, kind: &str, source: &'a Value, path: &Path<'_>) {
    if kind == "object" {
        c.section("ScaleTarget", at(source, "describedObject"), &path.field("describedObject"));
    }
    if matches!(kind, "object" | "external" | "pods") {
        match text(source, "metric.name") {
            "" => c.required(&path.field("metric.name"), "must specify a metric name"),
            name => c.invalid_each(&path.field("metric.name"), name, names::path_segment(name, false)),
        }
    } else {
        match text(source, "name") {
            "" => c.required(&path.field("name"), "must specify a resource name"),
            name if kind == "containerResource" => container_resource_name(c, name, &path.field("name")),
            _ => {}
        }
    }
    if kind == "containerResource" {
        match text(source, "container") {
            "" => c.required(&path.field("container"), "must specify a container"),
            name => c.label(&path.field("container"), name),
        }
    }
    let target = at(source, "target");
    let place = path.field("target");
    metric_target(c, target, &place);
    let (value, average) = (has(target, "value"), has(target, "averageValue"));
    let utilization = has(target, "averageUtilization");
    match kind {
        "object" if !value && !average => {
            c.required(&place.field("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !value && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            c.required(&place.field("averageValue"), detail);
        }
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            c.forbidden(&place.field("value"), detail);
        }
        "pods" if !average => c.required(&place.field("averageValue"), "must specify a positive target averageValue"),
        "resource" | "containerResource" if !utilization && !average => {
            let detail = "must set either a target raw value or a target utilization";
            c.required(&place.field("averageUtilization"), detail);
        }
        "resource" | "containerResource" if utilization && average => {
            let detail = "may not set both a target raw value and a target utilization";
            c.forbidden(&place.field("averageValue"), detail);
        }
        _ => {}
    }
}

fn metric_target(c: &mut Check<'_>, target: &Value, path: &Path<'_>) {
    let kind = text(target, "type");
    if kind.is_empty() {
        c.required(&path.field("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        c.invalid(&path.field("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = at(target, field);
        if quantity(amount).is_some_and(|q| q.is_zero() || q.is_negative()) {
            c.invalid(&path.field(field), amount.clone(), "must be positive");
        }
    }
    if let Some(share) = maybe_int(target, "averageUtilization").filter(|n| *n < 1) {
        c.invalid(&path.field("averageUtilization"), share, "must be greater than 0");
    }
}
