//! The runs of a Pod's containers: starting and ending them, and what their tasks report.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use std::time::Duration;

use super::plan::{backoff_after, next_backoff};
use super::record::{ContainerRecord, State};
use super::start::{Start, termination_log};
use super::tasks::Report;
use super::worker::Worker;
use crate::error::{Error, Result};
use crate::events::Severity;
use crate::limits;
use crate::probes::{ProbeKind, Verdict};
use crate::runtime::{Exit, Image, RunKey, Running, Runtime};

impl<R: Runtime> Worker<R> {
    /// Starts a container, or says in its state why it waits.
    pub(super) async fn start(&mut self, name: &str) -> Result<()> {
        let Some(container) = self.container(name).cloned() else { return Ok(()) };
        let image = container.image.clone().unwrap_or_default();
        let image_id = match self.node.runtime.image(&image) {
            Image::Present { id } => id,
            Image::Simulated => {
                self.simulate(&container);
                return Ok(());
            }
            Image::Missing { message } => {
                self.wait_for(name, "ErrImageNeverPull", &message);
                return Ok(());
            }
        };
        let record = self.begin_run(name);
        record.image_id = image_id;
        let key = self.record.run(name);
        self.save_run()?;
        self.forget_old_run(&key);
        let running = match self.node.runtime.find(&key) {
            // The agent was ended between start and record.
            Some(running) => Ok(running),
            None => self.launch(&container, &key).await,
        };
        match running {
            Ok(running) => self.started(&container, key, &running),
            Err(Error::Config(message)) => self.wait_for(name, "CreateContainerConfigError", &message),
            Err(e) => self.start_failed(&container, &e),
        }
        Ok(())
    }

    async fn launch(&mut self, container: &Container, key: &RunKey) -> Result<Running> {
        let sandbox = self.record.sandbox.clone().unwrap_or_default();
        let volumes = self.volumes.clone().unwrap_or_default();
        let start = Start { node: &self.node, pod: &self.pod, sandbox: &sandbox, volumes: &volumes };
        let spec = start.container(container, key.clone()).await?;
        let image = container.image.as_deref().unwrap_or_default();
        let events = &self.node.events;
        let present = format!("Container image {image:?} already present on machine and can be accessed by the pod");
        events.pod(&self.pod, Some(&container.name), Severity::Normal, "Pulled", present);
        self.node.devices.before_start(&key.pod.uid, &container.name).await?;
        events.pod(
            &self.pod,
            Some(&container.name),
            Severity::Normal,
            "Created",
            format!("Container created: {}", container.name),
        );
        self.node.runtime.start(&spec).await
    }

    /// The record of the run that begins now: the next one if there was one before.
    fn begin_run(&mut self, name: &str) -> &mut ContainerRecord {
        let record = self.record.containers.entry(name.to_owned()).or_default();
        if let State::Ended { id, exit } = std::mem::take(&mut record.state) {
            record.last = Some((id, exit));
            record.attempt += 1;
            record.backoff_seconds = next_backoff(record.backoff_seconds);
        }
        record.started = false;
        record.ready = false;
        record.stopping = false;
        record
    }

    /// Of the runs before, the latest is kept for its log.
    fn forget_old_run(&self, key: &RunKey) {
        let Some(old) = key.attempt.checked_sub(2) else { return };
        let pod = &key.pod;
        let _ = crate::paths::remove_tree(&self.node.paths.container(&pod.uid, &key.container, old));
        let logs = self.node.paths.pod_logs(&pod.namespace, &pod.name, &pod.uid).join(&key.container);
        let log = logs.join(format!("{old}.log"));
        let _ = std::fs::remove_file(crate::runtime::host::log::rotated(&log));
        let _ = std::fs::remove_file(log);
    }

    fn save_run(&self) -> Result<()> {
        crate::paths::write_record(&self.node.paths.pod_record(&self.record.key.uid), &self.record)
    }

    fn started(&mut self, container: &Container, key: RunKey, running: &Running) {
        let events = &self.node.events;
        let message = format!("Container started: {}", container.name);
        events.pod(&self.pod, Some(&container.name), Severity::Normal, "Started", message);
        self.go_ahead();
        let probed = self.is_probed(container);
        if let Some(record) = self.record.containers.get_mut(&container.name) {
            record.state = State::Running { id: running.id.clone(), started_at: running.started_at };
            record.started = !probed || container.startup_probe.is_none();
            record.ready = record.started && (!probed || container.readiness_probe.is_none());
        }
        let hook = self.subject(container, key.clone()).post_start();
        self.watch(container, key);
        self.tasks.entry(container.name.clone()).or_default().held.extend(hook);
    }

    /// Waits for the end of a run and probes it.
    fn watch(&mut self, container: &Container, key: RunKey) {
        let subject = self.subject(container, key);
        let started = self.record.containers.get(&container.name).is_some_and(|r| r.started);
        let probed = self.is_probed(container);
        let tasks = self.tasks.entry(container.name.clone()).or_default();
        *tasks = super::worker::RunTasks { held: vec![subject.clone().wait()], ..Default::default() };
        if !probed {
            return;
        }
        if started {
            let kinds = [ProbeKind::Liveness, ProbeKind::Readiness];
            tasks.probes = kinds.into_iter().filter_map(|kind| subject.clone().probe(kind)).collect();
        } else {
            tasks.startup = subject.probe(ProbeKind::Startup);
        }
    }

    /// Takes up the runs of an agent before this one.
    pub(super) fn adopt(&mut self) {
        let names: Vec<String> = self.record.containers.keys().cloned().collect();
        for name in names {
            let running = self.record.containers.get(&name).is_some_and(ContainerRecord::is_running);
            if !running || self.is_simulated(&name) {
                continue;
            }
            if let Some(container) = self.container(&name).cloned() {
                let key = self.record.run(&name);
                tracing::info!(pod = %key.pod, container = %name, "taken up as it runs");
                self.watch(&container, key);
            }
            if let Some(record) = self.record.containers.get_mut(&name) {
                record.stopping = false;
            }
        }
    }

    /// Counts as running without a process.
    fn simulate(&mut self, container: &Container) {
        let image = container.image.as_deref().unwrap_or_default();
        let message = format!("Simulated: image {image:?} is not run, the container counts as running");
        self.node.events.pod(&self.pod, Some(&container.name), Severity::Normal, "Simulated", message);
        let main = self.pod.spec.iter().flat_map(|s| &s.containers).any(|c| c.name == container.name);
        let keeps_running = main || super::resources::is_sidecar(container);
        let record = self.begin_run(&container.name);
        record.image_id = "Simulated".to_owned();
        record.started = true;
        record.ready = true;
        let id = format!("simulated://{}", uuid::Uuid::new_v4().simple());
        let now = Timestamp::now();
        record.state = if keeps_running {
            State::Running { id, started_at: now }
        } else {
            let reason = "Completed".to_owned();
            let message = Some("Simulated".to_owned());
            State::Ended {
                id,
                exit: Exit { exit_code: 0, signal: None, started_at: Some(now), finished_at: now, reason, message },
            }
        };
    }

    fn wait_for(&mut self, name: &str, reason: &str, message: &str) {
        let record = self.record.containers.entry(name.to_owned()).or_default();
        let state = State::Waiting { reason: reason.to_owned(), message: Some(message.to_owned()) };
        let changed = record.state != state;
        record.state = state;
        self.hold_back();
        if changed {
            self.node.events.pod(&self.pod, Some(name), Severity::Warning, "Failed", format!("Error: {message}"));
        }
    }

    fn start_failed(&mut self, container: &Container, error: &Error) {
        let message = error.to_string();
        let events = &self.node.events;
        events.pod(&self.pod, Some(&container.name), Severity::Warning, "Failed", format!("Error: {message}"));
        let exit = Exit {
            exit_code: 128,
            signal: None,
            started_at: None,
            finished_at: Timestamp::now(),
            reason: "StartError".to_owned(),
            message: Some(message),
        };
        if let Some(record) = self.record.containers.get_mut(&container.name) {
            record.state = State::Ended { id: String::new(), exit };
        }
    }

    /// Ends a run within the Pod's grace.
    pub(super) fn stop(&mut self, name: &str) {
        self.stop_within(name, self.grace(), format!("Stopping container {name}"));
    }

    fn stop_within(&mut self, name: &str, grace: Duration, message: String) {
        let Some(container) = self.container(name).cloned() else { return };
        if self.is_simulated(name) {
            self.ended(name, simulated_end());
            return;
        }
        let key = self.record.run(name);
        let subject = self.subject(&container, key);
        let tasks = self.tasks.entry(name.to_owned()).or_default();
        // A second, shorter grace replaces the first; a longer one does not.
        if tasks.stop.as_ref().is_some_and(|(before, _)| *before <= grace) {
            return;
        }
        let first = tasks.stop.is_none();
        tasks.probes.clear();
        tasks.startup = None;
        tasks.stop = Some((grace, subject.stop(grace)));
        if let Some(record) = self.record.containers.get_mut(name) {
            record.stopping = true;
        }
        if first {
            self.node.events.pod(&self.pod, Some(name), Severity::Normal, "Killing", message);
        }
    }

    /// Takes what a task reports; reports of an older run are stale.
    pub(super) fn report(&mut self, report: Report) {
        let key = match &report {
            Report::Exited { key, .. }
            | Report::Probe { key, .. }
            | Report::PostStartFailed { key, .. }
            | Report::PreStopFailed { key, .. } => key.clone(),
        };
        if self.record.run(&key.container) != key {
            return;
        }
        let name = key.container.as_str();
        match report {
            Report::Exited { exit, .. } => self.exited(name, exit),
            Report::Probe { kind, verdict, error, .. } => self.probed(name, kind, verdict, error),
            Report::PostStartFailed { error, .. } => {
                let message = format!("PostStartHook failed: {error}");
                self.node.events.pod(&self.pod, Some(name), Severity::Warning, "FailedPostStartHook", message);
                self.stop_within(name, self.grace(), "FailedPostStartHook".to_owned());
            }
            Report::PreStopFailed { error, .. } => {
                let message = format!("PreStopHook failed: {error}");
                self.node.events.pod(&self.pod, Some(name), Severity::Warning, "FailedPreStopHook", message);
            }
        }
    }

    fn exited(&mut self, name: &str, mut exit: Exit) {
        exit.message = exit.message.take().or_else(|| self.last_words(name, &exit));
        self.ended(name, exit);
        self.tasks.remove(name);
    }

    fn ended(&mut self, name: &str, exit: Exit) {
        let Some(record) = self.record.containers.get_mut(name) else { return };
        let State::Running { id, started_at } = &record.state else { return };
        let id = id.clone();
        record.backoff_seconds = backoff_after(record.backoff_seconds, exit.finished_at.duration_since(*started_at));
        record.state = State::Ended { id, exit };
        record.ready = false;
        record.started = false;
        let backoff = record.backoff_seconds;
        if backoff > 0 && !record.stopping {
            let pod = &self.record.key;
            let message =
                format!("Back-off restarting failed container {name} in pod {}_{}({})", pod.name, pod.namespace, pod.uid);
            self.node.events.pod(&self.pod, Some(name), Severity::Warning, "BackOff", message);
        }
    }

    /// The termination message: the file's content, or the log's end if the container asks for that.
    fn last_words(&self, name: &str, exit: &Exit) -> Option<String> {
        let key = self.record.run(name);
        let run = self.node.paths.container(&key.pod.uid, name, key.attempt);
        let bytes = std::fs::read(termination_log(&run)).unwrap_or_default();
        let end = bytes.len().min(limits::TERMINATION_MESSAGE_BYTES_MAX);
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        if !text.is_empty() {
            return Some(text);
        }
        let policy = self.container(name)?.termination_message_policy.as_deref();
        if policy != Some("FallbackToLogsOnError") || exit.exit_code == 0 {
            return None;
        }
        let pod = &self.record.key;
        let log = self.node.paths.pod_logs(&pod.namespace, &pod.name, &pod.uid).join(name).join(format!("{}.log", key.attempt));
        crate::server::logs::tail_text(&log, 80, 2048)
    }

    fn probed(&mut self, name: &str, kind: ProbeKind, verdict: Option<Verdict>, error: Option<String>) {
        if let Some(error) = &error {
            let message = format!("{} probe failed: {error}", kind.word());
            self.node.events.pod(&self.pod, Some(name), Severity::Warning, "Unhealthy", message);
        }
        let Some(verdict) = verdict else { return };
        let Some(container) = self.container(name).cloned() else { return };
        match (kind, verdict) {
            (ProbeKind::Readiness, verdict) => {
                if let Some(record) = self.record.containers.get_mut(name) {
                    record.ready = verdict == Verdict::Passed;
                }
            }
            (ProbeKind::Startup, Verdict::Passed) => self.startup_passed(&container),
            (ProbeKind::Liveness, Verdict::Passed) => {}
            (kind, Verdict::Failed) => {
                let own = kind.of(&container).and_then(|p| p.termination_grace_period_seconds);
                let grace = own.map_or_else(|| self.grace(), |s| Duration::from_secs(s.max(0).unsigned_abs()));
                let word = kind.word().to_lowercase();
                self.stop_within(name, grace, format!("Container {name} failed {word} probe, will be restarted"));
            }
        }
    }

    fn startup_passed(&mut self, container: &Container) {
        if let Some(record) = self.record.containers.get_mut(&container.name) {
            record.started = true;
            record.ready = container.readiness_probe.is_none();
        }
        let subject = self.subject(container, self.record.run(&container.name));
        let tasks = self.tasks.entry(container.name.clone()).or_default();
        tasks.startup = None;
        let kinds = [ProbeKind::Liveness, ProbeKind::Readiness];
        tasks.probes = kinds.into_iter().filter_map(|kind| subject.clone().probe(kind)).collect();
    }
}

fn simulated_end() -> Exit {
    Exit {
        exit_code: 0,
        signal: None,
        started_at: None,
        finished_at: Timestamp::now(),
        reason: "Completed".to_owned(),
        message: Some("Simulated".to_owned()),
    }
}
