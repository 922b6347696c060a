//! Services: ports, addresses, families, and what each type allows.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, has, int, list, map, maybe_int, text, texts};
use super::super::{formats, meta};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const CLIENT_AFFINITY_SECONDS_MAX: i64 = 86_400;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "service" => service,
        "service_update" => service_update,
        "load_balancer_status" => load_balancer_status,
        _ => return None,
    };
    Some(rule)
}

/// The addresses in either form: the single field stands for a list of one.
fn cluster_ip_list(service: &Value) -> Vec<&str> {
    match (texts(service, "spec.clusterIPs"), text(service, "spec.clusterIP")) {
        (list, ip) if list.is_empty() && !ip.is_empty() => vec![ip],
        (list, _) => list,
    }
}

fn is_headless(service: &Value) -> bool {
    cluster_ip_list(service) == ["None"]
}

fn kind(service: &Value) -> &str {
    text(service, "spec.type")
}

fn is_externally_accessible(service: &Value) -> bool {
    match kind(service) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, "spec.externalIPs").is_empty(),
        _ => false,
    }
}

fn needs_health_check(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && text(service, "spec.externalTrafficPolicy") == "Local"
}

fn annotation<'a>(service: &'a Value, key: &str) -> Option<&'a str> {
    map(service, "metadata.annotations").and_then(|a| a.get(key)).and_then(Value::as_str)
}

fn service<'a>(c: &mut Check<'a>, service: &'a Value, root: &Path<'_>) {
    let spec = at(service, "spec");
    let path = root.field("spec");
    if let (Some(mode), Some(hints)) = (annotation(service, TOPOLOGY_MODE), annotation(service, TOPOLOGY_HINTS))
        && mode != hints
    {
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        c.invalid(&root.field("metadata.annotations").key(TOPOLOGY_MODE), mode, detail);
    }
    if list(spec, "ports").is_empty() && !is_headless(service) && kind(service) != "ExternalName" {
        c.required(&path.field("ports"), "");
    }
    by_type(c, service, &path);
    ports(c, service, &path);
    c.errors.extend(meta::labels(at(spec, "selector"), &path.field("selector").to_string()));
    session_affinity(c, spec, &path);
    cluster_ips(c, service, &path);
    external_ips(c, spec, &path);
    match kind(service) {
        "" => c.required(&path.field("type"), ""),
        "ClusterIP" | "ExternalName" | "LoadBalancer" | "NodePort" => {}
        other => c.not_supported(&path.field("type"), other, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    }
    port_numbers(c, service, &path);
    source_ranges(c, service, root);
    let is_balancer = kind(service) == "LoadBalancer";
    let allocates = has(spec, "allocateLoadBalancerNodePorts");
    if allocates && !is_balancer {
        c.forbidden(&path.field("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'");
    }
    if is_balancer && !allocates {
        c.required(&root.field("allocateLoadBalancerNodePorts"), "");
    }
    load_balancer_class(c, service, &path);
    traffic_policies(c, service, &path);
}

fn by_type(c: &mut Check<'_>, service: &Value, path: &Path<'_>) {
    let kind = kind(service);
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(service) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            c.invalid(&path.field("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            if !cluster_ip_list(service).is_empty() {
                c.forbidden(&path.field("clusterIPs"), "may not be set for ExternalName services");
            }
            for field in ["ipFamilies", "ipFamilyPolicy"] {
                let value = at(service, "spec").get(field).unwrap_or(&Value::Null);
                if !value.is_null() && value.as_array().is_none_or(|a| !a.is_empty()) {
                    c.forbidden(&path.field(field), "may not be set for ExternalName services");
                }
            }
            let name = text(service, "spec.externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => c.required(&path.field("externalName"), ""),
                name => c.subdomain(&path.field("externalName"), name),
            }
        }
        _ => {}
    }
}

fn ports<'a>(c: &mut Check<'a>, service: &'a Value, path: &Path<'_>) {
    let all = list(service, "spec.ports");
    let path = path.field("ports");
    let mut names = BTreeSet::new();
    for (i, port) in all.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if name.is_empty() {
            if all.len() > 1 {
                c.required(&path.field("name"), "");
            }
        } else {
            c.label(&path.field("name"), name);
            if !names.insert(name) {
                c.duplicate(&path.field("name"), name);
            }
        }
        super::containers::port_number(c, int(port, "port"), &path.field("port"));
        super::containers::protocol(c, text(port, "protocol"), &path.field("protocol"));
        super::probes::port_number_or_name(c, at(port, "targetPort"), &path.field("targetPort"));
        if has(port, "appProtocol") {
            c.qualified_name(&path.field("appProtocol"), text(port, "appProtocol"));
        }
    }
}

fn session_affinity(c: &mut Check<'_>, spec: &Value, path: &Path<'_>) {
    let config = at(spec, "sessionAffinityConfig");
    let place = path.field("sessionAffinityConfig");
    const WHEN: &str = "when session affinity type is ClientIP";
    match text(spec, "sessionAffinity") {
        "" => c.required(&path.field("sessionAffinity"), ""),
        "None" => {
            if !config.is_null() {
                c.forbidden(&place, "must not be set when session affinity is None");
            }
        }
        "ClientIP" if config.is_null() => c.required(&place, WHEN),
        "ClientIP" if !has(config, "clientIP") => c.required(&place.field("clientIP"), WHEN),
        "ClientIP" => {
            let place = place.field("clientIP.timeoutSeconds");
            match maybe_int(config, "clientIP.timeoutSeconds") {
                None => c.required(&place, WHEN),
                Some(seconds) if !(1..=CLIENT_AFFINITY_SECONDS_MAX).contains(&seconds) => {
                    let detail = format!("must be greater than 0 and less than {CLIENT_AFFINITY_SECONDS_MAX}");
                    c.invalid(&place, seconds, detail);
                }
                Some(_) => {}
            }
        }
        other => c.not_supported(&path.field("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

fn cluster_ips(c: &mut Check<'_>, service: &Value, path: &Path<'_>) {
    if kind(service) == "ExternalName" {
        return;
    }
    let spec = at(service, "spec");
    let ips = cluster_ip_list(service);
    let shown = Value::from(ips.clone());
    let place = path.field("clusterIPs");
    match (text(spec, "clusterIP"), ips.first()) {
        ("", Some(_)) => c.invalid(&place, shown.clone(), "must be empty when `clusterIP` is not specified"),
        (_, None) => {}
        (ip, Some(first)) if ip != *first => c.invalid(&place, shown.clone(), "first value must match `clusterIP`"),
        _ => {}
    }
    families(c, spec, path);
    let known = cluster_ip_list(c.old);
    let before = c.errors.len();
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                c.invalid(&place, shown.clone(), "'None' must be the first and only value");
            }
        } else if !known.contains(ip) {
            c.invalid_each(&place.index(i), ip, formats::ip(ip));
        }
    }
    let has_invalid = c.errors.len() > before;
    if ips.len() > 2 {
        c.invalid(&place, shown.clone(), "may only hold up to 2 values");
    }
    if has_invalid {
        return;
    }
    let is_six = |ip: &str| formats::parse_ip(ip).is_some_and(|a| a.is_ipv6());
    if ips.len() > 1 && ips.iter().all(|ip| is_six(ip) == is_six(ips[0])) {
        c.invalid(&place, shown, "may specify no more than one IP for each IP family");
    }
    if is_headless(service) {
        return;
    }
    for (i, (ip, family)) in ips.iter().zip(texts(spec, "ipFamilies")).enumerate() {
        if FAMILIES.contains(&family) && is_six(ip) != (family == "IPv6") {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            c.invalid(&place.index(i), *ip, detail);
        }
    }
}

fn families(c: &mut Check<'_>, spec: &Value, path: &Path<'_>) {
    let place = path.field("ipFamilies");
    let mut seen = BTreeSet::new();
    for (i, family) in texts(spec, "ipFamilies").into_iter().enumerate() {
        if !FAMILIES.contains(&family) {
            c.not_supported(&place.index(i), family, &FAMILIES);
        }
        if !seen.insert(family) {
            c.duplicate(&place.index(i), family);
        }
    }
    let policy = text(spec, "ipFamilyPolicy");
    if has(spec, "ipFamilyPolicy") && !FAMILY_POLICIES.contains(&policy) {
        c.not_supported(&path.field("ipFamilyPolicy"), policy, &FAMILY_POLICIES);
    }
}

fn external_ips(c: &mut Check<'_>, spec: &Value, path: &Path<'_>) {
    let path = path.field("externalIPs");
    let known = texts(c.old, "spec.externalIPs");
    for (i, ip) in texts(spec, "externalIPs").into_iter().enumerate() {
        let mut problems = if known.contains(&ip) { Vec::new() } else { formats::ip(ip) };
        if problems.is_empty() {
            problems = formats::reachable_ip(ip);
        }
        c.invalid_each(&path.index(i), ip, problems);
    }
}

fn port_numbers(c: &mut Check<'_>, service: &Value, path: &Path<'_>) {
    let all = list(service, "spec.ports");
    let path = path.field("ports");
    if kind(service) == "ClusterIP" {
        for (i, _) in all.iter().enumerate().filter(|(_, p)| int(p, "nodePort") != 0) {
            c.forbidden(&path.index(i).field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let same = |a: &Value, b: &Value, field: &str| int(a, field) == int(b, field) && text(a, "protocol") == text(b, "protocol");
    for (i, port) in all.iter().enumerate().filter(|(_, p)| int(p, "nodePort") != 0) {
        if all[..i].iter().any(|o| same(o, port, "nodePort")) {
            c.duplicate(&path.index(i).field("nodePort"), int(port, "nodePort"));
        }
    }
    for (i, port) in all.iter().enumerate() {
        if all[..i].iter().any(|o| same(o, port, "port")) {
            let shown = json!({"protocol": text(port, "protocol"), "port": int(port, "port"), "targetPort": 0});
            c.duplicate(&path.index(i), shown);
        }
    }
}

fn source_ranges(c: &mut Check<'_>, service: &Value, root: &Path<'_>) {
    const DETAIL: &str = "may only be used when `type` is 'LoadBalancer'";
    let is_balancer = kind(service) == "LoadBalancer";
    let ranges = texts(service, "spec.loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = root.field("spec.LoadBalancerSourceRanges");
        if !is_balancer {
            c.forbidden(&path, DETAIL);
        }
        let known: Vec<&str> = texts(c.old, "spec.loadBalancerSourceRanges").into_iter().map(str::trim).collect();
        for (i, range) in ranges.iter().map(|r| r.trim()).enumerate().filter(|(_, r)| !known.contains(r)) {
            c.invalid_each(&path.index(i), range, formats::cidr(range));
        }
    } else if let Some(ranges) = annotation(service, SOURCE_RANGES) {
        let path = root.field("metadata.annotations");
        let path = path.key(SOURCE_RANGES);
        if !is_balancer {
            c.forbidden(&path, DETAIL);
        }
        if annotation(c.old, SOURCE_RANGES) != Some(ranges) && !ranges.trim().is_empty() {
            for range in ranges.trim().split(',').map(str::trim) {
                c.invalid_each(&path, range, formats::cidr(range));
            }
        }
    }
}

fn load_balancer_class(c: &mut Check<'_>, service: &Value, path: &Path<'_>) {
    let path = path.field("loadBalancerClass");
    if !has(service, "spec.loadBalancerClass") {
        return;
    }
    if kind(service) == "LoadBalancer" {
        c.qualified_name(&path, text(service, "spec.loadBalancerClass"));
    } else {
        c.forbidden(&path, "may only be used when `type` is 'LoadBalancer'");
    }
}

fn traffic_policies(c: &mut Check<'_>, service: &Value, path: &Path<'_>) {
    const POLICIES: [&str; 2] = ["Cluster", "Local"];
    const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let external = text(service, "spec.externalTrafficPolicy");
    let external_path = path.field("externalTrafficPolicy");
    match (is_externally_accessible(service), external) {
        (false, "") => {}
        (false, found) => c.invalid(&external_path, found, "may only be set for externally-accessible services"),
        (true, "") => c.required(&external_path, ""),
        (true, found) if !POLICIES.contains(&found) => c.not_supported(&external_path, found, &POLICIES),
        (true, _) => {}
    }
    let health_port = int(service, "spec.healthCheckNodePort");
    let health_path = path.field("healthCheckNodePort");
    match (needs_health_check(service), health_port) {
        (false, 0) => {}
        (false, port) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            c.invalid(&health_path, port, detail);
        }
        (true, 0) => c.required(&health_path, ""),
        (true, port) => super::containers::port_number(c, port, &health_path),
    }
    let internal = text(service, "spec.internalTrafficPolicy");
    let internal_path = path.field("internalTrafficPolicy");
    if !has(service, "spec.internalTrafficPolicy") {
        if matches!(kind(service), "NodePort" | "LoadBalancer" | "ClusterIP") {
            c.required(&internal_path, "");
        }
    } else if !POLICIES.contains(&internal) {
        c.not_supported(&internal_path, internal, &POLICIES);
    }
    let distribution = text(service, "spec.trafficDistribution");
    if has(service, "spec.trafficDistribution") && !DISTRIBUTIONS.contains(&distribution) {
        c.not_supported(&path.field("trafficDistribution"), distribution, &DISTRIBUTIONS);
    }
}

fn service_update<'a>(c: &mut Check<'a>, service: &'a Value, root: &Path<'_>) {
    if !c.is_update() {
        return;
    }
    let old = c.old;
    let path = root.field("spec");
    if kind(service) != "ExternalName" && kind(old) != "ExternalName" {
        cluster_ip_changes(c, service, old, &path);
        family_changes(c, service, old, &path);
    }
    let class = |s: &'a Value| at(s, "spec.loadBalancerClass");
    if kind(service) == "LoadBalancer" && kind(old) == "LoadBalancer" && class(service) != class(old) {
        c.invalid(&path.field("loadBalancerClass"), class(service).clone(), "may not change once set");
    }
    load_balancer_class(c, service, &path);
    let port = |s: &Value| int(s, "spec.healthCheckNodePort");
    if needs_health_check(old) && needs_health_check(service) && port(old) != port(service) {
        c.forbidden(&path.field("healthCheckNodePort"), "field is immutable");
    }
}

fn is_single_stack(service: &Value) -> bool {
    text(service, "spec.ipFamilyPolicy") == "SingleStack"
}

fn cluster_ip_changes(c: &mut Check<'_>, service: &Value, old: &Value, path: &Path<'_>) {
    if is_headless(old) && is_headless(service) {
        return;
    }
    let (now, before) = (cluster_ip_list(service), cluster_ip_list(old));
    let shown = Value::from(now.clone());
    let place = path.field("clusterIPs");
    const ONCE: &str = "may not change once set";
    if before.len() == now.len() {
        for (i, _) in before.iter().zip(&now).enumerate().filter(|(_, (b, n))| b != n) {
            c.invalid(&place.index(i), shown.clone(), ONCE);
        }
        return;
    }
    if now.is_empty() {
        c.invalid(&place.index(0), shown.clone(), "primary clusterIP can not be unset");
    }
    if let (Some(b), Some(n)) = (before.first(), now.first())
        && b != n
    {
        c.invalid(&place.index(0), shown, ONCE);
    }
    if before.len() > now.len() && now.len() == 1 && !is_single_stack(service) {
        let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        c.invalid(&path.field("ipFamilyPolicy"), at(service, "spec.ipFamilyPolicy").clone(), detail);
    }
}

fn family_changes(c: &mut Check<'_>, service: &Value, old: &Value, path: &Path<'_>) {
    if is_headless(old) || is_headless(service) {
        return;
    }
    let (now, before) = (texts(service, "spec.ipFamilies"), texts(old, "spec.ipFamilies"));
    let shown = Value::from(list(service, "spec.ipFamilies").to_vec());
    let place = path.field("ipFamilies");
    let place = place.index(0);
    const ONCE: &str = "may not change once set";
    if before.len() == now.len() {
        for _ in before.iter().zip(&now).filter(|(b, n)| b != n) {
            c.invalid(&place, shown.clone(), ONCE);
        }
        return;
    }
    if before.len() > now.len() && cluster_ip_list(service).is_empty() {
        c.invalid(&place, shown.clone(), "primary ipFamily can not be unset");
    }
    if let (Some(b), Some(n)) = (before.first(), now.first())
        && b != n
    {
        c.invalid(&place, shown, ONCE);
    }
    if before.len() > now.len() && now.len() == 1 && !is_single_stack(service) {
        let detail = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        c.invalid(&path.field("ipFamilyPolicy"), at(service, "spec.ipFamilyPolicy").clone(), detail);
    }
}

fn load_balancer_status<'a>(c: &mut Check<'a>, service: &'a Value, root: &Path<'_>) {
    let ingresses = list(service, "status.loadBalancer.ingress");
    let path = root.field("status.loadBalancer.ingress");
    if kind(service) != "LoadBalancer" && !ingresses.is_empty() {
        return c.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    ingress_points(c, ingresses, "status.loadBalancer.ingress", &path, true);
}

/// Addresses and names at which something is reached; `has_modes` for Services.
pub fn ingress_points(c: &mut Check<'_>, ingresses: &[Value], field: &str, path: &Path<'_>, has_modes: bool) {
    let known: Vec<&str> = list(c.old, field).iter().map(|o| text(o, "ip")).collect();
    for (i, ingress) in ingresses.iter().enumerate() {
        let path = path.index(i);
        let (ip, host) = (text(ingress, "ip"), text(ingress, "hostname"));
        if !ip.is_empty() && !known.contains(&ip) {
            c.invalid_each(&path.field("ip"), ip, formats::ip(ip));
        }
        if has_modes {
            match (ip.is_empty(), text(ingress, "ipMode")) {
                (false, "") => c.required(&path.field("ipMode"), "must be specified when `ip` is set"),
                (true, mode) if !mode.is_empty() => {
                    c.forbidden(&path.field("ipMode"), "may not be specified when `ip` is not set");
                }
                (false, mode) if !matches!(mode, "Proxy" | "VIP") => {
                    c.not_supported(&path.field("ipMode"), mode, &["Proxy", "VIP"]);
                }
                _ => {}
            }
        }
        if !host.is_empty() {
            c.subdomain(&path.field("hostname"), host);
            if formats::parse_ip(host).is_some() {
                c.invalid(&path.field("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}
