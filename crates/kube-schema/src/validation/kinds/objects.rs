//! ConfigMaps, Secrets, Namespaces, Nodes, Endpoints.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, entries, flag, has, int, list, map, same, text, texts};
use super::super::{formats, names};
use super::resources::resource_quantity;

/// Bytes of all data of one ConfigMap or Secret.
const DATA_BYTES_MAX: usize = 1024 * 1024;
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "immutable_data" => immutable_data,
        "config_map" => config_map,
        "secret_type_fixed" => |c, v, p| {
            if c.is_update() {
                c.immutable(p, v, at(c.old, "type"));
            }
        },
        "secret" => secret,
        "namespace_finalizers" => |c, v, p| finalizers(c, v, p, false),
        "namespace_finalizers_indexed" => |c, v, p| finalizers(c, v, p, true),
        "namespace_phase" => namespace_phase,
        "node_annotations" => node_annotations,
        "node_resources" => node_resources,
        "node_features" => node_features,
        "node_cidrs" => node_cidrs,
        "node_update" => node_update,
        "endpoint_subsets" => endpoint_subsets,
        _ => return None,
    };
    Some(rule)
}

fn immutable_data<'a>(c: &mut Check<'a>, object: &'a Value, root: &Path<'_>) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(c.old, "immutable") {
        return;
    }
    if !flag(object, "immutable") {
        c.forbidden(&root.field("immutable"), DETAIL);
    }
    for field in ["data", "binaryData"] {
        if !same(at(object, field), at(c.old, field)) {
            c.forbidden(&root.field(field), DETAIL);
        }
    }
}

/// Bytes that base64 text stands for.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count().min(2)
}

fn config_map<'a>(c: &mut Check<'a>, object: &'a Value, root: &Path<'_>) {
    let mut bytes = 0;
    let binary = map(object, "binaryData");
    let path = root.field("data");
    for (key, value) in entries(object, "data") {
        c.invalid_each(&path.key(key), key, formats::config_key(key));
        if binary.is_some_and(|b| b.contains_key(key)) {
            c.invalid(&path.key(key), key, "duplicate of key present in binaryData");
        }
        bytes += value.as_str().unwrap_or_default().len();
    }
    let path = root.field("binaryData");
    for (key, value) in entries(object, "binaryData") {
        c.invalid_each(&path.key(key), key, formats::config_key(key));
        bytes += decoded_len(value.as_str().unwrap_or_default());
    }
    if bytes > DATA_BYTES_MAX {
        c.too_long(&root.field(""), DATA_BYTES_MAX);
    }
}

fn secret<'a>(c: &mut Check<'a>, object: &'a Value, root: &Path<'_>) {
    let path = root.field("data");
    let mut bytes = 0;
    for (key, value) in entries(object, "data") {
        c.invalid_each(&path.key(key), key, formats::config_key(key));
        bytes += decoded_len(value.as_str().unwrap_or_default());
    }
    if bytes > DATA_BYTES_MAX {
        c.too_long(&path, DATA_BYTES_MAX);
    }
    let data = |key: &str| map(object, "data").and_then(|d| d.get(key)).and_then(Value::as_str);
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let name = map(object, "metadata.annotations").and_then(|a| a.get(SERVICE_ACCOUNT_NAME));
            if name.and_then(Value::as_str).unwrap_or_default().is_empty() {
                c.required(&root.field("metadata.annotations").key(SERVICE_ACCOUNT_NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(c, ".dockercfg", data(".dockercfg"), &path),
        "kubernetes.io/dockerconfigjson" => docker_config(c, ".dockerconfigjson", data(".dockerconfigjson"), &path),
        "kubernetes.io/basic-auth" if data("username").is_none() && data("password").is_none() => {
            c.required(&path.key("username"), "");
            c.required(&path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if data("ssh-privatekey").unwrap_or_default().is_empty() => {
            c.required(&path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if data(key).is_none() {
                    c.required(&path.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn docker_config(c: &mut Check<'_>, key: &str, data: Option<&str>, path: &Path<'_>) {
    let Some(data) = data else { return c.required(&path.key(key), "") };
    let bytes = STANDARD.decode(data).unwrap_or_default();
    let problem = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(_) => "json: cannot unmarshal into Go value of type map[string]interface {}".to_owned(),
        Err(_) if bytes.is_empty() => "unexpected end of JSON input".to_owned(),
        Err(error) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Err(_) => {
            let first = bytes.first().map_or(' ', |b| char::from(*b));
            format!("invalid character '{first}' looking for beginning of value")
        }
    };
    c.invalid(&path.key(key), "<secret contents redacted>", problem);
}

fn finalizers(c: &mut Check<'_>, finalizers: &Value, path: &Path<'_>, has_index: bool) {
    for (i, finalizer) in finalizers.as_array().into_iter().flatten().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        let indexed = path.index(i);
        let place = if has_index { &indexed } else { path };
        c.qualified_name(place, finalizer);
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            c.invalid(place, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

fn namespace_phase<'a>(c: &mut Check<'a>, namespace: &'a Value, root: &Path<'_>) {
    let phase = text(namespace, "status.phase");
    let path = root.field("status.Phase");
    let is_deleted = has(namespace, "metadata.deletionTimestamp");
    if !is_deleted && phase != "Active" {
        c.invalid(&path, phase, "may only be 'Active' if `deletionTimestamp` is empty");
    }
    if is_deleted && phase != "Terminating" {
        c.invalid(&path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}

fn node_annotations<'a>(c: &mut Check<'a>, node: &'a Value, root: &Path<'_>) {
    const AVOID: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    let avoid = map(node, "metadata.annotations").and_then(|a| a.get(AVOID)).and_then(Value::as_str).unwrap_or_default();
    if !avoid.is_empty() && serde_json::from_str::<Value>(avoid).is_err() {
        let path = root.field("metadata.annotations.AvoidPods");
        c.invalid(&path, AVOID, "invalid character looking for beginning of value");
    }
}

fn node_resources<'a>(c: &mut Check<'a>, node: &'a Value, root: &Path<'_>) {
    for field in ["status.capacity", "status.allocatable"] {
        let path = root.field(field);
        for (name, amount) in entries(node, field) {
            resource_quantity(c, name, amount, &path.field(name));
        }
    }
}

fn node_features<'a>(c: &mut Check<'a>, node: &'a Value, root: &Path<'_>) {
    let path = root.field("status.declaredFeatures");
    let features = texts(node, "status.declaredFeatures");
    let is_name = |name: &str| {
        name.starts_with(|ch: char| ch.is_ascii_uppercase())
            && name.split('/').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()))
    };
    for (i, feature) in features.iter().enumerate() {
        if feature.len() > names::SUBDOMAIN_CHARS_MAX {
            let detail = format!("invalid feature name {feature:?}: must be no more than 253 characters");
            c.invalid(&path.index(i), *feature, detail);
        } else if !is_name(feature) {
            let detail = format!(
                "invalid feature name {feature:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            c.invalid(&path.index(i), *feature, detail);
        }
        match features.get(i + 1) {
            Some(next) if next == feature => c.duplicate(&path.index(i + 1), *next),
            Some(next) if feature > next => c.invalid(&path.index(i + 1), *next, "list must be sorted alphabetically"),
            _ => {}
        }
    }
}

fn node_cidrs<'a>(c: &mut Check<'a>, node: &'a Value, root: &Path<'_>) {
    let path = root.field("spec.podCIDRs");
    let blocks = texts(node, "spec.podCIDRs");
    for (i, block) in blocks.iter().enumerate() {
        c.invalid_each(&path.index(i), block, formats::cidr(block));
    }
    let families: Vec<bool> = blocks.iter().map(|b| b.contains(':')).collect();
    if blocks.len() > 2 || (blocks.len() == 2 && families[0] == families[1]) {
        let shown = list(node, "spec.podCIDRs").to_vec();
        c.invalid(&path, shown, "may specify no more than one CIDR for each IP family");
    }
}

fn node_update<'a>(c: &mut Check<'a>, node: &'a Value, root: &Path<'_>) {
    let old = c.old;
    let addresses = list(node, "status.addresses");
    let path = root.field("status.addresses");
    for (i, address) in addresses.iter().enumerate().filter(|(i, a)| addresses[..*i].contains(a)) {
        c.duplicate(&path.index(i), address.clone());
    }
    let (now, before) = (texts(node, "spec.podCIDRs"), texts(old, "spec.podCIDRs"));
    if !before.is_empty() {
        let differ = if before.len() == now.len() { before.iter().zip(&now).filter(|(b, n)| b != n).count() } else { 1 };
        for _ in 0..differ {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            c.forbidden(&root.field("spec.podCIDRs"), detail);
        }
    }
    let provider = text(old, "spec.providerID");
    if !provider.is_empty() && provider != text(node, "spec.providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        c.forbidden(&root.field("spec.providerID"), detail);
    }
}

fn endpoint_subsets<'a>(c: &mut Check<'a>, subsets: &'a Value, path: &Path<'_>) {
    // Endpoints that were let in before are let be.
    if c.is_update() && same(subsets, at(c.old, "subsets")) {
        return;
    }
    for (i, subset) in subsets.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            c.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ["addresses", "notReadyAddresses"] {
            let path = path.field(field);
            for (j, address) in list(subset, field).iter().enumerate() {
                let path = path.index(j);
                let ip = text(address, "ip");
                c.invalid_each(&path.field("ip"), ip, formats::ip(ip));
                if !text(address, "hostname").is_empty() {
                    c.label(&path.field("hostname"), text(address, "hostname"));
                }
                if has(address, "nodeName") {
                    c.subdomain(&path.field("nodeName"), text(address, "nodeName"));
                }
                c.invalid_each(&path.field("ip"), ip, formats::reachable_ip(ip));
            }
        }
        let ports = list(subset, "ports");
        let path = path.field("ports");
        for (j, port) in ports.iter().enumerate() {
            let path = path.index(j);
            match text(port, "name") {
                "" if ports.len() > 1 => c.required(&path.field("name"), ""),
                "" => {}
                name => c.label(&path.field("name"), name),
            }
            super::containers::port_number(c, int(port, "port"), &path.field("port"));
            super::containers::protocol(c, text(port, "protocol"), &path.field("protocol"));
            if has(port, "appProtocol") {
                c.qualified_name(&path.field("appProtocol"), text(port, "appProtocol"));
            }
        }
    }
}
