//! The components of a control plane that speak only the Kubernetes API: controllers and scheduler.
//!
//! Each is a client of the in-process service under its own identity: RBAC holds, no socket is opened.

use std::sync::Arc;

use atoll_apiserver::ApiServer;
use atoll_apiserver::auth::service_account::{ObjectRef, ServiceAccountTokens};
use atoll_apiserver::auth::{AUTHENTICATED_GROUP, UserInfo};
use atoll_controllers::{ControllersOptions, LegacyTokens};
use atoll_scheduler::SchedulerOptions;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Component, ControlPlaneOptions, Files};

const SCHEDULER_USER: &str = "system:kube-scheduler";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What is to run beside the API server.
pub struct Components {
    controllers: Option<ControllersOptions>,
    has_scheduler: bool,
}

/// The user of this name, with the groups that authentication gives it.
fn user(name: &str) -> UserInfo {
    let mut groups = vec![AUTHENTICATED_GROUP.to_owned()];
    if let Some((namespace, _)) = name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
        groups.insert(0, "system:serviceaccounts".to_owned());
        groups.insert(1, format!("system:serviceaccounts:{namespace}"));
    }
    UserInfo { name: name.to_owned(), groups, ..UserInfo::default() }
}

/// A client that acts as this user, without sockets.
pub fn client(server: &ApiServer, name: &str) -> kube::Client {
    kube::Client::new(server.service(user(name)), "default")
}

/// The API server's own key signs what the controllers put into Secrets, so that it knows its tokens again.
struct SecretTokens(Arc<ServiceAccountTokens>);

impl LegacyTokens for SecretTokens {
    fn token(&self, namespace: &str, account: &str, account_uid: &str, secret: &str) -> Result<String, String> {
        let account = ObjectRef { name: account.to_owned(), uid: account_uid.to_owned() };
        self.0.legacy_token(namespace, &account, secret).map_err(|e| e.to_string())
    }
}

impl Components {
    /// All but those that `options` leave out.
    pub fn new(options: &ControlPlaneOptions, files: &Files, tokens: Arc<ServiceAccountTokens>) -> Components {
        let runs = |component| !options.without.contains(&component);
        let controllers = runs(Component::Controllers).then(|| ControllersOptions {
            root_ca_pem: Some(files.ca.certificate_pem().to_owned()),
            signing_ca: files.signing_ca().map(Arc::new),
            legacy_tokens: Some(Arc::new(SecretTokens(tokens))),
            ..ControllersOptions::default()
        });
        Components { controllers, has_scheduler: runs(Component::Scheduler) }
    }

    /// Starts them; they end when `stop` changes or its sender is gone.
    pub fn start(self, server: &ApiServer, stop: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut set = JoinSet::new();
        if let Some(options) = self.controllers {
            let server = server.clone();
            let clients: atoll_controllers::ClientFor = Arc::new(move |name| client(&server, name));
            set.spawn(atoll_controllers::run(options, clients, stopped(stop.clone())));
        }
        if self.has_scheduler {
            let client = client(server, SCHEDULER_USER);
            set.spawn(atoll_scheduler::run(SchedulerOptions::default(), client, stopped(stop.clone())));
        }
        set
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone: that is a stop too.
    if stop.wait_for(|stop| *stop).await.is_err() {
        tracing::debug!("the control plane is gone");
    }
}
