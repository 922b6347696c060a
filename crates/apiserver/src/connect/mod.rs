//! Streams into the cluster: logs, exec, attach and port-forward at the Pod's kubelet; proxies to nodes, Pods and Services.
//!
//! The answer of what was reached is passed on as it comes, upgrades included. Everything is dialled through the dialer.

mod relay;
mod target;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::error::{ApiError, Cause, Result};
use crate::http_types::{Body, full};
use crate::limits;
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::write;
use target::Target;

/// Headers that are the caller's business with this server, not with what it reaches.
const PRIVATE_HEADERS: [HeaderName; 3] = [header::AUTHORIZATION, header::HOST, header::COOKIE];

/// Answers a request for a connect subresource.
pub(crate) async fn serve(core: &Arc<Core>, call: &Call, parts: Parts, body: Body) -> Result<Response<Body>> {
    if call.info.subresource == "log" {
        check_log_options(call)?;
    }
    let Some(target) = target::find(core, call).await? else {
        // A Pod that no node has yet has nothing to say.
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    admit(core, call).await?;
    let request = request_for(&target, parts, body)?;
    let response = relay::send(core, &target, request).await?;
    if call.info.subresource == "log" && !matches!(response.status().as_u16(), 200..=206) {
        return Err(refused_log(call, response).await);
    }
    Ok(response)
}

/// A node's refusal of a log in the API's form: its words, where it has some.
async fn refused_log(call: &Call, response: Response<Body>) -> ApiError {
    let status = response.status();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend(frame.into_data().unwrap_or_default());
        if bytes.len() >= limits::NODE_REFUSAL_BYTES {
            bytes.truncate(limits::NODE_REFUSAL_BYTES);
            break;
        }
    }
    let words = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(words),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(words),
        StatusCode::NOT_FOUND => {
            let mut error = ApiError::not_found(call.group_resource(), &call.info.name);
            if let Some(details) = &mut error.details {
                details.causes = vec![Cause::new("UnexpectedServerResponse", "", words)];
            }
            error
        }
        _ => ApiError::unavailable(words),
    }
}

async fn admit(core: &Core, call: &Call) -> Result<()> {
    if call.info.subresource == "log" {
        return Ok(());
    }
    let options = json!({ "kind": call.subresource().map(|s| s.kind.clone()), "apiVersion": "v1" });
    let mut attributes = write::attributes(call, Operation::Connect, &call.info.name, options, None, false);
    core.admission.admit(&mut attributes, core).await?;
    core.admission.validate(&attributes, core).await
}

fn check_log_options(call: &Call) -> Result<()> {
    let mut causes = Vec::new();
    for (key, least) in [("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)] {
        if let Some(number) = call.query.number(key)?.filter(|n| *n < least) {
            let message = format!("Invalid value: {number}: must be greater than or equal to {least}");
            causes.push(Cause::new("FieldValueInvalid", key, message));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "PodLogOptions", &call.info.name, causes)) }
}

fn request_for(target: &Target, mut parts: Parts, body: Body) -> Result<Request<Body>> {
    for name in PRIVATE_HEADERS {
        parts.headers.remove(name);
    }
    let impersonation: Vec<HeaderName> =
        parts.headers.keys().filter(|k| k.as_str().starts_with("impersonate-")).cloned().collect();
    for name in impersonation {
        parts.headers.remove(name);
    }
    let host = format!("{}:{}", target.dial.host, target.dial.port);
    parts.headers.insert(header::HOST, host.parse().map_err(ApiError::internal)?);
    parts.uri = target.path.parse().map_err(ApiError::bad_request_of)?;
    parts.version = http::Version::HTTP_11;
    Ok(Request::from_parts(parts, body))
}

/// The failure to reach something inside the cluster, with its code word as reason of a cause.
pub(crate) fn unreachable(error: &crate::egress::DialError) -> ApiError {
    let word = error.code_word();
    ApiError::new(503, "ServiceUnavailable", format!("error dialing backend: {word}: {error}")).with_cause(Cause::new(
        word,
        "",
        error.to_string(),
    ))
}

/// The text at a pointer of an object.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reached_is_named_once() {
        let error = unreachable(&crate::egress::DialError::TunnelNoAgent);
        assert_eq!(error.message, "error dialing backend: TunnelNoAgent: no tunnel agent is connected");
        assert_eq!(error.details.expect("details").causes[0].reason, "TunnelNoAgent");
    }
}
