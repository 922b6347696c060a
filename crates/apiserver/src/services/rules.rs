//! Which addresses and ports a Service gets, by its type and what it had.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{Claim, Reservation};
use crate::error::{ApiError, Cause, Result};
use crate::path::{get, set};

const NONE: &str = "None";

fn text<'a>(service: &'a Value, path: &str) -> &'a str {
    get(service, path).and_then(Value::as_str).unwrap_or_default()
}

fn address(text: &str) -> Option<u32> {
    text.parse::<Ipv4Addr>().ok().map(u32::from)
}

fn ports(service: &Value) -> &[Value] {
    get(service, "spec.ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn node_port(port: &Value) -> u32 {
    port.get("nodePort").and_then(Value::as_u64).unwrap_or_default() as u32
}

/// What a Service holds.
pub fn claims(service: &Value) -> Vec<Claim> {
    let mut claims: Vec<Claim> = address(text(service, "spec.clusterIP")).map(Claim::Address).into_iter().collect();
    claims.extend(ports(service).iter().map(node_port).filter(|p| *p > 0).map(Claim::NodePort));
    let health = get(service, "spec.healthCheckNodePort").and_then(Value::as_u64).unwrap_or_default() as u32;
    claims.extend((health > 0).then_some(Claim::NodePort(health)));
    claims.sort_unstable();
    claims.dedup();
    claims
}

fn needs_node_ports(service: &Value) -> bool {
    let allocates = get(service, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    match text(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => allocates,
        _ => false,
    }
}

fn needs_health_port(service: &Value) -> bool {
    text(service, "spec.type") == "LoadBalancer" && text(service, "spec.externalTrafficPolicy") == "Local"
}

fn invalid(name: &str, field: String, value: impl std::fmt::Display, why: &str) -> ApiError {
    let cause = Cause::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"));
    ApiError::invalid("", "Service", name, vec![cause])
}

pub fn fill(reservation: &mut Reservation, service: &mut Value, old: Option<&Value>, name: &str) -> Result<()> {
    if let Some(old) = old {
        keep(service, old);
    }
    fill_address(reservation, service, name)?;
    fill_node_ports(reservation, service, name)?;
    if needs_health_port(service) {
        let stated = get(service, "spec.healthCheckNodePort").and_then(Value::as_u64).unwrap_or_default() as u32;
        let port = if stated > 0 { stated } else { reservation.take_node_port().ok_or_else(exhausted)? };
        if !reservation.take(Claim::NodePort(port)) {
            return Err(invalid(name, "spec.healthCheckNodePort".into(), port, "provided port is already allocated"));
        }
        set(service, "spec.healthCheckNodePort", port.into());
    }
    Ok(())
}

/// A client that knows only the single address leaves the list as it was: then the list follows.
fn follow_single(service: &mut Value, old: &Value) {
    let (now, before) = (text(service, "spec.clusterIP"), text(old, "spec.clusterIP"));
    let is_moved = !now.is_empty() && now != before;
    if is_moved && get(service, "spec.clusterIPs") == get(old, "spec.clusterIPs") {
        let list = json!([now]);
        set(service, "spec.clusterIPs", list);
    }
}

/// What a changed Service keeps of the old one, and what goes with the old type.
fn keep(service: &mut Value, old: &Value) {
    let unset = |service: &Value, path: &str| get(service, path).is_none_or(|v| v.is_null() || v == "" || v == 0);
    follow_single(service, old);
    let has_address = |service: &Value| text(service, "spec.type") != "ExternalName";
    if has_address(service) && has_address(old) && unset(service, "spec.clusterIP") {
        for path in ["spec.clusterIP", "spec.clusterIPs"] {
            if let Some(value) = get(old, path) {
                set(service, path, value.clone());
            }
        }
    }
    if needs_health_port(service)
        && needs_health_port(old)
        && unset(service, "spec.healthCheckNodePort")
        && let Some(value) = get(old, "spec.healthCheckNodePort")
    {
        set(service, "spec.healthCheckNodePort", value.clone());
    }
    let spec = |object: &mut Value, key: &str| {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove(key);
        }
    };
    if text(service, "spec.type") == "ExternalName" && get(service, "spec.clusterIP") == get(old, "spec.clusterIP") {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec(service, key);
        }
    }
    if !needs_health_port(service) && get(service, "spec.healthCheckNodePort") == get(old, "spec.healthCheckNodePort") {
        spec(service, "healthCheckNodePort");
    }
    let is_balancer = text(service, "spec.type") == "LoadBalancer";
    let has_policy = matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer")
        || get(service, "spec.externalIPs").and_then(Value::as_array).is_some_and(|a| !a.is_empty());
    for (key, belongs) in [
        ("externalTrafficPolicy", has_policy),
        ("allocateLoadBalancerNodePorts", is_balancer),
        ("loadBalancerClass", is_balancer),
    ] {
        let path = format!("spec.{key}");
        if !belongs && get(service, &path) == get(old, &path) {
            spec(service, key);
        }
    }
    let (needs, needed) = (needs_node_ports(service), needs_node_ports(old));
    let is_same = ports(service) == ports(old);
    let Some(list) = get_mut_ports(service) else { return };
    for port in list {
        let same = |p: &&Value| p["port"] == port["port"] && p["protocol"] == port["protocol"];
        let had = ports(old).iter().find(same).map(node_port).unwrap_or_default();
        if needs && needed && node_port(port) == 0 && had > 0 {
            port["nodePort"] = had.into();
        } else if !needs
            && (is_same || node_port(port) == had)
            && let Some(map) = port.as_object_mut()
        {
            map.remove("nodePort");
        }
    }
}

fn get_mut_ports(service: &mut Value) -> Option<&mut Vec<Value>> {
    service.get_mut("spec")?.get_mut("ports")?.as_array_mut()
}

fn fill_address(reservation: &mut Reservation, service: &mut Value, name: &str) -> Result<()> {
    if text(service, "spec.type") == "ExternalName" {
        return Ok(());
    }
    let stated = text(service, "spec.clusterIP").to_owned();
    let had = reservation.before.iter().find(|c| matches!(c, Claim::Address(_))).copied();
    let first = get(service, "spec.clusterIPs").and_then(|list| list.get(0)).and_then(Value::as_str);
    let moves = !stated.is_empty() && had.is_some_and(|had| address(&stated).map(Claim::Address) != Some(had));
    if first.is_some_and(|first| first != stated) || moves {
        // Both are for validation to refuse.
        return Ok(());
    }
    if stated == NONE {
        set(service, "spec.clusterIP", NONE.into());
        set(service, "spec.clusterIPs", json!([NONE]));
        let has_selector = get(service, "spec.selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
        let is_dual = !has_selector && !matches!(text(service, "spec.ipFamilyPolicy"), "SingleStack");
        let families = if is_dual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        set_families(service, families, if is_dual { "RequireDualStack" } else { "SingleStack" });
        return Ok(());
    }
    if text(service, "spec.ipFamilyPolicy") == "RequireDualStack" {
        return Err(invalid(
            name,
            "spec.ipFamilyPolicy".into(),
            "\"RequireDualStack\"",
            "this cluster is not configured for dual-stack services",
        ));
    }
    if get(service, "spec.ipFamilies").and_then(Value::as_array).is_some_and(|f| f.iter().any(|f| f == "IPv6")) {
        return Err(invalid(name, "spec.ipFamilies[0]".into(), "\"IPv6\"", "not configured on this cluster"));
    }
    let number = if stated.is_empty() {
        reservation.take_address().ok_or_else(exhausted)?
    } else {
        let shown = format!("{stated:?}");
        let field = || "spec.clusterIPs".to_owned();
        // One that is no address at all is for validation to name.
        let Some(number) = address(&stated) else { return Ok(()) };
        if !reservation.services.addresses.contains(number) && !reservation.before.contains(&Claim::Address(number)) {
            return Err(invalid(name, field(), shown, "failed to allocate IP: the provided IP is not in the valid range"));
        }
        if !reservation.take(Claim::Address(number)) {
            return Err(invalid(name, field(), shown, "failed to allocate IP: provided IP is already allocated"));
        }
        number
    };
    let address = Ipv4Addr::from(number).to_string();
    set(service, "spec.clusterIPs", json!([address]));
    set(service, "spec.clusterIP", address.into());
    set_families(service, json!(["IPv4"]), "SingleStack");
    Ok(())
}

fn set_families(service: &mut Value, families: Value, policy: &str) {
    if get(service, "spec.ipFamilies").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        set(service, "spec.ipFamilies", families);
    }
    if text(service, "spec.ipFamilyPolicy").is_empty() {
        set(service, "spec.ipFamilyPolicy", policy.into());
    }
}

fn fill_node_ports(reservation: &mut Reservation, service: &mut Value, name: &str) -> Result<()> {
    let needs = needs_node_ports(service);
    let Some(list) = get_mut_ports(service) else { return Ok(()) };
    // A port that is served over two protocols has one node port.
    let mut by_port: Vec<(Value, u32)> = Vec::new();
    for (index, port) in list.iter_mut().enumerate() {
        let stated = node_port(port);
        if stated > 0 {
            let field = format!("spec.ports[{index}].nodePort");
            if !reservation.services.node_ports.contains(stated) {
                return Err(invalid(
                    name,
                    field,
                    stated,
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                ));
            }
            if !reservation.take(Claim::NodePort(stated)) {
                return Err(invalid(name, field, stated, "provided port is already allocated"));
            }
            by_port.push((port["port"].clone(), stated));
        } else if needs {
            let shared = by_port.iter().find(|(p, _)| *p == port["port"]).map(|(_, n)| *n);
            let number = match shared {
                Some(number) => number,
                None => reservation.take_node_port().ok_or_else(exhausted)?,
            };
            by_port.push((port["port"].clone(), number));
            port["nodePort"] = number.into();
        }
    }
    Ok(())
}

fn exhausted() -> ApiError {
    ApiError::internal("failed to allocate a serviceIP or node port: range is full")
}
