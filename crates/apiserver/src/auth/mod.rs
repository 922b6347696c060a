//! Who asks, and whether they may.
//!
//! The traits are what the pipeline needs; [`Authenticators`] tries its members in order. Each gets a [`Cluster`] to read
//! the objects it judges by (Secrets, ServiceAccounts, Roles).

mod attributes;
mod bearer;
mod bootstrap_token;
mod certificates;
mod client_certificate;
mod follow;
pub(crate) mod impersonation;
mod masters;
pub mod node;
pub mod rbac;
mod review;
pub mod service_account;
mod setup;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

pub use attributes::{Attributes, Decision};
pub use bearer::{BearerTokens, TokenVerdict};
pub use client_certificate::ClientCertificates;
pub use masters::MastersOnly;
pub use review::Reviews;
pub use setup::{Auth, AuthOptions};

use crate::cluster::Cluster;
use crate::error::{ApiError, Result};

pub const MASTERS_GROUP: &str = "system:masters";
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";
pub const ANONYMOUS_USER: &str = "system:anonymous";
/// Key of `extra` that names the credential which proved a user.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Who a request comes from (`authentication.k8s.io/v1 UserInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    #[serde(rename = "username")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        UserInfo { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..UserInfo::default() }
    }

    /// The identity of a request that proves none.
    pub fn anonymous() -> Self {
        UserInfo::new(ANONYMOUS_USER, &[UNAUTHENTICATED_GROUP])
    }

    /// The server's own identity, for what it does by itself.
    pub fn apiserver() -> Self {
        UserInfo::new("system:apiserver", &[MASTERS_GROUP, AUTHENTICATED_GROUP])
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What is known of the connection that a request came on.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The client's certificate chain, leaf first: possession of the key is proven, the chain is not judged.
    pub certificates: Vec<CertificateDer<'static>>,
    pub address: Option<SocketAddr>,
    /// The chain's verdict: it is judged once for all requests of the connection. None: not to be trusted.
    judged: OnceLock<Option<Arc<atoll_pki::CertificateInfo>>>,
}

impl Peer {
    pub fn new(certificates: Vec<CertificateDer<'static>>, address: SocketAddr) -> Peer {
        Peer { certificates, address: Some(address), judged: OnceLock::new() }
    }
}

/// One way to find out who asks.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// `None`: this request has no credentials of this kind. An error: it has, and they are not valid (401). The authenticator
    /// removes nothing from the request; the pipeline drops `Authorization` before anything is proxied.
    async fn authenticate(&self, parts: &http::request::Parts, peer: &Peer, cluster: &Cluster) -> Result<Option<UserInfo>>;
}

/// Whether a user may do something.
#[async_trait]
pub trait Authorizer: Send + Sync {
    async fn authorize(&self, attributes: &Attributes, cluster: &Cluster) -> Decision;
}

/// Authenticators in order; the first that knows the user decides. An error of one is kept: another may still know the user.
#[derive(Clone, Default)]
pub struct Authenticators {
    pub members: Vec<Arc<dyn Authenticator>>,
    /// Whether a request without credentials is `system:anonymous` rather than refused.
    pub allow_anonymous: bool,
    /// The tokens among the members, for `TokenReview`, `TokenRequest` and the issuer's documents.
    pub tokens: Option<Arc<BearerTokens>>,
}

impl Authenticators {
    pub async fn authenticate(&self, parts: &http::request::Parts, peer: &Peer, cluster: &Cluster) -> Result<UserInfo> {
        let mut failure = None;
        for member in &self.members {
            match member.authenticate(parts, peer, cluster).await {
                Ok(Some(mut user)) => {
                    if !user.in_group(AUTHENTICATED_GROUP) && user.name != ANONYMOUS_USER {
                        user.groups.push(AUTHENTICATED_GROUP.to_owned());
                    }
                    return Ok(user);
                }
                Ok(None) => {}
                Err(e) => failure = Some(e),
            }
        }
        match failure {
            Some(e) => Err(e),
            None if self.allow_anonymous => Ok(UserInfo::anonymous()),
            None => Err(ApiError::unauthorized()),
        }
    }
}

/// Authorizers in order; the first that allows or denies decides.
#[derive(Clone, Default)]
pub struct Authorizers {
    pub members: Vec<Arc<dyn Authorizer>>,
    /// The roles among the members, for `SelfSubjectRulesReview`.
    pub rbac: Option<Arc<rbac::Rbac>>,
}

impl Authorizers {
    pub async fn authorize(&self, attributes: &Attributes, cluster: &Cluster) -> Decision {
        let mut reasons: Vec<String> = Vec::new();
        for member in &self.members {
            match member.authorize(attributes, cluster).await {
                Decision::NoOpinion(why) if why.is_empty() => {}
                Decision::NoOpinion(why) => reasons.push(why),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }
}
