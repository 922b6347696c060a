//! What an update of a pod may change, by endpoint.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, entries, has, list, map, maybe_int, same, text, with_field_of};

const MUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
    `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const MIRROR: &str = "kubernetes.io/config.mirror";

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "pod_annotation_changes" => |c, _, _| annotation_changes(c, c.write.object, &Path::ROOT),
        "pod_ephemeral_update" => ephemeral_update,
        "pod_resize" => resize,
        _ => return None,
    };
    Some(rule)
}

/// Annotations that the pod was started with stay.
pub fn annotation_changes<'a>(c: &mut Check<'a>, pod: &'a Value, root: &Path<'_>) {
    let path = root.field("metadata.annotations");
    let old = c.old;
    for (key, value) in entries(old, "metadata.annotations") {
        if map(pod, "metadata.annotations").and_then(|m| m.get(key)) == Some(value) {
            continue;
        }
        if key.starts_with(super::security::APP_ARMOR) {
            c.forbidden(&path.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            c.forbidden(&path.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for (key, _) in entries(pod, "metadata.annotations") {
        if map(old, "metadata.annotations").is_some_and(|m| m.contains_key(key)) {
            continue;
        }
        if key.starts_with(super::security::APP_ARMOR) {
            c.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            c.forbidden(&path.key(key), "may not add mirror pod annotation");
        }
    }
}

/// The resource itself.
pub fn pod_update<'a>(c: &mut Check<'a>, pod: &'a Value, root: &Path<'_>) {
    annotation_changes(c, pod, root);
    super::pod::pod_annotations(c, at(pod, "metadata"), pod, &root.field("metadata.annotations"));
    let (spec, old, path) = (at(pod, "spec"), at(c.old, "spec"), root.field("spec"));
    for field in ["containers", "initContainers"] {
        let path = path.field(field);
        let containers = list(spec, field);
        if containers.len() != list(old, field).len() {
            return c.forbidden(&path, "pod updates may not add or remove containers");
        }
        for (i, container) in containers.iter().enumerate() {
            if text(container, "image").is_empty() {
                c.required(&path.index(i).field("image"), "");
            }
            super::pod::untrimmed_image(c, container, &path.index(i));
        }
    }
    if !deadline_may_change(c, spec, old, &path) {
        return;
    }
    tolerations_only_added(c, spec, old, &path);
    gates_only_deleted(c, spec, old, &path);
    if same(spec, old) {
        return;
    }
    let munged = without_mutable_fields(c, spec, old, &path);
    if !same(&munged, old) {
        c.forbidden(&path, MUTABLE);
    }
}

fn deadline_may_change(c: &mut Check<'_>, spec: &Value, old: &Value, path: &Path<'_>) -> bool {
    let path = path.field("activeDeadlineSeconds");
    match (maybe_int(spec, "activeDeadlineSeconds"), maybe_int(old, "activeDeadlineSeconds")) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            c.invalid(&path, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(before)) if before < new => {
            c.invalid(&path, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            c.invalid(&path, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations_only_added<'a>(c: &mut Check<'a>, spec: &'a Value, old: &Value, path: &Path<'_>) {
    let path = path.field("tolerations");
    let without_seconds = |toleration: &Value| {
        let mut copy = toleration.clone();
        if let Some(map) = copy.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        copy
    };
    let kept: Vec<Value> = list(spec, "tolerations").iter().map(without_seconds).collect();
    if list(old, "tolerations").iter().any(|t| !kept.iter().any(|k| same(k, &without_seconds(t)))) {
        return c.forbidden(&path, "existing toleration can not be modified except its tolerationSeconds");
    }
    super::tolerations::tolerations(c, at(spec, "tolerations"), &path);
}

fn gates_only_deleted(c: &mut Check<'_>, spec: &Value, old: &Value, path: &Path<'_>) {
    let path = path.field("schedulingGates");
    let before = list(old, "schedulingGates");
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !before.iter().any(|g| text(g, "name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            c.forbidden(&path.index(i).field("name"), detail);
        }
    }
}

/// The new spec with everything that may change as it was; what a gated pod may change is judged on the way.
fn without_mutable_fields(c: &mut Check<'_>, spec: &Value, old: &Value, path: &Path<'_>) -> Value {
    let mut munged = spec.clone();
    for field in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = munged.get_mut(field) else { continue };
        for (container, before) in containers.iter_mut().zip(list(old, field)) {
            with_field_of(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        with_field_of(&mut munged, old, field);
    }
    let was_negative = maybe_int(old, "terminationGracePeriodSeconds").is_some_and(|s| s < 0);
    if was_negative && maybe_int(spec, "terminationGracePeriodSeconds") == Some(1) {
        with_field_of(&mut munged, old, "terminationGracePeriodSeconds");
    }
    if list(old, "schedulingGates").is_empty() {
        return munged;
    }
    node_selector_only_grows(c, spec, old, path);
    with_field_of(&mut munged, old, "nodeSelector");
    node_affinity_only_narrows(c, spec, old, path);
    match (has(&munged, "affinity"), has(old, "affinity.nodeAffinity")) {
        (true, _) => with_field_of(&mut munged, old, "affinity.nodeAffinity"),
        (false, true) => munged["affinity"] = serde_json::json!({"nodeAffinity": at(old, "affinity.nodeAffinity").clone()}),
        (false, false) => {}
    }
    munged
}

fn node_selector_only_grows(c: &mut Check<'_>, spec: &Value, old: &Value, path: &Path<'_>) {
    let new = map(spec, "nodeSelector");
    if entries(old, "nodeSelector").iter().any(|(k, v)| new.and_then(|n| n.get(*k)) != Some(*v)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        c.invalid(&path.field("nodeSelector"), at(spec, "nodeSelector").clone(), detail);
    }
}

fn node_affinity_only_narrows(c: &mut Check<'_>, spec: &Value, old: &Value, path: &Path<'_>) {
    const TERMS: &str = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (before, now) = (list(old, TERMS), list(spec, TERMS));
    let path = path.field(TERMS);
    if before.is_empty() {
        return;
    }
    if before.len() != now.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return c.invalid(&path, now.to_vec(), detail);
    }
    for (i, (new, old)) in now.iter().zip(before).enumerate() {
        let grows = |field: &str| {
            let (old, new) = (list(old, field), list(new, field));
            new.len() >= old.len() && old.iter().zip(new).all(|(a, b)| same(a, b))
        };
        let was_empty = list(old, "matchExpressions").is_empty() && list(old, "matchFields").is_empty();
        let is_empty = list(new, "matchExpressions").is_empty() && list(new, "matchFields").is_empty();
        if (was_empty && !is_empty) || !grows("matchExpressions") || !grows("matchFields") {
            c.invalid(&path.index(i), new.clone(), "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn ephemeral_update<'a>(c: &mut Check<'a>, pod: &'a Value, root: &Path<'_>) {
    super::pod::metadata_and_spec(c, pod, root);
    annotation_changes(c, pod, root);
    if map(c.old, "metadata.annotations").is_some_and(|a| a.contains_key(MIRROR)) {
        c.errors.clear();
        return c.forbidden(&Path::ROOT.field(""), "static pods do not support ephemeral containers");
    }
    let path = root.field("spec.ephemeralContainers");
    for before in list(c.old, "spec.ephemeralContainers") {
        let name = text(before, "name");
        match list(pod, "spec.ephemeralContainers").iter().find(|o| text(o, "name") == name) {
            None => c.forbidden(&path, format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(now) if !same(now, before) => {
                c.forbidden(&path, format!("existing ephemeral containers {name:?} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
}

/// Guaranteed, Burstable or BestEffort by the resources of the containers or the pod.
fn quality(spec: &Value) -> &'static str {
    let own = at(spec, "resources");
    let holders: Vec<&Value> = if has(own, "requests") || has(own, "limits") {
        vec![own]
    } else {
        ["containers", "initContainers"].iter().flat_map(|f| list(spec, f)).map(|o| at(o, "resources")).collect()
    };
    let amount = |holder: &Value, list: &str, name: &str| {
        map(holder, list).and_then(|m| m.get(name)).and_then(super::resources::quantity).filter(|q| !q.is_zero())
    };
    let names = ["cpu", "memory"];
    let is_empty = |h: &&Value| names.iter().all(|n| amount(h, "requests", n).is_none() && amount(h, "limits", n).is_none());
    let is_full = |h: &&Value| {
        names.iter().all(|n| {
            let limit = amount(h, "limits", n);
            limit.is_some() && amount(h, "requests", n).or(limit) == limit
        })
    };
    if holders.iter().all(is_empty) {
        "BestEffort"
    } else if holders.iter().all(is_full) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn resize<'a>(c: &mut Check<'a>, pod: &'a Value, root: &Path<'_>) {
    super::pod::metadata_and_spec(c, pod, root);
    let nowhere = Path::ROOT;
    let nowhere = nowhere.field("");
    for (is_forbidden, detail) in [
        (map(c.old, "metadata.annotations").is_some_and(|a| a.contains_key(MIRROR)), "static pods cannot be resized"),
        (text(c.old, "spec.os.name") == "windows", "windows pods cannot be resized"),
    ] {
        if is_forbidden {
            c.errors.clear();
            return c.forbidden(&nowhere, detail);
        }
    }
    let (spec, old, path) = (at(pod, "spec"), at(c.old, "spec"), root.field("spec"));
    let before = match text(c.old, "status.qosClass") {
        "" => quality(old),
        class => class,
    };
    if before != quality(spec) {
        c.invalid(&path, text(pod, "status.qosClass"), "Pod QOS Class may not change as a result of resizing");
    }
    let running = list(c.old, "status.containerStatuses").iter().find(|s| has(s, "state.running"));
    if running.is_some_and(|s| !has(s, "resources")) {
        c.forbidden(&path, "Pod running on node without support for resize");
    }
    if !containers_in_order(c, spec, old, &path) {
        return;
    }
    removals(c, at(spec, "resources"), at(old, "resources"), &path.field("resources"), "pod-level resource");
    let mut munged = spec.clone();
    drop_compute(&mut munged, old);
    for field in ["initContainers", "containers"] {
        let path = path.field(field);
        for (i, (new, old)) in list(spec, field).iter().zip(list(old, field)).enumerate() {
            removals(c, at(new, "resources"), at(old, "resources"), &path.index(i).field("resources"), "resource");
        }
        if let Some(Value::Array(containers)) = munged.get_mut(field) {
            containers.iter_mut().zip(list(old, field)).for_each(|(container, old)| drop_compute(container, old));
        }
    }
    if !same(&munged, old) {
        c.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

fn containers_in_order(c: &mut Check<'_>, spec: &Value, old: &Value, path: &Path<'_>) -> bool {
    let found = c.errors.len();
    for field in ["containers", "initContainers"] {
        let path = path.field(field);
        let (now, before) = (list(spec, field), list(old, field));
        if now.len() != before.len() {
            c.forbidden(&path, format!("{field} may not be added or removed on resize"));
            continue;
        }
        for (i, _) in now.iter().zip(before).enumerate().filter(|(_, (n, b))| text(n, "name") != text(b, "name")) {
            c.forbidden(&path.index(i).field("name"), format!("{field} may not be renamed or reordered on resize"));
        }
    }
    c.errors.len() == found
}

fn removals(c: &mut Check<'_>, new: &Value, old: &Value, path: &Path<'_>, what: &str) {
    for list in ["requests", "limits"] {
        let now = map(new, list);
        if entries(old, list).iter().any(|(name, _)| now.is_none_or(|n| !n.contains_key(*name))) {
            c.forbidden(&path.field(list), format!("{what} {list} cannot be removed"));
        }
    }
}

/// Sets cpu and memory as they were.
fn drop_compute(holder: &mut Value, old: &Value) {
    if !has(holder, "resources") {
        return;
    }
    for field in ["requests", "limits"] {
        if !has(holder, &format!("resources.{field}")) {
            continue;
        }
        for name in ["cpu", "memory"] {
            with_field_of(holder, old, &format!("resources.{field}.{name}"));
        }
    }
}
