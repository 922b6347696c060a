//! One metadata watch per deletable kind, started and ended as kinds come and go.

use super::{Shared, key_of};
use crate::discovery::{Served, discover};
use crate::limits;
use crate::queue::WorkQueue;
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

/// The watches; they end when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Watches {
    _task: Arc<JoinSet<()>>,
}

struct Supervisor {
    client: kube::Client,
    shared: Arc<Shared>,
    queue: Arc<WorkQueue>,
    /// Kinds may have come or gone.
    rediscover: Arc<Notify>,
    /// Watches that have not delivered their first list.
    pending: Arc<AtomicUsize>,
    /// Verdicts are given only when all kinds have been listed once.
    complete: Arc<AtomicBool>,
}

impl Watches {
    pub fn start(client: kube::Client, shared: Arc<Shared>, queue: Arc<WorkQueue>) -> Self {
        let supervisor =
            Supervisor { client, shared, queue, rediscover: Arc::default(), pending: Arc::default(), complete: Arc::default() };
        let mut task = JoinSet::new();
        task.spawn(supervisor.run());
        Self { _task: Arc::new(task) }
    }
}

/// Events have no owners and are many.
fn is_ignored(kind: &Served) -> bool {
    !kind.watchable || kind.plural == "events"
}

fn defines_kinds(kind: &Served) -> bool {
    kind.plural == "customresourcedefinitions" || kind.plural == "apiservices"
}

impl Supervisor {
    async fn run(self) {
        let mut watches = JoinSet::new();
        let mut running: HashMap<(String, String), (Served, AbortHandle)> = HashMap::new();
        let mut pause = Duration::ZERO;
        loop {
            tokio::time::sleep(pause).await;
            match discover(&self.client).await {
                Err(error) => {
                    tracing::debug!(%error, "discovery");
                    pause = Duration::from_secs(1);
                    continue;
                }
                Ok(found) => {
                    let failed: HashSet<String> = found.failed.into_iter().collect();
                    let kinds: Vec<Served> = found.kinds.into_iter().filter(|kind| !is_ignored(kind)).collect();
                    self.update(kinds, &failed, &mut running, &mut watches);
                }
            }
            // New definitions are followed soon, but not each one of many at once.
            let _ = tokio::time::timeout(limits::RESYNC, self.rediscover.notified()).await;
            pause = Duration::from_millis(500);
        }
    }

    fn update(
        &self,
        kinds: Vec<Served>,
        failed: &HashSet<String>,
        running: &mut HashMap<(String, String), (Served, AbortHandle)>,
        watches: &mut JoinSet<()>,
    ) {
        running.retain(|_, (kind, task)| {
            let keep = kinds.contains(kind) || failed.contains(&kind.api_version());
            if !keep {
                task.abort();
            }
            keep
        });
        for kind in kinds {
            let name = (kind.group.clone(), kind.plural.clone());
            if running.contains_key(&name) {
                continue;
            }
            let id = {
                let mut all = self.shared.kinds();
                all.push(kind.clone());
                all.len() - 1
            };
            self.pending.fetch_add(1, Ordering::Relaxed);
            let task = watches.spawn(self.follow(id, kind.clone()));
            running.insert(name, (kind, task));
        }
    }

    /// Feeds the graph from one kind.
    fn follow(&self, id: usize, kind: Served) -> impl Future<Output = ()> + Send + 'static {
        let resource = ApiResource {
            group: kind.group.clone(),
            version: kind.version.clone(),
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            plural: kind.plural.clone(),
        };
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.client.clone(), &resource);
        let (shared, queue, rediscover) = (self.shared.clone(), self.queue.clone(), self.rediscover.clone());
        let (pending, complete) = (self.pending.clone(), self.complete.clone());
        async move {
            let mut events = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
            let mut listed = HashSet::new();
            let mut first = true;
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        tracing::debug!(kind = kind.plural, %error, "watch");
                        continue;
                    }
                };
                let looks = match event {
                    Event::Init => {
                        listed.clear();
                        Vec::new()
                    }
                    Event::InitApply(object) => {
                        listed.extend(object.metadata.uid.clone());
                        shared.graph().set(id, &object.metadata)
                    }
                    Event::Apply(object) => {
                        if defines_kinds(&kind) && !first {
                            rediscover.notify_one();
                        }
                        shared.graph().set(id, &object.metadata)
                    }
                    Event::Delete(object) => {
                        if defines_kinds(&kind) {
                            rediscover.notify_one();
                        }
                        shared.graph().remove(object.metadata.uid.as_deref().unwrap_or_default())
                    }
                    Event::InitDone => {
                        let mut graph = shared.graph();
                        let mut looks = Vec::new();
                        for uid in graph.uids_of(id) {
                            if !listed.contains(uid.as_ref()) {
                                looks.extend(graph.remove(&uid));
                            }
                        }
                        listed = HashSet::new();
                        if std::mem::take(&mut first) && pending.fetch_sub(1, Ordering::Relaxed) == 1 {
                            complete.store(true, Ordering::Relaxed);
                            looks.extend(graph.all());
                        }
                        looks
                    }
                };
                if complete.load(Ordering::Relaxed) {
                    looks.into_iter().for_each(|look| queue.add(key_of(look)));
                }
            }
        }
    }
}
