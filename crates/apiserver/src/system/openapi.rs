//! OpenAPI documents: rendered when asked for and not kept, with an ETag so that a client that has one need not ask for the body.

use atoll_kube_schema::{Registry, openapi};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{ApiError, Result};
use crate::http_types::{Body, JSON, TEXT, answer, full};
use crate::request::Query;

/// How long a client may keep a document that it asked for by its hash.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, immutable");

/// The document as protobuf, first under the name that answers have. Clients ask with the other one too, which is no valid media type.
const V2_PROTOBUF: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"];

pub fn serve(registry: &Registry, segments: &[&str], query: &Query, headers: &HeaderMap) -> Result<Response<Body>> {
    match segments {
        ["openapi", "v2"] => Ok(v2(registry, headers)),
        ["openapi", "v3"] => {
            let mut index = tagged(&openapi::v3_index(registry, &[]), None, headers);
            // Upstream writes the index without a word about its type.
            index.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
            Ok(index)
        }
        ["openapi", "v3", "api", version] => group(registry, "", version, query, headers),
        ["openapi", "v3", "apis", name, version] => group(registry, name, version, query, headers),
        _ => Err(ApiError::no_such_path()),
    }
}

/// An answer that says nothing but its code.
fn empty(code: u16) -> Response<Body> {
    let mut response = answer(code, JSON, Bytes::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

/// The document of all groups, as the first form of the `Accept` header that there is.
fn v2(registry: &Registry, headers: &HeaderMap) -> Response<Body> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).map_or("*/*", str::trim);
    let types = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    for media_type in types {
        if matches!(media_type, "" | "*/*" | "application/*" | JSON) {
            return tagged(&openapi::v2_document(registry), None, headers);
        }
        if V2_PROTOBUF.contains(&media_type) {
            let bytes = openapi::v2_protobuf(&openapi::v2_document(registry));
            return tagged_bytes(bytes, V2_PROTOBUF[0], None, headers);
        }
    }
    empty(406)
}

fn group(registry: &Registry, name: &str, version: &str, query: &Query, headers: &HeaderMap) -> Result<Response<Body>> {
    let is_served = registry.group(name).is_some_and(|g| g.versions.iter().any(|(v, _)| v == version));
    if !is_served {
        return Ok(empty(404));
    }
    let hash = openapi::v3_hash(registry, name, version);
    let asked = query.text("hash");
    if !asked.is_empty() && asked != hash {
        // The client's index is old: it is sent to where the document is now.
        let location = format!("/openapi/v3/{}?hash={hash}", openapi::root_path(name, version));
        let mut response = answer(301, JSON, Bytes::new());
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(&location).map_err(ApiError::internal)?);
        return Ok(response);
    }
    let document = openapi::v3_document(registry, name, version).ok_or_else(ApiError::no_such_path)?;
    let mut response = tagged(&document, Some(&hash), headers);
    if !asked.is_empty() {
        response.headers_mut().insert(header::CACHE_CONTROL, IMMUTABLE);
    }
    Ok(response)
}

fn tagged(document: &Value, hash: Option<&str>, headers: &HeaderMap) -> Response<Body> {
    tagged_bytes(serde_json::to_vec(document).unwrap_or_default(), JSON, hash, headers)
}

fn tagged_bytes(bytes: Vec<u8>, media_type: &'static str, hash: Option<&str>, headers: &HeaderMap) -> Response<Body> {
    let hash = hash.map_or_else(|| Sha256::digest(&bytes)[..16].iter().map(|b| format!("{b:02X}")).collect(), str::to_owned);
    let tag = format!("\"{hash}\"");
    let is_known = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()).is_some_and(|known| known.contains(&tag));
    let mut response = answer(200, media_type, bytes);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = full(Bytes::new());
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
