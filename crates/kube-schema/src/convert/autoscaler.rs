//! HorizontalPodAutoscaler: v1 knows one CPU percentage; all else of v2 travels in annotations.

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const SCALE_DOWN_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";
const SCALE_UP_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";

/// Names of metric sources with their member for the value: `target` in a spec, `current` in a status.
const SPEC: Side = Side { value: "target", prefix: "target", is_status: false };
const STATUS: Side = Side { value: "current", prefix: "current", is_status: true };

#[derive(Clone, Copy)]
struct Side {
    value: &'static str,
    prefix: &'static str,
    is_status: bool,
}

fn is_cpu_utilization(metric: &Value, side: Side) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"][side.value]["averageUtilization"].is_number()
}

fn annotations(map: &mut Object) -> Option<&mut Object> {
    let metadata = map.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()
}

/// Takes the round-trip annotations off the object.
fn take_annotations(map: &mut Object) -> Object {
    let mut taken = Object::new();
    let Some(all) = annotations(map) else { return taken };
    for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR, SCALE_DOWN_TOLERANCE, SCALE_UP_TOLERANCE] {
        if let Some(value) = all.remove(key) {
            taken.insert(key.to_owned(), value);
        }
    }
    if all.is_empty()
        && let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("annotations");
    }
    taken
}

fn parsed(annotations: &Object, key: &str) -> Option<Value> {
    serde_json::from_str(annotations.get(key)?.as_str()?).ok()
}

/// Copies members that are present, under other names.
fn copied(from: &Value, names: &[(&str, &str)]) -> Object {
    names
        .iter()
        .filter_map(|(old, new)| from.pointer(old).filter(|v| !v.is_null()).map(|v| ((*new).to_owned(), v.clone())))
        .collect()
}

/// `/target/averageValue` → `targetAverageValue` for the resource sources; the value that v1 requires is `0` where v2 has none.
fn metric_to_v1(metric: &Value, side: Side) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let member = member(kind);
    let source = &metric[member];
    let at = |name: &str| format!("/{}/{name}", side.value);
    let prefixed = |name: &str| format!("{}{name}", side.prefix);
    let (utilization, average, value) = (at("averageUtilization"), at("averageValue"), at("value"));
    let (v1_utilization, v1_average, v1_value) = (prefixed("AverageUtilization"), prefixed("AverageValue"), prefixed("Value"));
    let mut out = match kind {
        "Resource" | "ContainerResource" => copied(
            source,
            &[("/name", "name"), ("/container", "container"), (&utilization, &v1_utilization), (&average, &v1_average)],
        ),
        "Pods" => copied(source, &[("/metric/name", "metricName"), ("/metric/selector", "selector"), (&average, &v1_average)]),
        "Object" => copied(
            source,
            &[
                ("/describedObject", "target"),
                ("/metric/name", "metricName"),
                ("/metric/selector", "selector"),
                (&value, &v1_value),
                (&average, "averageValue"),
            ],
        ),
        _ => copied(
            source,
            &[
                ("/metric/name", "metricName"),
                ("/metric/selector", "metricSelector"),
                (&value, &v1_value),
                (&average, &v1_average),
            ],
        ),
    };
    let required = match kind {
        "Object" => Some(v1_value),
        "Pods" => Some(v1_average),
        "External" if side.is_status => Some(v1_value),
        "Resource" | "ContainerResource" if side.is_status => Some(v1_average),
        _ => None,
    };
    if let Some(name) = required {
        out.entry(name).or_insert_with(|| "0".into());
    }
    json!({"type": kind, member: out})
}

fn member(kind: &str) -> &'static str {
    match kind {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        _ => "external",
    }
}

fn metric_to_v2(metric: &Value, side: Side) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let member = member(kind);
    let source = &metric[member];
    let prefixed = |name: &str| format!("/{}{name}", side.prefix);
    let (utilization, average, value) = (prefixed("AverageUtilization"), prefixed("AverageValue"), prefixed("Value"));
    let mut out;
    let mut amount = copied(source, &[(&utilization, "averageUtilization"), (&average, "averageValue"), (&value, "value")]);
    match kind {
        "Resource" | "ContainerResource" => out = copied(source, &[("/name", "name"), ("/container", "container")]),
        _ => {
            let selector = if kind == "External" { "/metricSelector" } else { "/selector" };
            let metric = copied(source, &[("/metricName", "name"), (selector, "selector")]);
            out = Object::from_iter([("metric".to_owned(), Value::Object(metric))]);
            if kind == "Object" {
                out.extend(copied(source, &[("/target", "describedObject")]));
                amount.extend(copied(source, &[("/averageValue", "averageValue")]));
            }
        }
    }
    // A value of zero beside another amount only filled v1's required field.
    if amount.len() > 1 && amount.get("value").is_some_and(|v| v == "0") {
        amount.remove("value");
    }
    if !side.is_status {
        let kind = match () {
            () if amount.contains_key("averageUtilization") => "Utilization",
            () if amount.contains_key("averageValue") => "AverageValue",
            () => "Value",
        };
        amount.insert("type".to_owned(), kind.into());
    }
    out.insert(side.value.to_owned(), Value::Object(amount));
    json!({"type": kind, member: out})
}

/// Upstream writes the behaviour with the field names of its internal types.
fn capitalise(value: &Value, is_up: bool) -> Value {
    rename_keys(value, &|key| {
        let mut chars = key.chars();
        chars.next().map_or_else(String::new, |first| {
            let first: String = if is_up { first.to_uppercase().collect() } else { first.to_lowercase().collect() };
            first + chars.as_str()
        })
    })
}

fn rename_keys(value: &Value, rename: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (rename(k), rename_keys(v, rename))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(|v| rename_keys(v, rename)).collect()),
        other => other.clone(),
    }
}

fn list(map: &mut Object, part: &str, key: &str) -> Vec<Value> {
    let removed = map.get_mut(part).and_then(Value::as_object_mut).and_then(|p| p.remove(key));
    match removed {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn set(map: &mut Object, part: &str, key: &str, value: Value) {
    if let Some(part) = map.entry(part.to_owned()).or_insert_with(|| json!({})).as_object_mut() {
        part.insert(key.to_owned(), value);
    }
}

pub(super) fn v2_to_v1(map: &mut Object) {
    take_annotations(map);
    let metrics = list(map, "spec", "metrics");
    let current = list(map, "status", "currentMetrics");
    let conditions = list(map, "status", "conditions");
    let behavior = map.get_mut("spec").and_then(Value::as_object_mut).and_then(|s| s.remove("behavior"));
    if let Some(cpu) = metrics.iter().find(|m| is_cpu_utilization(m, SPEC)) {
        let percentage = cpu["resource"]["target"]["averageUtilization"].clone();
        set(map, "spec", "targetCPUUtilizationPercentage", percentage);
    }
    if let Some(cpu) = current.iter().rev().find(|m| is_cpu_utilization(m, STATUS)) {
        set(map, "status", "currentCPUUtilizationPercentage", cpu["resource"]["current"]["averageUtilization"].clone());
    }
    let others: Vec<Value> = metrics.iter().filter(|m| !is_cpu_utilization(m, SPEC)).map(|m| metric_to_v1(m, SPEC)).collect();
    let current: Vec<Value> = current.iter().map(|m| metric_to_v1(m, STATUS)).collect();
    let mut add = |key: &str, value: Value| {
        if let Some(all) = annotations(map) {
            all.insert(key.to_owned(), Value::String(value.to_string()));
        }
    };
    if !others.is_empty() {
        add(METRICS, Value::Array(others));
    }
    if !current.is_empty() {
        add(CURRENT_METRICS, Value::Array(current));
    }
    if let Some(behavior) = behavior.filter(Value::is_object) {
        add(BEHAVIOR, capitalise(&behavior, true));
    }
    if !conditions.is_empty() {
        add(CONDITIONS, Value::Array(conditions));
    }
}

pub(super) fn v1_to_v2(map: &mut Object) {
    let taken = take_annotations(map);
    let cpu = map.get_mut("spec").and_then(Value::as_object_mut).and_then(|s| s.remove("targetCPUUtilizationPercentage"));
    let current_cpu =
        map.get_mut("status").and_then(Value::as_object_mut).and_then(|s| s.remove("currentCPUUtilizationPercentage"));
    let others = parsed(&taken, METRICS).and_then(|v| v.as_array().cloned()).unwrap_or_default();
    let mut metrics: Vec<Value> = others.iter().map(|m| metric_to_v2(m, SPEC)).collect();
    let utilization = |percentage: Value| {
        json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": percentage}}})
    };
    match cpu.filter(|v| !v.is_null()) {
        Some(percentage) => metrics.push(utilization(percentage)),
        None if metrics.is_empty() => metrics.push(utilization(80.into())),
        None => {}
    }
    set(map, "spec", "metrics", Value::Array(metrics));
    if let Some(behavior) = parsed(&taken, BEHAVIOR).filter(|b| b.as_object().is_some_and(|b| !b.is_empty())) {
        set(map, "spec", "behavior", capitalise(&behavior, false));
    }
    let current = parsed(&taken, CURRENT_METRICS).and_then(|v| v.as_array().cloned());
    match (current, current_cpu.filter(|v| !v.is_null())) {
        (Some(current), _) => {
            let current = current.iter().map(|m| metric_to_v2(m, STATUS)).collect();
            set(map, "status", "currentMetrics", Value::Array(current));
        }
        (None, Some(percentage)) => {
            let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percentage}}});
            set(map, "status", "currentMetrics", Value::Array(vec![metric]));
        }
        (None, None) => {}
    }
    if let Some(conditions) = parsed(&taken, CONDITIONS).filter(Value::is_array) {
        set(map, "status", "conditions", conditions);
    }
}
