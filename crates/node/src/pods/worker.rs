//! One Pod's life on the node: a task that owns the Pod's record and acts on the plan until the Pod is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::admission::{self, Refusal};
use super::context::{Node, Placed};
use super::downward::Addresses;
use super::plan::{Plan, plan};
use super::record::{PodRecord, State};
use super::reporter::Reporter;
use super::resources::{containers, is_sidecar};
use super::status::pod_status;
use super::tasks::{Report, Subject, Task};
use crate::error::{Error, Result};
use crate::events::Severity;
use crate::limits;
use crate::paths::{make_dir, read_record, remove_tree, write_record};
use crate::runtime::{PodKey, RunKey, Runtime};
use crate::volumes::{Context, Source, Volumes};

/// What the watch tells a Pod's worker.
#[derive(Debug)]
pub enum Change {
    /// The Pod as it is now.
    Update(Box<Pod>),
    /// The Pod is no longer in the API.
    Removed,
}

/// The tasks of one container's current run.
#[derive(Default)]
pub(super) struct RunTasks {
    /// Waiting for the end, and the hook after the start.
    pub(super) held: Vec<Task>,
    pub(super) startup: Option<Task>,
    pub(super) probes: Vec<Task>,
    pub(super) stop: Option<(Duration, Task)>,
}

/// The task's state.
pub struct Worker<R: Runtime> {
    pub(super) node: Arc<Node<R>>,
    pub(super) pod: Pod,
    pub(super) record: PodRecord,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) tasks: HashMap<String, RunTasks>,
    pub(super) volumes: Option<BTreeMap<String, Source>>,
    reporter: Reporter,
    removed: bool,
    settled: bool,
    retry_at: Option<Instant>,
    retry_pause: Duration,
    refresh_at: Instant,
}

/// Identity of a Pod object.
pub fn key_of(pod: &Pod) -> PodKey {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &pod.metadata;
    PodKey { namespace: text(&meta.namespace), name: text(&meta.name), uid: text(&meta.uid) }
}

/// Whether the Pod's phase is final.
pub fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl<R: Runtime> Worker<R> {
    /// Runs the Pod until it is gone. `changes` closes when the agent stops; containers go on running then.
    pub async fn run(node: Arc<Node<R>>, pod: Pod, mut changes: mpsc::Receiver<Change>) {
        let key = key_of(&pod);
        let (reports, mut inbox) = mpsc::channel(64);
        let reporter = Reporter::start(node.client.clone(), key.clone());
        let known = read_record(&node.paths.pod_record(&key.uid)).unwrap_or_else(|e| {
            tracing::error!(pod = %key, "{e}");
            None
        });
        let is_new = known.is_none();
        let start = pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or_else(Timestamp::now, |t| t.0);
        let mut worker = Worker {
            record: known.unwrap_or_else(|| PodRecord::new(key, start)),
            node,
            pod,
            reports,
            tasks: HashMap::new(),
            volumes: None,
            reporter,
            removed: false,
            settled: false,
            retry_at: None,
            retry_pause: limits::POD_RETRY,
            refresh_at: Instant::now() + limits::VOLUME_REFRESH,
        };
        worker.begin(is_new).await;
        loop {
            match worker.step().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(e) => tracing::error!(pod = %worker.record.key, "{e}"),
            }
            let timer = worker.next_timer();
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => worker.change(change),
                    None => return,
                },
                Some(report) = inbox.recv() => worker.report(report),
                () = tokio::time::sleep_until(timer) => {}
            }
            // Many changes at once need one step only.
            while let Ok(report) = inbox.try_recv() {
                worker.report(report);
            }
        }
        worker.finish().await;
    }

    /// Takes up what runs already, or judges a new Pod.
    async fn begin(&mut self, is_new: bool) {
        if is_terminal(&self.pod) {
            self.settled = true;
            return;
        }
        if !is_new {
            self.adopt();
        } else if self.pod.metadata.deletion_timestamp.is_none()
            && let Err(refusal) = self.admit().await
        {
            self.refuse(&refusal);
        }
        self.place(true);
    }

    async fn admit(&self) -> std::result::Result<(), Refusal> {
        let uid = &self.record.key.uid;
        let taken: Vec<Arc<Pod>> = {
            let pods = self.node.pods.lock();
            pods.iter().filter(|(other, p)| p.active && *other != uid).map(|(_, p)| p.pod.clone()).collect()
        };
        let allocatable = self.node.allocatable.read().clone();
        admission::admit(&self.pod, &taken, &allocatable)?;
        self.node.devices.allocate(&self.pod).await.map_err(|e| Refusal {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: format!("Allocate failed due to {e}, which is unexpected"),
        })
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.record.failed = Some((refusal.reason.clone(), format!("Pod was rejected: {}", refusal.message)));
        self.record.rejected = true;
        self.node.events.pod(&self.pod, None, Severity::Warning, &refusal.reason, &refusal.message);
    }

    /// Shows the Pod to the rest of the node.
    fn place(&self, active: bool) {
        let attempts = self.record.containers.iter().map(|(name, c)| (name.clone(), c.attempt)).collect();
        let placed = Placed { pod: Arc::new(self.pod.clone()), attempts, sandbox: self.record.sandbox.clone(), active };
        self.node.pods.lock().insert(self.record.key.uid.clone(), placed);
    }

    fn ending(&self) -> bool {
        self.removed || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Takes a change from the watch. Conditions of the node's own are as it reported them last.
    fn change(&mut self, change: Change) {
        match change {
            Change::Removed => self.removed = true,
            Change::Update(mut pod) => {
                let own = |c: &&PodCondition| super::status::is_own(&c.type_);
                let reported = self.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
                let reported: Vec<PodCondition> = reported.into_iter().flatten().filter(own).cloned().collect();
                if !reported.is_empty() {
                    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
                    conditions.retain(|c| !super::status::is_own(&c.type_));
                    conditions.extend(reported);
                }
                self.pod = *pod;
            }
        }
    }

    /// Does what is next; `true` when the Pod is to be forgotten.
    async fn step(&mut self) -> Result<bool> {
        if self.settled {
            return Ok(self.ending());
        }
        self.check_deadline();
        let plan = plan(&self.pod, &self.record, self.ending(), Timestamp::now());
        if !plan.start.is_empty() && self.may_retry() {
            match self.prepare().await {
                Ok(()) => {
                    for name in &plan.start {
                        self.start(name).await?;
                    }
                }
                Err(e) => self.postpone(&e),
            }
        }
        for name in &plan.stop {
            self.stop(name);
        }
        if Instant::now() >= self.refresh_at {
            self.refresh().await;
        }
        self.save()?;
        self.report_status(&plan);
        if plan.finished {
            self.settle().await?;
            return Ok(self.ending());
        }
        Ok(false)
    }

    fn may_retry(&self) -> bool {
        self.retry_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Address and volumes, before the first container and again after a failure.
    async fn prepare(&mut self) -> Result<()> {
        make_dir(&self.node.paths.pod(&self.record.key.uid), 0o755)?;
        // While nothing runs, what the containers share may have gone with a boot of the node.
        if self.record.sandbox.is_none() || !self.record.any_running() {
            let host_network = self.pod.spec.as_ref().and_then(|s| s.host_network) == Some(true);
            self.record.sandbox = Some(self.node.runtime.prepare(&self.record.key, host_network).await?);
        }
        if self.volumes.is_none() {
            self.volumes = Some(self.mount().await?);
        }
        if !self.node.services.synced().await {
            return Err(Error::Config("Services have not yet been read, the environment cannot be built".to_owned()));
        }
        self.retry_at = None;
        Ok(())
    }

    async fn mount(&self) -> Result<BTreeMap<String, Source>> {
        let ip = self.record.sandbox.as_ref().map(|s| s.ip.clone()).unwrap_or_default();
        let addresses = Addresses { pod_ip: ip, host_ip: self.node.host_ip.clone() };
        let allocatable = self.node.allocatable.read().clone();
        let context = Context { pod: &self.pod, addresses: &addresses, allocatable: &allocatable };
        self.node.volumes.mount(&context).await
    }

    async fn refresh(&mut self) {
        self.refresh_at = Instant::now() + limits::VOLUME_REFRESH;
        if self.volumes.is_some()
            && Volumes::are_live(&self.pod)
            && let Err(e) = self.mount().await
        {
            tracing::warn!(pod = %self.record.key, "volumes not refreshed: {e}");
        }
    }

    /// A container has started: what was waited for is there.
    pub(super) fn go_ahead(&mut self) {
        self.retry_pause = limits::POD_RETRY;
    }

    /// A container waits for something; the next look is not at once.
    pub(super) fn hold_back(&mut self) {
        self.retry_at = Some(Instant::now() + self.retry_pause);
        self.retry_pause = (self.retry_pause * 2).min(limits::POD_RETRY_MAX);
    }

    fn postpone(&mut self, error: &Error) {
        let reason = match error {
            Error::Volume(_) => "FailedMount",
            _ => "FailedCreatePodSandBox",
        };
        self.node.events.pod(&self.pod, None, Severity::Warning, reason, error.to_string());
        self.hold_back();
    }

    /// `activeDeadlineSeconds` counts from the Pod's start.
    fn check_deadline(&mut self) {
        if let Some(at) = self.deadline()
            && at <= Timestamp::now()
            && self.record.failed.is_none()
        {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            self.record.failed = Some(("DeadlineExceeded".to_owned(), message.clone()));
            self.node.events.pod(&self.pod, None, Severity::Normal, "DeadlineExceeded", message);
        }
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(self.record.start_time + SignedDuration::from_secs(seconds))
    }

    fn next_timer(&self) -> Instant {
        let mut next = self.refresh_at;
        if self.settled {
            return Instant::now() + limits::VOLUME_REFRESH;
        }
        let plan = plan(&self.pod, &self.record, self.ending(), Timestamp::now());
        for at in [plan.wake_at, self.deadline().filter(|_| self.record.failed.is_none())].into_iter().flatten() {
            let left = at.duration_since(Timestamp::now());
            let left = Duration::try_from(left).unwrap_or(Duration::ZERO);
            next = next.min(Instant::now() + left);
        }
        match self.retry_at.filter(|_| !plan.start.is_empty()) {
            Some(at) => next.min(at),
            None => next,
        }
    }

    fn save(&self) -> Result<()> {
        let path = self.node.paths.pod_record(&self.record.key.uid);
        if let Some(parent) = path.parent() {
            make_dir(parent, 0o755)?;
        }
        write_record(&path, &self.record)
    }

    fn report_status(&mut self, plan: &Plan) {
        let status = self.status(plan);
        self.reporter.report(&status);
        let kept = self.pod.status.take().unwrap_or_default();
        self.pod.status = Some(PodStatus { qos_class: kept.qos_class, ..status });
        self.place(!plan.finished);
    }

    fn status(&self, plan: &Plan) -> PodStatus {
        pod_status(&self.pod, &self.record, &plan.backing_off, &self.node.host_ip, Timestamp::now())
    }

    /// All containers have ended for good: gives back what they used.
    async fn settle(&mut self) -> Result<()> {
        self.tasks.clear();
        self.node.volumes.unmount(&self.record.key.uid)?;
        self.node.runtime.release(&self.record.key).await?;
        self.node.devices.free(&self.record.key.uid);
        self.node.volumes.tokens.forget(&self.record.key.uid);
        self.place(false);
        self.settled = true;
        Ok(())
    }

    /// Forgets the Pod: its files, its logs, and its object if it is still there.
    async fn finish(mut self) {
        let key = self.record.key.clone();
        if let Err(e) = self.settle().await {
            tracing::error!(pod = %key, "{e}");
        }
        if !self.removed {
            self.reporter.flush().await;
            self.delete(&key).await;
        }
        self.node.pods.lock().remove(&key.uid);
        let logs = self.node.paths.pod_logs(&key.namespace, &key.name, &key.uid);
        for path in [self.node.paths.pod(&key.uid), logs] {
            if let Err(e) = remove_tree(&path) {
                tracing::error!(pod = %key, "{e}");
            }
        }
    }

    async fn delete(&self, key: &PodKey) {
        let api: Api<Pod> = Api::namespaced(self.node.client.clone(), &key.namespace);
        let preconditions = Preconditions { uid: Some(key.uid.clone()), resource_version: None };
        let params =
            DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..DeleteParams::default() };
        loop {
            match api.delete(&key.name, &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(e)) if matches!(e.code, 404 | 409) => return,
                Err(e) => tracing::warn!(pod = %key, "not deleted: {e}"),
            }
            tokio::time::sleep(limits::POD_RETRY).await;
        }
    }

    pub(super) fn container(&self, name: &str) -> Option<&Container> {
        containers(&self.pod).find(|c| c.name == name)
    }

    pub(super) fn subject(&self, container: &Container, key: RunKey) -> Subject<R> {
        Subject {
            node: self.node.clone(),
            key,
            container: container.clone(),
            ip: self.record.sandbox.as_ref().map(|s| s.ip.clone()).unwrap_or_default(),
            reports: self.reports.clone(),
        }
    }

    /// How long a container has to end by itself.
    pub(super) fn grace(&self) -> Duration {
        let spec = self.pod.spec.as_ref();
        let own = spec.and_then(|s| s.termination_grace_period_seconds).unwrap_or(30);
        let seconds = match self.pod.metadata.deletion_grace_period_seconds {
            Some(seconds) => seconds,
            None if self.removed => return limits::ORPHAN_GRACE,
            None => own,
        };
        Duration::from_secs(seconds.max(0).unsigned_abs())
    }

    /// Sidecars and main containers are probed; init containers run to their end.
    pub(super) fn is_probed(&self, container: &Container) -> bool {
        let main = self.pod.spec.iter().flat_map(|s| &s.containers).any(|c| c.name == container.name);
        main || is_sidecar(container)
    }

    pub(super) fn is_simulated(&self, name: &str) -> bool {
        let record = self.record.containers.get(name);
        record.is_some_and(|r| matches!(&r.state, State::Running { id, .. } if id.starts_with("simulated://")))
    }
}
