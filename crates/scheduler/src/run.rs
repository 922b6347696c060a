//! The shell: watches in, bindings out. One task owns all state; each binding is a task of its own.

use crate::bind::bind;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::limits;
use crate::listing::{Change, Listing};
use crate::planner::plan;
use crate::plugin::{Plugin, Reservation};
use crate::queue::{Queue, Retry};
use crate::report::{Report, Reports};
use crate::resources;
use crate::snapshot::PodInfo;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Lets a plugin say that something changed which no watch of the scheduler shows.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Pods that did not fit are tried again.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// What a scheduler is made of.
pub struct SchedulerOptions {
    /// Pods with one of these `spec.schedulerName` are placed.
    pub scheduler_names: BTreeSet<String>,
    /// The rules, in order; see [`crate::plugins::default_profile`].
    pub plugins: Vec<Arc<dyn Plugin>>,
    /// Kept by a plugin that changes its mind on its own.
    pub wake: Wake,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            scheduler_names: ["default-scheduler".to_owned()].into(),
            plugins: crate::plugins::default_profile(BTreeSet::new()),
            wake: Wake::default(),
        }
    }
}

/// A binding that has ended.
struct Bound {
    pod: Arc<PodInfo>,
    node: String,
    result: Result<()>,
}

struct Scheduler {
    options: SchedulerOptions,
    client: kube::Client,
    cache: Cache,
    queue: Queue,
    reports: Reports,
    bindings: JoinSet<Bound>,
    /// What was last told about a waiting Pod, and when.
    told: HashMap<String, (String, Instant)>,
    pods: Listing<Pod>,
    nodes: Listing<Node>,
}

/// Schedules until `shutdown` resolves. Watches reconnect by themselves; no error ends the scheduler.
pub async fn run(options: SchedulerOptions, client: kube::Client, shutdown: impl Future<Output = ()> + Send) {
    let unfinished = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods = watcher(Api::<Pod>::all(client.clone()), unfinished).default_backoff().fuse();
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default()).default_backoff().fuse();
    tokio::pin!(pods, nodes, shutdown);
    let wake = options.wake.clone();
    let mut scheduler = Scheduler {
        reports: Reports::start(client.clone()),
        options,
        client,
        cache: Cache::default(),
        queue: Queue::default(),
        bindings: JoinSet::new(),
        told: HashMap::new(),
        pods: Listing::default(),
        nodes: Listing::default(),
    };
    loop {
        let now = Instant::now();
        let ready = scheduler.may_plan() && scheduler.queue.is_ready(now);
        let pause = scheduler.queue.next_at().map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(now));
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            Some(ended) = scheduler.bindings.join_next(), if !scheduler.bindings.is_empty() => match ended {
                Ok(bound) => scheduler.bound(bound),
                Err(error) => tracing::error!(%error, "a binding task ended early"),
            },
            Some(event) = nodes.next() => match event {
                Ok(event) => scheduler.node_event(event),
                Err(error) => tracing::warn!(%error, "watch of nodes"),
            },
            Some(event) = pods.next() => match event {
                Ok(event) => scheduler.pod_event(event),
                Err(error) => tracing::warn!(%error, "watch of pods"),
            },
            () = wake.0.notified() => scheduler.queue.wake(Instant::now()),
            () = std::future::ready(()), if ready => scheduler.place_next(),
            () = tokio::time::sleep(pause), if !ready && scheduler.may_plan() => {}
        }
    }
}

impl Scheduler {
    fn may_plan(&self) -> bool {
        self.pods.complete() && self.nodes.complete() && self.bindings.len() < limits::BINDINGS_IN_FLIGHT_MAX
    }

    fn place_next(&mut self) {
        let now = Instant::now();
        let Some(pod) = self.queue.pop(now) else { return };
        match plan(&self.cache.snapshot(), &pod, &self.options.plugins) {
            Ok(placement) => match self.reserve(&pod, &placement.node) {
                Ok(reservations) => self.start_binding(pod, placement.node, reservations),
                Err(message) => self.did_not_fit(pod, message, now),
            },
            Err(no_fit) => self.did_not_fit(pod, no_fit.to_string(), now),
        }
    }

    fn did_not_fit(&mut self, pod: Arc<PodInfo>, message: String, now: Instant) {
        self.queue.did_not_fit(pod.uid(), now);
        self.tell(pod, "Unschedulable", message, now);
    }

    /// Reports a failure unless the same was said a moment ago.
    fn tell(&mut self, pod: Arc<PodInfo>, reason: &'static str, message: String, now: Instant) {
        let recent = |(text, at): &(String, Instant)| *text == message && now.duration_since(*at) < Duration::from_secs(10);
        if !self.told.get(pod.uid()).is_some_and(recent) {
            self.told.insert(pod.uid().to_owned(), (message.clone(), now));
            self.reports.send(Report::Failed { pod, reason, message });
        }
    }

    fn reserve(&self, pod: &PodInfo, node: &str) -> Result<Vec<Box<dyn Reservation>>, String> {
        let snapshot = self.cache.snapshot();
        let Some(node) = snapshot.nodes.get(node) else { return Err("node is gone".into()) };
        let mut reservations = Vec::new();
        for plugin in &self.options.plugins {
            // An early return drops what earlier plugins set aside, which gives it back.
            match plugin.reserve(pod, node) {
                Ok(reservation) => reservations.extend(reservation),
                Err(rejection) => return Err(format!("{}: {}", plugin.name(), rejection.reasons.join(", "))),
            }
        }
        Ok(reservations)
    }

    fn start_binding(&mut self, pod: Arc<PodInfo>, node: String, reservations: Vec<Box<dyn Reservation>>) {
        self.cache.assume(pod.clone(), &node);
        let client = self.client.clone();
        self.bindings.spawn(async move {
            let result = bind(client, pod.clone(), node.clone(), reservations).await;
            Bound { pod, node, result }
        });
    }

    fn bound(&mut self, Bound { pod, node, result }: Bound) {
        let now = Instant::now();
        match result {
            Ok(()) => {
                self.queue.remove(pod.uid());
                self.told.remove(pod.uid());
                if !self.cache.contains(pod.uid()) {
                    // Deleted while it was being bound: what was committed just now is free again.
                    self.removed(&pod.pod);
                }
                self.reports.send(Report::Scheduled { pod, node });
            }
            Err(Error::PodGone) => self.pod_gone(&pod.pod),
            Err(error) => {
                tracing::info!(pod = pod.name(), namespace = pod.namespace(), node, %error, "binding failed");
                if self.cache.forget(pod.uid()) {
                    self.queue.wake(now);
                }
                self.queue.failed(pod.uid(), now);
                self.tell(pod, "SchedulerError", error.to_string(), now);
            }
        }
    }

    fn node_event(&mut self, event: Event<Node>) {
        let event = event.modify(|node| {
            node.metadata.managed_fields = None;
            if let Some(status) = &mut node.status {
                status.images = None;
            }
        });
        for change in self.nodes.apply(event, |node| node.metadata.name.clone().unwrap_or_default()) {
            match change {
                Change::Set(node, _) => {
                    self.each_plugin(|plugin| plugin.node_changed(&node));
                    if self.cache.set_node(node) {
                        self.queue.wake(Instant::now());
                    }
                }
                Change::Gone(node) => {
                    let name = node.metadata.name.as_deref().unwrap_or_default();
                    self.cache.remove_node(name);
                    self.each_plugin(|plugin| plugin.node_removed(name));
                }
            }
        }
    }

    fn pod_event(&mut self, event: Event<Pod>) {
        let event = event.modify(|pod| pod.metadata.managed_fields = None);
        for change in self.pods.apply(event, |pod| pod.metadata.uid.clone().unwrap_or_default()) {
            match change {
                Change::Set(pod, old) => {
                    self.each_plugin(|plugin| plugin.pod_changed(&pod));
                    self.pod_changed(pod, old.as_deref());
                }
                Change::Gone(pod) => self.pod_gone(&pod),
            }
        }
    }

    fn pod_changed(&mut self, pod: Arc<Pod>, old: Option<&Pod>) {
        let now = Instant::now();
        let info = Arc::new(PodInfo::new(pod));
        let Some(spec) = &info.pod.spec else { return };
        if let Some(node) = spec.node_name.clone().filter(|name| !name.is_empty()) {
            let shrunk = old.is_some_and(|old| resources::pod_requests(old) != info.requests);
            self.queue.remove(info.uid());
            // A Pod that others want to be near, or one that takes less than before, may let them fit.
            let news = !self.cache.contains(info.uid()) || self.cache.is_assumed(info.uid());
            self.cache.set_pod(info, &node);
            if shrunk || news {
                self.queue.wake(now);
            }
            return;
        }
        let ours = spec.scheduler_name.as_ref().is_some_and(|name| self.options.scheduler_names.contains(name));
        let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        if !ours || gated || info.pod.metadata.deletion_timestamp.is_some() {
            self.queue.remove(info.uid());
            return;
        }
        let retry = if old.is_some_and(|old| same_wishes(old, &info.pod)) { Retry::No } else { Retry::Yes };
        self.queue.put(info, retry, now);
    }

    fn pod_gone(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.queue.remove(uid);
        self.told.remove(uid);
        self.cache.remove_pod(uid);
        self.removed(pod);
    }

    fn removed(&mut self, pod: &Pod) {
        self.each_plugin(|plugin| plugin.pod_removed(pod));
        self.queue.wake(Instant::now());
    }

    fn each_plugin(&self, call: impl Fn(&dyn Plugin)) {
        self.options.plugins.iter().for_each(|plugin| call(plugin.as_ref()));
    }
}

/// Whether nothing differs that decides where the Pod may go.
fn same_wishes(old: &Pod, new: &Pod) -> bool {
    old.spec == new.spec && old.metadata.labels == new.metadata.labels && old.metadata.annotations == new.metadata.annotations
}
