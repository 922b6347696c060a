//! The Pods of a node: a watch on `spec.nodeName` feeds one worker per Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::Result;
use crate::limits;
use crate::paths::read_record;
use crate::runtime::Runtime;
use context::Node;
use record::PodRecord;
use worker::{Change, Worker, key_of};

pub mod admission;
pub mod context;
pub mod downward;
pub mod env;
pub mod plan;
pub mod record;
mod reporter;
pub mod resources;
mod runs;
mod start;
pub mod status;
mod tasks;
pub mod worker;

/// Changes that wait for a Pod's worker; the newest matters, so that the watch may wait for room.
const CHANGES: usize = 16;

/// Watches the node's Pods and keeps a worker for each, until dropped.
pub async fn run<R: Runtime>(node: Arc<Node<R>>) {
    let api: Api<Pod> = Api::all(node.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name));
    let mut events = watch(api, config).default_backoff().boxed();
    let mut pods = Pods { node, workers: BTreeMap::new(), tasks: JoinSet::new(), listed: BTreeSet::new(), first: true };
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => pods.take(event).await,
                Some(Err(e)) => tracing::warn!("watch of Pods: {e}"),
                None => return,
            },
            Some(ended) = pods.tasks.join_next() => {
                if let Ok(uid) = ended {
                    pods.workers.remove(&uid);
                }
            }
        }
    }
}

struct Pods<R: Runtime> {
    node: Arc<Node<R>>,
    workers: BTreeMap<String, mpsc::Sender<Change>>,
    tasks: JoinSet<String>,
    listed: BTreeSet<String>,
    first: bool,
}

impl<R: Runtime> Pods<R> {
    async fn take(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.insert(key_of(&pod).uid);
                self.update(pod).await;
            }
            Event::InitDone => self.listed().await,
            Event::Apply(pod) => self.update(pod).await,
            Event::Delete(pod) => self.remove(&key_of(&pod).uid).await,
        }
    }

    async fn update(&mut self, pod: Pod) {
        let uid = key_of(&pod).uid;
        match self.workers.get(&uid) {
            Some(worker) => {
                let _ = worker.send(Change::Update(Box::new(pod))).await;
            }
            None => drop(self.begin(uid, pod)),
        }
    }

    fn begin(&mut self, uid: String, pod: Pod) -> mpsc::Sender<Change> {
        let (changes, inbox) = mpsc::channel(CHANGES);
        self.workers.insert(uid.clone(), changes.clone());
        let work = Worker::run(self.node.clone(), pod, inbox);
        self.tasks.spawn(async move {
            work.await;
            uid
        });
        changes
    }

    async fn remove(&mut self, uid: &str) {
        if let Some(worker) = self.workers.get(uid) {
            let _ = worker.send(Change::Removed).await;
        }
    }

    /// The list is whole: what is here and not in it has been deleted meanwhile.
    async fn listed(&mut self) {
        let gone: Vec<String> = self.workers.keys().filter(|uid| !self.listed.contains(*uid)).cloned().collect();
        for uid in gone {
            self.remove(&uid).await;
        }
        if std::mem::take(&mut self.first)
            && let Err(e) = self.orphans().await
        {
            tracing::error!("Pods of an agent before this one: {e}");
        }
    }

    /// Pods that were deleted while no agent ran: their record is all that is left, so a worker winds them down.
    async fn orphans(&mut self) -> Result<()> {
        for entry in fs::read_dir(self.node.paths.pods()).into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            if self.listed.contains(&uid) {
                continue;
            }
            let Some(record) = read_record::<PodRecord>(&self.node.paths.pod_record(&uid))? else {
                crate::paths::remove_tree(&entry.path())?;
                continue;
            };
            let worker = self.begin(uid, pod_of(&record));
            let _ = worker.send(Change::Removed).await;
        }
        Ok(())
    }
}

/// A Pod with nothing but its identity and the names of its containers.
fn pod_of(record: &PodRecord) -> Pod {
    use k8s_openapi::api::core::v1::{Container, PodSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    let container = |name: &String| Container { name: name.clone(), ..Container::default() };
    Pod {
        metadata: ObjectMeta {
            namespace: Some(record.key.namespace.clone()),
            name: Some(record.key.name.clone()),
            uid: Some(record.key.uid.clone()),
            deletion_grace_period_seconds: Some(limits::ORPHAN_GRACE.as_secs() as i64),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { containers: record.containers.keys().map(container).collect(), ..PodSpec::default() }),
        status: None,
    }
}
