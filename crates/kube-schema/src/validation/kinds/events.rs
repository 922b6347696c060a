//! Events, in either of their two shapes. Findings name the fields of the older one.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, has, int, same, text};

const WORDS_BYTES_MAX: usize = 128;
const NOTE_BYTES_MAX: usize = 1024;
/// Field of the core Event and what events.k8s.io calls it.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "core_event" => |c, v, p| event(c, v, "reportingComponent", p),
        "new_event" => new_event,
        _ => return None,
    };
    Some(rule)
}

/// A field by its older name, wherever it is.
fn either<'a>(event: &'a Value, field: &str) -> &'a Value {
    let newer = FIELDS.iter().find(|(old, _)| *old == field).map_or(field, |(_, new)| *new);
    match at(event, field) {
        Value::Null => at(event, newer),
        found => found,
    }
}

fn bounded(c: &mut Check<'_>, value: &str, bytes_max: usize, path: &Path<'_>) {
    if value.len() > bytes_max {
        c.invalid(path, "", format!("can have at most {bytes_max} characters"));
    }
}

fn event(c: &mut Check<'_>, event: &Value, controller_field: &str, root: &Path<'_>) {
    let namespace = text(event, "metadata.namespace");
    let object_namespace = text(either(event, "involvedObject"), "namespace");
    let is_timed = has(event, "eventTime");
    let fits = match (is_timed, object_namespace.is_empty()) {
        (false, true) => matches!(namespace, "" | "default"),
        (false, false) => namespace == object_namespace,
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => true,
    };
    if !fits {
        c.invalid(&root.field("involvedObject.namespace"), object_namespace, "does not match event.namespace");
    }
    if is_timed {
        let controller = either(event, "reportingComponent").as_str().unwrap_or_default();
        if controller.is_empty() {
            c.required(&root.field(controller_field), "");
        }
        c.qualified_name(&root.field(controller_field), controller);
        for field in ["reportingInstance", "action", "reason"] {
            let value = text(event, field);
            if value.is_empty() {
                c.required(&root.field(field), "");
            }
            bounded(c, value, WORDS_BYTES_MAX, &root.field(field));
        }
        let note = either(event, "message").as_str().unwrap_or_default();
        bounded(c, note, NOTE_BYTES_MAX, &root.field("message"));
    }
    c.invalid_each(&root.field("namespace"), namespace, names::dns_subdomain(namespace));
}

fn series(c: &mut Check<'_>, event: &Value, root: &Path<'_>) {
    if !has(event, "series") {
        return;
    }
    if int(event, "series.count") < 2 {
        c.invalid(&root.field("series.count"), "", "should be at least 2");
    }
    if !has(event, "series.lastObservedTime") {
        c.required(&root.field("series.lastObservedTime"), "");
    }
}

fn new_event<'a>(c: &mut Check<'a>, value: &'a Value, root: &Path<'_>) {
    event(c, value, "reportingController", root);
    if c.is_update() {
        return new_event_update(c, value, root);
    }
    series(c, value, root);
    if !has(value, "eventTime") {
        c.required(&root.field("eventTime"), "");
    }
    let kind = text(value, "type");
    if !matches!(kind, "Normal" | "Warning") {
        c.invalid(&root.field("type"), "", format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        let found = either(value, field);
        if !found.is_null() && found.as_i64() != Some(0) {
            c.invalid(&root.field(field), "", "needs to be unset");
        }
    }
    let source = either(value, "source");
    if !text(source, "component").is_empty() || !text(source, "host").is_empty() {
        c.invalid(&root.field("source"), "", "needs to be unset");
    }
}

fn new_event_update<'a>(c: &mut Check<'a>, value: &'a Value, root: &Path<'_>) {
    const FIXED: [&str; 13] = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingInstance",
    ];
    if !same(at(value, "series"), at(c.old, "series")) {
        series(c, value, root);
    }
    for field in FIXED {
        if field == "reportingInstance" {
            let (new, old) = (either(value, "reportingComponent"), either(c.old, "reportingComponent"));
            c.immutable(&root.field("reportingController"), new, old);
        }
        c.immutable(&root.field(field), either(value, field), either(c.old, field));
    }
}
