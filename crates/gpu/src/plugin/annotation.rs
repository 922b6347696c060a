//! The device plugin of a node whose cards are declared by its annotation: offers `nvidia.com/gpu` and hands out what the
//! scheduler recorded.

use std::sync::Arc;

use atoll_devices::RequestDefaults;
use atoll_devices::inventory::Card;
use atoll_devices::names::{annotation, phase, resource};
use atoll_devices::pod::PodView;
use atoll_node_protocol::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use atoll_node_protocol::identity::AllocationIdentity;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tonic::{Request, Status};

use super::PluginOptions;
use super::allocate::{self, Hook, region_directory};
use super::inventory::{self, Cards};
use super::record::{self, Grant, Here};
use super::settle::{self, Open};
use super::socket::{Allocator, DeviceSet, Resource, offer};
use crate::error::{Error, Result, call};
use crate::limits;

/// Offers `nvidia.com/gpu` until `shutdown` resolves: a device a slot, `UUID-N`.
pub async fn run(options: PluginOptions, client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let (cards, current) = watch::channel(Cards::default());
    let (stop, stopped) = watch::channel(false);
    let (devices, receiver) = watch::channel(DeviceSet::Listed(Vec::new()));
    let mut source = cards.subscribe();
    let spelling = async move {
        while source.changed().await.is_ok() {
            let new = DeviceSet::Listed(slots(&source.borrow_and_update()));
            devices.send_if_modified(|current| std::mem::replace(current, new.clone()) != new);
        }
    };
    let allocator = Recorded {
        client: client.clone(),
        node: options.node_name.clone(),
        cards: current,
        defaults: RequestDefaults { memory_factor: options.memory_factor, ..RequestDefaults::default() },
        hook: options.hook,
        shape: Mutex::new(()),
        open: Open::default(),
    };
    let settling = settle::run(client.clone(), options.pod_resources_socket, allocator.open.clone());
    let resource = Resource { name: resource::GPU, devices: receiver, allocator: Arc::new(allocator) };
    let offering = tokio::spawn(offer(resource, options.socket_directory, stopped));
    tokio::select! {
        () = inventory::follow(client, options.node_name, cards) => {}
        () = spelling => {}
        () = settling => {}
        () = shutdown => {}
    }
    let _ = stop.send(true);
    let _ = offering.await;
    Ok(())
}

fn slots(cards: &[Card]) -> Vec<(String, bool)> {
    cards.iter().flat_map(|card| (0..card.count).map(|slot| (format!("{}-{slot}", card.id), card.health))).collect()
}

/// Hands out what the Pods' annotations record.
struct Recorded {
    client: kube::Client,
    node: String,
    cards: watch::Receiver<Cards>,
    defaults: RequestDefaults,
    hook: Option<Hook>,
    /// Held while a kubelet's request is matched and marked as served, so that no record serves two.
    shape: Mutex<()>,
    /// What was matched by shape and is to be checked against what the kubelet did with it.
    open: Open,
}

#[async_trait::async_trait]
impl Allocator for Recorded {
    fn prefers(&self) -> bool {
        true
    }

    async fn prefer(&self, request: Request<PreferredAllocationRequest>) -> Result<PreferredAllocationResponse, Status> {
        let pods = self.pods().await.map_err(unavailable)?;
        let cards = self.cards.borrow().clone();
        let containers = request.into_inner().container_requests;
        let container_responses = containers.iter().map(|wanted| {
            let size = usize::try_from(wanted.allocation_size).unwrap_or(0);
            let ids = record::preferred(&pods, &wanted.available_device_i_ds, size, self.here(&cards));
            ContainerPreferredAllocationResponse { device_i_ds: ids }
        });
        Ok(PreferredAllocationResponse { container_responses: container_responses.collect() })
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<AllocateResponse, Status> {
        let identity = AllocationIdentity::read(request.metadata()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let containers = request.into_inner().container_requests;
        let mut container_responses = Vec::with_capacity(containers.len());
        for wanted in &containers {
            let granted = match &identity {
                Some(identity) => self.by_identity(identity, wanted.devices_ids.len()).await,
                None => self.by_shape(&wanted.devices_ids).await,
            };
            let grant = granted.inspect_err(|status| tracing::warn!(status = status.message(), "nothing was handed out"))?;
            container_responses.push(self.hand_out(&grant).await?);
        }
        Ok(AllocateResponse { container_responses })
    }
}

fn unavailable(error: Error) -> Status {
    Status::unavailable(error.to_string())
}

impl Recorded {
    fn here<'a>(&'a self, cards: &'a [Card]) -> Here<'a> {
        Here { node: &self.node, cards, defaults: &self.defaults }
    }

    async fn pods(&self) -> Result<Vec<PodView>> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        Ok(call(api.list(&on_node)).await?.items.iter().filter_map(crate::view).collect())
    }

    /// The record of the Pod that the node agent names. The agent may have seen the binding before this process can.
    async fn by_identity(&self, identity: &AllocationIdentity, count: usize) -> Result<Grant, Status> {
        let deadline = tokio::time::Instant::now() + limits::RECORD_TIMEOUT;
        let pod = loop {
            let found = match self.pods().await {
                Ok(pods) => pods
                    .into_iter()
                    .find(|pod| pod.metadata.uid == identity.pod_uid)
                    .ok_or_else(|| Status::not_found(format!("no pod on node {} has UID {}", self.node, identity.pod_uid))),
                Err(error) => Err(unavailable(error)),
            };
            match found {
                Ok(pod) => break pod,
                Err(status) if tokio::time::Instant::now() >= deadline => return Err(status),
                Err(_) => tokio::time::sleep(limits::RECORD_PAUSE).await,
            }
        };
        let cards = self.cards.borrow().clone();
        match record::of_container(&pod, &identity.container, count, self.here(&cards)) {
            Ok(grant) => {
                // The record names the Pod, so serving it again is harmless; a mark that was not written is only a late one.
                if let Err(error) = self.mark_served(&grant).await {
                    tracing::warn!(pod = grant.pod, %error, "bind-phase was not written");
                }
                Ok(grant)
            }
            Err(why) => {
                self.mark_failed(&pod).await;
                let name = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
                Err(Status::failed_precondition(format!("pod {name} {why}")))
            }
        }
    }

    /// The record that a kubelet's request fits. Marked as served before it is handed out, else it could serve two.
    async fn by_shape(&self, ids: &[String]) -> Result<Grant, Status> {
        let _one_at_a_time = self.shape.lock().await;
        let pods = self.pods().await.map_err(unavailable)?;
        let cards = self.cards.borrow().clone();
        let grant = record::of_shape(&pods, ids, self.here(&cards)).map_err(Status::failed_precondition)?;
        self.mark_served(&grant).await.map_err(unavailable)?;
        self.open.add(&grant, ids);
        Ok(grant)
    }

    async fn hand_out(&self, grant: &Grant) -> Result<atoll_node_protocol::device_plugin::ContainerAllocateResponse, Status> {
        if let Some(hook) = &self.hook {
            make_region_directory(hook, grant).await.map_err(|error| Status::internal(error.to_string()))?;
        }
        let cards: Vec<&str> = grant.slices.iter().map(|slice| slice.uuid.0.as_str()).collect();
        let Grant { namespace, pod, container, .. } = grant;
        crate::say(format_args!("allocated pod={namespace}/{pod} container={container} cards={}", cards.join(",")));
        Ok(allocate::response(&grant.slices, &grant.pod_uid, &grant.container, grant.preload, self.hook.as_ref()))
    }

    /// Takes the container out of `to-allocate`; the last one makes the phase `success`.
    async fn mark_served(&self, grant: &Grant) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &grant.namespace);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let pod = call(api.get(&grant.pod)).await?;
            let Some(view) = crate::view(&pod).filter(|view| view.metadata.uid == grant.pod_uid) else {
                return Err(Error::Option(format!("pod {} was replaced", grant.pod)));
            };
            let cards = self.cards.borrow().clone();
            let (rest, phase) = record::served(&view, grant.position, self.here(&cards)).map_err(Error::Option)?;
            let annotations = json!({annotation::TO_ALLOCATE: rest, annotation::BIND_PHASE: phase});
            let patch = json!({"metadata": {
                "uid": grant.pod_uid, "resourceVersion": pod.metadata.resource_version, "annotations": annotations}});
            match call(api.patch(&grant.pod, &PatchParams::default(), &Patch::Merge(patch))).await {
                // Somebody wrote at the same time; what remains has to be read again.
                Err(error) if error.is_status(409) && attempt < limits::DECISION_ATTEMPTS_MAX => {}
                other => return other.map(drop),
            }
        }
    }

    async fn mark_failed(&self, pod: &PodView) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.metadata.namespace);
        let patch = json!({"metadata": {"uid": pod.metadata.uid, "annotations": {annotation::BIND_PHASE: phase::FAILED}}});
        if let Err(error) = call(api.patch(&pod.metadata.name, &PatchParams::default(), &Patch::Merge(patch))).await {
            tracing::warn!(pod = pod.metadata.name, %error, "bind-phase was not written");
        }
    }
}

/// HAMi-core's shared region is written by the container under whatever id it runs.
async fn make_region_directory(hook: &Hook, grant: &Grant) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let directory = region_directory(hook, &grant.pod_uid, &grant.container);
    let what = || directory.display().to_string();
    tokio::fs::create_dir_all(&directory).await.map_err(Error::io(what()))?;
    let open = std::fs::Permissions::from_mode(0o777);
    tokio::fs::set_permissions(&directory, open).await.map_err(Error::io(what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_offered_by_its_slots() {
        let mut cards = "2xA100-80GB".parse::<atoll_devices::cards::CardSpec>().unwrap().cards("w");
        cards[1].health = false;
        let slots = slots(&cards);
        assert_eq!(slots.len(), 20);
        assert_eq!(slots[0], (format!("{}-0", cards[0].id), true));
        assert_eq!(slots[19], (format!("{}-9", cards[1].id), false));
        assert!(slots.iter().all(|(id, _)| id.len() <= atoll_node_protocol::device_plugin::DEVICE_ID_BYTES_MAX));
    }
}

#[cfg(test)]
mod allocation_tests;
