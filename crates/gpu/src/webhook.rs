//! The admission webhook, `/webhook`: every replica serves, none needs the scheduler.

mod certificate;
mod mutate;
mod review;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

pub use certificate::{CertificateSource, SelfManaged};
pub use mutate::Rules;

use crate::error::{Error, Result};
use crate::http::{Answer, Handler, Security, body, json, serve, text};
use crate::limits;
use crate::tls::CurrentCertificate;

/// What the webhook is run with.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Address of the TLS listener; it serves `/webhook`, `/healthz` and `/readyz`.
    pub listen: SocketAddr,
    /// Address of a listener without TLS that serves `/healthz` and `/readyz` only.
    pub health_listen: Option<SocketAddr>,
    /// Where the certificate comes from.
    pub certificate: CertificateSource,
    /// The rules.
    pub rules: Rules,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            health_listen: Some(SocketAddr::from(([0, 0, 0, 0], 8081))),
            certificate: CertificateSource::SelfManaged(SelfManaged::default()),
            rules: Rules::default(),
        }
    }
}

struct Webhook {
    rules: Rules,
    /// The certificate is served and trusted by the API server.
    ready: Arc<AtomicBool>,
}

/// Serves until `shutdown` resolves.
pub async fn run(options: WebhookOptions, client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let bind = |address: SocketAddr| async move {
        TcpListener::bind(address).await.map_err(Error::io(format!("cannot listen on {address}")))
    };
    let current = Arc::new(CurrentCertificate::default());
    let ready = Arc::new(AtomicBool::new(false));
    let security = Security::Tls(current.server_config()?);
    let webhook = Arc::new(Webhook { rules: options.rules, ready: ready.clone() });
    let listener = bind(options.listen).await?;
    let (stop, stopped) = tokio::sync::watch::channel(());
    if let Some(address) = options.health_listen {
        let health = Arc::new(Health { ready: ready.clone() });
        let mut stopped = stopped.clone();
        let listener = bind(address).await?;
        tokio::spawn(async move { serve(listener, Security::Plain, health, async move { drop(stopped.changed().await) }).await });
    }
    crate::say(format_args!("webhook listening on {}", options.listen));
    // API servers call a Pod that is ending until they have seen that it is: those calls are answered too.
    let shutdown = async {
        shutdown.await;
        tokio::time::sleep(limits::LINGER).await;
    };
    let keep = keep_certificate(&options.certificate, &client, &current, &ready);
    tokio::select! {
        () = serve(listener, security, webhook, shutdown) => {}
        () = keep => {}
    }
    drop(stop);
    Ok(())
}

/// Never ends: looks after the certificate for as long as it is polled.
async fn keep_certificate(source: &CertificateSource, client: &kube::Client, current: &CurrentCertificate, ready: &AtomicBool) {
    loop {
        match refresh_once(source, client, current).await {
            Ok(()) => ready.store(true, Ordering::Relaxed),
            Err(error) => tracing::warn!(%error, "certificate is not up to date"),
        }
        // A certificate that could not be checked is served on: a short outage of the API server must not close admission.
        let done = ready.load(Ordering::Relaxed);
        let pause = if done { limits::CERTIFICATE_CHECK_PERIOD } else { limits::CERTIFICATE_RETRY_PERIOD };
        tokio::time::sleep(pause).await;
    }
}

pub(crate) use certificate::refresh as refresh_certificate;

async fn refresh_once(source: &CertificateSource, client: &kube::Client, current: &CurrentCertificate) -> Result<()> {
    if certificate::refresh(source, client, current).await? {
        tracing::info!("serving a new certificate");
    }
    Ok(())
}

fn health(path: &str, ready: &AtomicBool) -> Answer {
    match path {
        "/healthz" => text(StatusCode::OK, "ok"),
        "/readyz" if ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "no certificate that the API server trusts yet"),
        _ => text(StatusCode::NOT_FOUND, "not found"),
    }
}

struct Health {
    ready: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Handler for Health {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        health(request.uri().path(), &self.ready)
    }
}

#[async_trait::async_trait]
impl Handler for Webhook {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() != "/webhook" {
            return health(request.uri().path(), &self.ready);
        }
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "POST an AdmissionReview");
        }
        let body = match body(request).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        match review::answer(&body, &self.rules) {
            Ok(answer) => {
                let review::Answer { uid, operation, pod, allowed, .. } = &answer;
                // The line by which a call is followed from the API server's log to here.
                crate::say(format_args!("admission uid={uid} operation={operation} pod={pod} allowed={allowed}"));
                json(&answer.body)
            }
            Err(problem) => text(StatusCode::BAD_REQUEST, problem),
        }
    }
}
