//! Who calls the kubelet API, and whether they may: client certificate or TokenReview, then SubjectAccessReview.

use std::collections::BTreeMap;
use std::time::Instant;

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::limits;

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    pub user: String,
    pub groups: Vec<String>,
}

impl Caller {
    fn anonymous() -> Caller {
        Caller { user: "system:anonymous".to_owned(), groups: vec!["system:unauthenticated".to_owned()] }
    }
}

type Verdict = (Instant, bool);

/// Judges callers, remembering verdicts for a short while.
pub struct Gate {
    client: Client,
    node: String,
    client_ca: String,
    allowed: Mutex<BTreeMap<(Caller, &'static str, &'static str), Verdict>>,
}

/// A refusal: status code and text.
pub type Refusal = (StatusCode, String);

impl Gate {
    /// A gate of a node whose callers' certificates lead to `client_ca`.
    pub fn new(client: Client, node: String, client_ca: String) -> Gate {
        Gate { client, node, client_ca, allowed: Mutex::default() }
    }

    /// Lets the request through or says why not.
    pub async fn admit<B>(&self, request: &Request<B>, chain: &[CertificateDer<'_>]) -> Result<(), Refusal> {
        let caller = self.caller(request, chain).await?;
        let verb = verb(request.method());
        let subresources = subresources(request.uri().path());
        for subresource in subresources {
            if self.may(&caller, verb, subresource).await? {
                return Ok(());
            }
        }
        let what = subresources.join(", ");
        let user = &caller.user;
        Err((StatusCode::FORBIDDEN, format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{what}])\n")))
    }

    async fn caller<B>(&self, request: &Request<B>, chain: &[CertificateDer<'_>]) -> Result<Caller, Refusal> {
        let unauthorized = || (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
        if !chain.is_empty() {
            let info = atoll_pki::verify_client_chain(chain, &self.client_ca, Timestamp::now());
            let info = info.map_err(|_| unauthorized())?;
            let mut groups = info.organizations;
            groups.push("system:authenticated".to_owned());
            return Ok(Caller { user: info.common_name, groups });
        }
        let header = request.headers().get(http::header::AUTHORIZATION).and_then(|h| h.to_str().ok());
        match header.and_then(|h| h.strip_prefix("Bearer ")) {
            Some(token) => self.review_token(token).await,
            None => Ok(Caller::anonymous()),
        }
    }

    async fn review_token(&self, token: &str) -> Result<Caller, Refusal> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(unavailable)?;
        let status = answer.status.filter(|s| s.authenticated == Some(true));
        let user = status.and_then(|s| s.user).ok_or((StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()))?;
        Ok(Caller { user: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() })
    }

    async fn may(&self, caller: &Caller, verb: &'static str, subresource: &'static str) -> Result<bool, Refusal> {
        let key = (caller.clone(), verb, subresource);
        if let Some((at, allowed)) = self.allowed.lock().get(&key)
            && at.elapsed() < limits::REVIEW_CACHE
        {
            return Ok(*allowed);
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(self.node.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(caller.user.clone()),
            groups: Some(caller.groups.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(unavailable)?;
        let allowed = answer.status.is_some_and(|s| s.allowed);
        let mut verdicts = self.allowed.lock();
        if verdicts.len() >= limits::REVIEW_CACHE_ENTRIES_MAX {
            verdicts.clear();
        }
        verdicts.insert(key, (Instant::now(), allowed));
        Ok(allowed)
    }
}

fn unavailable(e: kube::Error) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot ask the API server: {e}"))
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// What stands for a path: its own subresource where there is one, and `proxy` for all.
fn subresources(path: &str) -> &'static [&'static str] {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_grained_permissions_come_before_proxy() {
        assert_eq!(subresources("/pods"), ["pods", "proxy"]);
        assert_eq!(subresources("/exec/a/b/c"), ["proxy"]);
        assert_eq!(subresources("/metrics/cadvisor"), ["metrics"]);
        assert_eq!(verb(&Method::POST), "create");
    }
}
