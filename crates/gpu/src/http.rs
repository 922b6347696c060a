//! A small HTTP server: HTTP/1.1 and 2, with or without TLS, bounded in connections, time and body size.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::limits;

/// What a handler answers with.
pub type Answer = Response<Full<Bytes>>;

/// Answers requests.
#[async_trait::async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    async fn answer(&self, request: Request<Incoming>) -> Answer;
}

/// How connections are secured.
#[derive(Clone)]
pub enum Security {
    /// Not at all.
    Plain,
    /// TLS.
    Tls(Arc<rustls::ServerConfig>),
}

/// A text answer.
pub fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body.into().into_bytes())
}

/// A JSON answer.
pub fn json(body: &serde_json::Value) -> Answer {
    answer(StatusCode::OK, "application/json", body.to_string().into_bytes())
}

fn answer(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}

/// Reads a body within the limits, or the answer that says why not.
pub async fn body(request: Request<Incoming>) -> Result<Bytes, Answer> {
    let limited = Limited::new(request.into_body(), limits::BODY_BYTES_MAX);
    match tokio::time::timeout(limits::BODY_TIMEOUT, limited.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(text(StatusCode::PAYLOAD_TOO_LARGE, format!("more than {} bytes", limits::BODY_BYTES_MAX)))
        }
        Ok(Err(error)) => Err(text(StatusCode::BAD_REQUEST, error.to_string())),
        Err(_) => Err(text(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

/// Serves until `shutdown` resolves, then lets requests under way end.
pub async fn serve(
    listener: TcpListener,
    security: Security,
    handler: Arc<dyn Handler>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let connections = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (security, handler, watcher) = (security.clone(), handler.clone(), graceful.watcher());
        tokio::spawn(async move {
            connection(stream, security, handler, watcher).await;
            drop(permit);
        });
    }
    let _ = tokio::time::timeout(limits::DRAIN_TIMEOUT, graceful.shutdown()).await;
}

type Watcher = hyper_util::server::graceful::Watcher;

async fn connection(stream: TcpStream, security: Security, handler: Arc<dyn Handler>, watcher: Watcher) {
    let _ = stream.set_nodelay(true);
    match security {
        Security::Plain => speak(stream, handler, watcher).await,
        Security::Tls(config) => {
            match tokio::time::timeout(limits::HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await {
                Ok(Ok(stream)) => speak(stream, handler, watcher).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
                Err(_) => tracing::debug!("TLS handshake took too long"),
            }
        }
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, handler: Arc<dyn Handler>, watcher: Watcher) {
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, std::convert::Infallible>(handler.answer(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits::HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(64);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended");
    }
}
