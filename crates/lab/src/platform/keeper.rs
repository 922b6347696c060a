//! Keeps what is declared: a task for each worker, and no worker of a tenant that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher, watcher::Event};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::warn;

use super::workers::{self, Declaration, Machine};
use super::{Error, cluster};

/// Keeps workers until `stop` turns true; they are left running then.
pub async fn run(machine: Machine, stop: watch::Receiver<bool>) {
    tokio::join!(keep_workers(machine.clone(), stop.clone()), follow_tenants(&machine, stop));
}

/// A worker and the task that keeps it.
struct Kept {
    declaration: Declaration,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

struct Keeper {
    machine: Machine,
    kept: BTreeMap<u16, Kept>,
    /// Seen in the listing that is under way.
    listed: BTreeSet<u16>,
}

async fn keep_workers(machine: Machine, mut stop: watch::Receiver<bool>) {
    let api: Api<ConfigMap> = Api::namespaced(machine.management.clone(), cluster::NAMESPACE);
    let events = watcher(api, watcher::Config::default().labels(workers::LABEL)).default_backoff();
    tokio::pin!(events);
    let mut keeper = Keeper { machine, kept: BTreeMap::new(), listed: BTreeSet::new() };
    loop {
        let event = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            event = events.next() => event,
        };
        match event {
            Some(Ok(event)) => keeper.take(event).await,
            Some(Err(error)) => warn!(%error, "the declarations of workers cannot be watched, tried again"),
            None => break,
        }
    }
    for kept in keeper.kept.into_values() {
        let _ = kept.stop.send(true);
    }
}

impl Keeper {
    async fn take(&mut self, event: Event<ConfigMap>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.extend(Declaration::of(&object).map(|d| d.index));
                self.apply(&object).await;
            }
            Event::InitDone => self.end_unlisted().await,
            Event::Apply(object) => self.apply(&object).await,
            Event::Delete(object) => {
                if let Some(declaration) = Declaration::of(&object) {
                    self.end(declaration.index).await;
                }
            }
        }
    }

    async fn apply(&mut self, object: &ConfigMap) {
        let Some(declaration) = Declaration::of(object) else { return };
        match self.kept.get(&declaration.index) {
            Some(kept) if kept.declaration == declaration => return,
            // The number was given away again while nobody looked.
            Some(_) => self.end(declaration.index).await,
            None => {}
        }
        let (stop, stopped) = watch::channel(false);
        let (machine, own) = (self.machine.clone(), declaration.clone());
        let task = tokio::spawn(async move { workers::keep(&machine, &own, stopped).await });
        self.kept.insert(declaration.index, Kept { declaration, stop, task });
    }

    /// Ends a worker with everything of it on this machine.
    async fn end(&mut self, index: u16) {
        let Some(kept) = self.kept.remove(&index) else { return };
        let _ = kept.stop.send(true);
        // Not beside its keeper, who would make it again.
        let _ = kept.task.await;
        self.remove(&kept.declaration.name).await;
    }

    async fn remove(&self, name: &str) {
        if let Err(error) = workers::remove(&self.machine.dirs, name).await {
            warn!(worker = name, %error, "not removed whole");
        }
        if let Err(error) = workers::filter(&self.machine).await {
            warn!(worker = name, %error, "its permits stay until the next worker is made");
        }
    }

    /// What was taken back while no supervisor ran, or while the watch was broken.
    async fn end_unlisted(&mut self) {
        let gone: Vec<u16> = self.kept.keys().filter(|index| !self.listed.contains(index)).copied().collect();
        for index in gone {
            self.end(index).await;
        }
        let names: BTreeSet<&str> = self.kept.values().map(|k| k.declaration.name.as_str()).collect();
        let roots = fs::read_dir(self.machine.dirs.workers()).into_iter().flatten().flatten();
        let left: Vec<String> = roots.filter_map(|e| e.file_name().into_string().ok()).collect();
        for name in left.iter().filter(|name| !names.contains(name.as_str())) {
            self.remove(name).await;
        }
    }
}

/// A tenant that is being deleted, or is gone, has no workers: their declarations are taken back, however it was deleted.
async fn follow_tenants(machine: &Machine, mut stop: watch::Receiver<bool>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kamaji.clastix.io", "v1alpha1", "TenantControlPlane"));
    let api: Api<DynamicObject> = Api::namespaced_with(machine.management.clone(), cluster::TENANTS, &resource);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    tokio::pin!(events);
    let mut living: BTreeSet<String> = BTreeSet::new();
    loop {
        let event = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            event = events.next() => event,
        };
        let outcome = match event {
            Some(Ok(Event::Init)) => {
                living.clear();
                Ok(())
            }
            Some(Ok(Event::InitApply(tenant))) if tenant.metadata.deletion_timestamp.is_none() => {
                living.insert(tenant.name_any());
                Ok(())
            }
            Some(Ok(Event::InitDone)) => take_back(machine, |tenant| !living.contains(tenant)).await,
            Some(Ok(Event::Apply(tenant))) if tenant.metadata.deletion_timestamp.is_none() => Ok(()),
            Some(Ok(Event::Apply(tenant) | Event::InitApply(tenant) | Event::Delete(tenant))) => {
                let name = tenant.name_any();
                let _ = fs::remove_file(machine.dirs.tenant_kubeconfig(&name));
                take_back(machine, |tenant| tenant == name).await
            }
            Some(Err(error)) => {
                warn!(%error, "the tenants cannot be watched, tried again");
                Ok(())
            }
            None => return,
        };
        if let Err(error) = outcome {
            warn!(%error, "workers of a tenant that is gone are still declared");
        }
    }
}

/// Deletes the declarations of the workers whose tenant is gone.
async fn take_back(machine: &Machine, is_gone: impl Fn(&str) -> bool) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(machine.management.clone(), cluster::NAMESPACE);
    for declaration in workers::declared(&machine.management).await?.into_iter().filter(|d| is_gone(&d.tenant)) {
        let object = format!("worker-{}", declaration.index);
        match api.delete(&object, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other.map_err(Error::api(format!("remove {object}")))?),
        }
    }
    Ok(())
}
