//! `TenantControlPlane` and `IPAddressPool` as the operator reads them. Fields that it passes on untouched stay JSON.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Kamaji's default images: they mean Atoll's own.
pub const KAMAJI_AGENT_IMAGE: &str = "registry.k8s.io/kas-network-proxy/proxy-agent";
pub const KAMAJI_REGISTRY: &str = "registry.k8s.io";

#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "kamaji.clastix.io",
    version = "v1alpha1",
    kind = "TenantControlPlane",
    plural = "tenantcontrolplanes",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantControlPlaneSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_store: Option<String>,
    pub control_plane: ControlPlane,
    pub kubernetes: Kubernetes,
    pub network_profile: NetworkProfile,
    pub addons: Addons,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlane {
    pub deployment: DeploymentSpec,
    pub service: ServiceSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    pub replicas: i32,
    pub registry_settings: RegistrySettings,
    pub node_selector: Option<BTreeMap<String, String>>,
    pub tolerations: Option<Value>,
    pub affinity: Option<Value>,
    pub topology_spread_constraints: Option<Value>,
    pub runtime_class_name: Option<String>,
    pub resources: Option<ComponentResources>,
    pub extra_args: ExtraArgs,
    pub additional_metadata: Metadata,
    pub pod_additional_metadata: Metadata,
    pub additional_init_containers: Vec<Value>,
    pub additional_containers: Vec<Value>,
    pub additional_volumes: Vec<Value>,
    pub additional_volume_mounts: ComponentMounts,
    pub probes: Probes,
    pub pod_security_context: Option<Map<String, Value>>,
    pub container_security_contexts: ComponentSecurity,
    pub service_account_name: Option<String>,
    pub automount_service_account_token: Option<bool>,
}

impl Default for DeploymentSpec {
    fn default() -> Self {
        DeploymentSpec {
            replicas: 2,
            registry_settings: RegistrySettings::default(),
            node_selector: None,
            tolerations: None,
            affinity: None,
            topology_spread_constraints: None,
            runtime_class_name: None,
            resources: None,
            extra_args: ExtraArgs::default(),
            additional_metadata: Metadata::default(),
            pod_additional_metadata: Metadata::default(),
            additional_init_containers: Vec::new(),
            additional_containers: Vec::new(),
            additional_volumes: Vec::new(),
            additional_volume_mounts: ComponentMounts::default(),
            probes: Probes::default(),
            pod_security_context: None,
            container_security_contexts: ComponentSecurity::default(),
            service_account_name: None,
            automount_service_account_token: None,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistrySettings {
    pub registry: String,
    pub tag_suffix: String,
    pub api_server_image: String,
}

impl Default for RegistrySettings {
    fn default() -> Self {
        RegistrySettings {
            registry: KAMAJI_REGISTRY.to_owned(),
            tag_suffix: String::new(),
            api_server_image: "kube-apiserver".to_owned(),
        }
    }
}

impl RegistrySettings {
    /// Whether these are Kamaji's defaults, which mean Atoll's own image.
    pub fn is_default(&self) -> bool {
        self.registry == KAMAJI_REGISTRY && self.tag_suffix.is_empty() && self.api_server_image == "kube-apiserver"
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentResources {
    pub api_server: Option<ResourceRequirements>,
}

/// Mounts by component. Atoll's control plane is one process, so it has them all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentMounts {
    pub api_server: Vec<Value>,
    pub controller_manager: Vec<Value>,
    pub scheduler: Vec<Value>,
}

/// Timings of the probes, for all components and for the API server, which win.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probes {
    pub liveness: Option<Map<String, Value>>,
    pub readiness: Option<Map<String, Value>>,
    pub startup: Option<Map<String, Value>>,
    pub api_server: ComponentProbes,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentProbes {
    pub liveness: Option<Map<String, Value>>,
    pub readiness: Option<Map<String, Value>>,
    pub startup: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentSecurity {
    pub api_server: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtraArgs {
    pub api_server: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    pub service_type: String,
    pub additional_metadata: Metadata,
    pub allocate_load_balancer_node_ports: Option<bool>,
    pub additional_ports: Vec<Value>,
}

impl Default for ServiceSpec {
    fn default() -> Self {
        ServiceSpec {
            service_type: "LoadBalancer".to_owned(),
            additional_metadata: Metadata::default(),
            allocate_load_balancer_node_ports: None,
            additional_ports: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kubernetes {
    pub version: String,
    pub kubelet: Kubelet,
    pub admission_controllers: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kubelet {
    #[serde(rename = "configurationJSONPatches")]
    pub configuration_json_patches: Vec<Value>,
    pub preferred_address_types: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkProfile {
    pub address: String,
    pub advertise_address: String,
    pub allow_address_as_external_ip: bool,
    pub port: i32,
    #[serde(rename = "certSANs")]
    pub cert_sans: Vec<String>,
    pub cluster_domain: String,
    pub service_cidr: String,
    pub pod_cidr: String,
    pub service_cidrs: Vec<String>,
    pub pod_cidrs: Vec<String>,
    #[serde(rename = "dnsServiceIPs")]
    pub dns_service_ips: Vec<String>,
    pub load_balancer_source_ranges: Vec<String>,
    pub load_balancer_class: Option<String>,
}

impl Default for NetworkProfile {
    fn default() -> Self {
        NetworkProfile {
            address: String::new(),
            advertise_address: String::new(),
            allow_address_as_external_ip: false,
            port: 6443,
            cert_sans: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            service_cidr: "10.96.0.0/16".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            service_cidrs: Vec::new(),
            pod_cidrs: Vec::new(),
            dns_service_ips: Vec::new(),
            load_balancer_source_ranges: Vec::new(),
            load_balancer_class: None,
        }
    }
}

impl NetworkProfile {
    /// The plural form wins over the singular one.
    pub fn service_cidr(&self) -> &str {
        self.service_cidrs.first().unwrap_or(&self.service_cidr)
    }

    pub fn pod_cidr(&self) -> &str {
        self.pod_cidrs.first().unwrap_or(&self.pod_cidr)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Addons {
    #[serde(rename = "coreDNS", skip_serializing_if = "Option::is_none")]
    pub core_dns: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_proxy: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub konnectivity: Option<Konnectivity>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Konnectivity {
    pub server: KonnectivityServer,
    pub agent: KonnectivityAgent,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KonnectivityServer {
    pub port: i32,
}

impl Default for KonnectivityServer {
    fn default() -> Self {
        KonnectivityServer { port: 8132 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KonnectivityAgent {
    pub image: String,
    pub version: Option<String>,
    pub tolerations: Option<Value>,
    pub extra_args: Vec<String>,
    pub host_network: bool,
    pub mode: String,
    pub replicas: Option<i32>,
    pub resources: Option<Value>,
}

impl Default for KonnectivityAgent {
    fn default() -> Self {
        KonnectivityAgent {
            image: KAMAJI_AGENT_IMAGE.to_owned(),
            version: None,
            tolerations: None,
            extra_args: Vec::new(),
            host_network: false,
            mode: "DaemonSet".to_owned(),
            replicas: None,
            resources: None,
        }
    }
}

/// MetalLB's pool of load-balancer addresses.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(group = "metallb.io", version = "v1beta1", kind = "IPAddressPool", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressPoolSpec {
    pub addresses: Vec<String>,
    pub auto_assign: Option<bool>,
    #[serde(rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: Option<bool>,
}
