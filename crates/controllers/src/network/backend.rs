//! The Pods behind a Service, as both kinds of endpoint objects see them.

use crate::selector;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// Label of endpoint objects of a Service without cluster IP.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// Port as endpoints carry it: name, protocol, number, application protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub name: String,
    pub protocol: String,
    pub number: i32,
    pub app_protocol: Option<String>,
}

/// Whether Pods decide where the Service goes.
pub fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let external = spec.and_then(|s| s.type_.as_deref()) == Some("ExternalName");
    !external && spec.and_then(|s| s.selector.as_ref()).is_some_and(|s| !s.is_empty())
}

/// Whether the Service has no cluster IP.
pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None")
}

/// Whether the Pod's labels match.
pub fn selects(service: &Service, pod: &Pod) -> bool {
    has_selector(service)
        && selector::map_matches(service.spec.as_ref().and_then(|s| s.selector.as_ref()), pod.metadata.labels.as_ref())
}

/// The Pods that have an address and are not finished.
pub fn backends(service: &Service, namespace_pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    let addressed = |pod: &Pod| pod.status.as_ref().and_then(|s| s.pod_ip.as_deref()).is_some_and(|ip| !ip.is_empty());
    namespace_pods.into_iter().filter(|pod| selects(service, pod) && addressed(pod) && !pods::is_finished(pod)).collect()
}

/// Whether unready Pods get traffic too.
pub fn publishes_unready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses).unwrap_or(false)
}

/// The ports of the Service on this Pod; one whose name the Pod does not have is left out.
pub fn ports(service: &Service, pod: &Pod) -> Vec<Port> {
    let declared = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let on_pod = |port: &ServicePort| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        let number = match &port.target_port {
            None => port.port,
            Some(IntOrString::Int(0)) => port.port,
            Some(IntOrString::Int(number)) => *number,
            Some(IntOrString::String(name)) => container_port(pod, name, &protocol)?,
        };
        let name = port.name.clone().unwrap_or_default();
        Some(Port { name, protocol, number, app_protocol: port.app_protocol.clone() })
    };
    let mut ports: Vec<Port> = declared.iter().filter_map(on_pod).collect();
    ports.sort();
    ports
}

fn container_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let mut ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let found = ports.find(|p| p.name.as_deref() == Some(name) && p.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.map(|p| p.container_port)
}

/// The Pod's name in DNS under this Service.
pub fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let under = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|hostname| under && !hostname.is_empty())
}
