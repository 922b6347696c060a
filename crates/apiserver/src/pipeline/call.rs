//! An authorized request for a resource: what every verb needs to know of it.

use std::sync::Arc;

use atoll_kube_schema::{Registry, ResourceDef, SubresourceDef};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;

use super::Authorized;
use crate::auth::UserInfo;
use crate::error::{ApiError, Cause, GroupResource, Result};
use crate::http_types::Body;
use crate::limits;
use crate::negotiate::{self, Accepted, Offer};
use crate::request::{Query, RequestInfo};
use crate::warnings::Warnings;

/// A request for a resource of the registry.
pub(crate) struct Call {
    pub info: RequestInfo,
    pub query: Query,
    pub headers: HeaderMap,
    pub user: UserInfo,
    pub warnings: Warnings,
    pub def: Arc<ResourceDef>,
    pub registry: Registry,
    pub accepted: Accepted,
}

impl Call {
    /// Finds the row and checks that this verb is served at this path.
    pub fn resolve(authorized: Authorized, registry: Registry) -> Result<(Call, http::request::Parts, Body)> {
        let Authorized { parsed, user, .. } = authorized;
        let info = parsed.info;
        let def = registry.get(&info.group, &info.version, &info.resource).ok_or_else(ApiError::no_such_path)?.clone();
        check_route(&def, &info)?;
        let offer = Offer {
            protobuf: !def.is_custom(),
            views: info.subresource.is_empty(),
            list: info.verb == "list",
            watch: info.verb == "watch",
        };
        let accepted = if info.is_connect() { Accepted::JSON } else { negotiate::accept(&parsed.parts.headers, offer)? };
        if let Some(text) = &def.deprecation_warning {
            parsed.warnings.add(text.as_str());
        }
        let call = Call {
            info,
            query: parsed.query,
            headers: parsed.parts.headers.clone(),
            user,
            warnings: parsed.warnings,
            def,
            registry,
            accepted,
        };
        Ok((call, parsed.parts, parsed.body))
    }

    /// The same request about another endpoint: what a subresource does to its parent.
    pub fn on_row(&self, def: Arc<ResourceDef>, name: &str, subresource: &str) -> Call {
        let mut info = self.info.clone();
        name.clone_into(&mut info.name);
        subresource.clone_into(&mut info.subresource);
        Call {
            info,
            query: self.query.clone(),
            headers: self.headers.clone(),
            user: self.user.clone(),
            warnings: self.warnings.clone(),
            def,
            registry: self.registry.clone(),
            accepted: self.accepted,
        }
    }

    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource { group: &self.def.group, resource: &self.def.plural }
    }

    pub fn subresource(&self) -> Option<&SubresourceDef> {
        self.def.subresource(&self.info.subresource)
    }

    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(self.group_resource(), &self.info.name)
    }

    pub fn key(&self, name: &str) -> String {
        crate::objects::key_of(&self.def, &self.info.namespace, name)
    }

    /// Whether the write is to be tried only: `dryRun=All`, once or more; anything else is a 422 of `options_kind`.
    pub fn dry_run(&self, options_kind: &str) -> Result<bool> {
        let wrong = self.query.all("dryRun").find(|v| *v != "All");
        if let Some(wrong) = wrong {
            let cause = Cause::new(
                "FieldValueNotSupported",
                "dryRun",
                format!("Unsupported value: \"{wrong}\": supported values: \"All\""),
            );
            return Err(ApiError::invalid("meta.k8s.io", options_kind, "", vec![cause]));
        }
        Ok(self.query.get("dryRun").is_some())
    }
}

fn check_route(def: &ResourceDef, info: &RequestInfo) -> Result<()> {
    let is_namespace_itself = def.group.is_empty() && def.plural == "namespaces";
    if !def.namespaced && !info.namespace.is_empty() && !is_namespace_itself {
        return Err(ApiError::no_such_path());
    }
    let across = def.namespaced && info.namespace.is_empty();
    if across && !info.name.is_empty() {
        return Err(ApiError::no_such_path());
    }
    if !info.rest.is_empty() && info.subresource != "proxy" {
        return Err(ApiError::no_such_path());
    }
    let serves = if info.subresource.is_empty() {
        let needs_name = matches!(info.verb.as_str(), "get" | "update" | "patch" | "delete");
        let matches_shape = match info.verb.as_str() {
            "create" | "list" | "deletecollection" => info.name.is_empty(),
            "watch" => true,
            _ => !needs_name || !info.name.is_empty(),
        };
        def.has_verb(&info.verb) && matches_shape && (!across || matches!(info.verb.as_str(), "list" | "watch") || !def.is_stored)
    } else {
        let row = def.subresource(&info.subresource).ok_or_else(ApiError::no_such_path)?;
        row.verbs.contains(&info.verb)
    };
    if serves { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}

/// Reads a request's body within the bounds.
pub(crate) async fn read_body(body: Body) -> Result<Bytes> {
    match tokio::time::timeout(limits::BODY_READ_TIMEOUT, collect(body)).await {
        Err(_) => Err(ApiError::timeout("the body of the request did not arrive in time")),
        Ok(outcome) => outcome,
    }
}

async fn collect(mut body: Body) -> Result<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::bad_request(format!("cannot read the body of the request: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limits::BODY_BYTES_MAX {
            return Err(ApiError::too_large(format!("Request entity too large: limit is {}", limits::BODY_BYTES_MAX)));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
