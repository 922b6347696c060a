//! Workers: parts of a machine that are machines of their own. A worker has its own user, mount, process and network
//! namespace, a root directory, and a small process 1; a node agent is started in it and ended without it noticing.
//!
//! Root in a worker is an unprivileged id outside. Of the machine it sees the files that the agent needs (the program,
//! `ip`, `nft`, their libraries), devices such as `/dev/null`, and its own control groups.
//!
//! Links and filters are the caller's: a new worker has a network namespace with nothing but a loopback device.

use std::fs;
use std::io::Read;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::paths::{make_dir, write_record};
use crate::runtime::host::elf;
use crate::runtime::host::spec::ProcessId;

pub mod enter;
pub mod init;

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Host name inside.
    pub name: String,
    /// Directory that becomes `/`; it stays when the worker ends. Its parents need not be open to anybody.
    pub root: PathBuf,
    /// First user and group id outside, which is 0 inside.
    pub first_id: u32,
    /// Number of ids; a Pod's `runAsUser` has to be below it.
    pub ids: u32,
    /// The program, on the machine; inside it is [`PROGRAM`].
    pub program: PathBuf,
    /// Programs beside it that the agent calls, found on the machine; those that are missing are left out.
    pub tools: Vec<PathBuf>,
    /// Path below each control group hierarchy that becomes the worker's own.
    pub cgroup_parent: String,
}

/// Path of the program inside a worker, the same as in a container.
pub const PROGRAM: &str = crate::runtime::host::PROGRAM;
/// Ids of a worker as containers usually have them.
pub const IDS: u32 = 65_536;

impl WorkerSpec {
    /// A worker with the tools that its agent needs.
    pub fn new(name: &str, root: PathBuf, first_id: u32, program: PathBuf) -> WorkerSpec {
        WorkerSpec {
            name: name.to_owned(),
            root,
            first_id,
            ids: IDS,
            program,
            tools: ["ip", "nft"].into_iter().filter_map(crate::network::tool::find).collect(),
            cgroup_parent: format!("atoll/{name}"),
        }
    }

    /// Files of the machine that are to be seen inside: source and path.
    pub(crate) fn files(&self) -> Result<Vec<(PathBuf, PathBuf)>> {
        let mut files = vec![(self.program.clone(), PathBuf::from(PROGRAM))];
        for program in std::iter::once(&self.program).chain(&self.tools) {
            for library in elf::libraries(program)? {
                let source = fs::canonicalize(&library).map_err(Error::file(&library))?;
                files.push((source, library));
            }
        }
        for tool in &self.tools {
            files.push((fs::canonicalize(tool).map_err(Error::file(tool))?, tool.clone()));
        }
        files.sort_by(|a, b| a.1.cmp(&b.1));
        files.dedup_by(|a, b| a.1 == b.1);
        Ok(files)
    }
}

/// A worker that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Its process 1.
    pub init: ProcessId,
    /// Control groups that processes started in it have to be in.
    pub cgroups: Vec<PathBuf>,
}

impl Worker {
    /// Whether it is still there.
    pub fn is_alive(&self) -> bool {
        self.init.is_alive()
    }

    /// Ends every process in it. Its root directory stays.
    pub fn end(&self) {
        if self.is_alive() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.init.pid), nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// Arguments with which the program, on the machine, runs `args` of itself in the worker whose record is at `record`.
    /// The inner process ends with the outer one, which passes on signals and the exit code.
    pub fn arguments(record: &Path, args: &[String]) -> Vec<String> {
        let record = record.to_string_lossy().into_owned();
        let head = ["node-launch".to_owned(), "enter".to_owned(), record, PROGRAM.to_owned()];
        head.into_iter().chain(args.iter().cloned()).collect()
    }
}

/// Makes a worker and writes its record to `record`. Needs root. Its process 1 belongs to no session and outlives the
/// caller.
pub fn spawn(spec: &WorkerSpec, record: &Path) -> Result<Worker> {
    make_dir(&spec.root, 0o755)?;
    chown(&spec.root, Some(spec.first_id), Some(spec.first_id)).map_err(Error::file(&spec.root))?;
    let path = record.with_extension("spec");
    write_record(&path, spec)?;
    let mut child = Command::new(&spec.program)
        .arg("node-worker")
        .arg(&path)
        .arg(record)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::file(&spec.program))?;
    let mut why = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut why);
    }
    let status = child.wait().map_err(Error::file(&spec.program))?;
    if !status.success() {
        return Err(Error::Start(format!("worker {}: {}", spec.name, why.trim())));
    }
    crate::paths::read_record(record)?.ok_or_else(|| Error::Start(format!("worker {} left no record", spec.name)))
}
