//! resource.k8s.io: device classes, claims and slices.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, entries, flag, has, int, list, same, text, texts};
use super::super::{names, selectors};

const SELECTORS_MAX: usize = 32;
const REQUESTS_MAX: usize = 32;
const SUB_REQUESTS_MAX: usize = 8;
const CONFIGS_MAX: usize = 32;
const RESERVED_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const POOL_NAME_BYTES_MAX: usize = 253;
const SLICE_DEVICES_MAX: usize = 128;
const SLICE_DEVICES_WITH_COUNTERS_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 32;
const ID_BYTES_MAX: usize = 32;
const ATTRIBUTE_BYTES_MAX: usize = 64;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 8;
const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "device_selectors" => device_selectors,
        "device_configs" => device_configs,
        "extended_resource_name" => |c, v, p| {
            let name = v.as_str().unwrap_or_default();
            if !super::resources::is_extended(name) {
                c.invalid(p, name, "must be a valid extended resource name");
            }
        },
        "device_claim" => device_claim,
        "claim_allocation_status" => claim_allocation_status,
        "pool_name" => |c, v, p| pool_name(c, v.as_str().unwrap_or_default(), p),
        "pool_counts" => pool_counts,
        "resource_slice" => resource_slice,
        _ => return None,
    };
    Some(rule)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn device_selectors<'a>(c: &mut Check<'a>, selectors: &'a Value, path: &Path<'_>) {
    let all = items(selectors);
    if all.len() > SELECTORS_MAX {
        return c.too_many(path, all.len(), SELECTORS_MAX);
    }
    for (i, selector) in all.iter().enumerate() {
        let path = path.index(i);
        if !has(selector, "cel") {
            c.required(&path.field("cel"), "");
        } else if text(selector, "cel.expression").len() > EXPRESSION_BYTES_MAX {
            c.too_long(&path.field("cel.expression"), EXPRESSION_BYTES_MAX);
        } else if text(selector, "cel.expression").trim().is_empty() {
            // An empty expression does not compile.
            let expression = text(selector, "cel.expression");
            c.invalid(&path.field("cel.expression"), expression, "compilation failed: ERROR: <input>:1:1: Syntax error");
        }
    }
}

fn device_configs<'a>(c: &mut Check<'a>, configs: &'a Value, path: &Path<'_>) {
    let all = items(configs);
    if all.len() > CONFIGS_MAX {
        return c.too_many(path, all.len(), CONFIGS_MAX);
    }
    for (i, config) in all.iter().enumerate() {
        opaque(c, config, &path.index(i));
    }
}

fn opaque(c: &mut Check<'_>, config: &Value, path: &Path<'_>) {
    let path = path.field("opaque");
    if !has(config, "opaque") {
        return c.required(&path, "");
    }
    super::volumes::csi_driver_name(c, text(config, "opaque.driver"), &path.field("driver"));
    json_object(c, at(config, "opaque.parameters"), &path.field("parameters"));
}

fn json_object(c: &mut Check<'_>, value: &Value, path: &Path<'_>) {
    match value {
        Value::Null => c.required(path, ""),
        Value::Object(_) if value.to_string().len() > PARAMETERS_BYTES_MAX => c.too_long(path, PARAMETERS_BYTES_MAX),
        Value::Object(_) => {}
        _ => c.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// Requests of a claim by name; sub-requests as `request/sub`.
fn request_names(devices: &Value) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for request in list(devices, "requests") {
        let name = text(request, "name");
        out.insert(name.to_owned());
        out.extend(list(request, "firstAvailable").iter().map(|s| format!("{name}/{}", text(s, "name"))));
    }
    out
}

/// Too many, or a repeated key at the element.
fn set(c: &mut Check<'_>, all: &[Value], count_max: usize, key: fn(&Value) -> &str, path: &Path<'_>) -> bool {
    if all.len() > count_max {
        c.too_many(path, all.len(), count_max);
        return false;
    }
    for (i, item) in all.iter().enumerate() {
        if all[..i].iter().any(|o| key(o) == key(item)) {
            c.duplicate(&path.index(i), key(item));
        }
    }
    true
}

fn name_of(item: &Value) -> &str {
    text(item, "name")
}

fn itself(item: &Value) -> &str {
    item.as_str().unwrap_or_default()
}

fn name_label(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    c.label(path, name);
}

fn device_claim<'a>(c: &mut Check<'a>, devices: &'a Value, path: &Path<'_>) {
    let known = request_names(devices);
    let requests = list(devices, "requests");
    let place = path.field("requests");
    if set(c, requests, REQUESTS_MAX, name_of, &place) {
        for (i, request) in requests.iter().enumerate() {
            device_request(c, request, &place.index(i));
        }
    }
    let constraints = list(devices, "constraints");
    let place = path.field("constraints");
    if constraints.len() > CONFIGS_MAX {
        c.too_many(&place, constraints.len(), CONFIGS_MAX);
    }
    for (i, constraint) in constraints.iter().enumerate() {
        let path = place.index(i);
        request_references(c, constraint, &known, &path);
        let field = if has(constraint, "matchAttribute") { "matchAttribute" } else { "distinctAttribute" };
        let name = text(constraint, field);
        if has(constraint, field) {
            qualified(c, name, &path.field(field));
            if !name.contains('/') {
                let detail = "a fully qualified name must be a domain and a name separated by a slash";
                c.invalid(&path.field(field), name, detail);
            }
        } else {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
            c.required(&path, detail);
        }
    }
    let configs = list(devices, "config");
    let place = path.field("config");
    if configs.len() > CONFIGS_MAX {
        return c.too_many(&place, configs.len(), CONFIGS_MAX);
    }
    for (i, config) in configs.iter().enumerate() {
        request_references(c, config, &known, &place.index(i));
        opaque(c, config, &place.index(i));
    }
}

fn request_references(c: &mut Check<'_>, holder: &Value, known: &BTreeSet<String>, path: &Path<'_>) {
    let references = list(holder, "requests");
    let path = path.field("requests");
    if set(c, references, REQUESTS_MAX, itself, &path) {
        for (i, reference) in references.iter().enumerate() {
            request_reference(c, itself(reference), known, &path.index(i));
        }
    }
}

fn request_reference(c: &mut Check<'_>, name: &str, known: &BTreeSet<String>, path: &Path<'_>) {
    if name.split('/').count() <= 2 {
        for part in name.split('/') {
            c.label(path, part);
        }
    }
    if !known.contains(name) {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        c.invalid(path, name, detail);
    }
}

fn device_request<'a>(c: &mut Check<'a>, request: &'a Value, path: &Path<'_>) {
    name_label(c, text(request, "name"), &path.field("name"));
    let alternatives = list(request, "firstAvailable");
    match (has(request, "exactly"), !alternatives.is_empty()) {
        (false, false) => c.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            c.invalid(path, Value::Null, detail);
        }
        (true, false) => wanted_devices(c, at(request, "exactly"), &path.field("exactly")),
        (false, true) => {
            let place = path.field("firstAvailable");
            if set(c, alternatives, SUB_REQUESTS_MAX, name_of, &place) {
                for (i, alternative) in alternatives.iter().enumerate() {
                    let path = place.index(i);
                    name_label(c, text(alternative, "name"), &path.field("name"));
                    wanted_devices(c, alternative, &path);
                }
            }
        }
    }
}

fn wanted_devices<'a>(c: &mut Check<'a>, request: &'a Value, path: &Path<'_>) {
    match text(request, "deviceClassName") {
        "" => c.required(&path.field("deviceClassName"), ""),
        name => c.subdomain(&path.field("deviceClassName"), name),
    }
    device_selectors(c, at(request, "selectors"), &path.field("selectors"));
    let count = int(request, "count");
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            c.invalid(&path.field("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" if count <= 0 => c.invalid(&path.field("count"), count, "must be greater than zero"),
        "ExactCount" => {}
        other => c.not_supported(&path.field("allocationMode"), other, &["All", "ExactCount"]),
    }
    let place = path.field("tolerations");
    for (i, toleration) in list(request, "tolerations").iter().enumerate() {
        device_toleration(c, toleration, &place.index(i));
    }
}

fn device_toleration(c: &mut Check<'_>, toleration: &Value, path: &Path<'_>) {
    let (key, value, effect) = (text(toleration, "key"), text(toleration, "value"), text(toleration, "effect"));
    if !key.is_empty() {
        c.qualified_name(&path.field("key"), key);
    }
    match text(toleration, "operator") {
        "Exists" if !value.is_empty() => c.invalid(&path.field("value"), value, "must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => c.invalid_each(&path.field("value"), value, names::label_value(value)),
        "" => c.required(&path.field("operator"), ""),
        other => c.not_supported(&path.field("operator"), other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
        c.not_supported(&path.field("effect"), effect, &TAINT_EFFECTS);
    }
}

/// Names of pools: subdomains with slashes between them.
fn pool_name(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    if name.is_empty() {
        return c.required(path, "");
    }
    if name.len() > POOL_NAME_BYTES_MAX {
        c.too_long(path, POOL_NAME_BYTES_MAX);
    }
    for part in name.split('/') {
        c.subdomain(path, part);
    }
}

fn pool_counts<'a>(c: &mut Check<'a>, pool: &'a Value, path: &Path<'_>) {
    let (count, generation) = (int(pool, "resourceSliceCount"), int(pool, "generation"));
    if count <= 0 {
        c.invalid(&path.field("resourceSliceCount"), count, "must be greater than zero");
    }
    if generation < 0 {
        c.invalid(&path.field("generation"), generation, "must be greater than or equal to zero");
    }
}

/// An attribute's or capacity's name: an identifier of C, with a driver's domain before it if it is not the driver's own.
fn qualified(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => identifier(c, id, path),
        [domain, id] => {
            if domain.is_empty() {
                c.invalid(path, "", "the domain must not be empty");
            } else {
                super::volumes::csi_driver_name(c, domain, path);
            }
            if id.is_empty() {
                c.invalid(path, "", "the name must not be empty");
            } else {
                identifier(c, id, path);
            }
        }
        _ => {}
    }
}

fn identifier(c: &mut Check<'_>, id: &str, path: &Path<'_>) {
    if id.len() > ID_BYTES_MAX {
        c.too_long(path, ID_BYTES_MAX);
    }
    let is_good = id.starts_with(|ch: char| ch.is_ascii_alphabetic() || ch == '_')
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_good {
        let message = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
        let text = names::pattern_text(message, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"]);
        c.invalid(path, id, text);
    }
}

/// Nodes for which something is: names of the fields that say so.
fn node_fields(c: &mut Check<'_>, holder: &Value, path: &Path<'_>, in_slice: bool) -> Vec<&'static str> {
    let mut out = Vec::new();
    if has(holder, "nodeName") {
        match text(holder, "nodeName") {
            "" => {
                let detail = if in_slice { "must be either unset or set to a non-empty string" } else { "must not be empty" };
                c.invalid(&path.field("nodeName"), "", detail);
            }
            name => {
                out.push("`nodeName`");
                c.subdomain(&path.field("nodeName"), name);
            }
        }
    }
    if has(holder, "nodeSelector") {
        out.push("`nodeSelector`");
        let selector = at(holder, "nodeSelector");
        selectors::node_selector(c, selector, &path.field("nodeSelector"));
        let terms = list(selector, "nodeSelectorTerms");
        if in_slice && terms.len() != 1 {
            let place = path.field("nodeSelector.nodeSelectorTerms");
            c.invalid(&place, terms.to_vec(), "must have exactly one node selector term");
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        if !has(holder, field) || (field == "perDeviceNodeSelection" && !in_slice) {
            continue;
        }
        if flag(holder, field) {
            out.push(shown);
        } else {
            c.invalid(&path.field(field), false, "must be either unset or set to true");
        }
    }
    out
}

fn resource_slice<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let set_fields = node_fields(c, spec, path, true);
    let detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set_fields.len() {
        0 => c.required(path, detail),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set_fields.join(", "));
            c.invalid(path, shown, format!("{detail}, but multiple fields are set"));
        }
    }
    let (devices, counters) = (list(spec, "devices"), list(spec, "sharedCounters"));
    if has(spec, "sharedCounters") && has(spec, "devices") && !counters.is_empty() && !devices.is_empty() {
        c.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let has_counters = devices.iter().any(|d| !list(d, "taints").is_empty() || !list(d, "consumesCounters").is_empty());
    let count_max = if has_counters { SLICE_DEVICES_WITH_COUNTERS_MAX } else { SLICE_DEVICES_MAX };
    let place = path.field("devices");
    if set(c, devices, count_max, name_of, &place) {
        for (i, device) in devices.iter().enumerate() {
            slice_device(c, device, flag(spec, "perDeviceNodeSelection"), &place.index(i));
        }
    }
    let place = path.field("sharedCounters");
    if set(c, counters, COUNTER_SETS_MAX, name_of, &place) {
        for (i, counter) in counters.iter().enumerate() {
            counter_set(c, counter, "name", &place.index(i));
        }
    }
}

fn counter_set(c: &mut Check<'_>, holder: &Value, field: &str, path: &Path<'_>) {
    match text(holder, field) {
        "" => c.required(&path.field(field), ""),
        name => c.label(&path.field(field), name),
    }
    let counters = entries(holder, "counters");
    if counters.is_empty() {
        c.required(&path.field("counters"), "");
    }
    for (name, _) in counters {
        c.label(&path.field("counters"), name);
    }
}

fn slice_device(c: &mut Check<'_>, device: &Value, per_device: bool, path: &Path<'_>) {
    name_label(c, text(device, "name"), &path.field("name"));
    let (attributes, capacity) = (entries(device, "attributes"), entries(device, "capacity"));
    let total = attributes.len() + capacity.len();
    if total > ATTRIBUTES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        c.invalid(path, total, detail);
    }
    let place = path.field("attributes");
    for (name, attribute) in attributes {
        qualified(c, name, &place);
        device_attribute(c, attribute, &place.key(name));
    }
    let place = path.field("capacity");
    for (name, amount) in capacity {
        qualified(c, name, &place);
        if has(amount, "requestPolicy") && !flag(device, "allowMultipleAllocations") {
            c.forbidden(&place.key(name).field("requestPolicy"), "allowMultipleAllocations must be true");
        }
    }
    device_taints(c, list(device, "taints"), &path.field("taints"));
    let place = path.field("consumesCounters");
    for (i, consumption) in list(device, "consumesCounters").iter().enumerate() {
        counter_set(c, consumption, "counterSet", &place.index(i));
    }
    const NEEDED: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if per_device {
        let set_fields = node_fields(c, device, path, false);
        match set_fields.len() {
            0 => c.required(path, NEEDED),
            1 => {}
            _ => c.invalid(path, format!("{{{}}}", set_fields.join(", ")), NEEDED),
        }
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|f| has(device, f)) {
        let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        c.invalid(path, Value::Null, detail);
    }
    binding_conditions(c, device, path);
}

fn device_taints(c: &mut Check<'_>, taints: &[Value], path: &Path<'_>) {
    if taints.len() > TAINTS_MAX {
        return c.too_many(path, taints.len(), TAINTS_MAX);
    }
    for (i, taint) in taints.iter().enumerate() {
        let path = path.index(i);
        c.qualified_name(&path.field("key"), text(taint, "key"));
        let value = text(taint, "value");
        c.invalid_each(&path.field("value"), value, names::label_value(value));
        match text(taint, "effect") {
            "" => c.required(&path.field("effect"), ""),
            effect if !TAINT_EFFECTS.contains(&effect) => c.not_supported(&path.field("effect"), effect, &TAINT_EFFECTS),
            _ => {}
        }
    }
}

fn binding_conditions(c: &mut Check<'_>, device: &Value, path: &Path<'_>) {
    let (binding, failure) = (texts(device, "bindingConditions"), texts(device, "bindingFailureConditions"));
    for (field, all) in [("bindingConditions", &binding), ("bindingFailureConditions", &failure)] {
        let path = path.field(field);
        if all.len() > 4 {
            c.too_many(&path, all.len(), 4);
            continue;
        }
        for (i, condition) in all.iter().enumerate() {
            c.qualified_name(&path.index(i), condition);
            if all[..i].contains(condition) {
                c.duplicate(&path.index(i), *condition);
            }
            if field == "bindingFailureConditions" && binding.contains(condition) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                c.invalid(&path.index(i), *condition, detail);
            }
        }
    }
    if binding.is_empty() && !failure.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        c.invalid(&path.field("bindingConditions"), Value::Array(Vec::new()), detail);
    }
    if failure.is_empty() && !binding.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        c.invalid(&path.field("bindingFailureConditions"), Value::Array(Vec::new()), detail);
    }
}

fn is_semantic_version(version: &str) -> bool {
    let (rest, build) = version.split_once('+').map_or((version, None), |(r, b)| (r, Some(b)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(r, p)| (r, Some(p)));
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
    let is_word = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_pre = |s: &str| is_word(s) && (s.bytes().any(|b| !b.is_ascii_digit()) || is_number(s));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|p| p.split('.').all(is_pre))
        && build.is_none_or(|b| b.split('.').all(is_word))
}

fn device_attribute(c: &mut Check<'_>, attribute: &Value, path: &Path<'_>) {
    let present =
        ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"].iter().filter(|f| has(attribute, f)).count();
    for field in ["string", "version"] {
        let Some(value) = attribute.get(field).and_then(Value::as_str) else { continue };
        let path = path.field(field);
        if field == "version" && !is_semantic_version(value) {
            c.invalid(&path, value, "must be a string compatible with semver.org spec 2.0.0");
        }
        if value.len() > ATTRIBUTE_BYTES_MAX {
            c.too_long(&path, ATTRIBUTE_BYTES_MAX);
        }
    }
    match present {
        0 => c.invalid(path, "", "exactly one value must be specified"),
        1 => {}
        _ => c.invalid(path, attribute.clone(), "exactly one value must be specified"),
    }
}

/// A device of a pool of a driver, and the share of it.
fn device_key(holder: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|f| text(holder, f))
}

fn claim_allocation_status<'a>(c: &mut Check<'a>, status: &'a Value, path: &Path<'_>) {
    let allocation = at(status, "allocation");
    let reserved = list(status, "reservedFor");
    let place = path.field("reservedFor");
    if set(c, reserved, RESERVED_MAX, |r| text(r, "uid"), &place) {
        for (i, consumer) in reserved.iter().enumerate() {
            for field in ["resource", "name", "uid"] {
                if text(consumer, field).is_empty() {
                    c.required(&place.index(i).field(field), "");
                }
            }
        }
    }
    let allocated: Vec<[&str; 4]> = list(allocation, "devices.results").iter().map(device_key).collect();
    let devices = list(status, "devices");
    let place = path.field("devices");
    for (i, device) in devices.iter().enumerate() {
        let path = place.index(i);
        super::volumes::csi_driver_name(c, text(device, "driver"), &path.field("driver"));
        pool_name(c, text(device, "pool"), &path.field("pool"));
        name_label(c, text(device, "device"), &path.field("device"));
        let shown = device_key(device)[..3].join("/");
        if !allocated.contains(&device_key(device)) {
            c.invalid(&path, shown.as_str(), "must be an allocated device in the claim");
        }
        super::policy::conditions(c, at(device, "conditions"), &path.field("conditions"));
        if has(device, "data") {
            json_object(c, at(device, "data"), &path.field("data"));
        }
        if devices[..i].iter().any(|o| device_key(o) == device_key(device)) {
            c.duplicate(&path, shown);
        }
    }
    let place = path.field("reservedFor");
    if !reserved.is_empty() && allocation.is_null() {
        c.forbidden(&place, "may not be specified when `allocated` is not set");
    } else if has(c.write.object, "metadata.deletionTimestamp") {
        let before = list(c.old, "status.reservedFor");
        if reserved.iter().any(|r| !before.contains(r)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            c.forbidden(&place, detail);
        }
    }
    let before = at(c.old, "status.allocation");
    let place = path.field("allocation");
    if !before.is_null() && !allocation.is_null() {
        if !same(allocation, before) {
            c.invalid(&place, allocation.clone(), "field is immutable");
        }
    } else if !allocation.is_null() {
        allocation_result(c, allocation, &place);
    }
}

fn allocation_result(c: &mut Check<'_>, allocation: &Value, path: &Path<'_>) {
    let known = request_names(at(c.write.object, "spec.devices"));
    let results = list(allocation, "devices.results");
    let place = path.field("devices.results");
    if results.len() > RESULTS_MAX {
        c.too_many(&place, results.len(), RESULTS_MAX);
    }
    for (i, result) in results.iter().enumerate() {
        let path = place.index(i);
        request_reference(c, text(result, "request"), &known, &path.field("request"));
        super::volumes::csi_driver_name(c, text(result, "driver"), &path.field("driver"));
        pool_name(c, text(result, "pool"), &path.field("pool"));
        name_label(c, text(result, "device"), &path.field("device"));
        binding_conditions(c, result, &path);
    }
    let place = path.field("devices.config");
    for (i, config) in list(allocation, "devices.config").iter().enumerate() {
        let path = place.index(i);
        match text(config, "source") {
            "" => c.required(&path.field("source"), ""),
            "FromClaim" | "FromClass" => {}
            other => c.not_supported(&path.field("source"), other, &["FromClaim", "FromClass"]),
        }
        request_references(c, config, &known, &path);
        opaque(c, config, &path);
    }
    if has(allocation, "nodeSelector") {
        selectors::node_selector(c, at(allocation, "nodeSelector"), &path.field("nodeSelector"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantic_versions() {
        assert!(is_semantic_version("1.2.3-a.1+b") && is_semantic_version("0.0.0"));
        assert!(!is_semantic_version("1.2") && !is_semantic_version("01.2.3") && !is_semantic_version("1.2.3-01"));
    }
}
