//! Jobs: completion modes, policies, and what may change while they run.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, flag, has, int, list, maybe_int, same, text, with_field_of};
use super::super::{names, selectors};
use crate::LabelSelector;

const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const MANY_COMPLETIONS_MAX: i64 = 10_000;
const POLICY_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const SUCCEEDED_INDEXES_BYTES_MAX: usize = 64 * 1024;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "job" => job,
        "failed_indexes" => failed_indexes,
        "domain_prefixed_path" => |c, v, p| domain_prefixed_path(c, v.as_str().unwrap_or_default(), p),
        "completion_mode" => completion_mode,
        "pod_failure_policy" => pod_failure_policy,
        "success_policy" => success_policy,
        "pod_replacement_policy" => pod_replacement_policy,
        "job_restart_policy" => job_restart_policy,
        "job_completions" => job_completions,
        "job_template_fixed" => job_template_fixed,
        _ => return None,
    };
    Some(rule)
}

fn is_indexed(spec: &Value) -> bool {
    text(spec, "completionMode") == "Indexed"
}

fn job<'a>(c: &mut Check<'a>, job: &'a Value, root: &Path<'_>) {
    let spec = at(job, "spec");
    let path = root.field("spec");
    generated_selector(c, job, root);
    job_spec_and_selector(c, spec, &path);
    if let Some(completions) = maybe_int(spec, "completions").filter(|n| *n > 0 && is_indexed(spec)) {
        let name = text(job, "metadata.name");
        let hostname = format!("{name}-{}", completions - 1);
        if !names::dns_label(&hostname).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
            c.invalid(&root.field("metadata.name"), name, detail);
        }
    }
    if c.is_update() {
        // Upstream judges the spec twice, and clients see both findings.
        job_spec_and_selector(c, spec, &path);
        c.section("JobSpec.immutable", spec, &path);
    }
}

fn job_spec_and_selector<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    c.section("JobSpec", spec, path);
    let selector = at(spec, "selector");
    if selector.is_null() {
        c.required(&path.field("selector"), "");
    } else {
        selectors::label_selector(c, selector, &path.field("selector"));
    }
    let labels = at(spec, "template.metadata.labels");
    let none = serde_json::Map::new();
    let matches = LabelSelector::from_object(selector).map(|s| s.matches(labels.as_object().unwrap_or(&none)));
    if selector.is_null() || matches == Ok(false) {
        let detail = "`selector` does not match template `labels`";
        c.invalid(&path.field("template.metadata.labels"), labels.clone(), detail);
    }
}

/// A selector that a client wrote must be the one that would have been generated.
fn generated_selector<'a>(c: &mut Check<'a>, job: &'a Value, root: &Path<'_>) {
    if flag(job, "spec.manualSelector") || !has(job, "spec.selector") {
        return;
    }
    let (uid, name) = (text(job, "metadata.uid"), text(job, "metadata.name"));
    if uid.is_empty() {
        c.required(&root.field("metadata.uid"), "");
    }
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = at(job, "spec.template.metadata.labels");
    let path = root.field("spec.template.metadata");
    let labels_path = path.field("labels");
    for (key, value) in expected {
        match labels.get(key).and_then(Value::as_str) {
            None => c.required(&labels_path.key(key), format!("must be '{value}'")),
            Some(found) if found != value => c.invalid(&labels_path.key(key), found, format!("must be '{value}'")),
            Some(_) => {}
        }
    }
    let wanted: serde_json::Map<String, Value> = expected.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
    let selector = at(job, "spec.selector");
    if LabelSelector::from_object(selector).is_ok_and(|s| !s.matches(&wanted)) {
        c.invalid(&root.field("spec.selector"), selector.clone(), "`selector` not auto-generated");
    }
}

/// `acme.io/foo`.
pub fn domain_prefixed_path(c: &mut Check<'_>, value: &str, path: &Path<'_>) {
    if value.is_empty() {
        return c.required(path, "");
    }
    let Some((host, rest)) = value.split_once('/').filter(|(h, r)| !h.is_empty() && !r.is_empty()) else {
        return c.invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    c.invalid_each(path, host, names::dns_subdomain(host));
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(is_allowed) {
        c.invalid(path, rest, names::pattern_text("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]));
    }
}

fn failed_indexes<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        c.required(&path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
}

fn completion_mode<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (completions, parallelism) = (maybe_int(spec, "completions"), maybe_int(spec, "parallelism"));
    let failed = maybe_int(spec, "maxFailedIndexes");
    let (parallelism_path, failed_path) = (path.field("parallelism"), path.field("maxFailedIndexes"));
    match text(spec, "completionMode") {
        "Indexed" => {}
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(found) = maybe_int(spec, field) {
                    c.invalid(&path.field(field), found, "requires indexed completion mode");
                }
            }
            return;
        }
        _ => return,
    }
    if completions.is_none() {
        c.required(&path.field("completions"), "when completion mode is Indexed");
    }
    if let Some(found) = parallelism.filter(|n| *n > INDEXED_PARALLELISM_MAX) {
        let detail = format!("must be less than or equal to {INDEXED_PARALLELISM_MAX} when completion mode is Indexed");
        c.invalid(&parallelism_path, found, detail);
    }
    if let (Some(found), Some(completions)) = (failed, completions)
        && found > completions
    {
        c.invalid(&failed_path, found, "must be less than or equal to completions");
    }
    if let Some(found) = failed.filter(|n| *n > COMPLETIONS_SOFT_MAX) {
        c.invalid(&failed_path, found, format!("must be less than or equal to {COMPLETIONS_SOFT_MAX}"));
    }
    if completions.is_none_or(|n| n <= COMPLETIONS_SOFT_MAX) || !has(spec, "backoffLimitPerIndex") {
        return;
    }
    if failed.is_none() {
        c.required(&failed_path, format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}"));
    }
    for (value, place) in [(parallelism, &parallelism_path), (failed, &failed_path)] {
        if let Some(found) = value.filter(|n| *n > MANY_COMPLETIONS_MAX) {
            let detail = format!(
                "must be less than or equal to {MANY_COMPLETIONS_MAX} when completions are above {COMPLETIONS_SOFT_MAX} and used with backoff limit per index"
            );
            c.invalid(place, found, detail);
        }
    }
}

fn pod_failure_policy<'a>(c: &mut Check<'a>, policy: &'a Value, path: &Path<'_>) {
    let rules = list(policy, "rules");
    let path = path.field("rules");
    if rules.len() > POLICY_RULES_MAX {
        c.too_many(&path, rules.len(), POLICY_RULES_MAX);
    }
    for (i, rule) in rules.iter().enumerate() {
        failure_rule(c, rule, &path.index(i));
    }
}

fn failure_rule(c: &mut Check<'_>, rule: &Value, path: &Path<'_>) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let action = text(rule, "action");
    let spec = job_spec(c);
    match action {
        "" => c.required(&path.field("action"), "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
        "FailIndex" if !has(spec, "backoffLimitPerIndex") => {
            c.invalid(&path.field("action"), action, "requires the backoffLimitPerIndex to be set");
        }
        _ if !ACTIONS.contains(&action) => c.not_supported(&path.field("action"), action, &ACTIONS),
        _ => {}
    }
    let has_codes = has(rule, "onExitCodes");
    if has_codes {
        exit_codes(c, at(rule, "onExitCodes"), spec, &path.field("onExitCodes"));
    }
    let conditions = list(rule, "onPodConditions");
    let conditions_path = path.field("onPodConditions");
    if conditions.len() > POLICY_RULES_MAX {
        c.too_many(&conditions_path, conditions.len(), POLICY_RULES_MAX);
    }
    for (i, condition) in conditions.iter().enumerate() {
        let path = conditions_path.index(i);
        c.qualified_name(&path.field("type"), text(condition, "type"));
        match text(condition, "status") {
            "" => c.required(&path.field("status"), "valid values: [\"False\" \"True\" \"Unknown\"]"),
            "True" | "False" | "Unknown" => {}
            other => c.not_supported(&path.field("status"), other, &["False", "True", "Unknown"]),
        }
    }
    match (has_codes, !conditions.is_empty()) {
        (true, true) => c.invalid_unshown(path, "specifying both OnExitCodes and OnPodConditions is not supported"),
        (false, false) => c.invalid_unshown(path, "specifying one of OnExitCodes and OnPodConditions is required"),
        _ => {}
    }
}

/// The spec of the job, or of the jobs that a CronJob makes.
fn job_spec<'a>(c: &Check<'a>) -> &'a Value {
    let own = at(c.write.object, "spec");
    if has(own, "jobTemplate") { at(own, "jobTemplate.spec") } else { own }
}

fn exit_codes(c: &mut Check<'_>, codes: &Value, spec: &Value, path: &Path<'_>) {
    let operator = text(codes, "operator");
    match operator {
        "" => c.required(&path.field("operator"), "valid values: [\"In\" \"NotIn\"]"),
        "In" | "NotIn" => {}
        other => c.not_supported(&path.field("operator"), other, &["In", "NotIn"]),
    }
    if has(codes, "containerName") {
        let name = text(codes, "containerName");
        let is_known = ["containers", "initContainers"]
            .iter()
            .flat_map(|f| list(at(spec, "template.spec"), f))
            .any(|o| text(o, "name") == name);
        if !is_known {
            let detail = "must be one of the container or initContainer names in the pod template";
            c.invalid(&path.field("containerName"), name, detail);
        }
    }
    let values = list(codes, "values");
    let path = path.field("values");
    if values.is_empty() {
        c.invalid(&path, values.to_vec(), "at least one value is required");
    } else if values.len() > EXIT_CODES_MAX {
        c.too_many(&path, values.len(), EXIT_CODES_MAX);
    }
    let mut seen = BTreeSet::new();
    let numbers: Vec<i64> = values.iter().map(|v| v.as_i64().unwrap_or_default()).collect();
    for (i, code) in numbers.iter().enumerate() {
        if operator == "In" && *code == 0 {
            c.invalid(&path.index(i), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(*code) {
            c.duplicate(&path.index(i), *code);
        }
    }
    if !numbers.is_sorted() {
        c.invalid(&path, values.to_vec(), "must be ordered");
    }
}

/// How many indexes `0,2-4` names, all below `completions`.
pub fn count_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    let mut last: Option<i64> = None;
    let mut total = 0;
    for interval in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let parts: Vec<&str> = interval.split('-').collect();
        if parts.len() > 2 {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let mut bounds = Vec::new();
        for part in parts {
            let bound: i64 = part.parse().map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
            if bound >= completions {
                return Err(format!("too large index: {part:?}"));
            }
            bounds.push(bound);
        }
        let (first, end) = (bounds[0], *bounds.last().unwrap_or(&bounds[0]));
        if bounds.len() > 1 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        if let Some(previous) = last.filter(|l| *l >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn success_policy<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let policy = at(spec, "successPolicy");
    if policy.is_null() {
        return;
    }
    let path = path.field("successPolicy");
    if !is_indexed(spec) {
        return c.invalid(&path, policy.clone(), "requires indexed completion mode");
    }
    let rules = list(policy, "rules");
    let path = path.field("rules");
    if rules.is_empty() {
        c.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > POLICY_RULES_MAX {
        c.too_many(&path, rules.len(), POLICY_RULES_MAX);
    }
    let completions = int(spec, "completions");
    for (i, rule) in rules.iter().enumerate() {
        success_rule(c, rule, completions, &path.index(i));
    }
}

fn success_rule(c: &mut Check<'_>, rule: &Value, completions: i64, path: &Path<'_>) {
    let count = maybe_int(rule, "succeededCount");
    let indexes = rule.get("succeededIndexes").and_then(Value::as_str);
    if count.is_none() && indexes.is_none() {
        c.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let place = path.field("succeededIndexes");
        if indexes.len() > SUCCEEDED_INDEXES_BYTES_MAX {
            c.too_long(&place, SUCCEEDED_INDEXES_BYTES_MAX);
        }
        match count_indexes(indexes, completions) {
            Ok(found) => total = found,
            Err(problem) => c.invalid(&place, indexes, format!("error parsing succeededIndexes: {problem}")),
        }
    }
    if let Some(count) = count {
        let place = path.field("succeededCount");
        c.nonnegative(&place, count);
        if count > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            c.invalid(&place, count, detail);
        }
        if indexes.is_some() && count > total {
            let detail =
                format!("must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)");
            c.invalid(&place, count, detail);
        }
    }
}

fn pod_replacement_policy<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let policy = text(spec, "podReplacementPolicy");
    let supported: &[&str] = if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if has(spec, "podReplacementPolicy") && !supported.contains(&policy) {
        c.not_supported(&path.field("podReplacementPolicy"), policy, supported);
    }
}

fn job_restart_policy<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let policy = text(spec, "template.spec.restartPolicy");
    let path = path.field("template.spec.restartPolicy");
    match policy {
        "" | "Always" => c.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if has(spec, "podFailurePolicy") => {
            c.invalid(&path, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        _ => c.not_supported(&path, policy, &["OnFailure", "Never"]),
    }
}

fn job_completions<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let place = path.field("completions");
    let (new, old) = (at(spec, "completions"), at(c.old, "spec.completions"));
    if !is_indexed(spec) {
        return c.immutable(&place, new, old);
    }
    if new != old && !new.is_null() && new != at(spec, "parallelism") {
        c.invalid(&place, new.clone(), "can only be modified in tandem with spec.parallelism");
    }
}

/// While a job is suspended and nothing of it has started, its pods may be told where to go and what they get.
fn job_template_fixed<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let old_job = c.old;
    let old = at(old_job, "spec");
    let is_suspended = flag(old, "suspend");
    let is_idle = is_suspended && (!has(old_job, "status.startTime") || job_is_suspended(old_job));
    let template = at(spec, "template");
    let mut kept = at(old, "template").clone();
    if is_idle {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            with_field_of(&mut kept, template, &format!("spec.{field}"));
        }
        with_field_of(&mut kept, template, "metadata.annotations");
        with_field_of(&mut kept, template, "metadata.labels");
        match (has(&kept, "spec.affinity"), has(template, "spec.affinity.nodeAffinity")) {
            (true, _) => with_field_of(&mut kept, template, "spec.affinity.nodeAffinity"),
            (false, true) => {
                kept["spec"]["affinity"] = serde_json::json!({"nodeAffinity": at(template, "spec.affinity.nodeAffinity")});
            }
            (false, false) => {}
        }
        for field in ["containers", "initContainers"] {
            let Some(Value::Array(containers)) = kept.pointer_mut(&format!("/spec/{field}")) else { continue };
            for (container, new) in containers.iter_mut().zip(list(at(template, "spec"), field)) {
                if text(container, "name") == text(new, "name") {
                    with_field_of(container, new, "resources");
                }
            }
        }
    }
    if !same(template, &kept) {
        c.invalid(&path.field("template"), template.clone(), "field is immutable");
    }
}

fn job_is_suspended(job: &Value) -> bool {
    let conditions = list(job, "status.conditions");
    conditions.iter().any(|o| text(o, "type") == "Suspended" && text(o, "status") == "True") && int(job, "status.active") == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        assert_eq!(count_indexes("0,2-4", 5), Ok(4));
        assert_eq!(count_indexes("", 5), Ok(0));
        assert!(count_indexes("5", 5).is_err() && count_indexes("3,1", 5).is_err() && count_indexes("a", 5).is_err());
    }
}
