//! Whose slices are to be handed out: pure, on the Pods of this node.
//!
//! With an identity (Atoll's node agent) the record of that Pod and container is checked and used. Without one (a kubelet)
//! a Pod is looked for that waits for just so many devices; among several the one whose recorded cards are those of the
//! kubelet's ids, else the one bound first. Never 'the first pending Pod' whatever it asks (HAMi issues 404, 2188).

use std::collections::BTreeMap;

use atoll_devices::inventory::Card;
use atoll_devices::names::{annotation, phase};
use atoll_devices::pod::{Container, PodView};
use atoll_devices::{Allocation, PodRequest, RequestDefaults, Slice};

use super::allocate::Preload;

/// What is to be handed out, and to whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// Its UID.
    pub pod_uid: String,
    /// Name of the container.
    pub container: String,
    /// Its position among init containers and containers.
    pub position: usize,
    /// Its slices.
    pub slices: Vec<Slice>,
    /// Whether HAMi-core is preloaded.
    pub preload: Preload,
}

/// This node, as records are checked against it.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Its cards.
    pub cards: &'a [Card],
    /// Defaults of requests.
    pub defaults: &'a RequestDefaults,
}

/// The grant for a container that the caller named, if its record is sound.
pub fn of_container(pod: &PodView, container: &str, count: usize, here: Here<'_>) -> Result<Grant, String> {
    let record = read(pod, annotation::ALLOCATED, here)?;
    let position = containers(pod).position(|c| c.name == container).ok_or_else(|| format!("has no container {container:?}"))?;
    grant(pod, position, record.containers.get(position).cloned().unwrap_or_default(), count, here)
}

/// The grant that a kubelet's request for these ids stands for.
pub fn of_shape(pods: &[PodView], ids: &[String], here: Here<'_>) -> Result<Grant, String> {
    let mut waiting: Vec<(bool, i64, Grant)> = Vec::new();
    let mut refusals = Vec::new();
    for pod in pods.iter().filter(|pod| is_waiting(pod)) {
        match next_of(pod, ids.len(), here) {
            Ok(Some(grant)) => {
                let bound_at = pod.annotation(annotation::BIND_TIME).and_then(|at| at.parse().ok()).unwrap_or(i64::MAX);
                waiting.push((!same_cards(&grant.slices, ids), bound_at, grant));
            }
            Ok(None) => {}
            Err(why) => refusals.push(format!("{}/{}: {why}", pod.metadata.namespace, pod.metadata.name)),
        }
    }
    waiting.sort_by(|a, b| (a.0, a.1, &a.2.pod_uid).cmp(&(b.0, b.1, &b.2.pod_uid)));
    match waiting.into_iter().next() {
        Some((_, _, grant)) => Ok(grant),
        None if refusals.is_empty() => Err(format!("no pod on this node waits for {} devices", ids.len())),
        None => Err(refusals.join("; ")),
    }
}

/// The ids of `available` that are on the recorded cards of a container that waits for `size` devices, if there are any.
pub fn preferred(pods: &[PodView], available: &[String], size: usize, here: Here<'_>) -> Vec<String> {
    let first = pods.iter().filter(|pod| is_waiting(pod)).filter_map(|pod| {
        let grant = next_of(pod, size, here).ok().flatten()?;
        let bound_at: i64 = pod.annotation(annotation::BIND_TIME).and_then(|at| at.parse().ok()).unwrap_or(i64::MAX);
        Some((bound_at, grant.pod_uid.clone(), grant))
    });
    let Some((_, _, grant)) = first.min_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1))) else { return Vec::new() };
    let chosen: Vec<String> =
        grant.slices.iter().filter_map(|slice| available.iter().find(|id| card_of(id) == slice.uuid.0).cloned()).collect();
    if chosen.len() == size { chosen } else { Vec::new() }
}

/// `GPU-…-3` is a replica of `GPU-…`.
fn card_of(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(card, _)| card)
}

fn same_cards(slices: &[Slice], ids: &[String]) -> bool {
    let mut count: BTreeMap<&str, i64> = BTreeMap::new();
    for slice in slices {
        *count.entry(&slice.uuid.0).or_default() += 1;
    }
    for id in ids {
        *count.entry(card_of(id)).or_default() -= 1;
    }
    count.values().all(|count| *count == 0)
}

/// All containers in the order of the annotations.
pub fn containers(pod: &PodView) -> impl Iterator<Item = &Container> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers)
}

fn is_waiting(pod: &PodView) -> bool {
    let phase = pod.annotation(annotation::BIND_PHASE);
    !pod.is_finished()
        && matches!(phase, Some(phase::ALLOCATING | phase::SUCCESS))
        && pod.annotation(annotation::TO_ALLOCATE).is_some()
}

/// The first container of the Pod that still waits, if it waits for `count` devices.
fn next_of(pod: &PodView, count: usize, here: Here<'_>) -> Result<Option<Grant>, String> {
    let record = read(pod, annotation::TO_ALLOCATE, here)?;
    let Some(position) = record.containers.iter().position(|slices| !slices.is_empty()) else { return Ok(None) };
    let slices = record.containers[position].clone();
    if slices.len() != count {
        return Ok(None);
    }
    grant(pod, position, slices, count, here).map(Some)
}

/// The record of a Pod that is on this node.
fn read(pod: &PodView, key: &'static str, here: Here<'_>) -> Result<Allocation, String> {
    if pod.is_finished() {
        return Err("has finished".to_owned());
    }
    if pod.spec.node_name != here.node {
        return Err(format!("is on node {:?}, not on {:?}", pod.spec.node_name, here.node));
    }
    let recorded = pod.annotation(annotation::VGPU_NODE).unwrap_or_default();
    if recorded != here.node {
        return Err(format!("its cards were chosen on node {recorded:?}, not on {:?}", here.node));
    }
    let text = pod.annotation(key).ok_or("the scheduler has recorded no cards for it; was it placed by another one?")?;
    let request = PodRequest::of_pod(pod, here.defaults).map_err(|e| e.to_string())?.ok_or("it asks for no cards")?;
    Allocation::decode(key, text).and_then(|record| record.aligned(key, &request)).map_err(|e| e.to_string())
}

fn grant(pod: &PodView, position: usize, slices: Vec<Slice>, count: usize, here: Here<'_>) -> Result<Grant, String> {
    let container = containers(pod).nth(position).ok_or("its record has more entries than it has containers")?;
    if slices.len() != count {
        return Err(format!(
            "device number not matched: container {:?} has {} recorded and is to get {count}",
            container.name,
            slices.len()
        ));
    }
    if let Some(unknown) = slices.iter().find(|slice| !here.cards.iter().any(|card| card.id == slice.uuid)) {
        return Err(format!("card {} is not on this node", unknown.uuid));
    }
    let disabled = container.env.iter().any(|var| var.name == "CUDA_DISABLE_CONTROL" && var.value == "true");
    Ok(Grant {
        namespace: pod.metadata.namespace.clone(),
        pod: pod.metadata.name.clone(),
        pod_uid: pod.metadata.uid.clone(),
        container: container.name.clone(),
        position,
        slices,
        preload: if disabled { Preload::No } else { Preload::Yes },
    })
}

/// What `to-allocate` and `bind-phase` become when the container at `position` was served.
pub fn served(pod: &PodView, position: usize, here: Here<'_>) -> Result<(String, &'static str), String> {
    let mut rest = read(pod, annotation::TO_ALLOCATE, here)?;
    if let Some(slices) = rest.containers.get_mut(position) {
        slices.clear();
    }
    let phase = if rest.is_empty() { phase::SUCCESS } else { phase::ALLOCATING };
    Ok((rest.encode(), phase))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DEFAULTS: RequestDefaults = RequestDefaults { gpu_count: 1, memory_factor: 1, memory_mib: 0, cores: 0 };

    fn cards() -> Vec<Card> {
        atoll_devices::inventory::decode("GPU-a,10,8000,100,T4,0,true:GPU-b,10,8000,100,T4,0,true").unwrap()
    }

    fn pod(name: &str, counts: &[u32], allocated: &str, bind_time: u32) -> PodView {
        let containers: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(at, count)| json!({"name": format!("c{at}"), "resources": {"limits": {"nvidia.com/gpu": count}}}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "d", "uid": name, "annotations": {
                "hami.io/vgpu-node": "n", "hami.io/bind-phase": "allocating", "hami.io/bind-time": bind_time.to_string(),
                "hami.io/vgpu-devices-to-allocate": allocated, "hami.io/vgpu-devices-allocated": allocated}},
            "spec": {"nodeName": "n", "containers": containers},
            "status": {"phase": "Pending"}
        }))
        .unwrap()
    }

    fn here(cards: &[Card]) -> Here<'_> {
        Here { node: "n", cards, defaults: &DEFAULTS }
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn each_container_gets_its_own_record() {
        let cards = cards();
        let pod = pod("p", &[1, 1], "GPU-a,NVIDIA,500,3:;GPU-b,NVIDIA,600,4:;", 1);
        assert_eq!(of_container(&pod, "c0", 1, here(&cards)).unwrap().slices, [Slice::new("GPU-a".into(), 500, 3)]);
        assert_eq!(of_container(&pod, "c1", 1, here(&cards)).unwrap().slices, [Slice::new("GPU-b".into(), 600, 4)]);
        assert_eq!(served(&pod, 0, here(&cards)).unwrap(), (";GPU-b,NVIDIA,600,4:;".to_owned(), "allocating"));
    }

    #[test]
    fn the_last_container_served_completes_the_pod() {
        let cards = cards();
        let pod = pod("p", &[1, 0], "GPU-a,NVIDIA,500,3:;;", 1);
        assert_eq!(served(&pod, 0, here(&cards)).unwrap(), (";;".to_owned(), "success"));
    }

    #[test]
    fn a_record_that_does_not_hold_is_refused_with_the_reason() {
        let cards = cards();
        let sound = pod("p", &[1], "GPU-a,NVIDIA,500,3:;", 1);
        let refusal = |pod: &PodView, container: &str, count| of_container(pod, container, count, here(&cards)).unwrap_err();
        assert!(refusal(&sound, "c0", 2).starts_with("device number not matched"));
        assert!(refusal(&sound, "other", 1).contains("no container"));
        let unknown = pod("p", &[1], "GPU-x,NVIDIA,500,3:;", 1);
        assert!(refusal(&unknown, "c0", 1).contains("GPU-x is not on this node"));
        let mut moved = sound.clone();
        moved.spec.node_name = "m".into();
        assert!(refusal(&moved, "c0", 1).contains("on node"));
        let mut other = sound.clone();
        other.metadata.annotations.insert("hami.io/vgpu-node".into(), "m".into());
        assert!(refusal(&other, "c0", 1).contains("chosen on node \"m\""));
        let mut bare = sound.clone();
        bare.metadata.annotations.remove("hami.io/vgpu-devices-allocated");
        assert!(refusal(&bare, "c0", 1).contains("recorded no cards"));
    }

    #[test]
    fn a_kubelets_request_goes_to_the_pod_of_its_shape() {
        let cards = cards();
        let pods = [
            pod("two", &[2], "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:;", 1),
            pod("late", &[1], "GPU-a,NVIDIA,500,3:;", 9),
            pod("early", &[1], "GPU-b,NVIDIA,500,3:;", 5),
        ];
        let grant = |asked: &[&str]| of_shape(&pods, &ids(asked), here(&cards)).map(|grant| grant.pod);
        assert_eq!(grant(&["GPU-a-1", "GPU-b-7"]), Ok("two".into()));
        assert_eq!(grant(&["GPU-a-0"]), Ok("late".into()), "the ids are of its card");
        assert_eq!(grant(&["GPU-c-0"]), Ok("early".into()), "bound first");
        assert!(grant(&["a", "b", "c"]).unwrap_err().contains("waits for 3 devices"));
    }

    #[test]
    fn the_kubelet_is_told_the_ids_of_the_recorded_cards() {
        let cards = cards();
        let pods = [pod("p", &[2], "GPU-b,NVIDIA,1,0:GPU-a,NVIDIA,1,0:;", 1)];
        let available = ids(&["GPU-a-3", "GPU-a-4", "GPU-b-9"]);
        assert_eq!(preferred(&pods, &available, 2, here(&cards)), ["GPU-b-9", "GPU-a-3"]);
        assert!(preferred(&pods, &available, 1, here(&cards)).is_empty());
        assert!(preferred(&pods, &ids(&["GPU-a-3"]), 2, here(&cards)).is_empty());
    }

    #[test]
    fn served_and_finished_pods_wait_for_nothing() {
        let cards = cards();
        let done = pod("done", &[1], ";", 1);
        let mut failed = pod("failed", &[1], "GPU-a,NVIDIA,1,0:;", 1);
        failed.status.phase = "Failed".into();
        assert!(of_shape(&[done, failed], &ids(&["GPU-a-0"]), here(&cards)).is_err());
    }
}
