//! What a connect request is to reach.

use serde_json::Value;

use super::text;
use crate::cluster::{ClusterApi, Resource};
use crate::egress::DialTarget;
use crate::error::{ApiError, GroupResource, Result};
use crate::pipeline::call::Call;
use crate::server::Core;

/// Where kubelets listen unless their node says otherwise.
const KUBELET_PORT: u16 = 10250;

/// A place and what to ask for there.
pub(super) struct Target {
    pub dial: DialTarget,
    /// Path with query.
    pub path: String,
    pub scheme: Scheme,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Plain,
    /// A kubelet, by the cluster's own authority.
    Kubelet,
    /// Something whose certificate nobody vouches for.
    Unverified,
}

/// `[scheme:]name[:port]` of a proxy path.
struct ProxyName<'a> {
    is_https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> ProxyName<'a> {
    fn parse(text: &'a str) -> Result<ProxyName<'a>> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme @ ("" | "http" | "https"), name, port] => (*scheme, *name, *port),
            _ => return Err(ApiError::bad_request(format!("invalid proxy request {text:?}"))),
        };
        Ok(ProxyName { is_https: scheme == "https", name, port })
    }

    fn scheme(&self) -> Scheme {
        if self.is_https { Scheme::Unverified } else { Scheme::Plain }
    }
}

/// Finds the target; none for the log of a Pod that was not placed yet.
pub(super) async fn find(core: &Core, call: &Call) -> Result<Option<Target>> {
    match (call.def.plural.as_str(), call.info.subresource.as_str()) {
        ("pods", "proxy") => pod_proxy(core, call).await.map(Some),
        ("services", "proxy") => service_proxy(core, call).await.map(Some),
        ("nodes", "proxy") => {
            let name = ProxyName::parse(&call.info.name)?;
            kubelet(core, name.name, proxy_path(call)).await.map(Some)
        }
        ("pods", _) => at_kubelet(core, call).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn proxy_path(call: &Call) -> String {
    let path = if call.info.rest.is_empty() { "/" } else { call.info.rest.as_str() };
    with_query(path, call, &[])
}

fn with_query(path: &str, call: &Call, without: &[&str]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (key, value) in call.query.pairs().filter(|(k, _)| !without.contains(k)) {
        query.append_pair(key, value);
    }
    match query.finish() {
        empty if empty.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

async fn object(core: &Core, call: &Call, resource: Resource<'_>, name: &str) -> Result<std::sync::Arc<Value>> {
    let shown = GroupResource { group: resource.group, resource: resource.plural };
    core.get(resource, &call.info.namespace, name).await?.ok_or_else(|| ApiError::not_found(shown, name))
}

async fn kubelet(core: &Core, node: &str, path: String) -> Result<Target> {
    let nodes = GroupResource { group: "", resource: "nodes" };
    let object = core.get(Resource::core("nodes"), "", node).await?.ok_or_else(|| ApiError::not_found(nodes, node))?;
    let addresses = object.pointer("/status/addresses").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_type = |kind: &str| addresses.iter().find(|a| a["type"] == kind).and_then(|a| a["address"].as_str());
    let host = of_type("InternalIP")
        .or_else(|| of_type("Hostname"))
        .ok_or_else(|| ApiError::internal(format!("no preferred addresses found; known addresses of node {node:?}: none")))?;
    let port = object.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64).filter(|p| *p > 0);
    let port = port.and_then(|p| u16::try_from(p).ok()).unwrap_or(KUBELET_PORT);
    let dial = DialTarget { host: host.to_owned(), port, node: Some(node.to_owned()) };
    Ok(Target { dial, path, scheme: Scheme::Kubelet })
}

async fn at_kubelet(core: &Core, call: &Call) -> Result<Option<Target>> {
    let (namespace, name) = (call.info.namespace.as_str(), call.info.name.as_str());
    let pod = object(core, call, Resource::core("pods"), name).await?;
    let node = text(&pod, "/spec/nodeName");
    let path = match call.info.subresource.as_str() {
        "portforward" => format!("/portForward/{namespace}/{name}"),
        subresource => {
            let container = container(call, &pod)?;
            let endpoint = if subresource == "log" { "containerLogs" } else { subresource };
            format!("/{endpoint}/{namespace}/{name}/{container}")
        }
    };
    if node.is_empty() {
        if call.info.subresource == "log" {
            return Ok(None);
        }
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    kubelet(core, node, with_query(&path, call, &["container"])).await.map(Some)
}

/// The container that a request is about: the one it names, or the only one, or the Pod's default.
fn container(call: &Call, pod: &Value) -> Result<String> {
    let name = &call.info.name;
    let names = |key: &str| -> Vec<String> {
        let list = pod.pointer(&format!("/spec/{key}")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|c| c["name"].as_str()).map(str::to_owned).collect()
    };
    let containers = names("containers");
    let asked = call.query.text("container");
    if asked.is_empty() {
        let default = pod
            .pointer("/metadata/annotations/kubectl.kubernetes.io~1default-container")
            .and_then(Value::as_str)
            .filter(|d| containers.iter().any(|c| c == d));
        return match (containers.as_slice(), default) {
            ([one], _) => Ok(one.clone()),
            (_, Some(default)) => Ok(default.to_owned()),
            _ => Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                containers.join(" ")
            ))),
        };
    }
    let all = ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(names);
    if all.into_iter().any(|c| c == asked) {
        return Ok(asked.to_owned());
    }
    Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}")))
}

async fn pod_proxy(core: &Core, call: &Call) -> Result<Target> {
    let name = ProxyName::parse(&call.info.name)?;
    let pod = object(core, call, Resource::core("pods"), name.name).await?;
    let first = pod.pointer("/spec/containers/0/ports/0/containerPort").and_then(Value::as_u64);
    let port = if name.port.is_empty() { first.and_then(|p| u16::try_from(p).ok()).unwrap_or(80) } else { number(name.port)? };
    let host = text(&pod, "/status/podIP");
    if host.is_empty() {
        return Err(ApiError::bad_request("address not allowed"));
    }
    let node = Some(text(&pod, "/spec/nodeName").to_owned()).filter(|n| !n.is_empty());
    Ok(Target { dial: DialTarget { host: host.to_owned(), port, node }, path: proxy_path(call), scheme: name.scheme() })
}

fn number(port: &str) -> Result<u16> {
    port.parse().map_err(|_| ApiError::bad_request(format!("invalid port {port:?}")))
}

async fn service_proxy(core: &Core, call: &Call) -> Result<Target> {
    let name = ProxyName::parse(&call.info.name)?;
    let not_found = || ApiError::not_found(call.group_resource(), name.name);
    let service = object(core, call, Resource::core("services"), name.name).await?;
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
    let number = name.port.parse::<u64>().ok();
    let is_asked = |p: &&Value| {
        (name.port.is_empty() && ports.len() == 1)
            || p["name"] == name.port
            || number.is_some_and(|n| p["port"].as_u64() == Some(n))
    };
    let port = ports.iter().find(is_asked).ok_or_else(not_found)?;
    let slices = core.list(Resource::new("discovery.k8s.io", "endpointslices"), &call.info.namespace).await?;
    for slice in slices
        .items
        .iter()
        .filter(|s| s.pointer("/metadata/labels/kubernetes.io~1service-name").and_then(Value::as_str) == Some(name.name))
    {
        let port_name = port["name"].as_str().unwrap_or_default();
        let of_port = |p: &&Value| p["name"].as_str().unwrap_or_default() == port_name;
        let Some(number) = slice["ports"].as_array().into_iter().flatten().find(of_port).and_then(|p| p["port"].as_u64()) else {
            continue;
        };
        let ready = |e: &&Value| e.pointer("/conditions/ready").and_then(Value::as_bool).unwrap_or(true);
        let Some(endpoint) = slice["endpoints"].as_array().into_iter().flatten().find(ready) else { continue };
        let Some(host) = endpoint.pointer("/addresses/0").and_then(Value::as_str) else { continue };
        let node = endpoint["nodeName"].as_str().map(str::to_owned);
        let dial = DialTarget { host: host.to_owned(), port: u16::try_from(number).map_err(ApiError::internal)?, node };
        return Ok(Target { dial, path: proxy_path(call), scheme: name.scheme() });
    }
    if slices
        .items
        .iter()
        .any(|s| s.pointer("/metadata/labels/kubernetes.io~1service-name").and_then(Value::as_str) == Some(name.name))
    {
        return Err(ApiError::unavailable(format!("no endpoints available for service {:?}", name.name)));
    }
    Err(not_found())
}
