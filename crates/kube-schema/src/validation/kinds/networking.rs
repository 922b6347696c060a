//! Network policies, ingresses and their classes, service address blocks, endpoint slices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, has, int, list, map, maybe_int, same, text, texts};
use super::super::{formats, meta, names, selectors};

const SLICE_PORTS_MAX: usize = 20_000;
const SLICE_ENDPOINTS_MAX: usize = 1000;
const ENDPOINT_ADDRESSES_MAX: usize = 100;
const TOPOLOGY_LABELS_MAX: usize = 16;
const HINTS_MAX: usize = 8;
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "policy_port" => policy_port,
        "policy_peer" => policy_peer,
        "policy_types" => policy_types,
        "ingress" => ingress,
        "ingress_class_annotation" => ingress_class_annotation,
        "ingress_status" => ingress_status,
        "class_parameters_scope" => class_parameters_scope,
        "service_cidr" => service_cidr,
        "slice_ports" => slice_ports,
        "slice_endpoints" => slice_endpoints,
        _ => return None,
    };
    Some(rule)
}

fn policy_port<'a>(c: &mut Check<'a>, port: &'a Value, path: &Path<'_>) {
    let protocol = text(port, "protocol");
    if has(port, "protocol") && !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        c.not_supported(&path.field("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let (port_path, end_path) = (path.field("port"), path.field("endPort"));
    let end = maybe_int(port, "endPort");
    match at(port, "port") {
        Value::Null => {
            if let Some(end) = end {
                c.invalid(&end_path, end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                c.invalid(&end_path, end, "may not be specified when `port` is non-numeric");
            }
            c.invalid_each(&port_path, name, formats::port_name(name));
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            super::containers::port_number(c, number, &port_path);
            if let Some(end) = end {
                if end < number {
                    c.invalid(&end_path, number, "must be greater than or equal to `port`");
                }
                super::containers::port_number(c, end, &end_path);
            }
        }
    }
}

fn policy_peer<'a>(c: &mut Check<'a>, peer: &'a Value, path: &Path<'_>) {
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if has(peer, field) {
            count += 1;
            selectors::label_selector(c, at(peer, field), &path.field(field));
        }
    }
    let block = at(peer, "ipBlock");
    if !block.is_null() {
        ip_block(c, block, &path.field("ipBlock"));
        if count > 0 {
            c.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if count == 0 {
        c.required(path, "must specify a peer");
    }
}

/// Blocks that the stored policy has are let be.
fn known_blocks<'a>(c: &Check<'a>) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for (rules, peers) in [("spec.ingress", "from"), ("spec.egress", "to")] {
        for peer in list(c.old, rules).iter().flat_map(|r| list(r, peers)) {
            out.insert(text(peer, "ipBlock.cidr"));
            out.extend(texts(peer, "ipBlock.except"));
        }
    }
    out
}

/// Address bits (of 128) and prefix length of a block.
fn block_bits(block: &str) -> Option<(bool, u128, u32)> {
    let (address, length) = block.split_once('/')?;
    let length: u32 = length.parse().ok()?;
    match formats::parse_ip(address)? {
        IpAddr::V4(v4) => Some((true, u128::from(u32::from(v4)) << 96, length)),
        IpAddr::V6(v6) => Some((false, u128::from(v6), length)),
    }
}

fn ip_block(c: &mut Check<'_>, block: &Value, path: &Path<'_>) {
    let known = known_blocks(c);
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return c.required(&path.field("cidr"), "");
    }
    if !known.contains(cidr) {
        c.invalid_each(&path.field("cidr"), cidr, formats::cidr(cidr));
    }
    let Some((outer_four, outer, outer_length)) = block_bits(cidr) else { return };
    let path = path.field("except");
    for (i, except) in texts(block, "except").into_iter().enumerate() {
        if !known.contains(except) {
            c.invalid_each(&path.index(i), except, formats::cidr(except));
        }
        let Some((four, inner, length)) = block_bits(except) else { continue };
        let mask = if outer_length == 0 { 0 } else { u128::MAX << (128 - outer_length.min(128)) };
        if four != outer_four || inner & mask != outer & mask || outer_length >= length {
            c.invalid(&path.index(i), except, "must be a strict subset of `cidr`");
        }
    }
}

fn policy_types<'a>(c: &mut Check<'a>, types: &'a Value, path: &Path<'_>) {
    let all = types.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.len() > 2 {
        return c.invalid(path, all.to_vec(), "may not specify more than two policyTypes");
    }
    for (i, kind) in all.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        if !matches!(kind, "Ingress" | "Egress") {
            c.not_supported(&path.index(i), kind, &["Ingress", "Egress"]);
        }
    }
}

fn host_name(c: &mut Check<'_>, host: &str, path: &Path<'_>) {
    let rule = if host.contains('*') { formats::wildcard_subdomain } else { names::dns_subdomain };
    c.invalid_each(path, host, rule(host));
}

fn ingress<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let rules = list(spec, "rules");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        c.invalid(path, rules.to_vec(), "either `defaultBackend` or `rules` must be specified");
    }
    if has(spec, "defaultBackend") {
        backend(c, at(spec, "defaultBackend"), &path.field("defaultBackend"));
    }
    let rules_path = path.field("rules");
    for (i, rule) in rules.iter().enumerate() {
        let path = rules_path.index(i);
        let host = text(rule, "host");
        if !host.is_empty() {
            if formats::parse_ip(host).is_some() {
                c.invalid(&path.field("host"), host, "must be a DNS name, not an IP address");
            }
            host_name(c, host, &path.field("host"));
        }
        if !has(rule, "http") {
            continue;
        }
        let paths = list(rule, "http.paths");
        let path = path.field("http.paths");
        if paths.is_empty() {
            c.required(&path, "");
        }
        for (j, entry) in paths.iter().enumerate() {
            http_path(c, entry, &path.index(j));
        }
    }
    let tls_path = path.field("tls");
    for (i, tls) in list(spec, "tls").iter().enumerate() {
        let path = tls_path.index(i);
        let hosts = path.field("hosts");
        for (j, host) in texts(tls, "hosts").into_iter().enumerate() {
            host_name(c, host, &hosts.index(j));
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            c.subdomain(&path.field("secretName"), secret);
        }
    }
    if has(spec, "ingressClassName") {
        c.subdomain(&path.field("ingressClassName"), text(spec, "ingressClassName"));
    }
}

fn http_path<'a>(c: &mut Check<'a>, entry: &'a Value, path: &Path<'_>) {
    if !has(entry, "pathType") {
        return c.required(&path.field("pathType"), "pathType must be specified");
    }
    let (kind, value) = (text(entry, "pathType"), text(entry, "path"));
    let place = path.field("path");
    match kind {
        "Exact" | "Prefix" => {
            if !value.starts_with('/') {
                c.invalid(&place, value, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|p| value.contains(**p)) {
                c.invalid(&place, value, format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].iter().filter(|e| value.ends_with(**e)) {
                c.invalid(&place, value, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" if !value.is_empty() && !value.starts_with('/') => {
            c.invalid(&place, value, "must be an absolute path");
        }
        "ImplementationSpecific" => {}
        other => c.not_supported(&path.field("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(c, at(entry, "backend"), &path.field("backend"));
}

fn backend<'a>(c: &mut Check<'a>, backend: &'a Value, path: &Path<'_>) {
    match (has(backend, "resource"), has(backend, "service")) {
        (true, true) => return c.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => return c.section("IngressResource", at(backend, "resource"), &path.field("resource")),
        (false, false) => return c.invalid(path, "", "resource or service backend is required"),
        (false, true) => {}
    }
    let service = at(backend, "service");
    match text(service, "name") {
        "" => c.required(&path.field("service.name"), ""),
        name => c.label(&path.field("service.name"), name),
    }
    match (text(service, "port.name"), int(service, "port.number")) {
        ("", 0) => c.required(path, "port name or number is required"),
        ("", number) => super::containers::port_number(c, number, &path.field("service.port.number")),
        (name, 0) => c.invalid_each(&path.field("service.port.name"), name, formats::port_name(name)),
        _ => c.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn ingress_class_annotation<'a>(c: &mut Check<'a>, object: &'a Value, root: &Path<'_>) {
    let annotation = map(object, "metadata.annotations").and_then(|a| a.get(CLASS_ANNOTATION)).and_then(Value::as_str);
    if let Some(class) = annotation
        && has(object, "spec.ingressClassName")
        && class != text(object, "spec.ingressClassName")
    {
        let detail = "must match `ingressClassName` when both are specified";
        c.invalid(&root.field("annotations").field(CLASS_ANNOTATION), class, detail);
    }
}

fn ingress_status<'a>(c: &mut Check<'a>, object: &'a Value, root: &Path<'_>) {
    const FIELD: &str = "status.loadBalancer.ingress";
    super::services::ingress_points(c, list(object, FIELD), FIELD, &root.field(FIELD), false);
}

fn class_parameters_scope<'a>(c: &mut Check<'a>, parameters: &'a Value, path: &Path<'_>) {
    let place = path.field("namespace");
    match (text(parameters, "scope"), has(parameters, "namespace")) {
        ("Namespace", false) => c.required(&place, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", true) => c.label(&place, text(parameters, "namespace")),
        ("Cluster", true) => c.forbidden(&place, "`parameters.scope` is set to 'Cluster'"),
        ("Cluster", false) => {}
        _ if !has(parameters, "scope") => c.required(&path.field("scope"), ""),
        (other, _) => c.not_supported(&path.field("scope"), other, &["Cluster", "Namespace"]),
    }
}

fn service_cidr<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    const IMMUTABLE: &str = "field is immutable";
    let blocks = texts(spec, "cidrs");
    let place = path.field("cidrs");
    if c.is_update() {
        let before = texts(c.old, "spec.cidrs");
        let is_grown = before.len() == 1 && blocks.len() == 2;
        if before.len() != blocks.len() && !is_grown {
            return c.invalid(&place, list(spec, "cidrs").to_vec(), IMMUTABLE);
        }
        for (i, (_, new)) in before.iter().zip(&blocks).enumerate().filter(|(_, (old, new))| old != new) {
            c.invalid(&place.index(i), *new, IMMUTABLE);
        }
        if !is_grown {
            return;
        }
    }
    if blocks.is_empty() {
        return c.required(&place, "at least one CIDR required");
    }
    if blocks.len() > 2 {
        return c.invalid(&place, spec.clone(), "may only hold up to 2 values");
    }
    for (i, block) in blocks.iter().enumerate() {
        c.invalid_each(&place.index(i), block, formats::strict_cidr(block));
    }
    let families: Vec<bool> = blocks.iter().filter_map(|b| block_bits(b)).map(|(four, _, _)| four).collect();
    if families.len() == 2 && families[0] == families[1] {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        c.invalid(&place, list(spec, "cidrs").to_vec(), detail);
    }
}

fn slice_ports<'a>(c: &mut Check<'a>, ports: &'a Value, path: &Path<'_>) {
    let all = ports.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.len() > SLICE_PORTS_MAX {
        return c.too_many(path, all.len(), SLICE_PORTS_MAX);
    }
    let mut names = BTreeSet::new();
    for (i, port) in all.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            c.label(&path.field("name"), name);
        }
        if !names.insert(name) {
            c.duplicate(&path.field("name"), name);
        }
        super::containers::protocol(c, text(port, "protocol"), &path.field("protocol"));
        if has(port, "appProtocol") {
            c.qualified_name(&path.field("appProtocol"), text(port, "appProtocol"));
        }
    }
}

fn slice_endpoints<'a>(c: &mut Check<'a>, endpoints: &'a Value, path: &Path<'_>) {
    // Endpoints that were let in before are let be.
    if c.is_update() && same(endpoints, at(c.old, "endpoints")) {
        return;
    }
    let kind = text(c.write.object, "addressType");
    let all = endpoints.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.len() > SLICE_ENDPOINTS_MAX {
        return c.too_many(path, all.len(), SLICE_ENDPOINTS_MAX);
    }
    for (i, endpoint) in all.iter().enumerate() {
        let path = path.index(i);
        let addresses = texts(endpoint, "addresses");
        let place = path.field("addresses");
        if addresses.is_empty() {
            c.required(&place, "must contain at least 1 address");
        } else if addresses.len() > ENDPOINT_ADDRESSES_MAX {
            c.too_many(&place, addresses.len(), ENDPOINT_ADDRESSES_MAX);
        }
        for (j, address) in addresses.iter().enumerate() {
            slice_address(c, kind, address, &place, &place.index(j));
        }
        if has(endpoint, "nodeName") {
            c.subdomain(&path.field("nodeName"), text(endpoint, "nodeName"));
        }
        let topology = at(endpoint, "deprecatedTopology");
        let count = topology.as_object().map_or(0, serde_json::Map::len);
        if count > TOPOLOGY_LABELS_MAX {
            c.too_many(&path.field("deprecatedTopology"), count, TOPOLOGY_LABELS_MAX);
        }
        c.errors.extend(meta::labels(topology, &path.field("deprecatedTopology").to_string()));
        if has(endpoint, "hostname") {
            c.label(&path.field("hostname"), text(endpoint, "hostname"));
        }
        hints(c, at(endpoint, "hints"), &path.field("hints"));
    }
}

fn slice_address(c: &mut Check<'_>, kind: &str, address: &str, list_path: &Path<'_>, path: &Path<'_>) {
    let is_four = formats::parse_ip(address).map(|a| a.is_ipv4());
    match kind {
        "IPv4" | "IPv6" => {
            let problems = if kind == "IPv4" { formats::ip(address) } else { formats::strict_ip(address) };
            if !problems.is_empty() {
                return c.invalid_each(path, address, problems);
            }
            if is_four != Some(kind == "IPv4") {
                c.invalid(list_path, address, format!("must be an {kind} address"));
            }
            c.invalid_each(path, address, formats::reachable_ip(address));
        }
        "FQDN" => {
            let name = address.strip_suffix('.').unwrap_or(address);
            let problems = names::dns_subdomain(name);
            if address.is_empty() {
                c.required(path, "");
            } else if !problems.is_empty() {
                c.invalid(path, name, problems.join(","));
            } else if name.split('.').count() < 2 {
                c.invalid(path, name, "should be a domain with at least two segments separated by dots");
            }
        }
        _ => {}
    }
}

fn hints(c: &mut Check<'_>, hints: &Value, path: &Path<'_>) {
    for field in ["forZones", "forNodes"] {
        let all = list(hints, field);
        let path = path.field(field);
        if all.len() > HINTS_MAX {
            return c.too_many(&path, all.len(), HINTS_MAX);
        }
        for (i, hint) in all.iter().enumerate() {
            let name = text(hint, "name");
            let path = path.index(i);
            let path = path.field("name");
            if all[..i].iter().any(|o| text(o, "name") == name) {
                c.duplicate(&path, name);
            }
            let rule = if field == "forZones" { names::label_value } else { names::dns_subdomain };
            c.invalid_each(&path, name, rule(name));
        }
    }
}
