//! Starting a control plane and keeping it up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use atoll_apiserver::auth::{Auth, AuthOptions, Reviews};
use atoll_apiserver::bootstrap::BootstrapOptions;
use atoll_apiserver::egress::SharedDialer;
use atoll_apiserver::{ApiServer, Config, admission, egress, serving};
use atoll_store::{EmbeddedStore, Options, Store};
use atoll_tunnel::TunnelServer;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::components::{self, ComponentContext, FurtherComponent};
use crate::tunnel::{self, ThroughTunnel, TokenJudge};
use crate::{ControlPlaneOptions, Error, Files, Result};

/// The tunnel server's parts until it serves.
struct Tunnel {
    server: TunnelServer,
    judge: Arc<TokenJudge>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
}

/// A control plane that is ready to serve.
pub struct ControlPlane {
    options: ControlPlaneOptions,
    server: ApiServer,
    own_objects: BootstrapOptions,
    legacy_tokens: Arc<components::ServiceAccountSigner>,
    files: Files,
    store: Arc<dyn Store>,
    listeners: Vec<TcpListener>,
    tls: Arc<rustls::ServerConfig>,
    tunnel: Option<Tunnel>,
    address: SocketAddr,
    kubeconfig: Option<PathBuf>,
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

impl ControlPlane {
    /// Opens the directory, takes the ports, and makes the cluster's own objects. `inherited` is a further socket to serve on.
    pub async fn start(options: &ControlPlaneOptions, inherited: Option<std::net::TcpListener>) -> Result<ControlPlane> {
        let listener = bind(options.listen).await?;
        let address = listener.local_addr().map_err(|source| Error::Listen { address: options.listen, source })?;
        let mut listeners = vec![listener];
        if let Some(socket) = inherited {
            let failed = |source| Error::Listen { address: options.listen, source };
            socket.set_nonblocking(true).map_err(failed)?;
            listeners.push(TcpListener::from_std(socket).map_err(failed)?);
        }
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
        if let Some(wanted) = &options.admission_plugins {
            // What this server checks of itself is not on the list of plugins that can be switched.
            let known = admission::default_plugins();
            plugins.retain(|p| wanted.iter().any(|w| w == p.name()) || !known.iter().any(|k| k.name() == p.name()));
        }
        let tunnel = Self::open_tunnel(options, &files, address).await?;
        let dialer: SharedDialer = match &tunnel {
            Some(tunnel) => Arc::new(ThroughTunnel(tunnel.server.clone())),
            None => Arc::new(egress::Direct),
        };
        let server = ApiServer::new(Config {
            store: store.clone(),
            authenticators: auth.authenticators,
            authorizers: auth.authorizers,
            admission: admission::Chain { plugins },
            virtual_resources: vec![Arc::new(Reviews)],
            dialer,
            service_cidr: options.service_cidr.clone(),
            kubelet_tls,
        })
        .ok_or_else(|| Error::ServiceRange(options.service_cidr.clone()))?;
        let own_objects = BootstrapOptions {
            address: options.advertise.unwrap_or(address.ip()),
            port: options.advertise_port.unwrap_or(address.port()),
            service_cidr: options.service_cidr.clone(),
            client_ca_pem: files.ca.certificate_pem().to_owned(),
            front_proxy_ca_pem: None,
            identity: "atoll".to_owned(),
        };
        server.bootstrap(&own_objects).await?;
        let tls = serving::tls_config(&files.serving.certificate_pem, &files.serving.key_pem)?;
        let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { host_of(address) };
        let kubeconfig = files.write_admin_kubeconfig(&options.dir, &format!("https://{host}:{}", address.port()))?;
        let legacy_tokens = Arc::new(components::ServiceAccountSigner(auth.tokens));
        let options = options.clone();
        Ok(ControlPlane {
            options,
            server,
            own_objects,
            legacy_tokens,
            files,
            store,
            listeners,
            tls,
            tunnel,
            address,
            kubeconfig,
        })
    }

    async fn open_tunnel(options: &ControlPlaneOptions, files: &Files, address: SocketAddr) -> Result<Option<Tunnel>> {
        let Some(listen) = options.tunnel_listen else { return Ok(None) };
        let listener = bind(listen).await?;
        let mut tls = (*serving::tls_config(&files.tunnel.certificate_pem, &files.tunnel.key_pem)?).clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let judge = Arc::new(TokenJudge::default());
        let server = tunnel::server(judge.clone(), &address.to_string());
        Ok(Some(Tunnel { server, judge, listener, tls: Arc::new(tls) }))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Path of the administrator's kubeconfig, where one is written.
    pub fn kubeconfig(&self) -> Option<&std::path::Path> {
        self.kubeconfig.as_deref()
    }

    /// Serves, with all components, until `stop` resolves, then closes the store in good order.
    pub async fn serve(self, further: Vec<FurtherComponent>, stop: impl Future<Output = ()>) -> Result<()> {
        let (ending, ended) = watch::channel(false);
        let context = ComponentContext::new(self.server.clone(), ended.clone());
        let mut tasks = components::start(&self.options, further, &self.files, self.legacy_tokens, &context);
        tasks.spawn({
            let (server, own_objects) = (self.server.clone(), self.own_objects);
            async move { server.keep_own_objects(&own_objects).await }
        });
        if let Some(tunnel) = self.tunnel {
            tunnel.judge.set(context.client("system:konnectivity-server"));
            let until = until(ended.clone());
            tasks.spawn(async move {
                if let Err(error) = tunnel.server.serve(tunnel.listener, tunnel.tls, until).await {
                    tracing::error!(%error, "the tunnel server ended");
                }
            });
        }
        let mut listeners = self.listeners.into_iter();
        let first = listeners.next();
        for listener in listeners {
            let (server, tls, until) = (self.server.clone(), self.tls.clone(), until(ended.clone()));
            tasks.spawn(async move { serving::serve(server, listener, tls, until).await });
        }
        if let Some(listener) = first {
            serving::serve(self.server, listener, self.tls, stop).await;
        }
        let _ = ending.send(true);
        tasks.shutdown().await;
        self.store.close().await?;
        Ok(())
    }
}

async fn until(mut ended: watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

fn host_of(address: SocketAddr) -> String {
    match address.ip() {
        std::net::IpAddr::V6(v6) => format!("[{v6}]"),
        v4 => v4.to_string(),
    }
}
