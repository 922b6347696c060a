//! How the state follows what live Pods say.

use std::collections::BTreeSet;

use super::state::{Origin, State};
use super::{Ask, Generation, Observed};
use crate::allocation::Allocation;
use crate::names::{NodeName, PodUid, annotation};
use crate::pod::PodView;
use crate::request::PodRequest;

impl State {
    pub fn observe(&mut self, pod: &PodView) -> Observed {
        let uid = pod.uid();
        if pod.is_finished() {
            return if self.remove(&uid) { Observed::Freed } else { Observed::Unchanged };
        }
        let bound = pod.bound_node().is_some();
        match self.entries.get(&uid).map(|entry| entry.origin) {
            Some(Origin::Reserved | Origin::Confirmed) if !bound => return Observed::Unchanged,
            _ => {}
        }
        let Some(text) = pod.annotation(annotation::ALLOCATED) else {
            // A bound Pod cannot lose what its containers were given by losing an annotation.
            return if !bound && self.remove(&uid) { Observed::Freed } else { Observed::Unchanged };
        };
        let Some(node) = pod.device_node() else { return Observed::Unchanged };
        match self.read(pod, text) {
            Ok((ask, allocation)) => {
                if let Some(pods) = self.unreadable.get_mut(&node) {
                    pods.remove(&uid);
                }
                self.record(&ask, &node, allocation)
            }
            Err(problem) => {
                let known = self.unreadable.entry(node).or_default();
                match known.insert(uid, problem.clone()) {
                    Some(earlier) if earlier == problem => Observed::Unchanged,
                    _ => Observed::Recorded,
                }
            }
        }
    }

    fn read(&self, pod: &PodView, text: &str) -> Result<(Ask, Allocation), String> {
        let allocation = Allocation::decode(annotation::ALLOCATED, text).map_err(|e| e.to_string())?;
        // Wishes that cannot be read do not make the decision unreadable: all its slices count as held together.
        let request = PodRequest::of_pod(pod, &self.defaults).ok().flatten().unwrap_or(PodRequest { containers: Vec::new() });
        let allocation = if request.containers.is_empty() {
            allocation
        } else {
            allocation.aligned(annotation::ALLOCATED, &request).map_err(|e| e.to_string())?
        };
        let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        Ok((Ask { uid: pod.uid(), namespace, name, request, selection: Default::default() }, allocation))
    }

    fn record(&mut self, ask: &Ask, node: &NodeName, allocation: Allocation) -> Observed {
        let generation = Generation(self.generation.0 + 1);
        if let Some(entry) = self.entries.get_mut(&ask.uid)
            && entry.node == *node
            && entry.allocation == allocation
        {
            if entry.origin != Origin::Live {
                // The API server says that it stands, whatever the guard on its way still believes.
                entry.origin = Origin::Live;
                entry.generation = generation;
                self.generation = generation;
            }
            return Observed::Unchanged;
        }
        if allocation.is_empty() {
            return if self.remove(&ask.uid) { Observed::Freed } else { Observed::Unchanged };
        }
        self.write(ask, node, allocation, Origin::Live);
        Observed::Recorded
    }

    pub fn reconcile(&mut self, since: Generation, live: &BTreeSet<PodUid>) -> usize {
        let gone = |uid: &PodUid| !live.contains(uid);
        let stale: Vec<PodUid> = self
            .entries
            .iter()
            .filter(|(uid, entry)| gone(uid) && entry.generation <= since)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &stale {
            self.remove(uid);
        }
        for pods in self.unreadable.values_mut() {
            pods.retain(|uid, _| live.contains(uid));
        }
        stale.len()
    }
}
