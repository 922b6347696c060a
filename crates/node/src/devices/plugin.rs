//! Calls to a device plugin.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use atoll_node_protocol::device_plugin::device_plugin_client::DevicePluginClient;
use atoll_node_protocol::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, PreStartContainerRequest,
    PreferredAllocationRequest,
};
use atoll_node_protocol::identity::AllocationIdentity;
use k8s_openapi::api::core::v1::{Container, Pod};
use tonic::transport::{Channel, Endpoint};

use super::allocation::{Choice, Given, choice, pick};
use super::{Devices, Resource};
use crate::error::{Error, Result};
use crate::limits;
use crate::pods::resources::{containers, is_sidecar, limit};

fn failed(resource: &str, why: impl ToString) -> Error {
    Error::Device { resource: resource.to_owned(), why: why.to_string() }
}

/// Connects to a plugin's socket.
pub async fn connect(resource: &str, endpoint: &Path) -> Result<DevicePluginClient<Channel>> {
    let uri = format!("unix://{}", endpoint.display());
    let endpoint = Endpoint::from_shared(uri).map_err(|e| failed(resource, e))?.connect_timeout(limits::PLUGIN_TIMEOUT);
    let channel = endpoint.connect().await.map_err(|e| failed(resource, e))?;
    let size = limits::PLUGIN_MESSAGE_BYTES_MAX;
    Ok(DevicePluginClient::new(channel).max_decoding_message_size(size).max_encoding_message_size(size))
}

impl Devices {
    /// Chooses and allocates all devices of a Pod. On a failure it has none.
    pub async fn allocate(&self, pod: &Pod) -> Result<()> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let _one = self.allocating.lock().await;
        let mut left_behind = std::collections::BTreeMap::<String, BTreeSet<String>>::new();
        let inits = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten()).count();
        for (i, container) in containers(pod).enumerate() {
            for (name, wanted) in self.wants(container) {
                let reusable = left_behind.get(&name).cloned().unwrap_or_default();
                match self.allocate_one(&uid, container, &name, wanted, &reusable).await {
                    // What a finished init container had, a later container may have.
                    Ok(ids) if i < inits && !is_sidecar(container) => left_behind.entry(name).or_default().extend(ids),
                    Ok(ids) => left_behind.entry(name).or_default().retain(|id| !ids.contains(id)),
                    Err(e) => {
                        self.free(&uid);
                        return Err(e);
                    }
                }
            }
        }
        if inits > 0 || containers(pod).any(|c| !self.wants(c).is_empty()) {
            self.save();
        }
        Ok(())
    }

    /// Plugins' resources in a container's limits. One that has not told its devices yet is nobody's so far.
    pub(super) fn wants(&self, container: &Container) -> Vec<(String, usize)> {
        let inner = self.inner.lock();
        let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
        let names = limits.into_iter().flat_map(|l| l.keys());
        let is_listed = |name: &String| inner.resources.get(name).is_some_and(|r| r.is_listed);
        let known = names.filter(|n| is_listed(n) || inner.remembered.contains(*n));
        let amount = |name: &String| limit(container.resources.as_ref(), name).and_then(|m| usize::try_from(m / 1000).ok());
        known.filter_map(|n| amount(n).filter(|a| *a > 0).map(|a| (n.clone(), a))).collect()
    }

    async fn allocate_one(
        &self,
        uid: &str,
        container: &Container,
        name: &str,
        wanted: usize,
        left_behind: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>> {
        let (resource, choice) = self.choice(name, left_behind)?;
        let short = || {
            let have = choice.free.len() + choice.reusable.len();
            failed(name, format!("requested number of devices unavailable for {name}. Requested: {wanted}, Available: {have}"))
        };
        if choice.free.len() + choice.reusable.len() < wanted {
            return Err(short());
        }
        let mut client = connect(name, &resource.endpoint).await?;
        let preferred = preferred(&mut client, &resource, &choice, wanted).await;
        let ids = pick(&choice, &preferred, wanted).ok_or_else(short)?;
        let request = ContainerAllocateRequest { devices_ids: ids.iter().cloned().collect() };
        let mut call = tonic::Request::new(AllocateRequest { container_requests: vec![request] });
        let identity = AllocationIdentity { pod_uid: uid.to_owned(), container: container.name.clone() };
        identity.write(call.metadata_mut()).map_err(|e| failed(name, e))?;
        call.set_timeout(limits::PLUGIN_TIMEOUT);
        let answer = client.allocate(call).await.map_err(|e| failed(name, e.message()))?.into_inner();
        let [answer] = <[_; 1]>::try_from(answer.container_responses)
            .map_err(|all| failed(name, format!("Allocate answered for {} containers instead of one", all.len())))?;
        let given = Given::new(ids.clone(), answer);
        self.inner.lock().allocations.insert(uid, &container.name, name, given);
        Ok(ids)
    }

    fn choice(&self, name: &str, left_behind: &BTreeSet<String>) -> Result<(Resource, Choice)> {
        let inner = self.inner.lock();
        let resource = inner.resources.get(name).filter(|r| r.gone_since.is_none());
        let resource = resource.ok_or_else(|| failed(name, "no plugin offers this resource at the moment"))?;
        let choice = choice(&resource.healthy, &inner.allocations.used(name), left_behind);
        Ok((resource.clone(), choice))
    }

    /// Tells plugins that want to know that a container with their devices is about to start.
    pub async fn before_start(&self, uid: &str, container: &str) -> Result<()> {
        let calls: Vec<(String, PathBuf, Vec<String>)> = {
            let inner = self.inner.lock();
            let given = inner.allocations.resources(uid, container);
            given
                .filter_map(|(name, ids)| {
                    let resource = inner.resources.get(name).filter(|r| r.pre_start)?;
                    Some((name.clone(), resource.endpoint.clone(), ids.iter().cloned().collect()))
                })
                .collect()
        };
        for (name, endpoint, ids) in calls {
            let mut client = connect(&name, &endpoint).await?;
            let mut call = tonic::Request::new(PreStartContainerRequest { devices_ids: ids });
            call.set_timeout(3 * limits::PLUGIN_TIMEOUT);
            client.pre_start_container(call).await.map_err(|e| failed(&name, e.message()))?;
        }
        Ok(())
    }
}

/// The plugin's preference is advice: without an answer the first free devices do.
async fn preferred(client: &mut DevicePluginClient<Channel>, resource: &Resource, choice: &Choice, wanted: usize) -> Vec<String> {
    if !resource.preferred_allocation || choice.free.len() + choice.reusable.len() == wanted {
        return Vec::new();
    }
    let mut available: Vec<String> = choice.free.clone();
    available.extend(choice.reusable.iter().filter(|id| !choice.free.contains(id)).cloned());
    let request = ContainerPreferredAllocationRequest {
        available_device_i_ds: available,
        must_include_device_i_ds: choice.reusable.iter().take(wanted).cloned().collect(),
        allocation_size: i32::try_from(wanted).unwrap_or(i32::MAX),
    };
    let mut call = tonic::Request::new(PreferredAllocationRequest { container_requests: vec![request] });
    call.set_timeout(limits::PLUGIN_TIMEOUT);
    match client.get_preferred_allocation(call).await {
        Ok(answer) => answer.into_inner().container_responses.into_iter().next().map(|r| r.device_i_ds).unwrap_or_default(),
        Err(e) => {
            tracing::warn!("no preferred devices: {}", e.message());
            Vec::new()
        }
    }
}
