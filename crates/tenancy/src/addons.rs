//! What a tenant's own cluster is given: the tunnel agent, and what `kubeadm join` and node agents read. Pure.

use serde_json::{Value, json};

use crate::spec::{KAMAJI_AGENT_IMAGE, Konnectivity, TenantControlPlane};

/// What the objects below need to know.
#[derive(Clone, Debug)]
pub struct TenantFacts<'a> {
    pub image: &'a str,
    pub endpoint_host: &'a str,
    pub endpoint_port: i32,
    pub ca_pem: &'a str,
}

/// Name of the tunnel agent's workload, its account and its label.
pub const AGENT: &str = "konnectivity-agent";

/// Every object, in the order of application.
pub fn objects(tenant: &TenantControlPlane, facts: &TenantFacts<'_>) -> Vec<Value> {
    let mut out = join_objects(tenant, facts);
    if let Some(konnectivity) = &tenant.spec.addons.konnectivity {
        out.extend(konnectivity_objects(konnectivity, facts));
    }
    out
}

fn role(namespace: &str, name: &str, resource: &str, object: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": name, "namespace": namespace },
        "rules": [{ "apiGroups": [""], "resources": [resource], "resourceNames": [object], "verbs": ["get"] }],
    })
}

fn subject(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

fn role_binding(namespace: &str, name: &str, subjects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": subjects,
    })
}

fn cluster_role_binding(name: &str, role: &str, subjects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    })
}

const BOOTSTRAPPERS: &str = "system:bootstrappers:kubeadm:default-node-token";

/// ConfigMaps and RBAC under kubeadm's names.
fn join_objects(tenant: &TenantControlPlane, facts: &TenantFacts<'_>) -> Vec<Value> {
    let profile = &tenant.spec.network_profile;
    let endpoint = format!("{}:{}", facts.endpoint_host, facts.endpoint_port);
    let bootstrappers = || subject("Group", BOOTSTRAPPERS);
    let nodes = || subject("Group", "system:nodes");
    vec![
        config_map("kube-public", "cluster-info", "kubeconfig", cluster_info(&endpoint, facts.ca_pem)),
        role("kube-public", "kubeadm:bootstrap-signer-clusterinfo", "configmaps", "cluster-info"),
        role_binding("kube-public", "kubeadm:bootstrap-signer-clusterinfo", vec![subject("User", "system:anonymous")]),
        config_map("kube-system", "kubeadm-config", "ClusterConfiguration", cluster_configuration(tenant, &endpoint)),
        role("kube-system", "kubeadm:nodes-kubeadm-config", "configmaps", "kubeadm-config"),
        role_binding("kube-system", "kubeadm:nodes-kubeadm-config", vec![bootstrappers(), nodes()]),
        config_map("kube-system", "kubelet-config", "kubelet", kubelet_configuration(profile)),
        role("kube-system", "kubeadm:kubelet-config", "configmaps", "kubelet-config"),
        role_binding("kube-system", "kubeadm:kubelet-config", vec![bootstrappers(), nodes()]),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "kubeadm:get-nodes" },
            "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }],
        }),
        cluster_role_binding("kubeadm:get-nodes", "kubeadm:get-nodes", vec![bootstrappers()]),
        cluster_role_binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", vec![bootstrappers()]),
        cluster_role_binding(
            "kubeadm:node-autoapprove-bootstrap",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            vec![bootstrappers()],
        ),
        cluster_role_binding(
            "kubeadm:node-autoapprove-certificate-rotation",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            vec![nodes()],
        ),
        // Atoll's nodes program Services themselves, so they read what a service proxy reads.
        cluster_role_binding("atoll:node-proxier", "system:node-proxier", vec![nodes()]),
        cluster_role_binding("kubeadm:cluster-admins", "cluster-admin", vec![subject("Group", "kubeadm:cluster-admins")]),
        cluster_role_binding(
            "kubeadm:apiserver-kubelet-client",
            "system:kubelet-api-admin",
            vec![subject("User", "kube-apiserver-kubelet-client")],
        ),
    ]
}

fn config_map(namespace: &str, name: &str, key: &str, content: Value) -> Value {
    // JSON is YAML: every reader of these documents takes it.
    let text = serde_json::to_string_pretty(&content).unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace },
        "data": { key: text },
    })
}

/// A kubeconfig with one cluster named `""`, as kubeadm's discovery wants it.
fn cluster_info(endpoint: &str, ca_pem: &str) -> Value {
    let ca = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, ca_pem);
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{
            "name": "",
            "cluster": { "server": format!("https://{endpoint}"), "certificate-authority-data": ca },
        }],
        "contexts": null, "current-context": "", "preferences": {}, "users": null,
    })
}

fn cluster_configuration(tenant: &TenantControlPlane, endpoint: &str) -> Value {
    let profile = &tenant.spec.network_profile;
    json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
        "clusterName": tenant.metadata.name,
        "kubernetesVersion": tenant.spec.kubernetes.version,
        "controlPlaneEndpoint": endpoint,
        "certificatesDir": "/etc/kubernetes/pki",
        "networking": {
            "dnsDomain": profile.cluster_domain,
            "serviceSubnet": profile.service_cidr(),
            "podSubnet": profile.pod_cidr(),
        },
    })
}

fn kubelet_configuration(profile: &crate::spec::NetworkProfile) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true, "cacheTTL": "0s" },
            "x509": { "clientCAFile": "/etc/kubernetes/pki/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDNS": profile.dns_service_ips,
        "clusterDomain": profile.cluster_domain,
        "rotateCertificates": true,
        "serverTLSBootstrap": true,
        "staticPodPath": "/etc/kubernetes/manifests",
        "cgroupDriver": "systemd",
    })
}

/// The agent's image: Kamaji's default means Atoll's own.
fn agent_image<'a>(konnectivity: &'a Konnectivity, facts: &TenantFacts<'a>) -> String {
    let agent = &konnectivity.agent;
    if agent.image == KAMAJI_AGENT_IMAGE {
        return facts.image.to_owned();
    }
    format!("{}:{}", agent.image, agent.version.as_deref().unwrap_or("v0.36.0"))
}

/// The tunnel agent as Kamaji names it. The flags are the upstream agent's, which `atoll tunnel-agent` takes too, so that a
/// foreign image runs from the same object.
fn konnectivity_objects(konnectivity: &Konnectivity, facts: &TenantFacts<'_>) -> Vec<Value> {
    let agent = &konnectivity.agent;
    let own = agent.image == KAMAJI_AGENT_IMAGE;
    let command = if own { json!(["atoll", "tunnel-agent"]) } else { json!(["/proxy-agent"]) };
    let mut arguments = vec![
        "--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt".to_owned(),
        format!("--proxy-server-host={}", facts.endpoint_host),
        format!("--proxy-server-port={}", konnectivity.server.port),
        "--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token".to_owned(),
        "--agent-id=$(NODE_NAME)".to_owned(),
        "--agent-identifiers=ipv4=$(HOST_IP)".to_owned(),
        "--admin-server-port=8133".to_owned(),
        "--health-server-port=8134".to_owned(),
    ];
    arguments.extend(agent.extra_args.iter().cloned());
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut container = json!({
        "name": AGENT,
        "image": agent_image(konnectivity, facts),
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "args": arguments,
        "env": [field("NODE_NAME", "spec.nodeName"), field("HOST_IP", "status.hostIP")],
        "livenessProbe": {
            "httpGet": { "path": "/healthz", "port": 8134 },
            "initialDelaySeconds": 15, "timeoutSeconds": 15, "periodSeconds": 30, "failureThreshold": 3,
        },
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": 8134 }, "periodSeconds": 2, "timeoutSeconds": 2 },
        "volumeMounts": [{ "name": "konnectivity-agent-token", "mountPath": "/var/run/secrets/tokens" }],
    });
    if let Some(resources) = &agent.resources {
        container["resources"] = resources.clone();
    }
    let labels = json!({ "k8s-app": AGENT, "addonmanager.kubernetes.io/mode": "Reconcile" });
    let tolerations = agent.tolerations.clone().unwrap_or(json!([{ "key": "CriticalAddonsOnly", "operator": "Exists" }]));
    let template = json!({
        "metadata": { "labels": labels },
        "spec": {
            "serviceAccountName": AGENT,
            "priorityClassName": "system-cluster-critical",
            "hostNetwork": agent.host_network,
            "tolerations": tolerations,
            "nodeSelector": { "kubernetes.io/os": "linux" },
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": [{
                "name": "konnectivity-agent-token",
                "projected": { "sources": [{ "serviceAccountToken": {
                    "path": "konnectivity-agent-token", "audience": "system:konnectivity-server", "expirationSeconds": 3600,
                } }] },
            }],
        },
    });
    let mut workload = json!({
        "apiVersion": "apps/v1",
        "kind": agent.mode,
        "metadata": { "name": AGENT, "namespace": "kube-system", "labels": labels },
        "spec": { "selector": { "matchLabels": { "k8s-app": AGENT } }, "template": template },
    });
    if agent.mode == "Deployment" {
        workload["spec"]["replicas"] = json!(agent.replicas.unwrap_or(1));
    }
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": AGENT, "namespace": "kube-system", "labels": labels },
        }),
        cluster_role_binding(
            "system:konnectivity-server",
            "system:auth-delegator",
            vec![subject("User", "system:konnectivity-server")],
        ),
        workload,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::KonnectivityAgent;

    const FACTS: TenantFacts<'static> =
        TenantFacts { image: "atoll:1", endpoint_host: "192.0.2.1", endpoint_port: 6443, ca_pem: "PEM" };

    #[test]
    fn kamajis_default_agent_image_means_our_own_and_another_is_used() {
        let own = konnectivity_objects(&Konnectivity::default(), &FACTS);
        let container = |all: &[Value]| all[2]["spec"]["template"]["spec"]["containers"][0].clone();
        assert_eq!(container(&own)["image"], "atoll:1");
        let agent = KonnectivityAgent {
            image: "example.com/agent".to_owned(),
            version: Some("v0.34.0".to_owned()),
            ..KonnectivityAgent::default()
        };
        let foreign = konnectivity_objects(&Konnectivity { agent, ..Konnectivity::default() }, &FACTS);
        assert_eq!(container(&foreign)["image"], "example.com/agent:v0.34.0");
        assert_eq!(container(&foreign)["command"][0], "/proxy-agent");
    }

    #[test]
    fn without_the_addon_there_is_no_agent() {
        let tenant = TenantControlPlane::new("t", crate::spec::TenantControlPlaneSpec::default());
        let kinds: Vec<String> = objects(&tenant, &FACTS).iter().map(|o| o["kind"].to_string()).collect();
        assert!(!kinds.contains(&"\"DaemonSet\"".to_owned()), "{kinds:?}");
        assert!(kinds.contains(&"\"ConfigMap\"".to_owned()), "{kinds:?}");
    }
}
