//! A plugin against a kubelet that starts, sees changes, and starts anew.

use std::time::Duration;

use atoll_node_protocol::device_plugin::ContainerAllocateRequest;
use atoll_node_protocol::device_plugin::device_plugin_client::DevicePluginClient;
use atoll_node_protocol::device_plugin::registration_server::{Registration, RegistrationServer};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

struct Kubelet(mpsc::UnboundedSender<RegisterRequest>);

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::aborted("test ended"))?;
        Ok(Response::new(Empty {}))
    }
}

/// Starts as a kubelet does: all sockets of the directory are removed first.
fn start_kubelet(directory: &Path) -> (JoinHandle<()>, mpsc::UnboundedReceiver<RegisterRequest>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let listener = UnixListener::bind(directory.join(KUBELET_SOCKET)).unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    let serving = Server::builder().add_service(RegistrationServer::new(Kubelet(sender)));
    let task = tokio::spawn(async move { serving.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap() });
    (task, receiver)
}

struct Echo;

#[async_trait::async_trait]
impl Allocator for Echo {
    fn prefers(&self) -> bool {
        true
    }

    async fn prefer(&self, _: Request<PreferredAllocationRequest>) -> Result<PreferredAllocationResponse, Status> {
        Ok(PreferredAllocationResponse::default())
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<AllocateResponse, Status> {
        Err(Status::failed_precondition(format!("asked for {}", request.into_inner().container_requests.len())))
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("did not happen in time")
}

#[tokio::test]
async fn a_plugin_registers_sends_changes_and_registers_again_with_a_new_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let (devices, receiver) = watch::channel(DeviceSet::Numbered(3));
    let (stop, stopped) = watch::channel(false);
    let resource = Resource { name: "nvidia.com/gpu", devices: receiver, allocator: Arc::new(Echo) };
    // No kubelet yet: the plugin waits for one.
    let plugin = tokio::spawn(offer(resource, path.clone(), stopped));
    let (kubelet, mut registrations) = start_kubelet(&path);

    let registered = soon(registrations.recv()).await.unwrap();
    assert_eq!((registered.version.as_str(), registered.resource_name.as_str()), ("v1beta1", "nvidia.com/gpu"));
    assert!(registered.options.unwrap().get_preferred_allocation_available);

    let mut client = DevicePluginClient::new(connect(path.join(&registered.endpoint)).await.unwrap());
    let mut updates = client.list_and_watch(Empty {}).await.unwrap().into_inner();
    let first = soon(updates.message()).await.unwrap().unwrap();
    assert_eq!(first.devices.len(), 3);
    assert_eq!((first.devices[2].id.as_str(), first.devices[2].health.as_str()), ("mock-devices-id-2", "Healthy"));
    devices.send(DeviceSet::Listed(vec![("GPU-a-0".into(), false)])).unwrap();
    let second = soon(updates.message()).await.unwrap().unwrap();
    assert_eq!((second.devices[0].id.as_str(), second.devices[0].health.as_str()), ("GPU-a-0", "Unhealthy"));
    let request = AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids: vec!["GPU-a-0".into()] }] };
    assert_eq!(client.allocate(request).await.unwrap_err().message(), "asked for 1");

    kubelet.abort();
    let (_kubelet, mut registrations) = start_kubelet(&path);
    let again = soon(registrations.recv()).await.unwrap();
    let mut client = DevicePluginClient::new(connect(path.join(&again.endpoint)).await.unwrap());
    let mut updates = client.list_and_watch(Empty {}).await.unwrap().into_inner();
    assert_eq!(soon(updates.message()).await.unwrap().unwrap().devices[0].id, "GPU-a-0");

    stop.send(true).unwrap();
    soon(plugin).await.unwrap();
    assert!(!path.join(&again.endpoint).exists());
}
