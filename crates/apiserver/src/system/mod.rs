//! What is not a resource: versions, health, discovery, documents.

mod discovery;
mod health;
mod issuer;
mod openapi;
mod version;

use std::sync::Arc;

use http::{Method, Response};

use crate::error::{ApiError, Result};
use crate::http_types::{Body, JSON, TEXT, answer, json_answer};
use crate::negotiate::{self, Encoding, Offer};
use crate::pipeline::Authorized;
use crate::server::Core;

const PATHS: [&str; 9] = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"];

pub(crate) async fn serve(core: &Arc<Core>, authorized: Authorized) -> Result<Response<Body>> {
    let parsed = authorized.parsed;
    let path = parsed.info.path.trim_end_matches('/').to_owned();
    if !matches!(parsed.parts.method.as_str(), "GET" | "HEAD") {
        return Err(if is_served(&path) { ApiError::method_not_allowed() } else { ApiError::no_such_path() });
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        [] | [""] => Ok(json_answer(200, &serde_json::json!({ "paths": PATHS }))),
        ["version"] => Ok(json_answer(200, &version::document())),
        ["healthz" | "livez" | "readyz", ..] => Ok(health::serve(core, &segments, &parsed.query)),
        // Of a version that is not served, upstream's resource handler speaks; of all else nobody.
        ["api", version] if core.registry().group("").is_none_or(|g| g.versions.iter().all(|(v, _)| v != version)) => {
            Err(ApiError::new(404, "NotFound", "the server could not find the requested resource"))
        }
        ["api" | "apis", ..] => documented(discovery::serve(&core.registry(), &segments, &parsed.parts.headers)?, &parsed),
        ["openapi", ..] => openapi::serve(&core.registry(), &segments, &parsed.query, &parsed.parts.headers),
        [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => issuer::serve(core, &segments, &parsed),
        ["metrics"] => Ok(answer(200, TEXT, "")),
        _ => Err(ApiError::no_such_path()),
    }
}

fn is_served(path: &str) -> bool {
    path == "/version" || PATHS.contains(&path)
}

/// Answers with a discovery document in the encoding asked for.
fn documented(document: discovery::Document, parsed: &crate::pipeline::Parsed) -> Result<Response<Body>> {
    let offer = Offer { protobuf: false, views: false, watch: false, list: false };
    let bytes = |value: &serde_json::Value| serde_json::to_vec(value).map_err(ApiError::internal);
    if let Some(media_type) = document.media_type {
        return Ok(answer(200, media_type, bytes(&document.value)?));
    }
    debug_assert!(parsed.parts.method != Method::POST);
    match negotiate::accept(&parsed.parts.headers, offer)?.encoding {
        Encoding::Yaml => Ok(answer(200, Encoding::Yaml.media_type(), crate::encoding::yaml(&document.value)?)),
        _ => Ok(answer(200, JSON, bytes(&document.value)?)),
    }
}
