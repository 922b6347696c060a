//! Turns a freshly forked, single-threaded process into the container's first process.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid};

use super::spec::{ExecSpec, Identity, LaunchSpec};
use super::{rootfs, sys};
use crate::error::{Error, Result};

/// Search path of a container that sets none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Enters everything that `spec` asks for and executes the program; returns only the reason why it could not.
pub fn become_container(spec: &LaunchSpec) -> Error {
    match prepare(spec) {
        Ok(()) => execute(&spec.argv, &spec.env),
        Err(e) => e,
    }
}

fn prepare(spec: &LaunchSpec) -> Result<()> {
    join_cgroups(&spec.cgroups)?;
    if let Some(netns) = &spec.netns {
        let handle = fs::File::open(netns).map_err(Error::file(netns))?;
        setns(handle, CloneFlags::CLONE_NEWNET).map_err(Error::system("enter the Pod's network"))?;
    }
    let mut flags = CloneFlags::CLONE_NEWNS;
    if !spec.host_uts {
        flags |= CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    }
    unshare(flags).map_err(Error::system("unshare"))?;
    if !spec.host_uts {
        nix::unistd::sethostname(&spec.hostname).map_err(Error::system("set the host name"))?;
    }
    rootfs::enter(spec)?;
    drop_rights(&spec.user, spec.capabilities, spec.no_new_privileges, spec.own_user_namespace)?;
    // The container must not outlive its shim unnoticed. Set after the ids, whose change would clear it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Error::system("tie to the shim"))
}

/// Moves this process into the control groups.
pub fn join_cgroups(directories: &[PathBuf]) -> Result<()> {
    for directory in directories {
        let file = directory.join("cgroup.procs");
        fs::write(&file, "0").map_err(Error::file(file))?;
    }
    Ok(())
}

/// Takes the container's ids and capabilities. In a user namespace of its own the ids are there already.
pub fn drop_rights(user: &Identity, capabilities: u64, no_new_privileges: bool, own_user_namespace: bool) -> Result<()> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    sys::drop_bounding(capabilities).map_err(Error::system("limit capabilities"))?;
    if !own_user_namespace {
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        nix::unistd::setgroups(&groups).map_err(Error::system("set groups"))?;
        let gid = Gid::from_raw(user.gid);
        nix::unistd::setresgid(gid, gid, gid).map_err(Error::system(format!("become group {gid}")))?;
        let uid = Uid::from_raw(user.uid);
        nix::unistd::setresuid(uid, uid, uid).map_err(Error::system(format!("become user {uid}")))?;
    }
    if user.uid == 0 {
        sys::set_capabilities(capabilities).map_err(Error::system("set capabilities"))?;
    }
    if no_new_privileges {
        nix::sys::prctl::set_no_new_privs().map_err(Error::system("forbid new privileges"))?;
    }
    Ok(())
}

/// Executes `argv`, searched in the container's own PATH; returns only the reason why it could not.
pub fn execute(argv: &[String], env: &[(String, String)]) -> Error {
    let Some(name) = argv.first() else { return Error::Start("no command".to_owned()) };
    let path = env.iter().rev().find(|(k, _)| k == "PATH").map_or(DEFAULT_PATH, |(_, v)| v.as_str());
    let Some(program) = find_program(name, path) else {
        return Error::Start(format!("exec: {name:?}: executable file not found in $PATH"));
    };
    if let Err(e) = sys::close_on_exec_from(3) {
        return Error::system("close descriptors")(e);
    }
    reset_signals();
    let e = sys::execute(&program, argv, env);
    Error::Start(format!("exec: {name:?}: {}", e.desc()))
}

fn find_program(name: &str, path: &str) -> Option<String> {
    if name.contains('/') {
        return Path::new(name).exists().then(|| name.to_owned());
    }
    path.split(':').map(|dir| format!("{dir}/{name}")).find(|candidate| Path::new(candidate).is_file())
}

/// Signals that the agent ignores or blocks would stay so in the program.
fn reset_signals() {
    let none = nix::sys::signal::SigSet::empty();
    let _ = none.thread_set_mask();
    let _ = sys::default_sigpipe();
}

/// Enters a container that runs already, as a child of the agent, and executes the program there.
pub fn join_container(spec: &ExecSpec) -> Result<()> {
    join_cgroups(&spec.cgroups)?;
    let mut kinds = vec![
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("net", CloneFlags::CLONE_NEWNET),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    if spec.own_user_namespace {
        kinds.insert(0, ("user", CloneFlags::CLONE_NEWUSER));
    }
    let mut handles = Vec::new();
    for (name, flag) in kinds {
        let path = format!("/proc/{}/ns/{name}", spec.pid);
        let same = fs::read_link(&path).ok() == fs::read_link(format!("/proc/self/ns/{name}")).ok();
        if !same {
            handles.push((fs::File::open(&path).map_err(Error::file(path))?, name, flag));
        }
    }
    for (handle, name, flag) in handles {
        setns(handle, flag).map_err(Error::system(format!("enter the container's {name} namespace")))?;
    }
    std::env::set_current_dir(&spec.working_dir).map_err(Error::file(&spec.working_dir))
}

/// Gives an unprivileged agent's container a user namespace in which the agent's ids are the container's.
pub fn own_user_namespace(user: &Identity) -> Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| match e {
        Errno::EPERM | Errno::ENOSPC => {
            Error::Start("this machine lets nobody but root make user namespaces; run the node as root".to_owned())
        }
        e => Error::system("make a user namespace")(e),
    })?;
    for (file, content) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{} {uid} 1", user.uid)),
        ("/proc/self/gid_map", format!("{} {gid} 1", user.gid)),
    ] {
        fs::write(file, content).map_err(Error::file(file))?;
    }
    Ok(())
}
