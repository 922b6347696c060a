//! Bodies and responses.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

use crate::error::ApiError;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of requests and responses.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const TEXT: &str = "text/plain; charset=utf-8";

/// A body of known bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A whole answer.
pub fn answer(code: u16, media_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(media_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

/// A JSON answer.
pub fn json_answer(code: u16, value: &serde_json::Value) -> Response<Body> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    answer(code, JSON, bytes)
}

/// The answer of a request that failed.
pub fn error_answer(error: &ApiError) -> Response<Body> {
    if error.is_no_such_path() {
        return answer(404, TEXT, format!("{error}\n"));
    }
    let mut response = json_answer(error.code, &error.to_status());
    if let Some(seconds) = error.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
