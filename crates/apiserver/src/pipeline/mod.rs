//! The steps that every request takes, each a type that only the step before can make.
//!
//! `Parsed → Authenticated → Authorized` here; then, for a write, `Decoded → Mutated → Validated → Admitted` in [`draft`], and the
//! commit in `objects`, which takes nothing but `Admitted`.

pub(crate) mod call;
pub(crate) mod draft;

use std::sync::Arc;

use http::{HeaderValue, Request, Response};

use crate::auth::{Attributes, Decision, Peer, UserInfo, impersonation};
use crate::error::{ApiError, Result};
use crate::http_types::{self, Body};
use crate::request::{Query, RequestInfo};
use crate::server::Core;
use crate::warnings::Warnings;
use crate::{limits, resources, system};

/// Where a request comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A connection: who it is has to be found out.
    Network(Arc<Peer>),
    /// A component of this very process, with the identity it was given.
    InProcess(Arc<UserInfo>),
}

/// A request whose line was read.
pub(crate) struct Parsed {
    pub info: RequestInfo,
    pub query: Query,
    pub parts: http::request::Parts,
    pub body: Body,
    pub warnings: Warnings,
}

/// A request of a known user.
pub(crate) struct Authenticated {
    parsed: Parsed,
    user: UserInfo,
}

/// A request that its user may make.
pub(crate) struct Authorized {
    pub parsed: Parsed,
    pub user: UserInfo,
    // Nothing but `Authenticated::authorize` can write this.
    _permit: (),
}

impl Parsed {
    fn new(request: Request<Body>, warnings: Warnings) -> Result<Parsed> {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let info = RequestInfo::parse(&parts.method, &parts.uri, &query)?;
        Ok(Parsed { info, query, parts, body, warnings })
    }

    async fn authenticate(self, core: &Core, origin: &Origin) -> Result<Authenticated> {
        let user = match origin {
            Origin::InProcess(user) => (**user).clone(),
            Origin::Network(peer) => core.authenticators.authenticate(&self.parts, peer, core).await?,
        };
        let user = impersonation::apply(user, &self.parts.headers, &core.authorizers, core).await?;
        Ok(Authenticated { parsed: self, user })
    }
}

impl Authenticated {
    async fn authorize(self, core: &Core) -> Result<Authorized> {
        let attributes = attributes(&self.parsed, &self.user);
        match core.authorizers.authorize(&attributes, core).await {
            Decision::Allow(_) => Ok(Authorized { parsed: self.parsed, user: self.user, _permit: () }),
            Decision::Deny(why) | Decision::NoOpinion(why) => Err(attributes.refusal(&why)),
        }
    }
}

fn attributes(parsed: &Parsed, user: &UserInfo) -> Attributes {
    let info = &parsed.info;
    let selects = matches!(info.verb.as_str(), "list" | "watch" | "deletecollection");
    let selector = |key: &str| if selects { parsed.query.text(key).to_owned() } else { String::new() };
    // A list of one name is authorized as that name.
    let name = if selects && info.name.is_empty() { single_name(parsed.query.text("fieldSelector")) } else { info.name.clone() };
    Attributes {
        user: user.clone(),
        verb: info.verb.clone(),
        is_resource: info.is_resource,
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name,
        path: info.path.clone(),
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    }
}

/// The name in `metadata.name=NAME`, if that is what a field selector asks for.
fn single_name(selector: &str) -> String {
    selector
        .split(',')
        .find_map(|term| term.strip_prefix("metadata.name==").or_else(|| term.strip_prefix("metadata.name=")))
        .unwrap_or_default()
        .to_owned()
}

impl Core {
    /// Answers one request; a failure is an answer too.
    pub(crate) async fn handle(self: &Arc<Self>, request: Request<Body>, origin: Origin) -> Response<Body> {
        let warnings = Warnings::default();
        let audit_id = audit_id(&request);
        let mut response = match self.answer(request, &origin, warnings.clone()).await {
            Ok(response) => response,
            Err(error) => http_types::error_answer(&error),
        };
        let headers = response.headers_mut();
        headers.insert("audit-id", audit_id);
        headers.entry(http::header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        for text in warnings.texts() {
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append(http::header::WARNING, value);
            }
        }
        response
    }

    async fn answer(self: &Arc<Self>, request: Request<Body>, origin: &Origin, warnings: Warnings) -> Result<Response<Body>> {
        let parsed = Parsed::new(request, warnings)?;
        let authorized = parsed.authenticate(self, origin).await?.authorize(self).await?;
        if authorized.parsed.info.is_long_running() {
            return self.dispatch(authorized).await;
        }
        let timeout = timeout(&authorized.parsed.query)?;
        match tokio::time::timeout(timeout, self.dispatch(authorized)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ApiError::timeout("request did not complete within the allotted timeout")),
        }
    }

    async fn dispatch(self: &Arc<Self>, authorized: Authorized) -> Result<Response<Body>> {
        if authorized.parsed.info.is_resource {
            resources::serve(self, authorized).await
        } else {
            system::serve(self, authorized).await
        }
    }
}

/// The `timeout` parameter, bounded by [`limits::REQUEST_TIMEOUT`].
fn timeout(query: &Query) -> Result<std::time::Duration> {
    let Some(text) = query.get("timeout").filter(|t| !t.is_empty()) else { return Ok(limits::REQUEST_TIMEOUT) };
    let seconds: f64 = if let Some(ms) = text.strip_suffix("ms") {
        ms.parse::<f64>().map(|n| n / 1000.0).ok()
    } else if let Some(minutes) = text.strip_suffix('m') {
        minutes.parse::<f64>().map(|n| n * 60.0).ok()
    } else if let Some(seconds) = text.strip_suffix('s') {
        seconds.parse::<f64>().ok()
    } else if text == "0" {
        Some(0.0)
    } else {
        None
    }
    .filter(|s| s.is_finite() && *s >= 0.0)
    .ok_or_else(|| ApiError::bad_request(format!("invalid timeout {text:?} specified in the request URL")))?;
    if seconds == 0.0 {
        return Ok(limits::REQUEST_TIMEOUT);
    }
    Ok(std::time::Duration::from_secs_f64(seconds.min(limits::REQUEST_TIMEOUT.as_secs_f64())))
}

/// The id under which the audit log has the request: the client's own, if it sent one.
fn audit_id(request: &Request<Body>) -> HeaderValue {
    match request.headers().get("audit-id") {
        Some(id) if id.len() <= 64 => id.clone(),
        _ => HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).unwrap_or_else(|_| HeaderValue::from_static("")),
    }
}
