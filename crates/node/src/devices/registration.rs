//! The Registration service on `kubelet.sock`, and the listeners that follow the plugins.

use std::sync::Arc;

use atoll_node_protocol::device_plugin::registration_server::{Registration, RegistrationServer};
use atoll_node_protocol::device_plugin::{self, DevicePluginOptions, Empty, HEALTHY, ListAndWatchResponse, RegisterRequest};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::{Devices, Resource, is_extended, plugin};
use crate::error::{Error, Result};
use crate::limits;

struct Service(Arc<Devices>);

#[tonic::async_trait]
impl Registration for Service {
    async fn register(&self, request: Request<RegisterRequest>) -> std::result::Result<Response<Empty>, Status> {
        let request = request.into_inner();
        if request.version != device_plugin::VERSION {
            let message = format!("version {:?} is not {}", request.version, device_plugin::VERSION);
            return Err(Status::invalid_argument(message));
        }
        if !is_extended(&request.resource_name) {
            let message = format!("{:?} is not the name of an extended resource", request.resource_name);
            return Err(Status::invalid_argument(message));
        }
        let endpoint = request.endpoint.as_str();
        if endpoint.is_empty() || endpoint.contains('/') {
            return Err(Status::invalid_argument("endpoint must be a file name in the device plugin directory"));
        }
        let devices = self.0.clone();
        let options = request.options.unwrap_or_default();
        let registration = devices.register(&request.resource_name, endpoint, options);
        tokio::spawn(async move { devices.listen(request.resource_name, registration).await });
        Ok(Response::new(Empty {}))
    }
}

impl Devices {
    /// Serves registrations until dropped. The socket is made anew, by which plugins see that they have to come again.
    pub async fn serve(self: Arc<Self>) -> Result<()> {
        let path = self.directory().join(device_plugin::KUBELET_SOCKET);
        let _ = std::fs::remove_file(&path);
        let failed = |source| Error::Listen { address: path.display().to_string(), source };
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let service = RegistrationServer::new(Service(self.clone())).max_decoding_message_size(limits::PLUGIN_MESSAGE_BYTES_MAX);
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .map_err(|e| Error::Device { resource: "registration".to_owned(), why: e.to_string() })
    }

    pub(super) fn register(&self, name: &str, endpoint: &str, options: DevicePluginOptions) -> u64 {
        let mut inner = self.inner.lock();
        inner.registrations += 1;
        let registration = inner.registrations;
        let resource = inner.resources.entry(name.to_owned()).or_insert_with(|| Resource {
            endpoint: Default::default(),
            preferred_allocation: false,
            pre_start: false,
            healthy: Arc::default(),
            unhealthy: 0,
            is_listed: false,
            gone_since: None,
            registration,
        });
        resource.endpoint = self.directory().join(endpoint);
        resource.preferred_allocation = options.get_preferred_allocation_available;
        resource.pre_start = options.pre_start_required;
        resource.registration = registration;
        registration
    }

    /// Follows a plugin's device list until it ends or another registration takes its place.
    async fn listen(&self, name: String, registration: u64) {
        let endpoint = self.inner.lock().resources.get(&name).map(|r| r.endpoint.clone());
        let Some(endpoint) = endpoint else { return };
        tracing::info!(resource = %name, "device plugin registered");
        if let Err(e) = self.follow(&name, &endpoint, registration).await {
            tracing::warn!("{e}");
        }
        let mut inner = self.inner.lock();
        if let Some(resource) = inner.resources.get_mut(&name).filter(|r| r.registration == registration) {
            resource.gone_since = Some(std::time::Instant::now());
            tracing::warn!(resource = %name, "device plugin is gone");
        }
        drop(inner);
        self.save();
        self.changed();
    }

    async fn follow(&self, name: &str, endpoint: &std::path::Path, registration: u64) -> Result<()> {
        let failed = |e: Status| Error::Device { resource: name.to_owned(), why: e.message().to_owned() };
        let mut client = plugin::connect(name, endpoint).await?;
        let mut lists = client.list_and_watch(Empty {}).await.map_err(failed)?.into_inner();
        while let Some(list) = lists.message().await.map_err(failed)? {
            if !self.take_list(name, registration, list) {
                return Ok(());
            }
            self.save();
            self.changed();
        }
        Ok(())
    }

    /// Takes a device list; `false` if this registration is not the current one.
    pub(super) fn take_list(&self, name: &str, registration: u64, list: ListAndWatchResponse) -> bool {
        let all = list.devices.len();
        let healthy: std::collections::BTreeSet<String> =
            list.devices.into_iter().filter(|d| d.health == HEALTHY).map(|d| d.id).collect();
        let mut inner = self.inner.lock();
        let Some(resource) = inner.resources.get_mut(name).filter(|r| r.registration == registration) else { return false };
        resource.unhealthy = all.saturating_sub(healthy.len());
        resource.healthy = Arc::new(healthy);
        resource.is_listed = true;
        resource.gone_since = None;
        inner.remembered.remove(name);
        true
    }
}
