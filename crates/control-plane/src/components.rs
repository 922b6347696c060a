//! The parts of a control plane that speak the Kubernetes API: each gets a client of its own identity on the in-process service.

use std::sync::Arc;

use atoll_apiserver::ApiServer;
use atoll_apiserver::auth::UserInfo;
use atoll_apiserver::auth::service_account::{ObjectRef, ServiceAccountTokens};
use atoll_controllers::{ClientFor, ControllersOptions, LegacyTokens};
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::watch;

use crate::{Component, ControlPlaneOptions, Files};

/// What a further component is given.
#[derive(Clone)]
pub struct ComponentContext {
    server: ApiServer,
    /// Turns true when the component is to end.
    pub shutdown: watch::Receiver<bool>,
}

/// A component that the assembler adds, such as the tenancy operator of a management plane. It ends with the control plane.
pub type FurtherComponent = Box<dyn FnOnce(ComponentContext) -> BoxFuture<'static, ()> + Send>;

impl ComponentContext {
    pub(crate) fn new(server: ApiServer, shutdown: watch::Receiver<bool>) -> Self {
        ComponentContext { server, shutdown }
    }

    /// A client that acts as `user`, with the groups that authentication would give it. RBAC applies.
    pub fn client(&self, user: &str) -> Client {
        self.client_in_groups(user, &[])
    }

    /// The same with further groups.
    pub fn client_in_groups(&self, user: &str, groups: &[&str]) -> Client {
        let mut identity = identity(user);
        identity.groups.extend(groups.iter().map(|g| (*g).to_owned()));
        Client::new(self.server.service(identity), "default")
    }
}

/// The identity behind a user name: service accounts are in their groups, everybody known is authenticated.
fn identity(user: &str) -> UserInfo {
    let mut groups = Vec::new();
    if let Some((namespace, _)) = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups.push("system:authenticated".to_owned());
    UserInfo { name: user.to_owned(), groups, ..UserInfo::default() }
}

/// Signs the tokens of legacy Secrets with the cluster's key.
pub(crate) struct ServiceAccountSigner(pub(crate) Arc<ServiceAccountTokens>);

impl LegacyTokens for ServiceAccountSigner {
    fn token(&self, namespace: &str, account: &str, account_uid: &str, secret: &str) -> Result<String, String> {
        let account = ObjectRef { name: account.to_owned(), uid: account_uid.to_owned() };
        self.0.legacy_token(namespace, &account, secret).map_err(|e| e.message)
    }
}

/// Starts controllers and scheduler, those that are wanted, and the further components.
pub(crate) fn start(
    options: &ControlPlaneOptions,
    further: Vec<FurtherComponent>,
    files: &Files,
    legacy_tokens: Arc<ServiceAccountSigner>,
    context: &ComponentContext,
) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    let runs = |component| !options.without.contains(&component);
    if runs(Component::Controllers) {
        let controllers = ControllersOptions {
            controllers: options.controllers.clone(),
            root_ca_pem: Some(files.ca.certificate_pem().to_owned()),
            signing_ca: Some(files.ca.clone()),
            legacy_tokens: Some(legacy_tokens),
            volume_root: options.volume_root.clone(),
            volumes_found_at: options.volumes_found_at.clone(),
        };
        let (source, shutdown) = (context.clone(), context.shutdown.clone());
        let clients: ClientFor = Arc::new(move |user| source.client(user));
        tasks.spawn(async move { atoll_controllers::run(controllers, clients, stopped(shutdown)).await });
    }
    if runs(Component::Scheduler) {
        let (client, shutdown) = (context.client("system:kube-scheduler"), context.shutdown.clone());
        tasks.spawn(async move { atoll_scheduler::run(Default::default(), client, stopped(shutdown)).await });
    }
    for component in further {
        tasks.spawn(component(context.clone()));
    }
    tasks
}

async fn stopped(mut shutdown: watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_in_its_groups() {
        let account = identity("system:serviceaccount:kube-system:job-controller");
        assert_eq!(account.groups, ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]);
        assert_eq!(identity("system:kube-scheduler").groups, ["system:authenticated"]);
    }
}
