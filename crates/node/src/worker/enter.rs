//! `node-launch enter RECORD PROGRAM ARGS…`: runs a program in a worker. The process that was started stays outside,
//! passes signals on and ends with the inner one's exit code; the inner one ends with it.

use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid};

use super::Worker;
use crate::error::{Error, Result};
use crate::paths::read_record;
use crate::runtime::host::sys;

/// Entry point; the result is the exit code.
pub fn main(record: &Path, argv: &[String]) -> i32 {
    match enter(record).and_then(|()| sys::fork().map_err(Error::system("fork"))) {
        Ok(ForkResult::Child) => {
            let e = run(argv);
            eprintln!("{e}");
            sys::exit_now(127)
        }
        Ok(ForkResult::Parent { child }) => watch(child),
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}

fn enter(record: &Path) -> Result<()> {
    let worker: Worker = read_record(record)?.ok_or_else(|| Error::Start(format!("{} is missing", record.display())))?;
    if !worker.is_alive() {
        return Err(Error::Start("the worker has ended".to_owned()));
    }
    for group in &worker.cgroups {
        let procs = group.join("cgroup.procs");
        fs::write(&procs, "0").map_err(Error::file(procs))?;
    }
    // The user namespace last: behind it nothing of the machine's rights is left, and the process namespace is the machine's.
    let kinds = [
        ("pid", CloneFlags::CLONE_NEWPID),
        ("net", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("mnt", CloneFlags::CLONE_NEWNS),
        ("user", CloneFlags::CLONE_NEWUSER),
    ];
    let mut handles = Vec::new();
    for (name, kind) in kinds {
        let path = format!("/proc/{}/ns/{name}", worker.init.pid);
        handles.push((fs::File::open(&path).map_err(Error::file(path))?, name, kind));
    }
    for (handle, name, kind) in handles {
        setns(handle, kind).map_err(Error::system(format!("enter the worker's {name} namespace")))?;
    }
    nix::unistd::setgroups(&[]).map_err(Error::system("drop groups"))?;
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    nix::unistd::setresgid(gid, gid, gid).map_err(Error::system("become group 0"))?;
    nix::unistd::setresuid(uid, uid, uid).map_err(Error::system("become user 0"))?;
    std::env::set_current_dir("/").map_err(Error::file("/"))
}

fn run(argv: &[String]) -> Error {
    if let Err(e) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        return Error::system("tie to the outer process")(e);
    }
    let Some(program) = argv.first() else { return Error::Start("no program".to_owned()) };
    let env: Vec<(String, String)> = std::env::vars().collect();
    let e = sys::execute(program, argv, &env);
    Error::Start(format!("exec {program}: {}", e.desc()))
}

fn watch(child: Pid) -> i32 {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    let _ = signals.thread_block();
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return code,
            Ok(WaitStatus::Signaled(_, signal, _)) => return 128 + signal as i32,
            Err(nix::errno::Errno::ECHILD) => return 1,
            _ => {}
        }
        if let Ok(signal @ (Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP)) = signals.wait() {
            let _ = kill(child, signal);
        }
    }
}
