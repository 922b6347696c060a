//! One resource on the kubelet's plugin directory: socket, registration, and both again whenever the kubelet starts anew.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_node_protocol::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use atoll_node_protocol::device_plugin::registration_client::RegistrationClient;
use atoll_node_protocol::device_plugin::{
    AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty, HEALTHY, KUBELET_SOCKET, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
    RegisterRequest, UNHEALTHY, VERSION,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::error::{Error, Result};
use crate::limits;

/// The devices of a resource, small enough to compare; spelled out only to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSet {
    /// Ids with their health.
    Listed(Vec<(String, bool)>),
    /// `mock-devices-id-0` and so on, all healthy.
    Numbered(u64),
}

impl DeviceSet {
    fn spelled(&self) -> Vec<Device> {
        let device = |id: String, health: &str| Device { id, health: health.to_owned(), topology: None };
        match self {
            Self::Listed(ids) => {
                ids.iter().map(|(id, healthy)| device(id.clone(), if *healthy { HEALTHY } else { UNHEALTHY })).collect()
            }
            Self::Numbered(count) => (0..*count).map(|at| device(format!("mock-devices-id-{at}"), HEALTHY)).collect(),
        }
    }
}

/// Decides what containers are given.
#[async_trait::async_trait]
pub trait Allocator: Send + Sync + 'static {
    /// Whether [`Self::prefer`] has anything to say.
    fn prefers(&self) -> bool;

    /// Which of the available ids the kubelet should take.
    async fn prefer(&self, request: Request<PreferredAllocationRequest>) -> Result<PreferredAllocationResponse, Status>;

    /// What goes into the containers.
    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<AllocateResponse, Status>;
}

/// A resource to be offered.
pub struct Resource {
    /// Its name, `nvidia.com/gpu`.
    pub name: &'static str,
    /// Its devices.
    pub devices: watch::Receiver<DeviceSet>,
    /// Its decisions.
    pub allocator: Arc<dyn Allocator>,
}

struct Service {
    devices: watch::Receiver<DeviceSet>,
    allocator: Arc<dyn Allocator>,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(options(self.allocator.as_ref())))
    }

    type ListAndWatchStream = BoxStream<'static, Result<ListAndWatchResponse, Status>>;

    /// The devices now, and again on change only: the kubelet takes each message as the whole truth.
    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let devices = WatchStream::new(self.devices.clone());
        Ok(Response::new(devices.map(|set| Ok(ListAndWatchResponse { devices: set.spelled() })).boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        self.allocator.prefer(request).await.map(Response::new)
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        self.allocator.allocate(request).await.map(Response::new)
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

fn options(allocator: &dyn Allocator) -> DevicePluginOptions {
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: allocator.prefers() }
}

/// Offers the resource until `shutdown` changes or its sender is gone.
pub async fn offer(resource: Resource, directory: PathBuf, mut shutdown: watch::Receiver<bool>) {
    let mut last_problem = String::new();
    loop {
        let round = round(&resource, &directory);
        let ended = tokio::select! {
            _ = shutdown.changed() => break,
            ended = round => ended,
        };
        match ended {
            Ok(()) => last_problem.clear(),
            Err(error) => {
                let problem = error.to_string();
                if problem != last_problem {
                    tracing::warn!(resource = resource.name, %error, "not registered yet");
                    last_problem = problem;
                }
            }
        }
        tokio::select! {
            _ = shutdown.changed() => break,
            () = tokio::time::sleep(limits::PLUGIN_CHECK_PERIOD) => {}
        }
    }
    let _ = tokio::fs::remove_file(directory.join(endpoint(resource.name))).await;
}

/// One registration: serves until the kubelet's socket or the own one is another or gone.
async fn round(resource: &Resource, directory: &Path) -> Result<()> {
    let (kubelet, own) = (directory.join(KUBELET_SOCKET), directory.join(endpoint(resource.name)));
    let registered_at = identity(&kubelet)
        .await
        .ok_or_else(|| Error::NodeAgent { what: "registration", message: format!("{} does not exist", kubelet.display()) })?;
    if let Err(error) = tokio::fs::remove_file(&own).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(Error::io(own.display().to_string())(error));
    }
    let listener = UnixListener::bind(&own).map_err(Error::io(format!("cannot listen on {}", own.display())))?;
    let served_at = identity(&own).await;
    let service = Service { devices: resource.devices.clone(), allocator: resource.allocator.clone() };
    let service = DevicePluginServer::new(service).max_decoding_message_size(limits::NODE_AGENT_MESSAGE_BYTES_MAX);
    let serving = Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
    let watching = async {
        register(resource, &kubelet).await?;
        tracing::info!(resource = resource.name, "registered");
        while identity(&kubelet).await == Some(registered_at) && identity(&own).await == served_at {
            tokio::time::sleep(limits::PLUGIN_CHECK_PERIOD).await;
        }
        tracing::info!(resource = resource.name, "the kubelet started anew");
        Ok(())
    };
    tokio::select! {
        served = serving => served.map_err(|error| Error::NodeAgent { what: "plugin socket", message: error.to_string() }),
        watched = watching => watched,
    }
}

/// File name of the resource's socket.
fn endpoint(resource: &str) -> String {
    format!("hami-{}.sock", resource.replace(['/', '.'], "-"))
}

/// What tells a socket from another one at the same path.
async fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

async fn register(resource: &Resource, kubelet: &Path) -> Result<()> {
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: endpoint(resource.name),
        resource_name: resource.name.to_owned(),
        options: Some(options(resource.allocator.as_ref())),
    };
    let failed = |message: String| Error::NodeAgent { what: "registration", message };
    let call = async {
        let mut client = RegistrationClient::new(connect(kubelet.to_owned()).await?);
        client.register(request).await.map_err(|status| failed(status.to_string()))
    };
    tokio::time::timeout(limits::NODE_AGENT_TIMEOUT, call).await.map_err(|_| failed("no answer".to_owned()))?.map(drop)
}

/// A gRPC channel over a Unix socket.
pub async fn connect(path: PathBuf) -> Result<Channel> {
    let what = "connection";
    // The authority is not used on a Unix socket, but a URI needs one.
    Endpoint::from_static("http://localhost")
        .connect_timeout(limits::NODE_AGENT_TIMEOUT)
        .connect_with_connector(tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .map_err(|error| Error::NodeAgent { what, message: error.to_string() })
}

#[cfg(test)]
mod tests;
