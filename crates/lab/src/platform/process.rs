//! Long-running processes of the platform: started, adopted after a crash of the supervisor, restarted with backoff.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{Dirs, Error};

/// First wait before a restart; it doubles up to `BACKOFF_MAX`.
pub const BACKOFF_MIN: Duration = Duration::from_millis(250);
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A process that ran this long starts from the shortest wait again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Between two looks at a process that is not our child.
const LOOK: Duration = Duration::from_millis(200);
/// How long a process gets to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// A log past this size is started anew at the next start; one older is kept.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// File-system-safe name: of its log and its record.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Network namespace to run in, made by `ip netns`.
    pub namespace: Option<String>,
    pub environment: Vec<(String, String)>,
}

/// A process as it is written down, so that a later supervisor knows it again.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Record {
    pub pid: i32,
    /// Start time in clock ticks since boot: a reused pid has another one.
    pub started: u64,
    /// Command line, to tell whether a running process is what is wanted now.
    pub command: Vec<String>,
}

/// Start time of a live process from `/proc`; `None` if there is none or it is a zombie.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command may hold spaces and parentheses: fields count from behind its last ')'.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields.first() != Some(&"Z")).then(|| fields.get(19)?.parse().ok())?
}

impl Record {
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Ends the process: SIGTERM, then SIGKILL after the grace.
    pub async fn end(&self) {
        let pid = Pid::from_raw(self.pid);
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if !self.is_alive() {
                return;
            }
            let _ = kill(pid, signal);
            let deadline = Instant::now() + GRACE;
            while self.is_alive() && Instant::now() < deadline {
                tokio::time::sleep(LOOK / 4).await;
            }
        }
    }
}

/// All records of a state directory, by name.
pub fn records(dirs: &Dirs) -> Vec<(String, Record)> {
    let entries = fs::read_dir(dirs.processes()).into_iter().flatten().flatten();
    let mut found: Vec<(String, Record)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_stem()?.to_str()?.to_owned();
            Some((name, serde_json::from_slice(&fs::read(&path).ok()?).ok()?))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn record_path(dirs: &Dirs, name: &str) -> PathBuf {
    dirs.processes().join(format!("{name}.json"))
}

fn write_record(path: &Path, record: &Record) -> Result<(), Error> {
    let fresh = path.with_extension("new");
    let bytes = serde_json::to_vec(record).map_err(|e| Error::Invalid(format!("cannot write a record: {e}")))?;
    fs::write(&fresh, bytes)
        .and_then(|()| fs::rename(&fresh, path))
        .map_err(|e| Error::io(format!("cannot write {}", path.display()), e))
}

impl ProcessSpec {
    pub fn log(&self, dirs: &Dirs) -> PathBuf {
        dirs.logs().join(format!("{}.log", self.name))
    }

    fn command_line(&self) -> Vec<String> {
        std::iter::once(self.program.to_string_lossy().into_owned()).chain(self.args.iter().cloned()).collect()
    }

    fn open_log(&self, dirs: &Dirs) -> Result<fs::File, Error> {
        let path = self.log(dirs);
        if fs::metadata(&path).is_ok_and(|m| m.len() > LOG_BYTES_MAX) {
            let _ = fs::rename(&path, path.with_extension("log.1"));
        }
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| Error::io(format!("cannot open {}", path.display()), e))
    }

    /// Starts the process in a session of its own, so that it outlives this one. `stdin` becomes its standard input.
    fn start(&self, dirs: &Dirs, stdin: Option<OwnedFd>) -> Result<(std::process::Child, Record), Error> {
        let log = self.open_log(dirs)?;
        let second = log.try_clone().map_err(|e| Error::io("cannot share the log", e))?;
        let mut command = match &self.namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(&self.args)
            .envs(self.environment.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(log)
            .stderr(second)
            .process_group(0);
        let child = command.spawn().map_err(|e| Error::io(format!("cannot start {}", self.name), e))?;
        let pid = i32::try_from(child.id()).map_err(|_| Error::Invalid("a process id past 31 bits".to_owned()))?;
        let record = Record { pid, started: start_time(pid).unwrap_or_default(), command: self.command_line() };
        write_record(&record_path(dirs, &self.name), &record)?;
        Ok((child, record))
    }

    /// A process of an earlier supervisor that is what is wanted now.
    fn adoptable(&self, dirs: &Dirs) -> Option<Record> {
        let record: Record = serde_json::from_slice(&fs::read(record_path(dirs, &self.name)).ok()?).ok()?;
        (record.is_alive() && record.command == self.command_line()).then_some(record)
    }

    /// Keeps the process running until `stop` turns true; it is left running then. `stdin` gives its standard input anew for
    /// each start.
    pub async fn keep(
        &self,
        dirs: &Dirs,
        stdin: impl Fn() -> Option<OwnedFd>,
        mut stop: tokio::sync::watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let mut backoff = BACKOFF_MIN;
        loop {
            let begun = Instant::now();
            let mut child = None;
            let record = match self.adoptable(dirs) {
                Some(record) => {
                    info!(process = self.name, pid = record.pid, "adopted");
                    record
                }
                None => {
                    let (started, record) = self.start(dirs, stdin())?;
                    info!(process = self.name, pid = record.pid, "started");
                    child = Some(started);
                    record
                }
            };
            let ended = async {
                loop {
                    // Waiting for a child reaps it too: a zombie counts as gone.
                    let runs = match &mut child {
                        Some(child) => matches!(child.try_wait(), Ok(None)),
                        None => record.is_alive(),
                    };
                    if !runs {
                        return;
                    }
                    tokio::time::sleep(LOOK).await;
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = ended => {}
            }
            if begun.elapsed() > STABLE_AFTER {
                backoff = BACKOFF_MIN;
            }
            warn!(process = self.name, restart_in = ?backoff, log = %self.log(dirs).display(), "ended");
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = tokio::time::sleep(backoff) => {}
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(name: &str) -> Dirs {
        let dirs = Dirs::new(std::env::temp_dir().join(format!("atoll-process-{name}-{}", std::process::id())));
        dirs.create().expect("directories");
        dirs
    }

    fn sleeper() -> ProcessSpec {
        ProcessSpec {
            name: "sleeper".to_owned(),
            program: "/bin/sleep".into(),
            args: vec!["300".to_owned()],
            namespace: None,
            environment: Vec::new(),
        }
    }

    async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_process_outlives_its_supervisor_is_adopted_and_restarted() {
        let dirs = dirs("keep");
        let current = || records(&dirs).into_iter().map(|(_, r)| r).find(Record::is_alive);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (spec, place) = (sleeper(), dirs.clone());
        let first = tokio::spawn(async move { spec.keep(&place, || None, stopped).await });
        let before = until("started", current).await;
        stop.send(true).expect("running");
        first.await.expect("joined").expect("kept");
        assert!(before.is_alive(), "the supervisor's end is not the process's");

        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (spec, place) = (sleeper(), dirs.clone());
        let second = tokio::spawn(async move { spec.keep(&place, || None, stopped).await });
        tokio::time::sleep(LOOK * 2).await;
        assert_eq!(current().as_ref(), Some(&before), "adopted, not started again");
        kill(Pid::from_raw(before.pid), Signal::SIGKILL).expect("killed");
        let after = until("restarted", || current().filter(|r| *r != before)).await;
        stop.send(true).expect("running");
        second.await.expect("joined").expect("kept");
        after.end().await;
        fs::remove_dir_all(dirs.root()).expect("removed");
    }
}
