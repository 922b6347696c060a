//! Cells of Jobs, CronJobs and autoscalers.

use jiff::Timestamp;
use serde_json::Value;

use super::{at, human_duration, int, list, since, text};
use crate::timestamp::parse_time;

pub(super) fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| list(job, "status.conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True");
    if has("Complete") {
        return "Complete";
    }
    if has("Failed") {
        return "Failed";
    }
    if !text(job, "metadata.deletionTimestamp").is_empty() {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| has(kind)).unwrap_or("Running")
}

pub(super) fn job_completions(job: &Value) -> String {
    let succeeded = int(job, "status.succeeded");
    match (at(job, "spec.completions").as_i64(), int(job, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> String {
    let time = |path: &str| parse_time(text(job, path)).ok().map(Timestamp::as_second);
    match (time("status.startTime"), time("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(now.as_second()) - start),
    }
}

pub(super) fn cron_job_suspend(job: &Value) -> &'static str {
    match at(job, "spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

pub(super) fn cron_job_last(job: &Value, now: Timestamp) -> String {
    match text(job, "status.lastScheduleTime") {
        "" => "<none>".to_owned(),
        time => since(time, now),
    }
}

fn amount(value: &Value) -> String {
    value.as_str().map_or_else(|| "<unknown>".to_owned(), str::to_owned)
}

/// `current/target` of one metric of a v2 autoscaler.
fn metric(spec: &Value, status: &Value) -> String {
    let (member, named) = match text(spec, "type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (source, current) = (at(spec, member), at(status, member));
    let average = at(source, "target.averageValue");
    if named {
        let name = text(source, "name");
        if average.is_string() {
            return format!("{name}: {}/{}", amount(at(current, "current.averageValue")), amount(average));
        }
        let percent = |value: &Value, none: &str| value.as_i64().map_or_else(|| none.to_owned(), |p| format!("{p}%"));
        let now = percent(at(current, "current.averageUtilization"), "<unknown>");
        return format!("{name}: {now}/{}", percent(at(source, "target.averageUtilization"), "<auto>"));
    }
    match (member, average.is_string()) {
        ("pods", _) => format!("{}/{}", amount(at(current, "current.averageValue")), amount(average)),
        (_, true) => format!("{}/{} (avg)", amount(at(current, "current.averageValue")), amount(average)),
        _ => format!("{}/{}", amount(at(current, "current.value")), amount(at(source, "target.value"))),
    }
}

/// Targets of an autoscaler, two at most; v1 knows a CPU percentage alone.
pub(super) fn autoscaler_targets(scaler: &Value) -> String {
    const SHOWN_MAX: usize = 2;
    if let Some(percentage) = at(scaler, "spec.targetCPUUtilizationPercentage").as_i64() {
        let now = at(scaler, "status.currentCPUUtilizationPercentage").as_i64();
        return format!("cpu: {}/{percentage}%", now.map_or_else(|| "<unknown>".to_owned(), |p| format!("{p}%")));
    }
    let metrics = list(scaler, "spec.metrics");
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let current = list(scaler, "status.currentMetrics");
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(SHOWN_MAX)
        .map(|(index, spec)| metric(spec, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    let text = shown.join(", ");
    if metrics.len() > SHOWN_MAX { format!("{text} + {} more...", metrics.len() - SHOWN_MAX) } else { text }
}
