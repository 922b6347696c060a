//! Streams into the cluster: logs, exec, attach and port-forward at the Pod's kubelet; proxies to nodes, Pods and Services.
//!
//! The answer of what was reached is passed on as it comes, upgrades included. Everything is dialled through the dialer.

mod relay;
mod target;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::error::{ApiError, Cause, Result};
use crate::http_types::{Body, full};
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
    relay::send(core, &target, request).await
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
