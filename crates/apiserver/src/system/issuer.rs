//! Documents by which others verify this cluster's service-account tokens (OpenID Connect discovery).

use http::{HeaderValue, Response, header};

use crate::error::{ApiError, Result};
use crate::http_types::{Body, JSON, answer};
use crate::pipeline::Parsed;
use crate::server::Core;

const KEY_SET: &str = "application/jwk-set+json";

pub(super) fn serve(core: &Core, segments: &[&str], parsed: &Parsed) -> Result<Response<Body>> {
    let Some(tokens) = &core.authenticators.tokens else { return Err(ApiError::no_such_path()) };
    let tokens = &tokens.service_accounts;
    let (media_type, document) = match segments {
        ["openid", ..] => (KEY_SET, tokens.key_set()),
        _ => (JSON, tokens.discovery_document(&format!("https://{}", host(&parsed.parts)))),
    };
    let mut response = answer(200, media_type, serde_json::to_vec(&document).map_err(ApiError::internal)?);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}

/// The server as the client knows it.
fn host(parts: &http::request::Parts) -> &str {
    let named = parts.headers.get(header::HOST).and_then(|v| v.to_str().ok());
    parts.uri.authority().map(|a| a.as_str()).or(named).unwrap_or("kubernetes.default.svc")
}
