//! What a controller finds around it when it starts.

use crate::events::Events;
use crate::informer::{Cached, Informer, Informers};
use atoll_pki::CertificateAuthority;
use std::path::PathBuf;
use std::sync::Arc;

/// Gives a client that acts as the given user, e.g. `system:serviceaccount:kube-system:job-controller`, with the groups
/// that the API server gives such a user.
pub type ClientFor = Arc<dyn Fn(&str) -> kube::Client + Send + Sync>;

/// Makes legacy service-account tokens (Secrets of type `kubernetes.io/service-account-token`).
pub trait LegacyTokens: Send + Sync {
    /// A signed token without expiry for this service account and Secret.
    fn token(&self, namespace: &str, account: &str, account_uid: &str, secret: &str) -> Result<String, String>;
}

/// What the controllers of one cluster are given.
#[derive(Clone, Default)]
pub struct ControllersOptions {
    /// Names of controllers to run; `*` is all that are on by default, `-NAME` takes one away. Empty means `*`.
    pub controllers: Vec<String>,
    /// PEM of the cluster's CA: published to namespaces and put into token Secrets.
    pub root_ca_pem: Option<String>,
    /// Signs certificate requests.
    pub signing_ca: Option<Arc<CertificateAuthority>>,
    /// Signs legacy tokens.
    pub legacy_tokens: Option<Arc<dyn LegacyTokens>>,
    /// Root, as nodes see it, under which the directory provisioner makes volumes.
    pub volume_root: Option<PathBuf>,
    /// Where that root lies on this machine, if a node has a root of its own; `None` means the same path.
    pub volumes_found_at: Option<PathBuf>,
}

/// Options and shared things.
pub struct Env {
    /// What the cluster's controllers were given.
    pub options: ControllersOptions,
    /// Shared caches.
    pub informers: Arc<Informers>,
    /// Writer of Events.
    pub events: Events,
    clients: ClientFor,
}

impl Env {
    /// Caches list and watch as `system:kube-controller-manager`, whose role may see everything.
    pub fn new(options: ControllersOptions, clients: ClientFor) -> Self {
        let informers = Arc::new(Informers::new(clients("system:kube-controller-manager")));
        Self { options, informers, events: Events::start(), clients }
    }

    /// A client that acts as this user.
    pub fn client(&self, user: &str) -> kube::Client {
        (self.clients)(user)
    }

    /// The shared cache of a kind.
    pub fn informer<K: Cached>(&self) -> Arc<Informer<K>> {
        self.informers.get()
    }
}
