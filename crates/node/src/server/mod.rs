//! The kubelet API: logs, exec, attach, port-forward and the list of Pods, over TLS.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::error::{Error, Result};
use crate::limits;
use crate::pods::context::{Node, Placed};
use crate::registration::serving::Serving;
use crate::runtime::{RunKey, Runtime};
use auth::Gate;
use query::Query;

mod attach;
pub mod auth;
mod available;
mod exec;
pub mod logs;
mod port_forward;
mod port_streams;
mod query;
mod spdy;
mod tls;
mod websocket;

/// Body of an answer.
pub type Body = BoxBody<Bytes, Infallible>;

/// A bound server.
pub struct Server {
    listener: TcpListener,
    port: u16,
    acceptor: TlsAcceptor,
}

impl Server {
    /// Binds the port on the node's address.
    pub async fn bind(port: u16, serving: Arc<Serving>, address: Ipv4Addr) -> Result<Server> {
        let failed = |source| Error::Listen { address: format!("{address}:{port}"), source };
        let listener = TcpListener::bind((address, port)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Server { listener, port, acceptor: TlsAcceptor::from(Arc::new(tls::config(serving)?)) })
    }

    /// The port, also where any was asked for.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves until dropped.
    pub async fn serve<R: Runtime>(self, node: Arc<Node<R>>, client_ca: String) {
        let gate = Arc::new(Gate::new(node.client.clone(), node.name.clone(), client_ca));
        let room = Arc::new(Semaphore::new(limits::SERVER_CONNECTIONS_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = self.listener.accept().await else { continue };
            let (acceptor, node, gate) = (self.acceptor.clone(), node.clone(), gate.clone());
            connections.spawn(async move {
                let _permit = permit;
                if let Err(e) = connection(stream, acceptor, node, gate).await {
                    tracing::debug!("kubelet API: {e}");
                }
            });
        }
    }
}

async fn connection<R: Runtime>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    node: Arc<Node<R>>,
    gate: Arc<Gate>,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let _ = stream.set_nodelay(true);
    let stream = tokio::time::timeout(limits::PLUGIN_TIMEOUT, acceptor.accept(stream)).await??;
    let chain: Vec<CertificateDer<'static>> =
        stream.get_ref().1.peer_certificates().into_iter().flatten().map(|c| c.clone().into_owned()).collect();
    let chain = Arc::new(chain);
    let service = service_fn(move |request| {
        let (node, gate, chain) = (node.clone(), gate.clone(), chain.clone());
        async move { Ok::<_, Infallible>(answer(request, &node, &gate, &chain).await) }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

/// A plain answer.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn answer<R: Runtime>(
    request: Request<Incoming>,
    node: &Arc<Node<R>>,
    gate: &Gate,
    chain: &[CertificateDer<'static>],
) -> Response<Body> {
    if let Err((status, why)) = gate.admit(&request, chain).await {
        return text(status, why);
    }
    route(request, node).await.unwrap_or_else(|(status, why)| text(status, why))
}

/// An answer, or a refusal with its text.
pub type Answer = std::result::Result<Response<Body>, (StatusCode, String)>;

async fn route<R: Runtime>(request: Request<Incoming>, node: &Arc<Node<R>>) -> Answer {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    match parts.as_slice() {
        ["healthz", ..] => Ok(text(StatusCode::OK, "ok")),
        ["pods"] => pods(node),
        ["containerLogs", namespace, pod, container] if request.method() == Method::GET => {
            container_logs(node, &placed(node, namespace, pod)?, container, &query)
        }
        ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
            exec::answer(request, node.clone(), running(node, namespace, pod, container)?, &query)
        }
        ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
            attach::answer(request, node.clone(), running(node, namespace, pod, container)?, &query).await
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            port_forward::answer(request, node.clone(), placed(node, namespace, pod)?, &query)
        }
        _ => Err((StatusCode::NOT_FOUND, "404 page not found\n".to_owned())),
    }
}

fn pods<R: Runtime>(node: &Node<R>) -> Answer {
    let items: Vec<_> = node.pods.lock().values().map(|p| p.pod.clone()).collect();
    let items: Vec<_> = items.iter().map(|p| p.as_ref()).collect();
    let list = serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    let mut response = text(StatusCode::OK, list.to_string());
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

fn placed<R: Runtime>(node: &Node<R>, namespace: &str, name: &str) -> std::result::Result<Placed, (StatusCode, String)> {
    let pods = node.pods.lock();
    let is_it =
        |p: &&Placed| p.pod.metadata.namespace.as_deref() == Some(namespace) && p.pod.metadata.name.as_deref() == Some(name);
    // A Pod that is being replaced by one of the same name is the one that ends.
    let found = pods.values().filter(is_it).max_by_key(|p| p.active);
    found.cloned().ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {name:?} in namespace {namespace:?} is not on this node")))
}

/// The latest run of a container.
fn latest(placed: &Placed, container: &str) -> std::result::Result<RunKey, (StatusCode, String)> {
    let pod = crate::pods::worker::key_of(&placed.pod);
    if !crate::pods::resources::containers(&placed.pod).any(|c| c.name == container) {
        return Err((StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {:?}", pod.name)));
    }
    let attempt = placed.attempts.get(container).copied();
    let attempt = attempt.ok_or_else(|| {
        let status = placed.pod.status.as_ref();
        let why = available::log_run(status, &pod.name, container, false).err();
        (StatusCode::BAD_REQUEST, why.unwrap_or_else(|| format!("container not found ({container:?})")))
    })?;
    Ok(RunKey { pod, container: container.to_owned(), attempt })
}

/// A run that a client can enter.
fn running<R: Runtime>(
    node: &Node<R>,
    namespace: &str,
    pod: &str,
    container: &str,
) -> std::result::Result<RunKey, (StatusCode, String)> {
    let run = latest(&placed(node, namespace, pod)?, container)?;
    simulated(node, &run)?;
    Ok(run)
}

fn simulated<R: Runtime>(node: &Node<R>, run: &RunKey) -> std::result::Result<(), (StatusCode, String)> {
    let pods = node.pods.lock();
    let pod = pods.get(&run.pod.uid).map(|p| p.pod.clone());
    let statuses = pod.iter().filter_map(|p| p.status.as_ref());
    let mut statuses =
        statuses.flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()));
    if statuses.any(|s| s.name == run.container && s.image_id == "Simulated") {
        let why = format!("container {:?} is simulated: it counts as running but has no process and no logs\n", run.container);
        return Err((StatusCode::BAD_REQUEST, why));
    }
    Ok(())
}

fn container_logs<R: Runtime>(node: &Arc<Node<R>>, placed: &Placed, container: &str, query: &Query) -> Answer {
    let mut run = latest(placed, container)?;
    simulated(node, &run)?;
    let status = placed.pod.status.as_ref();
    let back = available::log_run(status, &run.pod.name, container, query.flag("previous"));
    run.attempt = run.attempt.saturating_sub(back.map_err(|why| (StatusCode::BAD_REQUEST, why))?);
    let window = query.window().map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    let directory = node.paths.pod_logs(&run.pod.namespace, &run.pod.name, &run.pod.uid);
    let path = directory.join(&run.container).join(format!("{}.log", run.attempt));
    let exit = node.paths.container(&run.pod.uid, &run.container, run.attempt);
    let exit = exit.join(crate::runtime::host::spec::EXIT_FILE);
    let (out, lines) = tokio::sync::mpsc::channel::<Bytes>(64);
    let gone = exit.parent().map(std::path::Path::to_owned).unwrap_or_default();
    tokio::spawn(logs::send(path, window, move || exit.exists() || !gone.exists(), out));
    let frames = tokio_stream::wrappers::ReceiverStream::new(lines);
    let frames = futures::StreamExt::map(frames, |bytes| Ok::<_, Infallible>(hyper::body::Frame::data(bytes)));
    let mut response = text(StatusCode::OK, "");
    *response.body_mut() = BodyExt::boxed(http_body_util::StreamBody::new(frames));
    Ok(response)
}
