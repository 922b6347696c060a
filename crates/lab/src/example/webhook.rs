//! An admission webhook that stamps annotations, or holds what it is asked for a while.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atoll_pki::{CertificateAuthority, LeafSpec, Usages, certificates_of_pem};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::api::PostParams;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, api::DynamicObject};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

/// Largest question.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Questions at once.
const CONNECTIONS_MAX: usize = 256;

/// What the webhook is told.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub annotate: Vec<(String, String)>,
    pub hold: Duration,
    pub listen: SocketAddr,
    /// Names and addresses of the certificate.
    pub names: Vec<String>,
    /// `mutating/NAME` or `validating/NAME`: configurations whose caBundles are to be ours.
    pub register: Vec<String>,
}

/// Why the webhook cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Pki(#[from] atoll_pki::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error("{0:?} is neither mutating/NAME nor validating/NAME")]
    Registration(String),
    #[error("cannot register with {0}: {1}")]
    Api(String, Box<kube::Error>),
}

/// Serves until `shutdown` resolves.
pub async fn run(options: WebhookOptions, client: Option<Client>, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let now = jiff::Timestamp::now();
    let ca = CertificateAuthority::generate("atoll-example-webhook", now)?;
    let tls = server_config(&ca, &options.names, now)?;
    let listener = TcpListener::bind(options.listen).await.map_err(|e| Error::Listen(options.listen, e))?;
    if let Some(client) = client {
        for target in &options.register {
            register(&client, target, ca.certificate_pem()).await?;
        }
    }
    info!(listen = %options.listen, "example webhook serves");
    tokio::select! {
        () = accept(listener, TlsAcceptor::from(tls), Arc::new(options)) => {}
        () = shutdown => {}
    }
    Ok(())
}

fn server_config(ca: &CertificateAuthority, names: &[String], now: jiff::Timestamp) -> Result<Arc<rustls::ServerConfig>, Error> {
    let spec = LeafSpec {
        common_name: "example-webhook",
        organizations: &[],
        names,
        usages: Usages::SERVER,
        ttl: atoll_pki::limits::LEAF_TTL,
    };
    let pair = ca.issue(&spec, now)?;
    let chain = certificates_of_pem(&pair.certificate_pem)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())
        .map_err(|e| rustls::Error::General(format!("the key that was just made does not parse: {e:?}")))?;
    Ok(Arc::new(rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?))
}

/// Writes our authority into every webhook of a configuration.
async fn register(client: &Client, target: &str, ca_pem: &str) -> Result<(), Error> {
    let (kind, name) = match target.split_once('/') {
        Some(("mutating", name)) => ("MutatingWebhookConfiguration", name),
        Some(("validating", name)) => ("ValidatingWebhookConfiguration", name),
        _ => return Err(Error::Registration(target.to_owned())),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let failed = |e: kube::Error| Error::Api(target.to_owned(), Box::new(e));
    let mut object = api.get(name).await.map_err(failed)?;
    let bundle = STANDARD.encode(ca_pem);
    for webhook in object.data["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["clientConfig"]["caBundle"] = json!(bundle);
    }
    // With the revision that was read: a concurrent change is an error here, not a change undone.
    api.replace(name, &PostParams::default(), &object).await.map_err(failed)?;
    Ok(())
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, options: Arc<WebhookOptions>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, options) = (acceptor.clone(), options.clone());
        tokio::spawn(async move {
            let _place = place;
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| {
                let options = options.clone();
                async move { Ok::<_, Infallible>(answer(request, &options).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, options: &WebhookOptions) -> Response<Full<Bytes>> {
    let reply = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    };
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return reply(StatusCode::OK, "ok".to_owned());
    }
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return reply(StatusCode::BAD_REQUEST, format!("the question could not be read: {error}")),
    };
    let Ok(review) = serde_json::from_slice::<Value>(&body) else {
        warn!("a question that is no AdmissionReview");
        return reply(StatusCode::BAD_REQUEST, "the question is not an AdmissionReview in JSON".to_owned());
    };
    println!("AdmissionReview uid={}", review["request"]["uid"].as_str().unwrap_or_default());
    tokio::time::sleep(options.hold).await;
    reply(StatusCode::OK, respond(&review, &options.annotate).to_string())
}

/// Allows what it is asked and stamps it.
fn respond(review: &Value, annotate: &[(String, String)]) -> Value {
    let request = &review["request"];
    let mut response = json!({ "uid": request["uid"], "allowed": true });
    if !annotate.is_empty() && request["object"].is_object() {
        let mut annotations = request["object"]["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        annotations.extend(annotate.iter().map(|(k, v)| (k.clone(), json!(v))));
        let patch = json!([{ "op": "add", "path": "/metadata/annotations", "value": annotations }]);
        response["patch"] = json!(STANDARD.encode(patch.to_string()));
        response["patchType"] = json!("JSONPatch");
    }
    json!({ "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_that_are_there_stay() {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "request": { "uid": "u", "object": { "metadata": { "annotations": { "a": "1" } } } },
        });
        let answer = respond(&review, &[("nonce".to_owned(), "x".to_owned())]);
        let patch = answer["response"]["patch"].as_str().expect("a patch");
        let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).expect("base64")).expect("JSON");
        assert_eq!(patch[0]["value"], json!({ "a": "1", "nonce": "x" }));
        assert_eq!(answer["response"]["uid"], "u");
        assert!(respond(&review, &[])["response"].get("patch").is_none());
    }
}
