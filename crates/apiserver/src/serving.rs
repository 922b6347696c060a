//! Connections: TLS, HTTP/1.1 and HTTP/2, their bounds, and stopping in good order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::DigitallySignedStruct;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::auth::Peer;
use crate::limits;
use crate::pipeline::Origin;
use crate::server::ApiServer;

/// Takes any client certificate whose key the client has: whether it is trusted is judged by authentication, which can say 401.
#[derive(Debug)]
struct PossessionOnly(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for PossessionOnly {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The TLS side of a server with this certificate chain and key, both PEM.
pub fn tls_config(certificate_pem: &str, key_pem: &str) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::Certificate(e.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|e| TlsError::Certificate(e.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(PossessionOnly(algorithms(&provider)));
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The TLS side of a client that trusts `ca_pem` and shows this certificate: how kubelets are called.
pub fn client_tls_config(ca_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    let certificates = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| TlsError::Certificate(e.to_string()))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(ca_pem)? {
        roots.add(certificate)?;
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|e| TlsError::Certificate(e.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(certificate_pem)?, key)?;
    Ok(Arc::new(config))
}

fn algorithms(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

/// Why a serving certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the serving certificate or its key cannot be read: {0}")]
    Certificate(String),
    #[error("the serving certificate cannot be used: {0}")]
    Config(#[from] rustls::Error),
}

/// Serves until `stop` resolves, then lets open requests finish for [`limits::SHUTDOWN_GRACE`].
pub async fn serve(server: ApiServer, listener: TcpListener, tls: Arc<rustls::ServerConfig>, stop: impl Future<Output = ()>) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let builder = Arc::new(builder());
    tokio::pin!(stop);
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = &mut stop => break,
        };
        let Ok(place) = place else { break };
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    backoff(&error).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let watcher = graceful.watcher();
        let (server, acceptor, builder) = (server.clone(), acceptor.clone(), builder.clone());
        tokio::spawn(async move {
            let _place = place;
            let Some((stream, peer)) = handshake(stream, address, &acceptor).await else { return };
            let service = service_fn(move |request: Request<Incoming>| {
                let (server, origin) = (server.clone(), Origin::Network(peer.clone()));
                async move {
                    let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
                    Ok::<_, std::convert::Infallible>(server.handle(request, origin).await)
                }
            });
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%address, %error, "a connection ended");
            }
        });
    }
    server.stopping();
    if tokio::time::timeout(limits::SHUTDOWN_GRACE, graceful.shutdown()).await.is_err() {
        tracing::info!("requests that were still open have been cut off");
    }
}

/// Out of file descriptors and the like: waiting is better than spinning.
async fn backoff(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(limits::ACCEPT_RETRY).await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits::HEADER_READ_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAMS_PER_CONNECTION_MAX)
        .keep_alive_interval(limits::HTTP2_PING_PERIOD)
        .keep_alive_timeout(limits::HTTP2_PING_TIMEOUT);
    builder
}

async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: &TlsAcceptor,
) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, Arc<Peer>)> {
    // Answers are written whole: waiting for more to send only adds latency.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%address, %error, "cannot set TCP_NODELAY");
    }
    match tokio::time::timeout(limits::TLS_HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificates = certificates.iter().map(|c| c.clone().into_owned()).collect();
            Some((stream, Arc::new(Peer::new(certificates, address))))
        }
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}
