//! The PodResources service: which containers have which devices, for monitors and plugins.

use std::sync::Arc;

use atoll_node_protocol::pod_resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use atoll_node_protocol::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use k8s_openapi::api::core::v1::Pod;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::Devices;
use crate::error::{Error, Result};
use crate::limits;
use crate::pods::resources::containers;

/// The Pods that count: those that the node has taken and that have not ended.
pub type ActivePods = Arc<dyn Fn() -> Vec<Arc<Pod>> + Send + Sync>;

struct Service {
    devices: Arc<Devices>,
    pods: ActivePods,
}

impl Service {
    fn of(&self, pod: &Pod) -> PodResources {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let inner = self.devices.inner.lock();
        let containers = containers(pod).map(|c| ContainerResources {
            name: c.name.clone(),
            devices: inner
                .allocations
                .resources(uid, &c.name)
                .map(|(resource, ids)| ContainerDevices {
                    resource_name: resource.clone(),
                    device_ids: ids.iter().cloned().collect(),
                    topology: None,
                })
                .collect(),
            ..ContainerResources::default()
        });
        PodResources {
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            containers: containers.collect(),
        }
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> std::result::Result<Response<ListPodResourcesResponse>, Status> {
        let pod_resources = (self.pods)().iter().map(|pod| self.of(pod)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> std::result::Result<Response<AllocatableResourcesResponse>, Status> {
        let inner = self.devices.inner.lock();
        let present = inner.resources.iter().filter(|(_, r)| r.gone_since.is_none());
        let devices = present
            .map(|(name, r)| ContainerDevices {
                resource_name: name.clone(),
                device_ids: r.healthy.iter().cloned().collect(),
                topology: None,
            })
            .collect();
        Ok(Response::new(AllocatableResourcesResponse { devices, ..AllocatableResourcesResponse::default() }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> std::result::Result<Response<GetPodResourcesResponse>, Status> {
        let wanted = request.into_inner();
        let is_it = |pod: &&Arc<Pod>| {
            pod.metadata.name.as_ref() == Some(&wanted.pod_name) && pod.metadata.namespace.as_ref() == Some(&wanted.pod_namespace)
        };
        let pods = (self.pods)();
        let pod = pods.iter().find(is_it);
        let pod = pod.ok_or_else(|| {
            Status::not_found(format!("pod {} in namespace {} not found", wanted.pod_name, wanted.pod_namespace))
        })?;
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(self.of(pod)) }))
    }
}

impl Devices {
    /// Serves PodResources until dropped.
    pub async fn serve_pod_resources(self: Arc<Self>, pods: ActivePods) -> Result<()> {
        let path = self.paths.pod_resources();
        let _ = std::fs::remove_file(&path);
        let failed = |source| Error::Listen { address: path.display().to_string(), source };
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let service = PodResourcesListerServer::new(Service { devices: self, pods })
            .max_encoding_message_size(limits::PLUGIN_MESSAGE_BYTES_MAX);
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .map_err(|e| Error::Device { resource: "PodResources".to_owned(), why: e.to_string() })
    }
}
