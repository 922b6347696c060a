//! One call of a webhook: where it is, the connection through the cluster's dialer, the HTTP exchange.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tracing::{info, warn};

use super::config::{ClientConfig, ServiceReference, Webhook};
use super::review::{self, Verdict};
use crate::admission::Attributes;
use crate::cluster::{Cluster, Resource};
use crate::egress::{DialError, DialTarget};
use crate::error::{ApiError, Cause};
use crate::limits;

/// Why a webhook gave no verdict. `word` tells the causes apart for programs.
#[derive(Debug, Clone)]
pub(super) struct CallError {
    pub(super) word: &'static str,
    pub(super) why: String,
}

impl CallError {
    fn new(word: &'static str, why: impl Into<String>) -> CallError {
        CallError { word, why: why.into() }
    }

    /// The 500 of a webhook whose failures are not ignored.
    pub(super) fn into_api_error(self, webhook: &Webhook) -> ApiError {
        let name = &webhook.name;
        let message = format!("failed calling webhook \"{name}\": failed to call webhook: {}: {}", self.word, self.why);
        let cause = Cause::new(self.word, "", self.why);
        ApiError::new(500, "InternalError", format!("Internal error occurred: {message}")).with_cause(cause)
    }
}

/// Where a webhook listens.
struct Place {
    target: DialTarget,
    /// Name that its certificate must hold.
    server_name: String,
    /// `Host` header.
    host: String,
    path: String,
}

/// TLS settings by CA bundle, so that a certificate store is built once.
#[derive(Default)]
pub(super) struct Caller {
    tls: Mutex<HashMap<String, Arc<rustls::ClientConfig>>>,
}

impl Caller {
    /// Asks one webhook. The whole exchange ends with the webhook's timeout.
    pub(super) async fn call(
        &self,
        webhook: &Webhook,
        attributes: &Attributes,
        cluster: &Cluster,
        is_mutating: bool,
    ) -> Result<Verdict, CallError> {
        let timeout = Duration::from_secs(webhook.timeout_seconds());
        // Whoever waits for the timeout has the refusal by then.
        let deadline = Instant::now() + timeout.saturating_sub(limits::WEBHOOK_REFUSAL_MARGIN);
        let uid = uuid::Uuid::new_v4().to_string();
        let question = review::question(webhook, attributes, &uid).map_err(|why| CallError::new("WebhookInvalid", why))?;
        let place = find(&webhook.client_config, cluster).await?;
        let tls = self.tls(&webhook.client_config.ca_bundle)?;
        let answer = exchange(&place, tls, &question, webhook, &uid, deadline, cluster).await;
        if let Err(error) = &answer {
            warn!(webhook = webhook.name, uid, code = error.word, why = error.why, "webhook call failed");
        }
        review::verdict(&question, &answer?, is_mutating).map_err(|why| CallError::new("WebhookInvalidAnswer", why))
    }

    fn tls(&self, ca_bundle: &str) -> Result<Arc<rustls::ClientConfig>, CallError> {
        let mut known = self.tls.lock();
        if let Some(config) = known.get(ca_bundle) {
            return Ok(config.clone());
        }
        let invalid = |why: String| CallError::new("WebhookInvalid", format!("clientConfig.caBundle: {why}"));
        let pem = STANDARD.decode(ca_bundle).map_err(|e| invalid(e.to_string()))?;
        let mut roots = rustls::RootCertStore::empty();
        let pem = String::from_utf8(pem).map_err(|e| invalid(e.to_string()))?;
        for certificate in atoll_pki::certificates_of_pem(&pem).map_err(|e| invalid(e.to_string()))? {
            roots.add(certificate).map_err(|e| invalid(e.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        if known.len() >= limits::WEBHOOK_TLS_CONFIGS_MAX {
            known.clear();
        }
        known.insert(ca_bundle.to_owned(), config.clone());
        Ok(config)
    }
}

async fn find(config: &ClientConfig, cluster: &Cluster) -> Result<Place, CallError> {
    if let Some(service) = &config.service {
        return find_service(service, cluster).await;
    }
    let invalid = |why: &str| CallError::new("WebhookInvalid", format!("clientConfig.url: {why}"));
    let url = config.url.as_deref().ok_or_else(|| invalid("neither url nor service is set"))?;
    let uri: http::Uri = url.parse().map_err(|_| invalid("not a URL"))?;
    let host = uri.host().ok_or_else(|| invalid("has no host"))?.trim_matches(['[', ']']).to_owned();
    if uri.scheme_str() != Some("https") {
        return Err(invalid("must begin with https://"));
    }
    Ok(Place {
        target: DialTarget { host: host.clone(), port: uri.port_u16().unwrap_or(443), node: None },
        server_name: host,
        host: uri.authority().map(ToString::to_string).unwrap_or_default(),
        path: uri.path().to_owned(),
    })
}

/// A ready endpoint of the Service; its certificate is checked against `SERVICE.NAMESPACE.svc`.
async fn find_service(service: &ServiceReference, cluster: &Cluster) -> Result<Place, CallError> {
    let (namespace, name) = (&service.namespace, &service.name);
    let wanted = service.port.unwrap_or(443);
    let failed = |e: ApiError| CallError::new("WebhookNoEndpoint", e.message);
    let object = cluster
        .get(Resource::core("services"), namespace, name)
        .await
        .map_err(failed)?
        .ok_or_else(|| CallError::new("WebhookNoEndpoint", format!("service \"{namespace}/{name}\" not found")))?;
    let port = object["spec"]["ports"].as_array().into_iter().flatten().find(|p| p["port"] == wanted);
    let port =
        port.ok_or_else(|| CallError::new("WebhookNoEndpoint", format!("service \"{namespace}/{name}\" has no port {wanted}")))?;
    let port_name = port["name"].as_str().unwrap_or_default();
    let slices = cluster.list(Resource::new("discovery.k8s.io", "endpointslices"), namespace).await.map_err(failed)?;
    let mut ready = Vec::new();
    for slice in slices.items.iter().filter(|s| s["metadata"]["labels"]["kubernetes.io/service-name"] == name.as_str()) {
        let number = slice["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|p| (p["name"].as_str().unwrap_or_default() == port_name).then(|| p["port"].as_u64())?);
        let Some(number) = number.and_then(|n| u16::try_from(n).ok()) else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            // Absent means ready.
            if endpoint["conditions"]["ready"].as_bool().unwrap_or(true)
                && let Some(address) = endpoint["addresses"][0].as_str()
            {
                let node = endpoint["nodeName"].as_str().map(str::to_owned);
                ready.push(DialTarget { host: address.to_owned(), port: number, node });
            }
        }
    }
    if ready.is_empty() {
        let why = format!("no endpoints available for service \"{namespace}/{name}\"");
        return Err(CallError::new("WebhookNoEndpoint", why));
    }
    let target = ready.swap_remove(rand::random_range(0..ready.len()));
    let host = format!("{name}.{namespace}.svc");
    let path = service.path.clone().unwrap_or_else(|| "/".to_owned());
    Ok(Place { target, server_name: host.clone(), host: format!("{host}:{wanted}"), path })
}

async fn exchange(
    place: &Place,
    tls: Arc<rustls::ClientConfig>,
    question: &Value,
    webhook: &Webhook,
    uid: &str,
    deadline: Instant,
    cluster: &Cluster,
) -> Result<Bytes, CallError> {
    let post = format!(" (Post \"https://{}{}\")", place.host, place.path);
    let dialed = cluster.dialer().dial(&place.target, deadline).await.map_err(|e| unreachable(&e, &post))?;
    let address = format!("{}:{}", place.target.host, place.target.port);
    info!(uid, dial_id = dialed.dial_id, webhook = webhook.name, address, "calling webhook");
    let talk = talk(dialed.io, place, tls, question, webhook.timeout_seconds());
    let answer = tokio::time::timeout_at(deadline.into(), talk).await.unwrap_or_else(|_| {
        let why = format!("{address} was connected but did not answer within {} s{post}", webhook.timeout_seconds());
        Err(CallError::new("WebhookNoAnswer", why))
    });
    // A webhook is not to blame for the line to it.
    answer.map_err(|error| match dialed.line.and_then(|line| line.fault()) {
        Some(fault) => unreachable(&fault, &post),
        None => error,
    })
}

fn unreachable(error: &DialError, post: &str) -> CallError {
    CallError::new(error.code_word(), format!("{error}{post}"))
}

async fn talk(
    io: crate::egress::BoxedIo,
    place: &Place,
    tls: Arc<rustls::ClientConfig>,
    question: &Value,
    timeout_seconds: u64,
) -> Result<Bytes, CallError> {
    let failed = |what: &str, why: String| CallError::new("WebhookFailed", format!("{what} https://{}: {why}", place.host));
    let name = ServerName::try_from(place.server_name.clone()).map_err(|e| failed("name of", e.to_string()))?;
    let stream = tokio_rustls::TlsConnector::from(tls).connect(name, io).await.map_err(|e| failed("TLS with", e.to_string()))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed("HTTP with", e.to_string()))?;
    let connection = tokio::spawn(connection);
    let body = serde_json::to_vec(question).map_err(|e| failed("body for", e.to_string()))?;
    let separator = if place.path.contains('?') { '&' } else { '?' };
    let request = http::Request::post(format!("{}{separator}timeout={timeout_seconds}s", place.path))
        .header("host", &place.host)
        .header("content-type", "application/json")
        .header("accept", "application/json, */*")
        .header("user-agent", "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| failed("request for", e.to_string()))?;
    let response = sender.send_request(request).await.map_err(|e| failed("request to", e.to_string()))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), limits::WEBHOOK_ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|e| failed("answer of", e.to_string()))?
        .to_bytes();
    connection.abort();
    if status.is_success() {
        return Ok(body);
    }
    let shown: String = String::from_utf8_lossy(&body).chars().take(limits::WEBHOOK_ERROR_CHARS_MAX).collect();
    Err(failed("answer of", format!("status {status}: {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_code_word_once_and_as_reason_of_a_cause() {
        let webhook: Webhook =
            serde_json::from_value(serde_json::json!({ "name": "w.example.com", "clientConfig": {} })).expect("a webhook");
        let error = unreachable(&DialError::TunnelNoAgent, " (Post \"https://s.n.svc:443/\")").into_api_error(&webhook);
        assert_eq!(
            error.message,
            "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: \
             TunnelNoAgent: no tunnel agent is connected (Post \"https://s.n.svc:443/\")"
        );
        let causes = error.details.expect("details").causes;
        assert_eq!(causes.iter().map(|c| c.reason.as_str()).collect::<Vec<_>>(), ["TunnelNoAgent"]);
    }
}
