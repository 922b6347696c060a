//! Which container has which devices, and the choice among those that are free: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use atoll_node_protocol::device_plugin::ContainerAllocateResponse;
use serde::{Deserialize, Serialize};

use super::{Allocation, Device, host_mount};

/// One resource of one container: the devices and the plugin's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub ids: BTreeSet<String>,
    pub env: BTreeMap<String, String>,
    /// Host path, container path, read-only.
    pub mounts: Vec<(String, String, bool)>,
    /// Host path, container path.
    pub devices: Vec<(String, String)>,
    pub annotations: BTreeMap<String, String>,
}

impl Given {
    /// Takes the plugin's answer.
    pub fn new(ids: BTreeSet<String>, answer: ContainerAllocateResponse) -> Given {
        Given {
            ids,
            env: answer.envs.into_iter().collect(),
            mounts: answer.mounts.into_iter().map(|m| (m.host_path, m.container_path, m.read_only)).collect(),
            devices: answer.devices.into_iter().map(|d| (d.host_path, d.container_path)).collect(),
            annotations: answer.annotations.into_iter().collect(),
        }
    }
}

/// Pod UID, container, resource and what was given.
pub type Row = (String, String, String, Given);

/// All that is handed out, by Pod UID, container and resource.
#[derive(Clone, Debug, Default)]
pub struct Allocations(BTreeMap<(String, String), BTreeMap<String, Given>>);

impl Allocations {
    pub fn from_list(list: Vec<Row>) -> Allocations {
        let mut allocations = Allocations::default();
        for (uid, container, resource, given) in list {
            allocations.insert(&uid, &container, &resource, given);
        }
        allocations
    }

    pub fn to_list(&self) -> Vec<Row> {
        let mut list = Vec::new();
        for ((uid, container), resources) in &self.0 {
            for (resource, given) in resources {
                list.push((uid.clone(), container.clone(), resource.clone(), given.clone()));
            }
        }
        list
    }

    pub fn insert(&mut self, uid: &str, container: &str, resource: &str, given: Given) {
        let of = self.0.entry((uid.to_owned(), container.to_owned())).or_default();
        of.insert(resource.to_owned(), given);
    }

    /// Whether there was anything.
    pub fn remove(&mut self, uid: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(owner, _), _| owner != uid);
        self.0.len() != before
    }

    /// Devices by resource of one container.
    pub fn resources(&self, uid: &str, container: &str) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        let of = self.0.get(&(uid.to_owned(), container.to_owned()));
        of.into_iter().flatten().map(|(resource, given)| (resource, &given.ids))
    }

    /// Devices of a resource that are in use.
    pub fn used(&self, resource: &str) -> BTreeSet<&str> {
        let given = self.0.values().filter_map(|of| of.get(resource));
        given.flat_map(|g| g.ids.iter().map(String::as_str)).collect()
    }

    /// All that a container was given; a later resource's variables win.
    pub fn of(&self, uid: &str, container: &str, root: &Path) -> Allocation {
        let mut all = Allocation::default();
        for given in self.0.get(&(uid.to_owned(), container.to_owned())).into_iter().flat_map(|of| of.values()) {
            all.env.extend(given.env.iter().map(|(k, v)| (k.clone(), v.clone())));
            all.annotations.extend(given.annotations.clone());
            all.mounts.extend(given.mounts.iter().map(|(host, target, ro)| host_mount(root, host, target, *ro)));
            all.devices.extend(given.devices.iter().map(|(host, target)| Device {
                host_path: root.join(host.trim_start_matches('/')),
                container_path: target.clone(),
            }));
        }
        all
    }
}

/// What a container can choose from.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// Devices that an init container of the same Pod leaves behind: to be taken first.
    pub reusable: Vec<String>,
    /// Devices that are free.
    pub free: Vec<String>,
}

/// Devices of `resource` that are healthy and not in use by another container.
pub fn choice(healthy: &BTreeSet<String>, used: &BTreeSet<&str>, left_behind: &BTreeSet<String>) -> Choice {
    Choice {
        reusable: left_behind.iter().filter(|id| healthy.contains(*id)).cloned().collect(),
        free: healthy.iter().filter(|id| !used.contains(id.as_str())).cloned().collect(),
    }
}

/// Takes `wanted` devices: those left behind, those the plugin prefers, then the first that are free.
pub fn pick(choice: &Choice, preferred: &[String], wanted: usize) -> Option<BTreeSet<String>> {
    let free: BTreeSet<&String> = choice.free.iter().collect();
    let liked = preferred.iter().filter(|id| free.contains(id) || choice.reusable.contains(id));
    let mut picked = BTreeSet::new();
    for id in choice.reusable.iter().chain(liked).chain(&choice.free) {
        if picked.len() == wanted {
            break;
        }
        picked.insert(id.clone());
    }
    (picked.len() == wanted).then_some(picked)
}
