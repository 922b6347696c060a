//! The HTTP client of probes and hooks: one request, one connection, no check of certificates (as the kubelet's).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The status code of a GET.
pub async fn get(host: &str, port: u16, path: &str, tls: bool, headers: &BTreeMap<String, String>) -> Result<u16, String> {
    let address = format!("{host}:{port}");
    let failed = |e: &dyn std::fmt::Display| format!("Get \"{}://{address}{path}\": {e}", if tls { "https" } else { "http" });
    let stream = TcpStream::connect(&address).await.map_err(|e| failed(&format!("dial tcp {address}: {e}")))?;
    let mut request = http::Request::get(path).header("user-agent", "kube-probe/1.36").header("accept", "*/*");
    if !headers.keys().any(|k| k.eq_ignore_ascii_case("host")) {
        request = request.header("host", &address);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.header("connection", "close").body(Empty::<Bytes>::new()).map_err(|e| failed(&e))?;
    if !tls {
        return send(stream, request).await.map_err(|e| failed(&e));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|e| failed(&e))?;
    let stream = connector().connect(name, stream).await.map_err(|e| failed(&e))?;
    send(stream, request).await.map_err(|e| failed(&e))
}

async fn send<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<u16, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    connection.abort();
    Ok(answer?.status().as_u16())
}

fn connector() -> TlsConnector {
    static CONFIG: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let mut config = rustls::ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::in_memory_sessions(64);
        Arc::new(config)
    });
    TlsConnector::from(config.clone())
}

/// A probe asks whether the program answers, not who it is.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
