//! Defaults of Services.

use serde_json::{Value, json};

use super::{Object, is_unset, items, set_default, text};

/// Seconds that client-IP affinity lasts.
const CLIENT_IP_AFFINITY_SECONDS: i64 = 10_800;

/// Whether the Service can be reached from outside the cluster.
fn is_external(spec: &Object) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "" | "ClusterIP" => !is_unset(spec, "externalIPs"),
        _ => false,
    }
}

pub(super) fn spec(map: &mut Object) {
    match text(map, "sessionAffinity") {
        "" | "None" => {
            map.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = map.get("sessionAffinityConfig").and_then(|c| c.get("clientIP")).and_then(|c| c.get("timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": CLIENT_IP_AFFINITY_SECONDS}});
                map.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    for port in items(map, "ports") {
        let is_open = matches!(port.get("targetPort"), None | Some(Value::Null))
            || port.get("targetPort").is_some_and(|t| *t == 0 || *t == "");
        if is_open {
            let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
            port.insert("targetPort".to_owned(), number);
        }
    }
    if is_external(map) {
        set_default(map, "externalTrafficPolicy", "Cluster");
    }
    if matches!(text(map, "type"), "" | "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_default(map, "internalTrafficPolicy", "Cluster");
    }
    if text(map, "type") == "LoadBalancer" {
        set_default(map, "allocateLoadBalancerNodePorts", true);
    }
}

/// A load balancer's address is a virtual one unless its maker says otherwise.
pub(super) fn service(map: &mut Object) {
    if map.get("spec").and_then(|s| s.get("type")).and_then(Value::as_str) != Some("LoadBalancer") {
        return;
    }
    let balancer = map.get_mut("status").and_then(|s| s.get_mut("loadBalancer")).and_then(Value::as_object_mut);
    for ingress in balancer.into_iter().flat_map(|b| items(b, "ingress")) {
        if !is_unset(ingress, "ip") {
            set_default(ingress, "ipMode", "VIP");
        }
    }
}
