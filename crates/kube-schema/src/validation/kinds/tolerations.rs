//! Tolerations of pods and taints of nodes.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{has, text};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "tolerations" => tolerations,
        "taints" => taints,
        _ => return None,
    };
    Some(rule)
}

pub fn tolerations<'a>(c: &mut Check<'a>, tolerations: &'a Value, path: &Path<'_>) {
    for (i, toleration) in tolerations.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        let (key, value) = (text(toleration, "key"), text(toleration, "value"));
        let (operator, effect) = (text(toleration, "operator"), text(toleration, "effect"));
        let operator_path = path.field("operator");
        if !key.is_empty() {
            c.qualified_name(&path.field("key"), key);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            c.invalid(&operator_path, operator, detail);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            c.invalid(&path.field("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator {
            "" | "Equal" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    c.invalid(&operator_path, value, problems.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                c.invalid(&operator_path, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => c.not_supported(&operator_path, operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => c.not_supported(&operator_path, operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            c.not_supported(&path.field("effect"), effect, &EFFECTS);
        }
    }
}

fn taints<'a>(c: &mut Check<'a>, taints: &'a Value, _: &Path<'_>) {
    // Upstream reports them below `metadata`.
    let path = Path::ROOT;
    let path = path.field("metadata.taints");
    let all = taints.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, taint) in all.iter().enumerate() {
        let path = path.index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        c.qualified_name(&path.field("key"), key);
        let problems = names::label_value(value);
        if !problems.is_empty() {
            c.invalid(&path.field("value"), value, problems.join(";"));
        }
        if effect.is_empty() {
            c.required(&path.field("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            c.not_supported(&path.field("effect"), effect, &EFFECTS);
        }
        if all[..i].iter().any(|o| text(o, "key") == key && text(o, "effect") == effect) {
            let mut error = super::super::FieldError::duplicate(&path, taint.clone());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            c.errors.push(error);
        }
    }
}
