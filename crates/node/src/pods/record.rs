//! What the agent remembers of a Pod, in memory and across its own restarts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::runtime::{Exit, PodKey, RunKey, Sandbox};

/// One Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    pub key: PodKey,
    pub start_time: Timestamp,
    pub sandbox: Option<Sandbox>,
    pub containers: BTreeMap<String, ContainerRecord>,
    /// The Pod was refused by the node or by a deadline: phase Failed with this reason and message.
    pub failed: Option<(String, String)>,
    /// The node never took the Pod: nothing is known of its containers, and nothing is said of them.
    #[serde(default)]
    pub rejected: bool,
}

impl PodRecord {
    /// A Pod that the node sees for the first time.
    pub fn new(key: PodKey, start_time: Timestamp) -> Self {
        PodRecord { key, start_time, sandbox: None, containers: BTreeMap::new(), failed: None, rejected: false }
    }

    /// The current run of a container.
    pub fn run(&self, container: &str) -> RunKey {
        let attempt = self.containers.get(container).map_or(0, |c| c.attempt);
        RunKey { pod: self.key.clone(), container: container.to_owned(), attempt }
    }

    /// Whether any container has a process.
    pub fn any_running(&self) -> bool {
        self.containers.values().any(ContainerRecord::is_running)
    }
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Number of the current or latest run, from 0.
    pub attempt: u32,
    pub state: State,
    /// How the run before the current one ended.
    pub last: Option<(String, Exit)>,
    pub image_id: String,
    /// The startup probe has passed, or there is none.
    pub started: bool,
    /// The readiness probe has passed, or there is none.
    pub ready: bool,
    /// Pause before the next start, in seconds; 0 before the first failure.
    pub backoff_seconds: u64,
    /// It is being ended: no probe and no hook acts on it any more.
    pub stopping: bool,
}

/// Where a container is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Waiting { reason: String, message: Option<String> },
    Running { id: String, started_at: Timestamp },
    Ended { id: String, exit: Exit },
}

impl Default for State {
    fn default() -> Self {
        State::Waiting { reason: "ContainerCreating".to_owned(), message: None }
    }
}

impl ContainerRecord {
    /// Whether it has a process.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// How the latest run ended, if none is on.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Ended { exit, .. } => Some(exit),
            State::Waiting { .. } => self.last.as_ref().map(|(_, exit)| exit),
            State::Running { .. } => None,
        }
    }

    /// Whether it has ever had a run.
    pub fn has_run(&self) -> bool {
        self.last.is_some() || !matches!(self.state, State::Waiting { .. })
    }
}
