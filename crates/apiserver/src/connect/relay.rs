//! Passing a request on and its answer back, upgraded connections included.

use std::sync::Arc;
use std::time::Instant;

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::target::{Scheme, Target};
use super::unreachable;
use crate::egress::BoxedIo;
use crate::error::{ApiError, Result};
use crate::http_types::{Body, full};
use crate::limits;
use crate::server::Core;

pub(super) async fn send(core: &Core, target: &Target, mut request: Request<Body>) -> Result<Response<Body>> {
    let dialed = core.dialer.dial(&target.dial, Instant::now() + limits::DIAL_TIMEOUT).await.map_err(|e| unreachable(&e))?;
    let io = secured(core, target, dialed.io).await?;
    let failed = |e: hyper::Error| ApiError::unavailable(format!("error trying to reach service: {e}"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await.map_err(failed)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a relayed connection ended");
        }
    });
    let wants_upgrade = request.headers().contains_key(header::UPGRADE);
    let client = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
    let mut response = sender.send_request(request).await.map_err(failed)?;
    match client {
        Some(client) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let server = hyper::upgrade::on(&mut response);
            tokio::spawn(join(client, server));
            let (parts, _) = response.into_parts();
            Ok(Response::from_parts(parts, full("")))
        }
        _ => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
    }
}

/// Copies between two upgraded connections until both have ended.
async fn join(client: hyper::upgrade::OnUpgrade, server: hyper::upgrade::OnUpgrade) {
    let (client, server) = match tokio::try_join!(client, server) {
        Ok(pair) => pair,
        Err(error) => {
            tracing::debug!(%error, "an upgrade came to nothing");
            return;
        }
    };
    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
        tracing::debug!(%error, "a relayed stream ended");
    }
}

async fn secured(core: &Core, target: &Target, io: BoxedIo) -> Result<BoxedIo> {
    let config: Arc<rustls::ClientConfig> = match target.scheme {
        Scheme::Plain => return Ok(io),
        Scheme::Kubelet => core.kubelet_tls.clone(),
        Scheme::Unverified => return Err(ApiError::bad_request("https targets of a proxy are not supported")),
    };
    let name = ServerName::try_from(target.dial.host.clone()).map_err(ApiError::internal)?;
    let connect = TlsConnector::from(config).connect(name, io);
    match tokio::time::timeout(limits::TLS_HANDSHAKE_TIMEOUT, connect).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(ApiError::unavailable(format!("error dialing backend: {error}"))),
        Err(_) => Err(ApiError::unavailable("error dialing backend: the TLS handshake took too long")),
    }
}
