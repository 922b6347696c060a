//! The process that holds a container: it reads the container's output, keeps its exit status and serves attached
//! clients. It starts before the container and ends after it, whatever becomes of the agent. No threads, no async.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Pid, pipe2};

use super::relay::Relay;
use super::spec::{EXIT_FILE, ExitRecord, LaunchSpec, ProcessId, SHIM_FILE, ShimRecord};
use super::{container, sys};
use crate::error::{Error, Result};
use crate::paths::{read_record, write_record};

/// Entry point of the hidden role `node-shim LAUNCH.json`. The process that was started ends as soon as the container
/// runs (0) or has failed to start (1, with the reason on standard error); the shim proper is its child.
pub fn main(launch: &Path) -> i32 {
    match start(launch) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}

fn start(launch: &Path) -> Result<()> {
    let spec: LaunchSpec = read_record(launch)?.ok_or_else(|| Error::Start(format!("{} is missing", launch.display())))?;
    let (report_in, report_out) = pipe2(OFlag::O_CLOEXEC).map_err(Error::system("pipe"))?;
    match sys::fork().map_err(Error::system("fork"))? {
        ForkResult::Parent { .. } => {
            drop(report_out);
            match read_all(report_in).as_str() {
                "" => Err(Error::Start("the shim ended before the container ran".to_owned())),
                "ok" => Ok(()),
                why => Err(Error::Start(why.to_owned())),
            }
        }
        ForkResult::Child => {
            drop(report_in);
            let code = i32::from(hold(&spec, report_out).is_err());
            sys::exit_now(code)
        }
    }
}

fn read_all(fd: OwnedFd) -> String {
    let mut text = Vec::new();
    let _ = fs::File::from(fd).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The shim proper.
fn hold(spec: &LaunchSpec, report: OwnedFd) -> Result<()> {
    let mut report = fs::File::from(report);
    let held = detach().and_then(|()| launch(spec));
    let (child, stdio, started_at) = match held {
        Ok(running) => running,
        Err(e) => {
            record_exit(spec, 128, None, None, Some(e.to_string()))?;
            let _ = report.write_all(e.to_string().as_bytes());
            return Err(e);
        }
    };
    let mut relay = Relay::new(spec, stdio)?;
    let identity = |pid: i32| ProcessId::of(pid).unwrap_or(ProcessId { pid, start_ticks: 0 });
    let record = ShimRecord { shim: identity(std::process::id() as i32), container: identity(child.as_raw()), started_at };
    write_record(&spec.directory.join(SHIM_FILE), &record)?;
    let _ = report.write_all(b"ok");
    drop(report);
    let watch = sys::pidfd_open(child.as_raw()).map_err(Error::system("watch the container"))?;
    relay.run(&watch);
    let (code, signal) = sys::wait_for(child).map_err(Error::system("wait for the container"))?;
    record_exit(spec, code, signal, Some(started_at), None)?;
    let _ = fs::remove_file(&spec.attach_socket);
    Ok(())
}

/// Leaves the agent's session and descriptors, so that no signal or closed pipe of its reaches the shim.
fn detach() -> Result<()> {
    nix::unistd::setsid().map_err(Error::system("setsid"))?;
    let null = fs::File::options().read(true).write(true).open("/dev/null").map_err(Error::file("/dev/null"))?;
    for standard in 0..=2 {
        sys::replace_standard(&null, standard).map_err(Error::system("detach"))?;
    }
    let _ = nix::sys::prctl::set_name(c"atoll-shim");
    std::env::set_current_dir("/").map_err(Error::file("/"))
}

/// The agent's ends of the container's standard streams.
pub struct Stdio {
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    /// A terminal has one output only.
    pub stderr: Option<OwnedFd>,
    pub terminal: bool,
}

struct ChildStdio {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

fn launch(spec: &LaunchSpec) -> Result<(Pid, Stdio, jiff::Timestamp)> {
    if spec.own_user_namespace {
        container::own_user_namespace(&spec.user)?;
    }
    if !spec.host_pid {
        unshare(CloneFlags::CLONE_NEWPID).map_err(Error::system("make a process namespace"))?;
    }
    let (ours, theirs) = streams(spec)?;
    let (error_in, error_out) = pipe2(OFlag::O_CLOEXEC).map_err(Error::system("pipe"))?;
    match sys::fork().map_err(Error::system("fork"))? {
        ForkResult::Child => {
            drop((ours, error_in));
            let why = connect(&theirs, spec.tty).map_or_else(|e| e, |()| container::become_container(spec));
            let _ = fs::File::from(error_out).write_all(why.to_string().as_bytes());
            sys::exit_now(127)
        }
        ForkResult::Parent { child } => {
            drop((theirs, error_out));
            let started_at = jiff::Timestamp::now();
            let why = read_all(error_in);
            if why.is_empty() {
                return Ok((child, ours, started_at));
            }
            let _ = sys::wait_for(child);
            Err(Error::Start(why))
        }
    }
}

fn connect(theirs: &ChildStdio, tty: bool) -> Result<()> {
    nix::unistd::setsid().map_err(Error::system("setsid"))?;
    if tty {
        sys::set_controlling_terminal(&theirs.stdin).map_err(Error::system("take the terminal"))?;
    }
    for (from, to) in [(&theirs.stdin, 0), (&theirs.stdout, 1), (&theirs.stderr, 2)] {
        sys::replace_standard(from, to).map_err(Error::system("connect standard streams"))?;
    }
    Ok(())
}

fn streams(spec: &LaunchSpec) -> Result<(Stdio, ChildStdio)> {
    let failed = |e| Error::system("make standard streams")(e);
    if spec.tty {
        let pty = nix::pty::openpty(None, None).map_err(failed)?;
        let again = |fd: &OwnedFd| fd.as_fd().try_clone_to_owned().map_err(Error::file("terminal"));
        let ours = Stdio {
            stdin: spec.stdin.then(|| again(&pty.master)).transpose()?,
            stdout: pty.master,
            stderr: None,
            terminal: true,
        };
        let theirs = ChildStdio { stdin: again(&pty.slave)?, stdout: again(&pty.slave)?, stderr: pty.slave };
        return Ok((ours, theirs));
    }
    let (out_in, out_out) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let (err_in, err_out) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let (their_in, our_in) = if spec.stdin {
        let (r, w) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        (r, Some(w))
    } else {
        (fs::File::open("/dev/null").map_err(Error::file("/dev/null"))?.into(), None)
    };
    let ours = Stdio { stdin: our_in, stdout: out_in, stderr: Some(err_in), terminal: false };
    Ok((ours, ChildStdio { stdin: their_in, stdout: out_out, stderr: err_out }))
}

fn record_exit(
    spec: &LaunchSpec,
    exit_code: i32,
    signal: Option<i32>,
    started_at: Option<jiff::Timestamp>,
    start_error: Option<String>,
) -> Result<()> {
    let oom_killed = spec.oom_counter.as_deref().is_some_and(|file| super::cgroup::oom_kills(file) > 0);
    let finished_at = jiff::Timestamp::now();
    let record = ExitRecord { exit_code, signal, started_at, finished_at, oom_killed, start_error };
    write_record(&spec.directory.join(EXIT_FILE), &record)
}
