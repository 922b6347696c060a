//! Persistent volumes, claims and their classes, and what CSI drivers say of themselves.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, entries, has, int, is_empty, list, map, maybe_int, same, text, texts, with_field_of};
use super::super::{names, selectors};
use super::resources::{positive_quantity, quantity, resource_quantity};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;
const VOLUME_ERROR_BYTES_MAX: usize = 1024;
const NODE_ID_BYTES_MAX: usize = 256;
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "persistent_volume" => persistent_volume,
        "persistent_volume_update" => persistent_volume_update,
        "access_modes" => access_modes,
        "claim_storage" => claim_storage,
        "claim_update" => claim_update,
        "claim_without_modes" => |c, _, p| c.required(&p.field("Spec.accessModes"), ""),
        "claim_status" => claim_status,
        "data_source" => data_source,
        "data_sources" => data_sources,
        "class_parameters" => class_parameters,
        "topology_term" => topology_term,
        "repeated_topologies" => repeated_topologies,
        "attachment_source" => attachment_source,
        "attachment_metadata" => attachment_metadata,
        "volume_error" => volume_error,
        "csi_node_drivers" => csi_node_drivers,
        "csi_node_update" => csi_node_update,
        "attach_required" => |c, v, _| {
            if v.is_null() {
                c.required(&Path::ROOT.field("spec.attachedRequired"), "");
            }
        },
        "attach_required_fixed" => |c, v, p| {
            if c.is_update() {
                c.immutable(&p.field("attachedRequired"), at(v, "attachRequired"), at(c.old, "spec.attachRequired"));
            }
        },
        "token_requests" => token_requests,
        "token_in_secrets" => token_in_secrets,
        "lifecycle_modes" => lifecycle_modes,
        "nonnegative_quantity" => |c, v, p| resource_quantity(c, "", v, p),
        _ => return None,
    };
    Some(rule)
}

fn access_modes<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let modes = texts(spec, "accessModes");
    let path = path.field("accessModes");
    for mode in modes.iter().filter(|m| !ACCESS_MODES.contains(m)) {
        c.not_supported(&path, *mode, &ACCESS_MODES);
    }
    let has_other = modes.iter().any(|m| *m != "ReadWriteOncePod" && ACCESS_MODES.contains(m));
    if modes.contains(&"ReadWriteOncePod") && has_other {
        c.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn persistent_volume<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if list(spec, "accessModes").is_empty() {
        c.required(&path.field("accessModes"), "");
    }
    access_modes(c, spec, path);
    let capacity = entries(spec, "capacity");
    let capacity_path = path.field("capacity");
    if capacity.is_empty() {
        c.required(&capacity_path, "");
    }
    if capacity.len() != 1 || capacity[0].0 != "storage" {
        c.not_supported(&capacity_path, at(spec, "capacity").clone(), &["storage"]);
    }
    for (name, amount) in capacity {
        let place = capacity_path.key(name);
        if let Some(found) = quantity(amount).filter(|q| q.is_negative()) {
            c.invalid(&place, found.units(), "must be a valid resource quantity");
        }
        positive_quantity(c, amount, &place);
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        c.not_supported(&path.field("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    }
    let affinity_path = path.field("nodeAffinity");
    if has(spec, "nodeAffinity.required") {
        selectors::node_selector(c, at(spec, "nodeAffinity.required"), &affinity_path.field("required"));
    } else if has(spec, "nodeAffinity") {
        c.required(&affinity_path.field("required"), "must specify required node constraints");
    }
    super::volumes::persistent_source(c, spec, path);
    if has(spec, "local") && !has(spec, "nodeAffinity") {
        c.required(&affinity_path, "Local volume requires node affinity");
    }
    persistent_volume_classes(c, spec, path);
}

fn persistent_volume_classes(c: &mut Check<'_>, spec: &Value, path: &Path<'_>) {
    let host_path = text(spec, "hostPath.path");
    let is_root = !host_path.is_empty() && host_path.starts_with('/') && host_path.split('/').all(|p| matches!(p, "" | "."));
    if is_root && text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        c.forbidden(&path.field("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        c.subdomain(&path.field("storageClassName"), class);
    }
    let mode = text(spec, "volumeMode");
    if has(spec, "volumeMode") && !matches!(mode, "Block" | "Filesystem") {
        c.not_supported(&path.field("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    if has(spec, "volumeAttributesClassName") {
        let class = text(spec, "volumeAttributesClassName");
        if class.is_empty() {
            c.required(&path.field("volumeAttributesClassName"), "an empty string is disallowed");
        } else {
            c.subdomain(&path.field("volumeAttributesClassName"), class);
        }
        if !has(spec, "csi") {
            c.required(&path.field("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

fn persistent_volume_update<'a>(c: &mut Check<'a>, volume: &'a Value, root: &Path<'_>) {
    if !c.is_update() {
        return;
    }
    let (spec, old) = (at(volume, "spec"), at(c.old, "spec"));
    let source = |spec: &Value| {
        let fields = super::volumes::persistent_source_fields();
        let mut kept: Map<String, Value> = fields.filter_map(|f| spec.get(f).map(|v| (f.to_owned(), v.clone()))).collect();
        if has(old, "csi")
            && !has(old, "csi.controllerExpandSecretRef")
            && let Some(Value::Object(csi)) = kept.get_mut("csi")
        {
            csi.remove("controllerExpandSecretRef");
        }
        Value::Object(kept)
    };
    if !same(&source(spec), &source(old)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        c.forbidden(&root.field("spec.persistentvolumesource"), detail);
    }
    c.immutable(&root.field("volumeMode"), at(spec, "volumeMode"), at(old, "volumeMode"));
    if has(old, "nodeAffinity") && !same(at(spec, "nodeAffinity"), at(old, "nodeAffinity")) {
        let detail = "field is immutable, except for updating from beta label to GA";
        c.invalid(&root.field("nodeAffinity"), at(spec, "nodeAffinity").clone(), detail);
    }
    if has(old, "volumeAttributesClassName") && !has(spec, "volumeAttributesClassName") {
        c.forbidden(&root.field("spec.volumeAttributesClassName"), "update from non-nil value to nil is forbidden");
    }
}

fn claim_storage<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let resources = path.field("resources");
    let path = resources.key("storage");
    match map(spec, "resources.requests").and_then(|r| r.get("storage")) {
        None => c.required(&path, ""),
        Some(amount) => {
            positive_quantity(c, amount, &path);
        }
    }
}

fn data_source<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            c.required(&path.field(field), "");
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            c.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
        }
    } else if !has(c.old, "spec.dataSource.apiGroup") && !has(c.old, "spec.dataSourceRef.apiGroup") {
        c.subdomain(&path.field("apiGroup"), group);
    }
}

fn data_sources<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let (source, reference) = (at(spec, "dataSource"), at(spec, "dataSourceRef"));
    if source.is_null() || reference.is_null() {
        return;
    }
    let shown = path.field("dataSource").to_string();
    if !text(reference, "namespace").is_empty() {
        c.invalid(path, shown, "may not be specified when dataSourceRef.namespace is specified");
    } else if ["apiGroup", "kind", "name"].iter().any(|f| at(source, f) != at(reference, f)) {
        c.invalid(path, shown, "must match dataSourceRef");
    }
}

fn claim_update<'a>(c: &mut Check<'a>, claim: &'a Value, root: &Path<'_>) {
    const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
    if !c.is_update() {
        return;
    }
    let (spec, old) = (at(claim, "spec"), at(c.old, "spec"));
    let path = root.field("spec");
    let annotation = |object: &'a Value| map(object, "metadata.annotations").and_then(|a| a.get(CLASS_ANNOTATION));
    let mut kept = spec.clone();
    let mut before = old.clone();
    if text(old, "volumeName").is_empty() {
        with_field_of(&mut before, spec, "volumeName");
    }
    let old_annotation = annotation(c.old);
    if annotation(claim) != old_annotation && annotation(claim).is_some() {
        let place = root.field("metadata.annotations");
        let shown = annotation(claim).cloned().unwrap_or_default();
        c.invalid(&place.field(CLASS_ANNOTATION), shown, "field is immutable");
    }
    // A class may be filled in later.
    let class = spec.get("storageClassName");
    if !has(old, "storageClassName") && class.is_some() && (old_annotation.is_none() || old_annotation == class) {
        with_field_of(&mut kept, old, "storageClassName");
    }
    if text(claim, "status.phase") == "Bound" {
        with_field_of(&mut kept, old, "resources.requests.storage");
        with_field_of(&mut kept, old, "volumeAttributesClassName");
    }
    if !same(&kept, &before) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        c.forbidden(&path, detail);
    }
    let amount = |holder: &Value, field: &str| map(holder, field).and_then(|m| m.get("storage")).and_then(quantity);
    let (new_size, old_size) = (amount(spec, "resources.requests"), amount(old, "resources.requests"));
    // What is missing is nothing.
    let nano = |size: Option<crate::Quantity>| size.map_or(0, crate::Quantity::nano);
    let held = amount(c.old, "status.capacity");
    if nano(new_size) < nano(old_size) && nano(new_size) <= nano(held) {
        c.forbidden(&path.field("resources.requests.storage"), "field can not be less than status.capacity");
    }
    c.immutable(&root.field("volumeMode"), at(spec, "volumeMode"), at(old, "volumeMode"));
    if has(c.old, "status.currentVolumeAttributesClassName") && text(spec, "volumeAttributesClassName").is_empty() {
        let what = if has(spec, "volumeAttributesClassName") { "empty string" } else { "nil" };
        if has(old, "volumeAttributesClassName") {
            let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
            c.forbidden(&path.field("volumeAttributesClassName"), detail);
        }
    }
}

fn claim_status<'a>(c: &mut Check<'a>, status: &'a Value, path: &Path<'_>) {
    let resource_key = |c: &mut Check<'a>, name: &str, path: &Path<'_>| {
        let problems = names::qualified_name(name);
        let is_ours = super::resources::is_native(name) && name != "storage";
        if problems.is_empty() && is_ours {
            c.not_supported(path, name, &["storage"]);
        }
        let is_good = problems.is_empty() && !is_ours;
        c.invalid_each(path, name, problems);
        is_good
    };
    let capacity = path.field("capacity");
    for (name, amount) in entries(status, "capacity") {
        if let Some(found) = quantity(amount).filter(|q| q.is_negative()) {
            c.invalid(&capacity.key(name), found.units(), "must be a valid resource quantity");
        }
    }
    let states = path.field("allocatedResourceStatuses");
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        resource_key(c, name, &states);
        if !RESIZE_STATES.contains(&state.as_str().unwrap_or_default()) {
            c.not_supported(&states, name, &RESIZE_STATES);
        }
    }
    let allocated = path.field("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if resource_key(c, name, &allocated)
            && let Some(found) = quantity(amount).filter(|q| q.is_negative())
        {
            c.invalid(&allocated.key(name), found.units(), "must be a valid resource quantity");
        }
    }
}

fn class_parameters<'a>(c: &mut Check<'a>, parameters: &'a Value, path: &Path<'_>) {
    let all = parameters.as_object().map_or(0, Map::len);
    if all > PARAMETERS_MAX {
        return c.too_long(path, PARAMETERS_MAX);
    }
    let mut bytes = 0;
    for (key, value) in parameters.as_object().into_iter().flatten() {
        if key.is_empty() {
            c.invalid(path, "", "field can not be empty.");
        }
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > PARAMETERS_BYTES_MAX {
        c.too_long(path, PARAMETERS_BYTES_MAX);
    }
}

fn topology_term<'a>(c: &mut Check<'a>, term: &'a Value, path: &Path<'_>) {
    let expressions = list(term, "matchLabelExpressions");
    let path = path.field("matchLabelExpressions");
    for (i, requirement) in expressions.iter().enumerate() {
        let path = path.index(i);
        let values = texts(requirement, "values");
        let values_path = path.field("values");
        if values.is_empty() {
            c.required(&values_path, "");
        }
        for (j, value) in values.iter().enumerate().filter(|(j, v)| values[..*j].contains(v)) {
            c.duplicate(&values_path.index(j), *value);
        }
        let key = text(requirement, "key");
        c.qualified_name(&path.field("key"), key);
        if expressions[..i].iter().any(|o| text(o, "key") == key) {
            c.duplicate(&path.field("key"), key);
        }
    }
}

/// A term that selects what another one does; an empty one always repeats.
fn repeated_topologies<'a>(c: &mut Check<'a>, terms: &'a Value, path: &Path<'_>) {
    let all = terms.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, term) in all.iter().enumerate() {
        let expressions = list(term, "matchLabelExpressions");
        let is_repeated = all[..i].iter().any(|o| list(o, "matchLabelExpressions") == expressions);
        if expressions.is_empty() || is_repeated {
            c.duplicate(&path.index(i).field("matchLabelExpressions"), "");
        }
    }
}

fn attachment_source<'a>(c: &mut Check<'a>, attachment: &'a Value, root: &Path<'_>) {
    const DETAIL: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let source = at(attachment, "spec.source");
    let path = root.field("spec.source");
    match (has(source, "inlineVolumeSpec"), has(source, "persistentVolumeName")) {
        (false, false) => c.required(&path, DETAIL),
        (true, true) => c.forbidden(&path, DETAIL),
        (false, true) if text(source, "persistentVolumeName").is_empty() => {
            c.required(&path.field("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (true, false) if !has(source, "inlineVolumeSpec.csi") => {
            let detail = "has to be specified in the context of inline volumes";
            c.required(&path.field("inlineVolumeSpec.csi"), detail);
        }
        _ => {}
    }
}

fn attachment_metadata<'a>(c: &mut Check<'a>, metadata: &'a Value, path: &Path<'_>) {
    let entries = metadata.as_object().into_iter().flatten();
    let bytes: usize = entries.map(|(k, v)| k.len() + v.as_str().unwrap_or_default().len()).sum();
    if bytes > PARAMETERS_BYTES_MAX {
        c.too_long(path, PARAMETERS_BYTES_MAX);
    }
}

fn volume_error<'a>(c: &mut Check<'a>, error: &'a Value, path: &Path<'_>) {
    if text(error, "message").len() > VOLUME_ERROR_BYTES_MAX {
        // Upstream names the bound of the metadata here.
        c.too_long(&path.field("message"), PARAMETERS_BYTES_MAX);
    }
    if let Some(code) = maybe_int(error, "errorCode").filter(|n| *n < 0) {
        c.invalid(&path.field("errorCode"), code, "must be between 0 and 2147483647, inclusive");
    }
}

fn csi_node_drivers<'a>(c: &mut Check<'a>, drivers: &'a Value, path: &Path<'_>) {
    let all = drivers.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, driver) in all.iter().enumerate() {
        let path = path.index(i);
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        super::volumes::csi_driver_name(c, name, &path.field("name"));
        if id.is_empty() {
            c.required(&path.field("nodeID"), "");
        }
        if id.len() > NODE_ID_BYTES_MAX {
            c.invalid(&path.field("nodeID"), id, format!("must be {NODE_ID_BYTES_MAX} characters or less"));
        }
        c.nonnegative(&path.field("allocatable.count"), int(driver, "allocatable.count"));
        if all[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path.field("name"), name);
        }
        let mut keys = BTreeSet::new();
        for key in texts(driver, "topologyKeys") {
            if key.is_empty() {
                c.required(&path, "");
            }
            if !keys.insert(key) {
                c.duplicate(&path, key);
            }
            c.qualified_name(&path, key);
        }
    }
}

fn csi_node_update<'a>(c: &mut Check<'a>, node: &'a Value, root: &Path<'_>) {
    let without_count = |driver: &Value| {
        let mut copy = driver.clone();
        if let Some(map) = copy.as_object_mut() {
            map.remove("allocatable");
        }
        copy
    };
    for old in list(c.old, "spec.drivers") {
        for new in list(node, "spec.drivers").iter().filter(|d| text(d, "name") == text(old, "name")) {
            c.immutable(&root.field("spec.drivers"), &without_count(new), &without_count(old));
        }
    }
}

fn token_requests<'a>(c: &mut Check<'a>, requests: &'a Value, path: &Path<'_>) {
    let all = requests.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, request) in all.iter().enumerate() {
        let path = path.index(i);
        let audience = text(request, "audience");
        if all[..i].iter().any(|o| text(o, "audience") == audience) {
            c.duplicate(&path.field("audience"), audience);
            continue;
        }
        let Some(seconds) = maybe_int(request, "expirationSeconds") else { continue };
        if seconds < 600 {
            c.invalid(&path.field("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            c.invalid(&path.field("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

fn token_in_secrets<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let flag = at(spec, "serviceAccountTokenInSecrets");
    if !flag.is_null() && is_empty(at(spec, "tokenRequests")) {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        c.invalid(&path.field("serviceAccountTokenInSecrets"), flag.clone(), detail);
    }
}

fn lifecycle_modes<'a>(c: &mut Check<'a>, modes: &'a Value, path: &Path<'_>) {
    for mode in modes.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            c.not_supported(path, mode, &["Persistent", "Ephemeral"]);
        }
    }
}
