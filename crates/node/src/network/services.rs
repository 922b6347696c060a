//! Services and EndpointSlices as the node sees them: environment variables of Pods, and the rules that make them work.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch as signal;

use super::proxy::Proxies;
use super::ruleset::{self, Table};
use super::{NetworkMode, PodNetwork, tool};
use crate::limits;

type Name = (String, String);

#[derive(Default)]
struct State {
    services: BTreeMap<Name, Service>,
    slices: BTreeMap<Name, EndpointSlice>,
    /// Objects of a list that is under way.
    new_services: BTreeMap<Name, Service>,
    new_slices: BTreeMap<Name, EndpointSlice>,
}

/// The Services of the cluster.
pub struct Services {
    state: Mutex<State>,
    changes: signal::Sender<u64>,
    services_listed: signal::Sender<bool>,
    slices_listed: signal::Sender<bool>,
}

fn name_of(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Name {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

impl Services {
    /// Knows nothing until [`Services::run`].
    pub fn new() -> Arc<Services> {
        Arc::new(Services {
            state: Mutex::default(),
            changes: signal::channel(0).0,
            services_listed: signal::channel(false).0,
            slices_listed: signal::channel(false).0,
        })
    }

    /// Whether all Services have been read once: before that the environment of a container would lack some.
    pub async fn synced(&self) -> bool {
        let mut listed = self.services_listed.subscribe();
        let wait = listed.wait_for(|listed| *listed);
        matches!(tokio::time::timeout(limits::START_TIMEOUT, wait).await, Ok(Ok(_)))
    }

    /// Follows Services and EndpointSlices and keeps the rules up to date, until dropped.
    pub async fn run(self: Arc<Self>, client: Client, network: Arc<PodNetwork>, masquerade: bool) {
        tokio::join!(self.follow_services(client.clone()), self.follow_slices(client), self.program(&network, masquerade));
    }

    /// Has the rules looked at again, because the node's own addresses have changed.
    pub fn refresh(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    /// Follows Services for the environment of Pods only.
    pub async fn read(self: Arc<Self>, client: Client) {
        self.follow_services(client).await;
    }

    async fn follow_services(&self, client: Client) {
        let mut events = watch(Api::<Service>::all(client), watcher::Config::default()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let mut state = self.state.lock();
            let state = &mut *state;
            match event {
                Ok(Event::Init) => state.new_services.clear(),
                Ok(Event::InitApply(s)) => drop(state.new_services.insert(name_of(&s.metadata), s)),
                Ok(Event::InitDone) => {
                    state.services = std::mem::take(&mut state.new_services);
                    self.services_listed.send_replace(true);
                }
                Ok(Event::Apply(s)) => drop(state.services.insert(name_of(&s.metadata), s)),
                Ok(Event::Delete(s)) => drop(state.services.remove(&name_of(&s.metadata))),
                Err(e) => tracing::warn!("watch of Services: {e}"),
            }
            self.changes.send_modify(|n| *n += 1);
        }
    }

    async fn follow_slices(&self, client: Client) {
        let mut events = watch(Api::<EndpointSlice>::all(client), watcher::Config::default()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let mut state = self.state.lock();
            let state = &mut *state;
            match event {
                Ok(Event::Init) => state.new_slices.clear(),
                Ok(Event::InitApply(s)) => drop(state.new_slices.insert(name_of(&s.metadata), s)),
                Ok(Event::InitDone) => {
                    state.slices = std::mem::take(&mut state.new_slices);
                    self.slices_listed.send_replace(true);
                }
                Ok(Event::Apply(s)) => drop(state.slices.insert(name_of(&s.metadata), s)),
                Ok(Event::Delete(s)) => drop(state.slices.remove(&name_of(&s.metadata))),
                Err(e) => tracing::warn!("watch of EndpointSlices (a node needs ClusterRole system:node-proxier): {e}"),
            }
            self.changes.send_modify(|n| *n += 1);
        }
    }

    /// Applies the rules whenever they differ from the last ones.
    async fn program(&self, network: &PodNetwork, masquerade: bool) {
        let mut changes = self.changes.subscribe();
        for listed in [&self.services_listed, &self.slices_listed] {
            let _ = listed.subscribe().wait_for(|listed| *listed).await;
        }
        let mut applied: Option<String> = None;
        let mut proxies = Proxies::default();
        loop {
            let table = self.table(network);
            match network.mode() {
                NetworkMode::Loopback => proxies.update(&table),
                NetworkMode::Routed => {
                    let text = ruleset::render(&table, network.range().filter(|_| masquerade));
                    if applied.as_ref() != Some(&text) {
                        match tool::nft(&text).await {
                            Ok(()) => applied = Some(text),
                            Err(e) => tracing::error!("Services are not programmed: {e}"),
                        }
                    }
                }
            }
            let waited = tokio::time::timeout(limits::STATUS_FORCED, changes.changed()).await;
            if let Ok(Err(_)) = waited {
                return;
            }
            tokio::time::sleep(limits::SERVICE_DEBOUNCE).await;
            changes.mark_unchanged();
        }
    }

    fn table(&self, network: &PodNetwork) -> Table {
        let state = self.state.lock();
        let mut by_service: BTreeMap<Name, Vec<&EndpointSlice>> = BTreeMap::new();
        for slice in state.slices.values() {
            let label = slice.metadata.labels.as_ref().and_then(|l| l.get("kubernetes.io/service-name"));
            if let Some(service) = label {
                let namespace = slice.metadata.namespace.clone().unwrap_or_default();
                by_service.entry((namespace, service.clone())).or_default().push(slice);
            }
        }
        let all = state.services.iter().map(|(name, s)| (s, by_service.remove(name).unwrap_or_default()));
        ruleset::table(all, network.node_ip())
    }

    /// Variables of the Services that a Pod of `namespace` sees. `api` replaces the address of Service `kubernetes`.
    pub fn environment(&self, namespace: &str, links: bool, api: Option<&(String, u16)>) -> Vec<(String, String)> {
        let state = self.state.lock();
        let master = ("default".to_owned(), "kubernetes".to_owned());
        let mut env = Vec::new();
        if let Some(service) = state.services.get(&master) {
            env.extend(variables(service));
        }
        for (name, service) in &state.services {
            if links && name.0 == namespace && *name != master {
                env.extend(variables(service));
            }
        }
        if let Some((host, port)) = api {
            env.retain(|(name, _)| !name.starts_with("KUBERNETES_"));
            env.push(("KUBERNETES_SERVICE_HOST".to_owned(), host.clone()));
            env.push(("KUBERNETES_SERVICE_PORT".to_owned(), port.to_string()));
            env.push(("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), port.to_string()));
        }
        env
    }
}

/// Variables of one Service, those of the old links included.
fn variables(service: &Service) -> Vec<(String, String)> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let ip = spec.cluster_ip.as_deref().unwrap_or("");
    let ports: &[ServicePort] = spec.ports.as_deref().unwrap_or_default();
    let (Some(first), false) = (ports.first(), ip.is_empty() || ip == "None") else { return Vec::new() };
    let upper = |name: &str| name.to_uppercase().replace('-', "_");
    let name = upper(service.metadata.name.as_deref().unwrap_or_default());
    let protocol = |p: &ServicePort| p.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let url = |p: &ServicePort| format!("{}://{ip}:{}", protocol(p).to_lowercase(), p.port);
    let mut env = vec![(format!("{name}_SERVICE_HOST"), ip.to_owned()), (format!("{name}_SERVICE_PORT"), first.port.to_string())];
    for port in ports {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            env.push((format!("{name}_SERVICE_PORT_{}", upper(port_name)), port.port.to_string()));
        }
    }
    env.push((format!("{name}_PORT"), url(first)));
    for port in ports {
        let prefix = format!("{name}_PORT_{}_{}", port.port, protocol(port));
        env.push((prefix.clone(), url(port)));
        env.push((format!("{prefix}_PROTO"), protocol(port).to_lowercase()));
        env.push((format!("{prefix}_PORT"), port.port.to_string()));
        env.push((format!("{prefix}_ADDR"), ip.to_owned()));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_see_the_api_and_the_services_of_their_namespace() {
        let services = Services::new();
        let add = |namespace: &str, name: &str, ip: &str| {
            let service: Service = serde_json::from_value(serde_json::json!({
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": ip, "ports": [{"name": "https", "port": 443}]}
            }))
            .unwrap();
            services.state.lock().services.insert((namespace.to_owned(), name.to_owned()), service);
        };
        add("default", "kubernetes", "10.96.0.1");
        add("a", "my-db", "10.96.0.2");
        add("b", "other", "10.96.0.3");
        add("a", "headless", "None");
        let env: BTreeMap<String, String> = services.environment("a", true, None).into_iter().collect();
        assert_eq!(env["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
        assert_eq!(env["MY_DB_SERVICE_PORT_HTTPS"], "443");
        assert_eq!(env["MY_DB_PORT_443_TCP"], "tcp://10.96.0.2:443");
        assert!(!env.keys().any(|k| k.starts_with("OTHER") || k.starts_with("HEADLESS")));
        let api = ("127.0.0.1".to_owned(), 6443);
        let env: BTreeMap<String, String> = services.environment("a", false, Some(&api)).into_iter().collect();
        assert_eq!(env["KUBERNETES_SERVICE_HOST"], "127.0.0.1");
        assert_eq!(env["KUBERNETES_SERVICE_PORT"], "6443");
        assert!(!env.contains_key("MY_DB_SERVICE_HOST"));
    }
}
