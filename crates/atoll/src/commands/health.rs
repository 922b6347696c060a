//! `/healthz` and `/readyz` of roles that serve nothing else.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections that are answered at once.
const CONNECTIONS_MAX: usize = 16;

/// Serves for ever: `/healthz` is 200 while the process lives, `/readyz` while `is_ready` holds.
pub async fn serve(listener: TcpListener, is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static) {
    let places = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let is_ready = is_ready.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let status = match request.uri().path() {
                    "/healthz" | "/livez" => StatusCode::OK,
                    "/readyz" if is_ready() => StatusCode::OK,
                    "/readyz" => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::NOT_FOUND,
                };
                let text = if status.is_success() { "ok" } else { "not ok" };
                let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
                *response.status_mut() = status;
                async move { Ok::<_, Infallible>(response) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(place);
        });
    }
}
