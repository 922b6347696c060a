//! HAMi's `/filter` and `/bind` for a stock kube-scheduler.
//!
//! `/filter` reserves and writes the decision, so it answers with exactly one node. It listens on loopback unless told
//! otherwise: whoever can call it can take another Pod's reservation (HAMi issue 3030).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use atoll_devices::ledger::Ask;
use atoll_devices::names::{NodeName, PodUid, annotation, phase};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::decision::{self, PodKey};
use super::devices::Devices;
use super::events::What;
use crate::error::{Error, Result, call};
use crate::http::{Answer, Handler, Security, body, json as json_answer, serve, text};
use crate::tls::CurrentCertificate;
use crate::webhook::CertificateSource;

/// What the extender is run with.
#[derive(Clone, Debug)]
pub struct ExtenderOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Certificate; without one it speaks plain HTTP, which is for loopback alone.
    pub certificate: Option<CertificateSource>,
}

impl Default for ExtenderOptions {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 8888)), certificate: None }
    }
}

/// Answers until dropped.
pub async fn run(options: ExtenderOptions, devices: Devices) -> Result<()> {
    let security = match &options.certificate {
        None if !options.listen.ip().is_loopback() => {
            return Err(Error::Option(format!("{} is not loopback, so the extender needs a certificate", options.listen)));
        }
        None => Security::Plain,
        Some(source) => {
            let current = Arc::new(CurrentCertificate::default());
            crate::webhook::refresh_certificate(source, &devices.client, &current).await?;
            Security::Tls(current.server_config()?)
        }
    };
    let listener = TcpListener::bind(options.listen).await.map_err(Error::io(format!("cannot listen on {}", options.listen)))?;
    serve(listener, security, Arc::new(Extender { devices }), std::future::pending()).await;
    Ok(())
}

struct Extender {
    devices: Devices,
}

#[async_trait::async_trait]
impl Handler for Extender {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/healthz" | "/readyz" => return text(StatusCode::OK, "ok"),
            "/filter" | "/bind" if request.method() == Method::POST => {}
            "/filter" | "/bind" => return text(StatusCode::METHOD_NOT_ALLOWED, "POST only"),
            _ => return text(StatusCode::NOT_FOUND, "not found"),
        }
        let body = match body(request).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let answer = if path == "/filter" {
            match serde_json::from_slice::<FilterArgs>(&body) {
                Ok(args) => json!(self.filter(args).await),
                Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        } else {
            match serde_json::from_slice::<BindArgs>(&body) {
                Ok(args) => json!({"Error": self.bind(&args).await.err().map(|e| e.to_string()).unwrap_or_default()}),
                Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        };
        json_answer(&answer)
    }
}

/// `ExtenderArgs`; the scheduler is configured with `nodeCacheCapable`, so it sends names.
#[derive(Deserialize)]
struct FilterArgs {
    #[serde(rename = "Pod", alias = "pod")]
    pod: Pod,
    #[serde(rename = "Nodes", alias = "nodes", default)]
    nodes: Option<Value>,
    #[serde(rename = "NodeNames", alias = "nodenames", alias = "nodeNames", default)]
    node_names: Option<Vec<String>>,
}

/// `ExtenderFilterResult`.
#[derive(Debug, Default, Serialize, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct FilterResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Value>,
    node_names: Option<Vec<String>>,
    failed_nodes: BTreeMap<String, String>,
    error: String,
}

/// `ExtenderBindingArgs`.
#[derive(Deserialize)]
struct BindArgs {
    #[serde(rename = "PodName", alias = "podName")]
    name: String,
    #[serde(rename = "PodNamespace", alias = "podNamespace")]
    namespace: String,
    #[serde(rename = "PodUID", alias = "podUID")]
    uid: String,
    #[serde(rename = "Node", alias = "node")]
    node: String,
}

impl Extender {
    async fn filter(&self, args: FilterArgs) -> FilterResult {
        let devices = &self.devices;
        let failed = |error: String| FilterResult { error, ..FilterResult::default() };
        let ask = match crate::view(&args.pod).map(|view| Ask::of_pod(&view, &devices.defaults)).transpose() {
            Ok(ask) => ask.flatten(),
            Err(error) => return failed(error.to_string()),
        };
        let Some(ask) = ask else {
            return FilterResult { nodes: args.nodes, node_names: args.node_names, ..FilterResult::default() };
        };
        if let Some(nodes) = args.nodes.filter(Value::is_object) {
            return self.simulate(&ask, nodes);
        }
        let names = args.node_names.unwrap_or_default();
        let policy = ask.selection.node_policy.unwrap_or(devices.node_policy);
        let reservation = match devices.ledger.place(&ask, policy, &names.iter().map(String::as_str).collect()) {
            Ok(reservation) => reservation,
            Err(unfit) => {
                let failed_nodes: BTreeMap<String, String> =
                    unfit.into_iter().map(|(node, why)| (node, why.to_string())).collect();
                devices.events.tell(What::FilteringFailed, &args.pod, super::devices::no_node(&failed_nodes));
                return FilterResult { node_names: Some(Vec::new()), failed_nodes, ..FilterResult::default() };
            }
        };
        let best = reservation.node().clone();
        // An error drops the reservation, which gives back what it took.
        if let Err(error) = decision::write(&devices.client, &args.pod, &best, reservation.allocation()).await {
            return failed(error.to_string());
        }
        let message = format!("node {best} chosen, devices {}", reservation.allocation().encode());
        reservation.confirm();
        devices.events.tell(What::FilteringSucceed, &args.pod, message);
        FilterResult { node_names: Some(vec![best.0]), ..FilterResult::default() }
    }

    /// What the cluster autoscaler asks with node objects of its own: nothing is changed by the answer.
    fn simulate(&self, ask: &Ask, mut nodes: Value) -> FilterResult {
        let mut failed_nodes = BTreeMap::new();
        if let Some(items) = nodes["items"].as_array_mut() {
            items.retain(|node| {
                let name = NodeName::from(node["metadata"]["name"].as_str().unwrap_or_default());
                match self.devices.ledger.plan(ask, &name) {
                    Ok(_) => true,
                    Err(unfit) => {
                        failed_nodes.insert(name.0, unfit.to_string());
                        false
                    }
                }
            });
        }
        FilterResult { nodes: Some(nodes), failed_nodes, ..FilterResult::default() }
    }

    async fn bind(&self, args: &BindArgs) -> Result<()> {
        let devices = &self.devices;
        let api: Api<Pod> = Api::namespaced(devices.client.clone(), &args.namespace);
        let uid = PodUid::from(args.uid.as_str());
        let Some(pod) = call(api.get_opt(&args.name)).await?.filter(|pod| pod.metadata.uid.as_deref() == Some(&args.uid)) else {
            devices.ledger.release(&uid);
            return Err(Error::Option(format!("pod {}/{} is gone", args.namespace, args.name)));
        };
        let wants_cards = crate::view(&pod).and_then(|view| Ask::of_pod(&view, &devices.defaults).ok().flatten()).is_some();
        let reserved = devices.ledger.entry(&uid).map(|(node, _)| node.0);
        if wants_cards && reserved.as_deref() != Some(args.node.as_str()) {
            return Err(Error::Option(format!("pod has no reservation on node {}", args.node)));
        }
        let bound = self.send(&api, &pod, args, wants_cards).await;
        // A failed binding keeps the reservation: the decision is on the Pod until the next /filter replaces it.
        match &bound {
            Ok(()) => devices.events.tell(What::BindingSucceed, &pod, format!("bound to node {}", args.node)),
            Err(error) => devices.events.tell(What::BindingFailed, &pod, error.to_string()),
        }
        bound
    }

    async fn send(&self, api: &Api<Pod>, pod: &Pod, args: &BindArgs, wants_cards: bool) -> Result<()> {
        let key = PodKey::of(pod);
        let mut metadata = json!({"name": key.name, "namespace": key.namespace, "uid": key.uid});
        if wants_cards {
            let annotations = json!({
                annotation::BIND_PHASE: phase::ALLOCATING,
                annotation::BIND_TIME: jiff::Timestamp::now().as_second().to_string(),
            });
            let patch = json!({"metadata": {
                "uid": key.uid, "resourceVersion": pod.metadata.resource_version, "annotations": annotations}});
            let written = call(api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))).await?;
            metadata["resourceVersion"] = json!(written.metadata.resource_version);
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node}});
        let params = PostParams::default();
        let Err(error) = call(api.create_subresource::<_, Value>("binding", &key.name, &params, &binding)).await else {
            return Ok(());
        };
        // The answer may have been lost, not the binding (HAMi issue 2645).
        let now = call(api.get_opt(&key.name)).await?;
        let node = now.filter(|now| now.metadata.uid.as_deref() == Some(&key.uid)).and_then(|now| now.spec?.node_name);
        if node.as_deref() == Some(args.node.as_str()) { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_are_read_as_the_kube_scheduler_writes_them() {
        let args: FilterArgs =
            serde_json::from_value(json!({"Pod": {"metadata": {"name": "p"}}, "Nodes": null, "NodeNames": ["a", "b"]})).unwrap();
        assert_eq!(args.node_names, Some(vec!["a".into(), "b".into()]));
        let args: BindArgs =
            serde_json::from_value(json!({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"})).unwrap();
        assert_eq!((args.uid.as_str(), args.node.as_str()), ("u", "n"));
    }

    #[test]
    fn results_have_the_names_that_it_reads() {
        let result = FilterResult {
            node_names: Some(vec!["n".into()]),
            failed_nodes: [("m".to_owned(), "1/1 CardInsufficientMemory".to_owned())].into(),
            ..FilterResult::default()
        };
        assert_eq!(json!(result), json!({"NodeNames": ["n"], "FailedNodes": {"m": "1/1 CardInsufficientMemory"}, "Error": ""}));
    }
}
