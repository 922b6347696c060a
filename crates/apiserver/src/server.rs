//! The server's core: everything that a request is answered from.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use atoll_kube_schema::Registry;
use atoll_store::Store;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::watch;

use crate::admission::Chain;
use crate::auth::{Authenticators, Authorizers, UserInfo};
use crate::bootstrap::{self, BootstrapOptions};
use crate::cluster::{ClusterApi, Resource};
use crate::definitions::Terminating;
use crate::egress::SharedDialer;
use crate::error::Result;
use crate::http_types::Body;
use crate::objects::Objects;
use crate::pipeline::Origin;
use crate::services::Services;
use crate::virtual_resource::VirtualResource;

/// What a server is made of.
pub struct Config {
    pub store: Arc<dyn Store>,
    pub authenticators: Authenticators,
    pub authorizers: Authorizers,
    pub admission: Chain,
    pub virtual_resources: Vec<Arc<dyn VirtualResource>>,
    pub dialer: SharedDialer,
    /// Range of the cluster addresses of Services, such as `10.96.0.0/12`.
    pub service_cidr: String,
    /// How kubelets are called: the authority that they are verified by and the server's client certificate.
    pub kubelet_tls: Arc<rustls::ClientConfig>,
}

pub(crate) struct Core {
    pub objects: Objects,
    pub authenticators: Authenticators,
    pub authorizers: Authorizers,
    pub admission: Chain,
    pub virtual_resources: Vec<Arc<dyn VirtualResource>>,
    pub dialer: SharedDialer,
    pub services: Arc<Services>,
    pub kubelet_tls: Arc<rustls::ClientConfig>,
    registry: ArcSwap<Registry>,
    terminating: ArcSwap<Terminating>,
    is_bootstrapped: AtomicBool,
    stopping: watch::Sender<bool>,
    /// The core itself, for requests that it makes of itself.
    pub this: Weak<Core>,
}

impl Core {
    pub fn registry(&self) -> Registry {
        Registry::clone(&self.registry.load())
    }

    pub fn set_registry(&self, registry: Registry, terminating: Terminating) {
        self.terminating.store(Arc::new(terminating));
        self.registry.store(Arc::new(registry));
    }

    /// Whether the definition of a custom resource is being deleted.
    pub fn is_terminating(&self, group: &str, plural: &str) -> bool {
        let terminating = self.terminating.load();
        !terminating.is_empty() && terminating.contains(&(group.to_owned(), plural.to_owned()))
    }

    pub fn is_bootstrapped(&self) -> bool {
        self.is_bootstrapped.load(Ordering::Acquire)
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Turns true when the server is going away.
    pub fn until_stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }
}

/// An API server. Clones are handles to the same server.
#[derive(Clone)]
pub struct ApiServer {
    core: Arc<Core>,
}

impl ApiServer {
    /// A server of `config`; `None` if its `service_cidr` is no IPv4 range of /8 to /30.
    pub fn new(config: Config) -> Option<ApiServer> {
        let services = Arc::new(Services::new(&config.service_cidr)?);
        Some(ApiServer {
            core: Arc::new_cyclic(|this| Core {
                this: this.clone(),
                objects: Objects::new(config.store),
                authenticators: config.authenticators,
                authorizers: config.authorizers,
                admission: config.admission,
                virtual_resources: config.virtual_resources,
                dialer: config.dialer,
                services,
                kubelet_tls: config.kubelet_tls,
                registry: ArcSwap::from_pointee(Registry::builtin()),
                terminating: ArcSwap::default(),
                is_bootstrapped: AtomicBool::new(false),
                stopping: watch::Sender::new(false),
            }),
        })
    }

    /// Makes the server's own objects. Call before serving.
    pub async fn bootstrap(&self, options: &BootstrapOptions) -> Result<()> {
        for service in self.core.list(Resource::core("services"), "").await?.items {
            self.core.services.adopt(&service);
        }
        crate::definitions::resume(&self.core).await?;
        bootstrap::ensure(&*self.core, options, self.core.registry().groups()).await?;
        self.core.is_bootstrapped.store(true, Ordering::Release);
        Ok(())
    }

    /// Repairs the server's own objects for as long as it is polled.
    pub async fn keep_own_objects(&self, options: &BootstrapOptions) {
        bootstrap::keep(&*self.core, options).await;
    }

    /// From now on `/readyz` says that the server is going away, and watches end.
    pub fn stopping(&self) {
        self.core.stopping.send_replace(true);
    }

    /// Answers a request.
    pub fn handle(&self, request: Request<Body>, origin: Origin) -> BoxFuture<'static, Response<Body>> {
        let core = self.core.clone();
        Box::pin(async move { core.handle(request, origin).await })
    }

    /// A `tower` service with a given identity on the same pipeline, without sockets: the transport of a `kube::Client`.
    pub fn service(&self, user: UserInfo) -> InProcess {
        InProcess { server: self.clone(), user: Arc::new(user) }
    }
}

/// The pipeline as a service of one identity.
#[derive(Clone)]
pub struct InProcess {
    server: ApiServer,
    user: Arc<UserInfo>,
}

impl<B> tower::Service<Request<B>> for InProcess
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<crate::http_types::BoxError>,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.server.clone();
        let origin = Origin::InProcess(self.user.clone());
        Box::pin(async move { Ok(server.handle(request.map(|b| b.map_err(Into::into).boxed_unsync()), origin).await) })
    }
}
