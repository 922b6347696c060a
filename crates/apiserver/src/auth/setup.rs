//! The usual assembly: who is let in how, and who decides.

use std::sync::Arc;

use super::certificates::{CertificateSubjectRestriction, RequestAuthor, SignerPermission};
use super::node::{NodeAuthorizer, NodeRestriction};
use super::rbac::{Rbac, RoleEscalation};
use super::service_account::ServiceAccountTokens;
use super::{Authenticators, Authorizers, BearerTokens, ClientCertificates, MastersOnly};
use crate::admission::Plugin;
use crate::bootstrap::policy;
use crate::error::Result;

/// What authentication and authorization of a cluster are made from.
#[derive(Debug)]
pub struct AuthOptions<'a> {
    /// Authorities whose client certificates name users, PEM.
    pub client_ca_pem: &'a str,
    /// The key that signs service-account tokens.
    pub service_account_key: &'a atoll_pki::ServiceAccountKey,
    /// `iss` of the tokens that are issued.
    pub issuer: &'a str,
    /// Audiences that this server answers to; the issuer if there are none.
    pub audiences: &'a [String],
    pub allow_anonymous: bool,
}

/// Authentication, authorization, and the plugins that belong to them.
pub struct Auth {
    pub authenticators: Authenticators,
    pub authorizers: Authorizers,
    pub tokens: Arc<ServiceAccountTokens>,
}

impl Auth {
    /// Client certificates, tokens, anonymous; Node, then RBAC, with `system:masters` before both.
    pub fn new(options: &AuthOptions<'_>) -> Result<Auth> {
        let tokens = Arc::new(ServiceAccountTokens::new(options.service_account_key, options.issuer, options.audiences)?);
        let bearer = Arc::new(BearerTokens { service_accounts: tokens.clone() });
        let certificates = Arc::new(ClientCertificates { ca_pem: options.client_ca_pem.to_owned() });
        let rbac = Arc::new(Rbac::default());
        let node = Arc::new(NodeAuthorizer::new(policy::cluster_role_rules("system:node")));
        Ok(Auth {
            authenticators: Authenticators {
                members: vec![certificates, bearer.clone()],
                allow_anonymous: options.allow_anonymous,
                tokens: Some(bearer),
            },
            authorizers: Authorizers { members: vec![Arc::new(MastersOnly), node, rbac.clone()], rbac: Some(rbac) },
            tokens,
        })
    }

    /// Puts NodeRestriction, the checks of certificate requests and that against escalation where they belong among `plugins` (in upstream's order).
    pub fn add_plugins(&self, plugins: &mut Vec<Arc<dyn Plugin>>) {
        let after = |plugins: &[Arc<dyn Plugin>], name: &str| {
            plugins.iter().position(|plugin| plugin.name() == name).map_or(plugins.len(), |at| at + 1)
        };
        plugins.insert(0, Arc::new(RequestAuthor));
        let at = after(plugins, "ServiceAccount");
        plugins.insert(at, Arc::new(NodeRestriction));
        let at = after(plugins, "RuntimeClass");
        plugins.insert(at, Arc::new(CertificateSubjectRestriction));
        for permission in SignerPermission::both(&self.authorizers).into_iter().rev() {
            plugins.insert(at, Arc::new(permission));
        }
        if let Some(rbac) = &self.authorizers.rbac {
            // After everything that may still change an object.
            let at = after(plugins, "MutatingAdmissionWebhook");
            plugins.insert(at, Arc::new(RoleEscalation { rbac: rbac.clone(), authorizers: self.authorizers.clone() }));
        }
    }
}
