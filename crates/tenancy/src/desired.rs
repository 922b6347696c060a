//! What a tenant needs in the management cluster: Service, volume claim, Deployment. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::names::{self, Names};
use crate::secrets::Existing;
use crate::spec::{DeploymentSpec, TenantControlPlane};

/// What the operator decides for a tenant beside its manifest.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Atoll's own image.
    pub image: String,
    /// The tenant's user id: its process and its data belong to it.
    pub user_id: i64,
    /// Class of the data volume; `None`: the cluster's default.
    pub storage_class: Option<String>,
    /// Size of the data volume.
    pub storage_size: String,
}

/// The tenant's tunnel port, if it has a tunnel.
pub fn tunnel_port(tenant: &TenantControlPlane) -> Option<i32> {
    tenant.spec.addons.konnectivity.as_ref().map(|k| k.server.port)
}

/// The owner reference by which everything goes when the tenant goes.
pub fn owner(tenant: &TenantControlPlane) -> OwnerReference {
    OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: "TenantControlPlane".to_owned(),
        name: tenant.name_any(),
        uid: tenant.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn metadata(tenant: &TenantControlPlane, name: &str, component: &str, extra: &crate::spec::Metadata) -> Value {
    let mut labels = extra.labels.clone();
    labels.insert(names::LABEL_PROJECT.to_owned(), "kamaji".to_owned());
    labels.insert(names::LABEL_NAME.to_owned(), tenant.name_any());
    labels.insert(names::LABEL_COMPONENT.to_owned(), component.to_owned());
    json!({
        "name": name,
        "namespace": tenant.namespace(),
        "labels": labels,
        "annotations": extra.annotations,
        "ownerReferences": [owner(tenant)],
    })
}

/// The Service `T`: API port, tunnel port and the ports that the manifest adds.
pub fn service(tenant: &TenantControlPlane) -> Value {
    let spec = &tenant.spec.control_plane.service;
    let port = tenant.spec.network_profile.port;
    let is_node_port = spec.service_type == "NodePort";
    let mut ports = vec![json!({ "name": "kube-apiserver", "protocol": "TCP", "port": port, "targetPort": port })];
    if is_node_port {
        ports[0]["nodePort"] = json!(port);
    }
    if let Some(tunnel) = tunnel_port(tenant) {
        ports.push(json!({ "name": "konnectivity-server", "protocol": "TCP", "port": tunnel, "targetPort": tunnel }));
    }
    ports.extend(spec.additional_ports.iter().cloned());
    let mut body = json!({
        "type": spec.service_type,
        "selector": { names::LABEL_NAME: tenant.name_any() },
        "ports": ports,
    });
    if spec.service_type == "LoadBalancer" {
        body["allocateLoadBalancerNodePorts"] = json!(spec.allocate_load_balancer_node_ports.unwrap_or(true));
        let profile = &tenant.spec.network_profile;
        if !profile.load_balancer_source_ranges.is_empty() {
            body["loadBalancerSourceRanges"] = json!(profile.load_balancer_source_ranges);
        }
        if let Some(class) = &profile.load_balancer_class {
            body["loadBalancerClass"] = json!(class);
        }
        if !profile.address.is_empty() {
            body["loadBalancerIP"] = json!(profile.address);
        }
    }
    let name = tenant.name_any();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(tenant, &name, "service", &spec.additional_metadata),
        "spec": body,
    })
}

/// The claim of the tenant's data volume. The user id lets a directory provisioner give the directory to the tenant.
pub fn data_claim(tenant: &TenantControlPlane, names: &Names, choices: &Choices) -> Value {
    let mut extra = crate::spec::Metadata::default();
    extra.annotations.insert(names::OWNER_UID.to_owned(), choices.user_id.to_string());
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": choices.storage_size } },
    });
    if let Some(class) = &choices.storage_class {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(tenant, &names.data_claim(), "data", &extra),
        "spec": spec,
    })
}

/// Where a tenant's Secrets appear in its Pod.
const PKI_DIR: &str = "/etc/kubernetes/pki";
const DATA_DIR: &str = "/var/lib/atoll";

fn arguments(tenant: &TenantControlPlane, advertise: &str) -> Vec<String> {
    let profile = &tenant.spec.network_profile;
    let mut arguments = vec![
        "control-plane".to_owned(),
        format!("--dir={DATA_DIR}"),
        format!("--pki={PKI_DIR}"),
        format!("--listen=$(POD_IP):{}", profile.port),
        format!("--advertise-address={advertise}"),
        format!("--advertise-port={}", profile.port),
        format!("--service-cidr={}", profile.service_cidr()),
        format!("--cluster-domain={}", profile.cluster_domain),
        // Kamaji's, whatever the domain.
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
    ];
    if let Some(port) = tunnel_port(tenant) {
        arguments.push(format!("--tunnel-listen=$(POD_IP):{port}"));
    }
    if !tenant.spec.kubernetes.admission_controllers.is_empty() {
        arguments.push(format!("--enable-admission-plugins={}", tenant.spec.kubernetes.admission_controllers.join(",")));
    }
    arguments
}

/// The Deployment `T`: one process with everything a control plane is. The embedded store has one writer, so there is one
/// replica whatever the manifest says, and a new one starts when the old one has ended.
pub fn deployment(tenant: &TenantControlPlane, names: &Names, choices: &Choices, advertise: &str, secrets: &Existing) -> Value {
    let spec = &tenant.spec.control_plane.deployment;
    let replicas = spec.replicas.clamp(0, 1);
    let port = tenant.spec.network_profile.port;
    let probe = |path: &str, period: i32, failures: i32, timings: [&Option<Map<String, Value>>; 2]| {
        let mut probe = json!({
            "httpGet": { "path": path, "port": port, "scheme": "HTTPS" },
            "periodSeconds": period, "timeoutSeconds": 2, "failureThreshold": failures,
        });
        lay_over(&mut probe, timings.into_iter().flatten());
        probe
    };
    let (all, own) = (&spec.probes, &spec.probes.api_server);
    let mut container = json!({
        "name": "kube-apiserver",
        "image": choices.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["atoll"],
        "args": arguments(tenant, advertise),
        "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
        "ports": [{ "name": "kube-apiserver", "containerPort": port, "protocol": "TCP" }],
        "startupProbe": probe("/readyz", 1, 60, [&all.startup, &own.startup]),
        "readinessProbe": probe("/readyz", 10, 3, [&all.readiness, &own.readiness]),
        "livenessProbe": probe("/livez", 10, 6, [&all.liveness, &own.liveness]),
        "volumeMounts": volume_mounts(spec),
    });
    let mut security = json!({});
    lay_over(&mut security, &spec.container_security_contexts.api_server);
    // Whatever the manifest says, a tenant's process is its user and no more.
    lay_over(&mut security, json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } }).as_object());
    for key in ["runAsUser", "runAsGroup", "privileged", "procMount"] {
        security.as_object_mut().map(|s| s.remove(key));
    }
    container["securityContext"] = security;
    if let Some(resources) = spec.resources.as_ref().and_then(|r| r.api_server.as_ref()) {
        container["resources"] = json!(resources);
    }
    let mut pod = json!({
        "containers": [container],
        "automountServiceAccountToken": spec.automount_service_account_token.unwrap_or(false),
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        "volumes": [
            { "name": "pki", "projected": { "defaultMode": 0o440, "sources": pki_sources(names) } },
            { "name": "data", "persistentVolumeClaim": { "claimName": names.data_claim() } },
        ],
    });
    let mut security = json!({});
    lay_over(&mut security, &spec.pod_security_context);
    let identity = json!({
        "runAsUser": choices.user_id, "runAsGroup": choices.user_id, "fsGroup": choices.user_id, "runAsNonRoot": true,
    });
    lay_over(&mut security, identity.as_object());
    pod["securityContext"] = security;
    if let Some(volumes) = pod["volumes"].as_array_mut() {
        volumes.extend(spec.additional_volumes.iter().cloned());
    }
    let passed_on = [
        ("nodeSelector", spec.node_selector.as_ref().map(|v| json!(v))),
        ("tolerations", spec.tolerations.clone()),
        ("affinity", spec.affinity.clone()),
        ("topologySpreadConstraints", spec.topology_spread_constraints.clone()),
        ("runtimeClassName", spec.runtime_class_name.as_ref().map(|v| json!(v))),
        ("serviceAccountName", spec.service_account_name.as_ref().map(|v| json!(v))),
    ];
    for (field, value) in passed_on {
        if let Some(value) = value {
            pod[field] = value;
        }
    }
    let mut pod_labels = spec.pod_additional_metadata.labels.clone();
    pod_labels.insert(names::LABEL_NAME.to_owned(), names.tenant.clone());
    pod_labels.insert(names::LABEL_PROJECT.to_owned(), "kamaji".to_owned());
    let mut pod_annotations = spec.pod_additional_metadata.annotations.clone();
    pod_annotations.insert(names::CHECKSUM.to_owned(), server_material(names, secrets));
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(tenant, &names.tenant, "deployment", &spec.additional_metadata),
        "spec": {
            "replicas": replicas,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": { names::LABEL_NAME: names.tenant } },
            "template": { "metadata": { "labels": pod_labels, "annotations": pod_annotations }, "spec": pod },
        },
    })
}

/// The process's own mounts, then those that the manifest adds to any component; of two at one path the first counts.
fn volume_mounts(spec: &DeploymentSpec) -> Vec<Value> {
    let own =
        [json!({ "name": "pki", "mountPath": PKI_DIR, "readOnly": true }), json!({ "name": "data", "mountPath": DATA_DIR })];
    let added = &spec.additional_volume_mounts;
    let all = own.iter().chain(&added.api_server).chain(&added.controller_manager).chain(&added.scheduler);
    let mut mounts: Vec<Value> = Vec::new();
    for mount in all {
        if mounts.iter().all(|m| m["mountPath"] != mount["mountPath"]) {
            mounts.push(mount.clone());
        }
    }
    mounts
}

/// Sets an object's fields to those of others, the last of which wins.
fn lay_over<'a>(object: &mut Value, others: impl IntoIterator<Item = &'a Map<String, Value>>) {
    for (key, value) in others.into_iter().flatten() {
        object[key.as_str()] = value.clone();
    }
}

fn pki_sources(names: &Names) -> Vec<Value> {
    let items = |secret: String, keys: &[&str]| {
        let items: Vec<Value> = keys.iter().map(|k| json!({ "key": k, "path": k })).collect();
        json!({ "secret": { "name": secret, "items": items } })
    };
    vec![
        items(names.ca(), &["ca.crt", "ca.key"]),
        items(names.front_proxy_ca(), &["front-proxy-ca.crt"]),
        items(names.service_account(), &["sa.pub", "sa.key"]),
        items(names.api_server(), &["apiserver.crt", "apiserver.key"]),
        items(names.kubelet_client(), &["apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"]),
        items(names.front_proxy_client(), &["front-proxy-client.crt", "front-proxy-client.key"]),
        items(names.konnectivity(), &["konnectivity-server.crt", "konnectivity-server.key"]),
    ]
}

/// A checksum over the Secrets that the process reads: a new one means a new rollout.
fn server_material(names: &Names, secrets: &Existing) -> String {
    let mounted = [
        names.ca(),
        names.front_proxy_ca(),
        names.service_account(),
        names.api_server(),
        names.kubelet_client(),
        names.front_proxy_client(),
        names.konnectivity(),
    ];
    let sums: Vec<(String, String)> = mounted
        .into_iter()
        .map(|name| {
            let annotations = secrets.get(&name).and_then(|s| s.metadata.annotations.as_ref());
            let sum = annotations.and_then(|a| a.get(names::CHECKSUM)).cloned().unwrap_or_default();
            (name, sum)
        })
        .collect();
    crate::secrets::checksum(&sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest of Kamaji's documented manifests, with its version changed to one that is served.
    fn minimal() -> TenantControlPlane {
        serde_saphyr::from_str(
            "apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: mini, namespace: default, uid: u1}
spec:
  controlPlane: {deployment: {replicas: 2}, service: {serviceType: LoadBalancer}}
  kubernetes: {version: v1.36.0, kubelet: {}}
  networkProfile: {port: 6443}
  addons: {coreDNS: {}, kubeProxy: {}, konnectivity: {}}
",
        )
        .expect("a manifest")
    }

    fn choices() -> Choices {
        Choices { image: "atoll:1".to_owned(), user_id: 300_001, storage_class: None, storage_size: "1Gi".to_owned() }
    }

    #[test]
    fn two_replicas_become_one_with_recreate() {
        let names = Names::new("default", "mini");
        let made = deployment(&minimal(), &names, &choices(), "192.0.2.1", &Existing::new());
        assert_eq!(made["spec"]["replicas"], 1);
        assert_eq!(made["spec"]["strategy"]["type"], "Recreate");
        let mut asleep = minimal();
        asleep.spec.control_plane.deployment.replicas = 0;
        assert_eq!(deployment(&asleep, &names, &choices(), "192.0.2.1", &Existing::new())["spec"]["replicas"], 0);
        assert_eq!(made["spec"]["template"]["spec"]["securityContext"]["runAsUser"], 300_001);
    }

    #[test]
    fn volumes_probes_and_security_of_the_manifest_reach_the_one_container() {
        let mut tenant = minimal();
        let added = json!({
            "additionalVolumes": [{ "name": "audit", "configMap": { "name": "audit" } }],
            "additionalVolumeMounts": {
                "apiServer": [{ "name": "audit", "mountPath": "/etc/audit" }],
                "scheduler": [{ "name": "audit", "mountPath": "/etc/audit" }, { "name": "audit", "mountPath": "/tmp/s" }],
            },
            "probes": { "liveness": { "timeoutSeconds": 5 }, "apiServer": { "startup": { "failureThreshold": 30 } } },
            "podSecurityContext": { "runAsUser": 0, "supplementalGroups": [7] },
            "containerSecurityContexts": { "apiServer": { "readOnlyRootFilesystem": true, "privileged": true } },
        });
        tenant.spec.control_plane.deployment = serde_json::from_value(added).expect("a deployment section");
        let made = deployment(&tenant, &Names::new("default", "mini"), &choices(), "192.0.2.1", &Existing::new());
        let pod = &made["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][2]["name"], "audit");
        let container = &pod["containers"][0];
        let paths: Vec<&str> =
            container["volumeMounts"].as_array().into_iter().flatten().filter_map(|m| m["mountPath"].as_str()).collect();
        assert_eq!(paths, [PKI_DIR, DATA_DIR, "/etc/audit", "/tmp/s"]);
        assert_eq!(container["livenessProbe"]["timeoutSeconds"], 5);
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["startupProbe"]["failureThreshold"], 30);
        assert_eq!(container["startupProbe"]["periodSeconds"], 1);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["privileged"], Value::Null);
        assert_eq!(pod["securityContext"]["runAsUser"], 300_001);
        assert_eq!(pod["securityContext"]["supplementalGroups"], json!([7]));
    }

    #[test]
    fn the_service_has_the_api_and_the_tunnel_port() {
        let made = service(&minimal());
        let ports: Vec<(&str, i64)> = made["spec"]["ports"]
            .as_array()
            .expect("ports")
            .iter()
            .map(|p| (p["name"].as_str().expect("name"), p["port"].as_i64().expect("port")))
            .collect();
        assert_eq!(ports, [("kube-apiserver", 6443), ("konnectivity-server", 8132)]);
        let mut without = minimal();
        without.spec.addons.konnectivity = None;
        assert_eq!(service(&without)["spec"]["ports"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_missing_deployment_section_means_kamajis_defaults() {
        let tenant: TenantControlPlane = serde_saphyr::from_str(
            "apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: bare}
spec: {controlPlane: {service: {serviceType: ClusterIP}}, kubernetes: {version: v1.36.0, kubelet: {}}}
",
        )
        .expect("a manifest");
        assert_eq!(tenant.spec.control_plane.deployment.replicas, 2);
        assert_eq!(tenant.spec.network_profile.port, 6443);
        assert_eq!(tenant.spec.network_profile.service_cidr(), "10.96.0.0/16");
    }
}
