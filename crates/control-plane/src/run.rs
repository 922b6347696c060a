//! Starting a control plane and keeping it up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use atoll_apiserver::auth::{Auth, AuthOptions, Reviews};
use atoll_apiserver::bootstrap::BootstrapOptions;
use atoll_apiserver::{ApiServer, Config, admission, egress, serving};
use atoll_store::{EmbeddedStore, Options, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::components::Components;
use crate::{ControlPlaneOptions, Error, Files, Result};

/// A control plane that is ready to serve.
pub struct ControlPlane {
    server: ApiServer,
    own_objects: BootstrapOptions,
    store: Arc<dyn Store>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    address: SocketAddr,
    kubeconfig: PathBuf,
    components: Components,
}

impl ControlPlane {
    /// Opens the directory, takes the port, and makes the cluster's own objects.
    pub async fn start(options: &ControlPlaneOptions) -> Result<ControlPlane> {
        let listener =
            TcpListener::bind(options.listen).await.map_err(|source| Error::Listen { address: options.listen, source })?;
        let address = listener.local_addr().map_err(|source| Error::Listen { address: options.listen, source })?;
        let files = Files::open(options)?;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(Options::new(options.dir.join("data")))?);
        let client = &files.kubelet_client;
        let kubelet_tls = serving::client_tls_config(files.ca.certificate_pem(), &client.certificate_pem, &client.key_pem)?;
        let auth = Auth::new(&AuthOptions {
            client_ca_pem: files.ca.certificate_pem(),
            service_account_key: &files.service_account,
            issuer: &options.service_account_issuer,
            audiences: &[],
            allow_anonymous: true,
        })?;
        let mut plugins = admission::default_plugins();
        auth.add_plugins(&mut plugins);
        let tokens = auth.tokens.clone();
        let server = ApiServer::new(Config {
            store: store.clone(),
            authenticators: auth.authenticators,
            authorizers: auth.authorizers,
            admission: admission::Chain { plugins },
            virtual_resources: vec![Arc::new(Reviews)],
            dialer: Arc::new(egress::Direct),
            service_cidr: options.service_cidr.clone(),
            kubelet_tls,
        })
        .ok_or_else(|| Error::ServiceRange(options.service_cidr.clone()))?;
        let own_objects = BootstrapOptions {
            address: options.advertise.unwrap_or(address.ip()),
            port: address.port(),
            service_cidr: options.service_cidr.clone(),
            client_ca_pem: files.ca.certificate_pem().to_owned(),
            front_proxy_ca_pem: None,
            identity: "atoll".to_owned(),
        };
        server.bootstrap(&own_objects).await?;
        let tls = serving::tls_config(&files.serving.certificate_pem, &files.serving.key_pem)?;
        let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { host_of(address) };
        let url = format!("https://{host}:{}", address.port());
        let kubeconfig = files.write_admin_kubeconfig(&options.dir, &url)?;
        Ok(ControlPlane {
            server,
            own_objects,
            store,
            listener,
            tls,
            address,
            kubeconfig,
            components: Components::new(options, &files, tokens),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// The API server, for components in the same process.
    pub fn api_server(&self) -> &ApiServer {
        &self.server
    }

    /// Serves until `stop` resolves, then closes the store in good order.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<()> {
        let keeper = tokio::spawn({
            let (server, own_objects) = (self.server.clone(), self.own_objects.clone());
            async move { server.keep_own_objects(&own_objects).await }
        });
        let (stop_components, components_stop) = watch::channel(false);
        let mut components = self.components.start(&self.server, &components_stop);
        serving::serve(self.server, self.listener, self.tls, stop).await;
        stop_components.send_replace(true);
        while components.join_next().await.is_some() {}
        keeper.abort();
        self.store.close().await?;
        Ok(())
    }
}

fn host_of(address: SocketAddr) -> String {
    match address.ip() {
        std::net::IpAddr::V6(v6) => format!("[{v6}]"),
        v4 => v4.to_string(),
    }
}
