//! Objects that tell clients and Pods of the cluster where and what the server is.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::BootstrapOptions;

/// Namespaces that are there from the first moment and come back.
pub const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub fn namespaces() -> Vec<Value> {
    NAMESPACES.iter().map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).collect()
}

pub fn priority_classes() -> Vec<Value> {
    let class = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        })
    };
    vec![
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
}

/// First address of a range: that of the Service `kubernetes`.
pub fn first_address(cidr: &str) -> Option<IpAddr> {
    match cidr.split('/').next()?.parse().ok()? {
        IpAddr::V4(network) => Some(IpAddr::V4(u32::from(network).checked_add(1)?.into())),
        IpAddr::V6(network) => Some(IpAddr::V6(u128::from(network).checked_add(1)?.into())),
    }
}

pub fn service_cidr(options: &BootstrapOptions) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [options.service_cidr]},
    })
}

/// Service `default/kubernetes`, and behind it the server's own address if the cluster can reach that.
pub fn kubernetes_service(options: &BootstrapOptions) -> Vec<Value> {
    let cluster_ip = first_address(&options.service_cidr).map(|ip| ip.to_string()).unwrap_or_default();
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": options.port}],
        },
    })];
    if options.address.is_loopback() || options.address.is_unspecified() {
        return objects;
    }
    let address = options.address.to_string();
    let ports = json!([{"name": "https", "port": options.port, "protocol": "TCP"}]);
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
    }));
    objects.push(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if options.address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": ports,
    }));
    objects
}

/// What aggregated API servers verify this server and its users by.
pub fn extension_authentication(options: &BootstrapOptions) -> Value {
    let mut data = json!({"client-ca-file": options.client_ca_pem});
    if let Some(front_proxy_ca) = &options.front_proxy_ca_pem {
        data["requestheader-client-ca-file"] = front_proxy_ca.as_str().into();
        data["requestheader-allowed-names"] = r#"["front-proxy-client"]"#.into();
        data["requestheader-extra-headers-prefix"] = r#"["X-Remote-Extra-"]"#.into();
        data["requestheader-group-headers"] = r#"["X-Remote-Group"]"#.into();
        data["requestheader-username-headers"] = r#"["X-Remote-User"]"#.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": data,
    })
}

/// Since when the use of legacy tokens is recorded.
pub fn legacy_token_tracking(now: jiff::Timestamp) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"},
        "data": {"since": now.strftime("%Y-%m-%d").to_string()},
    })
}

/// A group and version that this server serves itself.
pub fn local_api_service(group: &str, version: &str, group_priority: i32, version_priority: i32) -> Value {
    let mut spec = json!({"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": format!("{version}.{group}"),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
        "spec": spec,
    })
}

/// The Lease by which this server's life is told.
pub fn identity_lease(options: &BootstrapOptions, seconds: i64, now: jiff::Timestamp) -> Value {
    let name = format!("apiserver-{}", options.identity);
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": options.identity},
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": seconds,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_service_has_the_first_address_of_its_range() {
        assert_eq!(first_address("10.96.0.0/16").map(|ip| ip.to_string()).as_deref(), Some("10.96.0.1"));
        assert_eq!(first_address("fd00::/108").map(|ip| ip.to_string()).as_deref(), Some("fd00::1"));
        assert_eq!(first_address("nonsense"), None);
    }
}
