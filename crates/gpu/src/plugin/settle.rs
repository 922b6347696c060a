//! After a kubelet was served by the shape of its request: whose devices did they become?
//!
//! The kubelet tells by its PodResources interface. If they are another Pod's than the one whose record was handed out, the
//! records are exchanged where both are equal in size, since then nothing but the name differs. Anything else is a
//! container with limits that are not its own: that Pod is ended, and an event on it says why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use atoll_devices::names::{annotation, phase, resource};
use atoll_devices::{Allocation, Slice};
use atoll_node_protocol::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use atoll_node_protocol::pod_resources::{ListPodResourcesRequest, PodResources};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde_json::json;

use super::record::{Grant, containers};
use super::socket::connect;
use crate::error::{Error, Result, call};
use crate::limits;

/// A container of a Pod by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    namespace: String,
    pod: String,
    container: String,
}

/// A record that was handed out for these ids.
#[derive(Clone, Debug)]
struct Handed {
    ids: BTreeSet<String>,
    to: Place,
    slices: Vec<Slice>,
    at: Instant,
}

/// What is not checked yet; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Open(Arc<Mutex<Vec<Handed>>>);

impl Open {
    /// Remembers a grant.
    pub fn add(&self, grant: &Grant, ids: &[String]) {
        let to = Place { namespace: grant.namespace.clone(), pod: grant.pod.clone(), container: grant.container.clone() };
        let handed = Handed { ids: ids.iter().cloned().collect(), to, slices: grant.slices.clone(), at: Instant::now() };
        let mut open = self.0.lock();
        // The same ids again: what they stood for before is over.
        open.retain(|other| other.ids != handed.ids);
        if open.len() < limits::SETTLE_OPEN_MAX {
            open.push(handed);
        }
    }
}

/// What the kubelet's answer means for one grant.
#[derive(Debug, PartialEq)]
enum Finding {
    /// No container has these devices yet.
    Unknown,
    /// The one it was meant for has them.
    AsMeant,
    /// Another one has them.
    Elsewhere(Place),
}

/// Which container has which ids of `nvidia.com/gpu`.
fn owners(pods: &[PodResources]) -> BTreeMap<BTreeSet<String>, Place> {
    let mut owners = BTreeMap::new();
    for pod in pods {
        for container in &pod.containers {
            let devices = container.devices.iter().filter(|devices| devices.resource_name == resource::GPU);
            let ids: BTreeSet<String> = devices.flat_map(|devices| devices.device_ids.iter().cloned()).collect();
            if !ids.is_empty() {
                let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
                owners.insert(ids, Place { namespace, pod, container: container.name.clone() });
            }
        }
    }
    owners
}

fn finding(handed: &Handed, owners: &BTreeMap<BTreeSet<String>, Place>) -> Finding {
    match owners.get(&handed.ids) {
        None => Finding::Unknown,
        Some(place) if *place == handed.to => Finding::AsMeant,
        Some(place) => Finding::Elsewhere(place.clone()),
    }
}

/// Checks for as long as it is polled.
pub async fn run(client: kube::Client, socket: PathBuf, open: Open) {
    loop {
        tokio::time::sleep(limits::SETTLE_PERIOD).await;
        open.0.lock().retain(|handed| handed.at.elapsed() < limits::SETTLE_TIMEOUT);
        if open.0.lock().is_empty() || !socket.exists() {
            continue;
        }
        if let Err(error) = once(&client, &socket, &open).await {
            tracing::warn!(%error, "allocations are not checked yet");
        }
    }
}

/// One look at the kubelet's answer.
pub async fn once(client: &kube::Client, socket: &std::path::Path, open: &Open) -> Result<()> {
    let listed = async {
        let mut lister = PodResourcesListerClient::new(connect(socket.to_owned()).await?)
            .max_decoding_message_size(limits::NODE_AGENT_MESSAGE_BYTES_MAX);
        let failed = |status: tonic::Status| Error::NodeAgent { what: "PodResources", message: status.to_string() };
        Ok::<_, Error>(lister.list(ListPodResourcesRequest {}).await.map_err(failed)?.into_inner().pod_resources)
    };
    let timeout = || Error::NodeAgent { what: "PodResources", message: "no answer".to_owned() };
    let owners = owners(&tokio::time::timeout(limits::NODE_AGENT_TIMEOUT, listed).await.map_err(|_| timeout())??);
    let handed: Vec<Handed> = open.0.lock().clone();
    for handed in handed {
        match finding(&handed, &owners) {
            Finding::Unknown => continue,
            Finding::AsMeant => {}
            Finding::Elsewhere(place) => exchange(client, open, &handed, &place).await?,
        }
        open.0.lock().retain(|other| other.ids != handed.ids);
    }
    Ok(())
}

/// A Pod with its record, at the position of one container.
struct Recorded {
    pod: Pod,
    record: Allocation,
    rest: Allocation,
    position: usize,
}

impl Recorded {
    async fn read(client: &kube::Client, place: &Place) -> Result<Option<Self>> {
        let api: Api<Pod> = Api::namespaced(client.clone(), &place.namespace);
        let Some(pod) = call(api.get_opt(&place.pod)).await? else { return Ok(None) };
        let Some(view) = crate::view(&pod) else { return Ok(None) };
        let decode = |key| Allocation::decode(key, view.annotation(key).unwrap_or_default());
        let (record, rest) = (decode(annotation::ALLOCATED)?, decode(annotation::TO_ALLOCATE)?);
        let position = containers(&view).position(|container| container.name == place.container);
        Ok(position.map(|position| Self { pod, record, rest, position }))
    }

    fn slices(&self) -> &[Slice] {
        self.record.containers.get(self.position).map_or(&[], Vec::as_slice)
    }

    fn is_waiting(&self) -> bool {
        self.rest.containers.get(self.position).is_some_and(|slices| !slices.is_empty())
    }

    /// Writes `slices` as the container's record, and as still to be handed out if `waiting`.
    async fn write(&mut self, client: &kube::Client, slices: &[Slice], waiting: bool) -> Result<()> {
        put(&mut self.record, self.position, slices);
        put(&mut self.rest, self.position, if waiting { slices } else { &[] });
        let phase = if self.rest.is_empty() { phase::SUCCESS } else { phase::ALLOCATING };
        let annotations = json!({
            annotation::ALLOCATED: self.record.encode(),
            annotation::TO_ALLOCATE: self.rest.encode(),
            annotation::BIND_PHASE: phase,
        });
        let metadata = &self.pod.metadata;
        let patch = json!({"metadata": {
            "uid": metadata.uid, "resourceVersion": metadata.resource_version, "annotations": annotations}});
        let api: Api<Pod> = Api::namespaced(client.clone(), metadata.namespace.as_deref().unwrap_or_default());
        let name = metadata.name.clone().unwrap_or_default();
        self.pod = call(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        Ok(())
    }
}

fn put(allocation: &mut Allocation, position: usize, slices: &[Slice]) {
    if allocation.containers.len() <= position {
        allocation.containers.resize(position + 1, Vec::new());
    }
    allocation.containers[position] = slices.to_vec();
}

/// Whether two containers' slices differ in nothing but the cards.
fn equal_in_size(a: &[Slice], b: &[Slice]) -> bool {
    let sizes = |slices: &[Slice]| {
        let mut sizes: Vec<(u64, u32)> = slices.iter().map(|slice| (slice.memory_mib, slice.cores)).collect();
        sizes.sort_unstable();
        sizes
    };
    sizes(a) == sizes(b)
}

/// `actual` runs with what was meant for `handed.to`.
async fn exchange(client: &kube::Client, open: &Open, handed: &Handed, actual: &Place) -> Result<()> {
    let (meant, other) = (Recorded::read(client, &handed.to).await?, Recorded::read(client, actual).await?);
    let Some(mut other) = other else { return Ok(()) };
    let own = other.slices().to_vec();
    let (equal, Some(mut meant)) = (equal_in_size(&own, &handed.slices), meant) else {
        return end(client, &other.pod, handed).await;
    };
    if !equal {
        // The one it was meant for still has to get it.
        meant.write(client, &handed.slices, true).await?;
        return end(client, &other.pod, handed).await;
    }
    let waiting = other.is_waiting();
    // Both cards are recorded for one of the two until both writes are through, so that neither looks free in between.
    let both: Vec<Slice> = own.iter().chain(&handed.slices).cloned().collect();
    other.write(client, &both, false).await?;
    meant.write(client, &own, waiting).await?;
    other.write(client, &handed.slices, false).await?;
    // What was handed out for the other's record meanwhile stands for the first one's now.
    for open in open.0.lock().iter_mut().filter(|open| open.to == *actual) {
        open.to = handed.to.clone();
    }
    crate::say(format_args!(
        "records exchanged: {}/{} and {}/{}",
        handed.to.namespace, handed.to.pod, actual.namespace, actual.pod
    ));
    Ok(())
}

/// Ends a Pod that runs with another one's limits.
async fn end(client: &kube::Client, pod: &Pod, handed: &Handed) -> Result<()> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let note = format!(
        "the node agent gave this pod the devices of {}/{}, which has other limits; it is deleted so that none runs with limits not its own",
        handed.to.namespace, handed.to.pod
    );
    tracing::error!(pod = name, note);
    let controller = "hami-device-plugin".to_owned();
    let recorder = Recorder::new(client.clone(), Reporter { instance: Some(controller.clone()), controller });
    let (reason, action) = ("AllocationMismatch".to_owned(), "Allocate".to_owned());
    let event = Event { type_: EventType::Warning, reason, note: Some(note), action, secondary: None };
    if let Err(error) = call(recorder.publish(&event, &pod.object_ref(&()))).await {
        tracing::debug!(%error, "event was not written");
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match call(api.delete(&name, &params)).await {
        Err(error) if !error.is_status(404) && !error.is_status(409) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use atoll_node_protocol::pod_resources::{ContainerDevices, ContainerResources};

    use super::*;

    fn place(pod: &str) -> Place {
        Place { namespace: "d".into(), pod: pod.into(), container: "c".into() }
    }

    fn handed(pod: &str, ids: &[&str]) -> Handed {
        Handed { ids: ids.iter().map(|id| (*id).to_owned()).collect(), to: place(pod), slices: vec![], at: Instant::now() }
    }

    fn resources(pod: &str, name: &str, ids: &[&str]) -> PodResources {
        let devices = ContainerDevices {
            resource_name: name.into(),
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            topology: None,
        };
        let container = ContainerResources { name: "c".into(), devices: vec![devices], ..ContainerResources::default() };
        PodResources { name: pod.into(), namespace: "d".into(), containers: vec![container] }
    }

    #[test]
    fn the_kubelets_answer_says_whose_the_devices_are() {
        let owners = owners(&[
            resources("p", "nvidia.com/gpu", &["GPU-a-1", "GPU-b-1"]),
            resources("q", "nvidia.com/gpu", &["GPU-a-2"]),
            resources("r", "nvidia.com/gpumem", &["GPU-a-3"]),
        ]);
        assert_eq!(finding(&handed("p", &["GPU-b-1", "GPU-a-1"]), &owners), Finding::AsMeant);
        assert_eq!(finding(&handed("p", &["GPU-a-2"]), &owners), Finding::Elsewhere(place("q")));
        assert_eq!(finding(&handed("p", &["GPU-a-3"]), &owners), Finding::Unknown);
    }

    #[test]
    fn only_slices_of_one_size_can_be_exchanged() {
        let slice = |uuid: &str, memory, cores| Slice::new(uuid.into(), memory, cores);
        assert!(equal_in_size(&[slice("a", 1, 2), slice("b", 3, 4)], &[slice("c", 3, 4), slice("d", 1, 2)]));
        assert!(!equal_in_size(&[slice("a", 1, 2)], &[slice("b", 1, 3)]));
        assert!(!equal_in_size(&[slice("a", 1, 2)], &[slice("b", 1, 2), slice("c", 1, 2)]));
    }
}
