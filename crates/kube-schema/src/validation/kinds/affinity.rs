//! Affinity terms and topology spread constraints.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::selectors;
use super::super::view::{at, entries, has, int, list, text, texts};

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "affinity_namespaces" => affinity_namespaces,
        "match_label_keys" => match_label_keys,
        "preferred_node_term" => preferred_node_term,
        "topology_spread" => topology_spread,
        _ => return None,
    };
    Some(rule)
}

fn affinity_namespaces<'a>(c: &mut Check<'a>, term: &'a Value, path: &Path<'_>) {
    for name in texts(term, "namespaces") {
        // Singular, and without the index, as upstream names it.
        c.label(&path.field("namespace"), name);
    }
}

fn preferred_node_term<'a>(c: &mut Check<'a>, term: &'a Value, path: &Path<'_>) {
    let weight = int(term, "weight");
    if !(1..=100).contains(&weight) {
        c.invalid(&path.field("weight"), weight, "must be in the range 1-100");
    }
    selectors::node_selector_term(c, at(term, "preference"), &path.field("preference"), false);
}

/// `matchLabelKeys` and `mismatchLabelKeys` of a term or constraint.
fn match_label_keys<'a>(c: &mut Check<'a>, term: &'a Value, path: &Path<'_>) {
    let selector = at(term, "labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = texts(term, field);
        let path = path.field(field);
        if keys.is_empty() {
            continue;
        }
        if selector.is_null() {
            c.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            c.qualified_name(&path.index(i), key);
        }
    }
    let keys = texts(term, "matchLabelKeys");
    let mut selected: BTreeSet<&str> = entries(selector, "matchLabels").into_iter().map(|(k, _)| k).collect();
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(i) = keys.iter().rposition(|k| *k == key)
            && selected.contains(key)
        {
            c.invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
        selected.insert(key);
    }
    let mismatched = texts(term, "mismatchLabelKeys");
    let path = path.field("matchLabelKeys");
    for (i, key) in keys.iter().enumerate().filter(|(_, k)| mismatched.contains(k)) {
        c.invalid(&path.index(i), *key, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

fn topology_spread<'a>(c: &mut Check<'a>, constraints: &'a Value, path: &Path<'_>) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    const POLICIES: [&str; 2] = ["Honor", "Ignore"];
    let all = constraints.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, constraint) in all.iter().enumerate() {
        let path = path.index(i);
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if int(constraint, "maxSkew") <= 0 {
            c.invalid(&path.field("maxSkew"), int(constraint, "maxSkew"), "must be greater than zero");
        }
        if key.is_empty() {
            c.required(&path.field("topologyKey"), "can not be empty");
        }
        if !ACTIONS.contains(&action) {
            c.not_supported(&path.field("whenUnsatisfiable"), action, &ACTIONS);
        }
        if all[i + 1..].iter().any(|o| text(o, "topologyKey") == key && text(o, "whenUnsatisfiable") == action) {
            c.duplicate(&path.field("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if has(constraint, "minDomains") {
            let domains = int(constraint, "minDomains");
            if domains <= 0 {
                c.invalid(&path.field("minDomains"), domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                c.invalid(&path.field("minDomains"), domains, detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if has(constraint, field) && !POLICIES.contains(&text(constraint, field)) {
                c.not_supported(&path.field(field), text(constraint, field), &POLICIES);
            }
        }
        match_label_keys(c, constraint, &path);
        selectors::label_selector(c, at(constraint, "labelSelector"), &path.field("labelSelector"));
    }
}
