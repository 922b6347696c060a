//! Processes of this machine, and whose they are.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Lab, Tenant, netns};
use crate::platform::process::start_time;

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: i32,
    /// In clock ticks since boot: with the id it names one process for good.
    pub started: u64,
    /// Its ids from our namespace inwards.
    pub ids: Vec<i32>,
    /// Its real user id.
    pub user: u32,
    pub arguments: Vec<String>,
}

impl Process {
    fn read(pid: i32) -> Option<Process> {
        let started = start_time(pid)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default().split_whitespace();
        let ids = numbers("NSpid:").filter_map(|n| n.parse().ok()).collect();
        let user = numbers("Uid:").next()?.parse().ok()?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).split_terminator('\0').map(str::to_owned).collect();
        Some(Process { pid, started, ids, user, arguments })
    }

    /// Whether these words follow the program's name.
    pub fn runs(&self, words: &[&str]) -> bool {
        self.arguments.get(1..).is_some_and(|rest| rest.len() >= words.len() && rest.iter().zip(words).all(|(a, w)| a == w))
    }

    /// Whether it runs still; another one with its id is not it.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill(Pid::from_raw(self.pid), signal).map_err(|e| format!("{signal} to process {}: {e}", self.pid))
    }
}

/// Every process, by id.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Process> =
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Process::read).collect();
    found.sort();
    found
}

/// Those of a tenant's first worker: they share its user namespace, whatever else is their own.
pub fn of_worker(lab: &Lab, tenant: &Tenant) -> Result<Vec<Process>, String> {
    let namespace = |pid: i32| fs::read_link(PathBuf::from(format!("/proc/{pid}/ns/user")));
    let worker = namespace(netns::worker_init(lab, tenant)?).map_err(|e| format!("the worker of {}: {e}", tenant.name))?;
    Ok(all().into_iter().filter(|p| namespace(p.pid).is_ok_and(|own| own == worker)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_all_with_its_words() {
        let own = std::process::id() as i32;
        let found = all().into_iter().find(|p| p.pid == own).expect("this process");
        assert_eq!((found.ids[0], found.user), (own, nix::unistd::getuid().as_raw()));
        let words: Vec<String> = std::env::args().skip(1).collect();
        assert!(found.runs(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        assert!(!found.runs(&["no", "such", "words", "at", "all"]));
    }
}
