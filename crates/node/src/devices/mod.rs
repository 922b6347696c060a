//! Devices of plugins: who registered what, which container has which, and what the Node may offer.
//!
//! A plugin registers over `kubelet.sock`, is then listened to, and is asked to allocate when a Pod is admitted. What was
//! handed out is written down before the Pod starts and survives the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::Result;
use crate::limits;
use crate::paths::{NodePaths, read_record, write_record};
use crate::runtime::host::spec::BindMount;
use allocation::{Allocations, Row};

mod allocation;
mod plugin;
pub mod pod_resources;
mod registration;

/// A device file for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub host_path: PathBuf,
    pub container_path: String,
}

/// What a container gets from all its plugins together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    pub env: Vec<(String, String)>,
    pub mounts: Vec<BindMount>,
    pub devices: Vec<Device>,
    pub annotations: BTreeMap<String, String>,
}

/// Amounts of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub capacity: u64,
    pub allocatable: u64,
}

/// What a resource's plugin has said.
#[derive(Clone, Debug)]
struct Resource {
    endpoint: PathBuf,
    preferred_allocation: bool,
    pre_start: bool,
    healthy: Arc<BTreeSet<String>>,
    unhealthy: usize,
    /// Whether its devices are known: a registration alone offers nothing yet.
    is_listed: bool,
    /// When the plugin went away; its devices cannot be allocated then.
    gone_since: Option<Instant>,
    /// Which registration this is: a listener of an older one has no say.
    registration: u64,
}

impl Resource {
    fn amounts(&self, now: Instant) -> Amounts {
        let capacity = (self.healthy.len() + self.unhealthy) as u64;
        match self.gone_since {
            None => Amounts { capacity, allocatable: self.healthy.len() as u64 },
            Some(since) if now.duration_since(since) < limits::PLUGIN_GONE => Amounts { capacity, allocatable: 0 },
            Some(_) => Amounts::default(),
        }
    }
}

#[derive(Default)]
struct Inner {
    resources: BTreeMap<String, Resource>,
    /// Resources of plugins before a restart of the agent: offered as 0 until they are back.
    remembered: BTreeSet<String>,
    allocations: Allocations,
    registrations: u64,
}

/// The device manager.
pub struct Devices {
    paths: NodePaths,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
    /// One Pod at a time chooses devices.
    allocating: tokio::sync::Mutex<()>,
}

const CHECKPOINT: &str = "atoll_allocations.json";

impl Devices {
    /// A device manager that knows the allocations of an agent before this one.
    pub fn load(paths: NodePaths) -> Result<Arc<Devices>> {
        let saved: Option<(BTreeSet<String>, Vec<Row>)> = read_record(&paths.device_plugins().join(CHECKPOINT))?;
        let (remembered, given) = saved.unwrap_or_default();
        let inner = Inner { remembered, allocations: Allocations::from_list(given), ..Inner::default() };
        let (changes, _) = watch::channel(0);
        Ok(Arc::new(Devices { paths, inner: Mutex::new(inner), changes, allocating: tokio::sync::Mutex::new(()) }))
    }

    /// Changes whenever [`Devices::amounts`] may have.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What the Node has of each plugin's resource.
    pub fn amounts(&self) -> BTreeMap<String, Amounts> {
        let inner = self.inner.lock();
        let now = Instant::now();
        let remembered = inner.remembered.iter().map(|name| (name.clone(), Amounts::default()));
        let listed = inner.resources.iter().filter(|(_, r)| r.is_listed);
        remembered.chain(listed.map(|(name, r)| (name.clone(), r.amounts(now)))).collect()
    }

    /// What a container was given.
    pub fn allocation(&self, uid: &str, container: &str) -> Allocation {
        self.inner.lock().allocations.of(uid, container, self.paths.root())
    }

    /// Takes back the devices of a Pod.
    pub fn free(&self, uid: &str) {
        if self.inner.lock().allocations.remove(uid) {
            self.save();
        }
    }

    fn save(&self) {
        let (names, given) = {
            let inner = self.inner.lock();
            let names: BTreeSet<String> = inner.resources.keys().chain(&inner.remembered).cloned().collect();
            (names, inner.allocations.to_list())
        };
        if let Err(e) = write_record(&self.paths.device_plugins().join(CHECKPOINT), &(names, given)) {
            tracing::error!("device allocations not saved: {e}");
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    fn directory(&self) -> PathBuf {
        self.paths.device_plugins()
    }
}

/// Whether a resource can be a plugin's: a qualified name outside Kubernetes' own domain.
fn is_extended(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, rest)| !rest.is_empty() && !domain.ends_with("kubernetes.io") && !name.starts_with("requests."))
}

/// A path that a plugin names, in the node's root.
fn host_mount(root: &Path, host: &str, target: &str, read_only: bool) -> BindMount {
    BindMount { base: root.to_owned(), path: host.to_owned(), target: target.to_owned(), read_only, create: true }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
