//! The way from client-side apply: `kubectl`'s annotation, honoured for the manager `kubectl` alone.

use serde_json::{Map, Value};

use super::diff::diff;
use super::element::json_text;
use super::extract::field_set;
use super::types::Type;
use super::{Conflict, FieldSet, UpdateContext, extract};
use crate::limits;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const KUBECTL: &str = "kubectl";

/// The conflicts that the annotation does not explain: kubectl may take over what it last applied from the client, as far as nobody
/// changed it since.
pub(super) fn unexplained(ctx: &UpdateContext<'_>, live: &Value, conflicts: Vec<Conflict>) -> Vec<Conflict> {
    if ctx.manager != KUBECTL {
        return conflicts;
    }
    match allowed(ctx, live) {
        Some(allowed) => conflicts.into_iter().filter(|c| !allowed.has(&c.path)).collect(),
        None => conflicts,
    }
}

fn allowed(ctx: &UpdateContext<'_>, live: &Value) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(ctx.api_version) {
        return None;
    }
    extract::check(Type::Of(ctx.schema), &last).ok()?;
    let mut set = field_set(ctx.schema, &last).ok()?;
    let change = diff(ctx.schema, &last, live).ok()?;
    for gone in [&change.modified, &change.added, &change.removed] {
        set.subtract(gone);
    }
    Some(set)
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Keeps an existing annotation up to date with what kubectl applies now, so that going back to client-side apply works.
pub(super) fn follow(ctx: &UpdateContext<'_>, object: &mut Value, config: &Value) {
    if ctx.manager != KUBECTL || annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(metadata)) = config.get_mut("metadata")
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.remove(ANNOTATION);
    }
    let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|m| m.get_mut("annotations")) else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::from(json_text(&sorted(config)) + "\n"));
    let bytes: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if bytes > limits::ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

/// With the members of all objects in order, whatever order the map type keeps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<(String, Value)> = map.into_iter().collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().map(|(k, v)| (k, sorted(v))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
