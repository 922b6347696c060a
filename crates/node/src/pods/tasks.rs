//! What goes on beside a Pod's worker for each of its containers: waiting for the end, probing, hooks, ending it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::context::Node;
use crate::limits;
use crate::probes::{self, ProbeKind, Schedule, Verdict, action};
use crate::runtime::{Exit, RunKey, Runtime};

/// What a task tells the worker.
#[derive(Debug)]
pub enum Report {
    /// A run has ended.
    Exited { key: RunKey, exit: Exit },
    /// A probe failed once, or its verdict changed.
    Probe { key: RunKey, kind: ProbeKind, verdict: Option<Verdict>, error: Option<String> },
    /// The hook after the start failed.
    PostStartFailed { key: RunKey, error: String },
    /// The hook before the end failed; the container ends all the same.
    PreStopFailed { key: RunKey, error: String },
}

/// A task that ends with its handle.
pub struct Task(JoinHandle<()>);

impl Task {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One container of one Pod, for its tasks.
pub struct Subject<R: Runtime> {
    pub node: Arc<Node<R>>,
    pub key: RunKey,
    pub container: Container,
    pub ip: String,
    pub reports: mpsc::Sender<Report>,
}

impl<R: Runtime> Clone for Subject<R> {
    fn clone(&self) -> Self {
        Subject {
            node: self.node.clone(),
            key: self.key.clone(),
            container: self.container.clone(),
            ip: self.ip.clone(),
            reports: self.reports.clone(),
        }
    }
}

impl<R: Runtime> Subject<R> {
    /// Waits for the end of the run.
    pub fn wait(self) -> Task {
        Task::spawn(async move {
            let exit = self.node.runtime.wait(&self.key).await;
            let _ = self.reports.send(Report::Exited { key: self.key, exit }).await;
        })
    }

    /// Runs one of the container's probes for ever; `None` if it has no such probe.
    pub fn probe(self, kind: ProbeKind) -> Option<Task> {
        let probe = kind.of(&self.container)?.clone();
        let schedule = Schedule::of(&probe);
        Some(Task::spawn(async move {
            let Subject { node, key, container, ip, reports } = &self;
            let check = || action::check(&node.runtime, key, container, ip, &probe);
            let report = |verdict, error| {
                let (reports, key) = (reports.clone(), key.clone());
                async move {
                    let _ = reports.send(Report::Probe { key, kind, verdict, error }).await;
                }
            };
            probes::run(kind, schedule, check, report).await;
        }))
    }

    /// Runs the hook after the start, if there is one.
    pub fn post_start(self) -> Option<Task> {
        let hook = self.container.lifecycle.as_ref()?.post_start.clone()?;
        Some(Task::spawn(async move {
            if let Err(error) = self.hook(&hook).await {
                let _ = self.reports.send(Report::PostStartFailed { key: self.key, error }).await;
            }
        }))
    }

    /// Ends the run: the hook before the end and SIGTERM within `grace`, then SIGKILL.
    pub fn stop(self, grace: Duration) -> Task {
        Task::spawn(async move {
            let deadline = tokio::time::Instant::now() + grace;
            let hook = self.container.lifecycle.as_ref().and_then(|l| l.pre_stop.clone());
            if let Some(hook) = hook.filter(|_| !grace.is_zero()) {
                let done = tokio::time::timeout_at(deadline, self.hook(&hook)).await;
                let error = match done {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error),
                    Err(_) => Some("the hook took longer than the grace period".to_owned()),
                };
                if let Some(error) = error {
                    let key = self.key.clone();
                    let _ = self.reports.send(Report::PreStopFailed { key, error }).await;
                }
            }
            let signal = self.container.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref()).map_or(15, signal_number);
            self.signal(signal);
            tokio::time::sleep_until(deadline.max(tokio::time::Instant::now() + limits::ORPHAN_GRACE.min(grace))).await;
            loop {
                self.signal(9);
                tokio::time::sleep(limits::KILL_TIMEOUT).await;
            }
        })
    }

    fn signal(&self, signal: i32) {
        if let Err(e) = self.node.runtime.signal(&self.key, signal) {
            tracing::warn!(pod = %self.key.pod, container = %self.key.container, "{e}");
        }
    }

    async fn hook(&self, hook: &LifecycleHandler) -> Result<(), String> {
        if let Some(exec) = &hook.exec {
            let argv = exec.command.clone().unwrap_or_default();
            let (code, output) = action::command(&self.node.runtime, &self.key, argv).await?;
            return if code == 0 { Ok(()) } else { Err(format!("command exited with {code}: {output}")) };
        }
        if let Some(get) = &hook.http_get {
            return action::http_get(&self.container, &self.ip, get).await;
        }
        if let Some(sleep) = &hook.sleep {
            tokio::time::sleep(Duration::from_secs(sleep.seconds.max(0).unsigned_abs())).await;
        }
        Ok(())
    }
}

/// The number of `SIGTERM` and the like; SIGTERM for a name that is none.
fn signal_number(name: &str) -> i32 {
    name.parse::<nix::sys::signal::Signal>().map_or(15, |s| s as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_signals_by_name() {
        assert_eq!((signal_number("SIGINT"), signal_number("SIGNONSENSE")), (2, 15));
    }
}
