//! What a controller may say of a job: a finished job stays finished, and its counts do not go back.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, flag, has, int, list, maybe_int, same, text};
use super::jobs::count_indexes;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "job_status" => |c, _, _| job_status(c),
        _ => return None,
    };
    Some(rule)
}

fn is_true(job: &Value, kind: &str) -> bool {
    list(job, "status.conditions").iter().any(|o| text(o, "type") == kind && text(o, "status") == "True")
}

fn is_finished(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

fn job_status(c: &mut Check<'_>) {
    let root = Path::ROOT;
    let path = root.field("status");
    let (new, old) = (c.write.object, c.old);
    counts(c, new, old, &path);
    conditions(c, new, old, &path);
    times(c, new, old, &path);
    indexes(c, new, old, &path);
    terminal(c, new, old, &path);
}

fn counts(c: &mut Check<'_>, new: &Value, old: &Value, path: &Path<'_>) {
    let status = at(new, "status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        c.nonnegative(&path.field(field), int(status, field));
    }
    let uncounted = path.field("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for field in ["succeeded", "failed"] {
        let path = uncounted.field(field);
        for (i, uid) in list(at(status, "uncountedTerminatedPods"), field).iter().enumerate() {
            let uid = uid.as_str().unwrap_or_default();
            if uid.is_empty() {
                c.invalid(&path.index(i), uid, "must not be empty");
            } else if !seen.insert(uid) {
                c.duplicate(&path.index(i), uid);
            }
        }
    }
    let changed = |field: &str| !same(at(new, field), at(old, field));
    let finished = is_finished(new);
    let finish_changed = is_finished(old) != finished;
    if finished && (finish_changed || changed("status.active")) && int(status, "active") > 0 {
        c.invalid(&path.field("active"), int(status, "active"), "active>0 is invalid for finished job");
    }
    if finished && (finish_changed || changed("status.terminating")) && int(status, "terminating") > 0 {
        c.invalid(&path.field("terminating"), int(status, "terminating"), "terminating>0 is invalid for finished job");
    }
    let has_uncounted = !seen.is_empty();
    if finished && has_uncounted && (finish_changed || changed("status.uncountedTerminatedPods")) {
        c.invalid(&uncounted, at(status, "uncountedTerminatedPods").clone(), "must be empty for finished job");
    }
    if (changed("status.ready") || changed("status.active")) && int(status, "ready") > int(status, "active") {
        c.invalid(&path.field("ready"), int(status, "ready"), "cannot set more ready pods than active");
    }
}

fn conditions(c: &mut Check<'_>, new: &Value, old: &Value, path: &Path<'_>) {
    let path = path.field("conditions");
    let now = |kind: &str| is_true(new, kind);
    let changed = |kind: &str| is_true(new, kind) != is_true(old, kind);
    let failed_indexes_changed = !same(at(new, "status.failedIndexes"), at(old, "status.failedIndexes"));
    let rules = [
        (
            (changed("Complete") || changed("Failed")) && now("Complete") && now("Failed"),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            (changed("Complete") || changed("FailureTarget")) && now("Complete") && now("FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            (changed("Failed") || failed_indexes_changed) && now("Failed") && !now("FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            (changed("Complete") || changed("SuccessCriteriaMet")) && now("Complete") && !now("SuccessCriteriaMet"),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (now("SuccessCriteriaMet") && now("Failed"), "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (
            now("SuccessCriteriaMet") && now("FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has(new, "spec.successPolicy") && !now("SuccessCriteriaMet") && now("Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ];
    for (_, detail) in rules.iter().filter(|(is_broken, _)| *is_broken) {
        c.invalid_unshown(&path, *detail);
    }
}

fn times(c: &mut Check<'_>, new: &Value, old: &Value, path: &Path<'_>) {
    let (start, end) = (text(new, "status.startTime"), text(new, "status.completionTime"));
    let (old_start, old_end) = (text(old, "status.startTime"), text(old, "status.completionTime"));
    let (start_path, end_path) = (path.field("startTime"), path.field("completionTime"));
    let complete_changed = is_true(new, "Complete") != is_true(old, "Complete");
    if complete_changed || end != old_end {
        if !end.is_empty() && !is_true(new, "Complete") {
            c.invalid(&end_path, end, "cannot set completionTime when there is no Complete=True condition");
        }
        if end.is_empty() && is_true(new, "Complete") {
            c.required(&end_path, "completionTime is required for Complete jobs");
        }
    }
    // Times of this form sort as text.
    if (start != old_start || end != old_end) && !start.is_empty() && !end.is_empty() && end < start {
        c.invalid(&end_path, end, "must be equal to or after `startTime`");
    }
    let is_empty_suspended = flag(new, "spec.suspend") && maybe_int(new, "spec.completions") == Some(0);
    let finish_changed = is_finished(new) != is_finished(old);
    if (finish_changed || start != old_start) && !is_empty_suspended && start.is_empty() && is_finished(new) {
        c.required(&start_path, "startTime is required for finished job");
    }
}

fn indexes(c: &mut Check<'_>, new: &Value, old: &Value, path: &Path<'_>) {
    let (completed, failed) = (text(new, "status.completedIndexes"), text(new, "status.failedIndexes"));
    let completed_changed = completed != text(old, "status.completedIndexes");
    let failed_changed = !same(at(new, "status.failedIndexes"), at(old, "status.failedIndexes"));
    let completions = maybe_int(new, "spec.completions");
    let has_limit = has(new, "spec.backoffLimitPerIndex");
    let (completed_path, failed_path) = (path.field("completedIndexes"), path.field("failedIndexes"));
    if let Some(completions) = completions {
        if let (true, Err(problem)) = (completed_changed, count_indexes(completed, completions)) {
            c.invalid(&completed_path, completed, format!("error parsing completedIndexes: {problem}"));
        }
        if let (true, Err(problem)) = (failed_changed && has_limit, count_indexes(failed, completions)) {
            c.invalid(&failed_path, failed, format!("error parsing failedIndexes: {problem}"));
        }
    }
    if completed_changed && !completed.is_empty() && text(new, "spec.completionMode") != "Indexed" {
        c.invalid(&completed_path, completed, "cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed_changed && !has_limit && has(new, "status.failedIndexes") {
        c.invalid(&failed_path, failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if (completed_changed || failed_changed)
        && completions.is_some()
        && let Some(index) = overlap(completed, failed)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        c.invalid(&failed_path, failed, detail);
    }
}

/// The first index that both lists name.
fn overlap(completed: &str, failed: &str) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        let parse = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        text.split(',').filter_map(parse).collect()
    };
    let failed = intervals(failed);
    intervals(completed)
        .iter()
        .flat_map(|(a, b)| failed.iter().filter(move |(x, y)| a <= y && x <= b).map(move |(x, _)| *a.max(x)))
        .min()
}

/// What may not be taken back.
fn terminal(c: &mut Check<'_>, new: &Value, old: &Value, path: &Path<'_>) {
    let conditions_path = path.field("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            c.invalid_unshown(&conditions_path, format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    let status = at(new, "status");
    if int(status, "failed") < int(old, "status.failed") {
        c.invalid(&path.field("failed"), int(status, "failed"), "cannot decrease the failed counter");
    }
    let is_scalable = text(new, "spec.completionMode") == "Indexed" && at(new, "spec.completions") == at(new, "spec.parallelism");
    if !is_scalable && int(status, "succeeded") < int(old, "status.succeeded") {
        c.invalid(&path.field("succeeded"), int(status, "succeeded"), "cannot decrease the succeeded counter");
    }
    let (end, old_end) = (text(status, "completionTime"), text(old, "status.completionTime"));
    if !end.is_empty() && !old_end.is_empty() && end != old_end {
        c.invalid(&path.field("completionTime"), end, "field is immutable");
    }
    let (start, old_start) = (at(status, "startTime"), at(old, "status.startTime"));
    let resumes = is_true(old, "Suspended")
        && list(status, "conditions").iter().any(|o| text(o, "type") == "Suspended" && text(o, "status") == "False");
    if !old_start.is_null() && start != old_start && !resumes && !flag(new, "spec.suspend") {
        c.invalid(&path.field("startTime"), start.clone(), "field is immutable for unsuspended job once set");
    }
    let met = "SuccessCriteriaMet";
    if is_true(old, met) && !is_true(new, met) {
        c.invalid_unshown(&conditions_path, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(old, "Complete") && !is_true(old, met) && is_true(new, met) {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        c.invalid_unshown(&conditions_path, detail);
    }
}
