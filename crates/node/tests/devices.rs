//! The device manager against a plugin over real sockets.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atoll_node::devices::{Amounts, Devices};
use atoll_node::paths::NodePaths;
use atoll_node_protocol::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use atoll_node_protocol::device_plugin::registration_client::RegistrationClient;
use atoll_node_protocol::device_plugin::*;
use atoll_node_protocol::identity::AllocationIdentity;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

const RESOURCE: &str = "nvidia.com/gpu";

/// A plugin that hands out whatever it is asked for and says to whom.
struct Plugin {
    lists: tokio::sync::Mutex<Option<mpsc::Receiver<Result<ListAndWatchResponse, Status>>>>,
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = ReceiverStream<Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = self.lists.lock().await.take().ok_or_else(|| Status::unavailable("listened to already"))?;
        Ok(Response::new(ReceiverStream::new(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let mut answers = Vec::new();
        for container in request.into_inner().container_requests {
            let last = container.available_device_i_ds.last().cloned();
            answers.push(ContainerPreferredAllocationResponse { device_i_ds: last.into_iter().collect() });
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses: answers }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let identity = AllocationIdentity::read(request.metadata()).ok().flatten();
        let identity = identity.ok_or_else(|| Status::invalid_argument("no identity"))?;
        let ids = request.into_inner().container_requests.remove(0).devices_ids;
        let envs =
            [("DEVICES".to_owned(), ids.join(",")), ("OWNER".to_owned(), format!("{}/{}", identity.pod_uid, identity.container))];
        let answer = ContainerAllocateResponse { envs: envs.into(), ..ContainerAllocateResponse::default() };
        Ok(Response::new(AllocateResponse { container_responses: vec![answer] }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

fn list(count: usize, unhealthy: usize) -> ListAndWatchResponse {
    let health = |i: usize| if i < unhealthy { UNHEALTHY } else { HEALTHY }.to_owned();
    let device = |i: usize| Device { id: format!("device-with-a-rather-long-name-{i:06}"), health: health(i), topology: None };
    ListAndWatchResponse { devices: (0..count).map(device).collect() }
}

async fn serve_plugin(directory: &Path) -> (mpsc::Sender<Result<ListAndWatchResponse, Status>>, tokio::task::JoinHandle<()>) {
    let (send, receive) = mpsc::channel(4);
    let listener = UnixListener::bind(directory.join("plugin.sock")).unwrap();
    let plugin = Plugin { lists: tokio::sync::Mutex::new(Some(receive)) };
    let server = tonic::transport::Server::builder().add_service(DevicePluginServer::new(plugin));
    let task = tokio::spawn(async move {
        server.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
    });
    (send, task)
}

async fn register(directory: &Path, name: &str) -> Result<(), Status> {
    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{}", directory.join("kubelet.sock").display()));
    let channel = channel.unwrap().connect().await.unwrap();
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: "plugin.sock".to_owned(),
        resource_name: name.to_owned(),
        options: Some(DevicePluginOptions { get_preferred_allocation_available: true, pre_start_required: false }),
    };
    RegistrationClient::new(channel).register(request).await.map(drop)
}

async fn until(devices: &Devices, wanted: Amounts) {
    let mut changes = devices.changes();
    let reached = async {
        while devices.amounts().get(RESOURCE) != Some(&wanted) {
            changes.changed().await.unwrap();
        }
    };
    let seen = || devices.amounts();
    assert!(tokio::time::timeout(Duration::from_secs(20), reached).await.is_ok(), "{:?}", seen());
}

fn pod(uid: &str, count: usize) -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"uid": uid, "name": uid},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {RESOURCE: count.to_string()}}}]}
    }))
    .unwrap()
}

#[tokio::test]
async fn a_plugin_registers_allocates_by_identity_and_goes_away() {
    let root = tempfile::tempdir().unwrap();
    let paths = NodePaths::new(root.path());
    paths.create().unwrap();
    let devices: Arc<Devices> = Devices::load(paths.clone()).unwrap();
    let server = tokio::spawn(devices.clone().serve());
    let socket = paths.device_plugins().join("kubelet.sock");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !socket.exists() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    let (lists, plugin) = serve_plugin(&paths.device_plugins()).await;
    assert!(register(&paths.device_plugins(), "cpu").await.is_err());
    register(&paths.device_plugins(), RESOURCE).await.unwrap();

    // Longer than the 4 MiB that gRPC takes by default.
    lists.send(Ok(list(120_000, 1))).await.unwrap();
    until(&devices, Amounts { capacity: 120_000, allocatable: 119_999 }).await;
    lists.send(Ok(list(4, 1))).await.unwrap();
    until(&devices, Amounts { capacity: 4, allocatable: 3 }).await;

    devices.allocate(&pod("one", 1)).await.unwrap();
    let first = devices.allocation("one", "c");
    assert!(first.env.contains(&("OWNER".to_owned(), "one/c".to_owned())), "{first:?}");
    assert!(first.env.contains(&("DEVICES".to_owned(), "device-with-a-rather-long-name-000003".to_owned())), "{first:?}");
    let error = devices.allocate(&pod("two", 3)).await.unwrap_err().to_string();
    assert!(error.contains("Requested: 3, Available: 2"), "{error}");
    devices.free("one");
    devices.allocate(&pod("two", 3)).await.unwrap();

    drop(lists);
    until(&devices, Amounts { capacity: 4, allocatable: 0 }).await;
    assert!(devices.allocate(&pod("three", 1)).await.is_err());
    plugin.abort();
    server.abort();
}
