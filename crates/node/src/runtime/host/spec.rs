//! What the agent tells the launcher and what the shim tells the agent: files of JSON, so that either may be restarted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that the single-threaded launcher needs to become a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// 64 hexadecimal digits, as container runtimes name containers.
    pub id: String,
    /// Directory of the records of this run.
    pub directory: PathBuf,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_dir: String,
    pub hostname: String,
    /// Empty directory to build the root on.
    pub stage: PathBuf,
    /// Files of the image: source on the node, path in the container.
    pub image_files: Vec<(PathBuf, PathBuf)>,
    pub mounts: Vec<BindMount>,
    pub devices: Vec<DeviceNode>,
    /// Handle of the Pod's network namespace; `None` shares the node's.
    pub netns: Option<PathBuf>,
    /// Shares the node's process namespace.
    pub host_pid: bool,
    /// Shares the node's host name and IPC.
    pub host_uts: bool,
    pub user: Identity,
    /// Without root, the container gets a user namespace in which the agent's own ids are these.
    pub own_user_namespace: bool,
    /// Capabilities that root in the container may have, one bit each.
    pub capabilities: u64,
    pub no_new_privileges: bool,
    pub privileged: bool,
    /// Directories of control groups to join.
    pub cgroups: Vec<PathBuf>,
    /// File whose `oom_kill` counter tells whether the kernel killed for memory.
    pub oom_counter: Option<PathBuf>,
    pub log: PathBuf,
    pub attach_socket: PathBuf,
    pub annotations: BTreeMap<String, String>,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
}

/// User, group and supplementary groups of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// One bind mount. The source is `path` resolved inside `base`, so that no symbolic link leads out of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindMount {
    pub base: PathBuf,
    pub path: String,
    pub target: String,
    pub read_only: bool,
    /// The source is made as a directory if it is missing (`subPath`).
    pub create: bool,
}

/// A device file that a device plugin asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub host_path: PathBuf,
    pub container_path: String,
}

/// Written by the shim when the program runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    pub shim: ProcessId,
    pub container: ProcessId,
    pub started_at: jiff::Timestamp,
}

/// A process that cannot be mistaken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// Identity of a live process.
    pub fn of(pid: i32) -> Option<ProcessId> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start_ticks) = parse_stat(&stat)?;
        (state != 'Z' && state != 'X').then_some(ProcessId { pid, start_ticks })
    }

    /// Whether this very process lives.
    pub fn is_alive(self) -> bool {
        ProcessId::of(self.pid) == Some(self)
    }
}

/// State and start time of a `stat` line; the command in parentheses may hold anything.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Written by the shim when the program has ended or could not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// 128 + signal for a program that a signal ended.
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub started_at: Option<jiff::Timestamp>,
    pub finished_at: jiff::Timestamp,
    pub oom_killed: bool,
    /// Why the program did not start.
    pub start_error: Option<String>,
}

/// File name of [`LaunchSpec`] in a run's directory.
pub const LAUNCH_FILE: &str = "launch.json";
/// File name of [`ShimRecord`].
pub const SHIM_FILE: &str = "shim.json";
/// File name of [`ExitRecord`].
pub const EXIT_FILE: &str = "exit.json";

/// What `atoll node-launch exec` runs inside a container that is already there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExecSpec {
    /// A process of the container.
    pub pid: i32,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_dir: String,
    pub user: Identity,
    pub own_user_namespace: bool,
    pub host_pid: bool,
    pub capabilities: u64,
    pub no_new_privileges: bool,
    pub cgroups: Vec<PathBuf>,
    /// Standard input is a terminal that becomes the controlling one.
    pub tty: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_a_command_name_with_parentheses() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 98765 1000 10";
        assert_eq!(parse_stat(line), Some(('S', 98765)));
    }

    #[test]
    fn a_process_is_itself_and_not_another() {
        let me = ProcessId::of(std::process::id() as i32).unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start_ticks: me.start_ticks + 1, ..me }.is_alive());
    }
}
