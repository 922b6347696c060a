//! The hidden role `node-worker SPEC RECORD`: makes the namespaces and stays as process 1.
//!
//! The order matters. The process namespace comes first and `/proc` is mounted while still root of the machine: inside a
//! user namespace that takes another, fully visible `/proc`, which could be uncovered again. The user namespace comes
//! after all files are in place, so that Pods, root or not, cannot unmount any of them.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, pipe2};

use super::{Worker, WorkerSpec};
use crate::error::{Error, Result};
use crate::paths::{read_record, write_record};
use crate::runtime::host::spec::ProcessId;
use crate::runtime::host::sys;

const NONE: Option<&str> = None;
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
const CGROUP: &str = "/sys/fs/cgroup";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Entry point. The caller's process ends when the worker is ready; process 1 goes on.
pub fn main(spec: &Path, record: &Path) -> i32 {
    match make(spec, record) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}

fn make(spec: &Path, record: &Path) -> Result<()> {
    let spec: WorkerSpec = read_record(spec)?.ok_or_else(|| Error::Start(format!("{} is missing", spec.display())))?;
    let files = spec.files()?;
    let groups = control_groups(&spec)?;
    let (ask_in, ask_out) = pipe2(OFlag::O_CLOEXEC).map_err(Error::system("pipe"))?;
    let (go_in, go_out) = pipe2(OFlag::O_CLOEXEC).map_err(Error::system("pipe"))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(Error::system("make a process namespace"))?;
    match sys::fork().map_err(Error::system("fork"))? {
        ForkResult::Child => {
            drop((ask_in, go_out));
            let mut out = fs::File::from(ask_out);
            let ready = become_worker(&spec, &files, &groups, &mut out, go_in);
            if let Err(e) = &ready {
                let _ = out.write_all(e.to_string().as_bytes());
                sys::exit_now(1);
            }
            let _ = out.write_all(b"+");
            drop(out);
            stay()
        }
        ForkResult::Parent { child } => {
            drop((ask_out, go_in));
            let cgroups = groups.iter().map(|g| g.own.join("init")).collect();
            let made = parent(&spec, child, ask_in, go_out, cgroups).and_then(|worker| write_record(record, &worker));
            if made.is_err() {
                let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
            }
            made
        }
    }
}

/// Gives the child its ids once it has its user namespace, then waits until it is ready.
fn parent(spec: &WorkerSpec, child: Pid, ask: OwnedFd, go: OwnedFd, cgroups: Vec<PathBuf>) -> Result<Worker> {
    let mut ask = fs::File::from(ask);
    let mut answer = [0; 1];
    if ask.read(&mut answer).map_err(Error::file("pipe"))? == 1 && answer == *b"u" {
        for group in &cgroups {
            let procs = group.join("cgroup.procs");
            fs::write(&procs, child.to_string()).map_err(Error::file(procs))?;
        }
        let map = format!("0 {} {}", spec.first_id, spec.ids);
        for file in ["uid_map", "gid_map"] {
            let path = format!("/proc/{child}/{file}");
            fs::write(&path, &map).map_err(Error::file(path))?;
        }
        fs::File::from(go).write_all(b"g").map_err(Error::file("pipe"))?;
        answer = [0; 1];
        let _ = ask.read(&mut answer);
    }
    if answer != *b"+" {
        let mut why = String::from_utf8_lossy(&answer).into_owned();
        let _ = ask.read_to_string(&mut why);
        return Err(Error::Start(why));
    }
    let init = ProcessId::of(child.as_raw()).ok_or_else(|| Error::Start("process 1 has ended".to_owned()))?;
    Ok(Worker { init, cgroups })
}

/// One control group hierarchy: the worker's own group, and where it is seen inside.
struct Group {
    own: PathBuf,
    inside: PathBuf,
}

/// Makes the worker's groups and hands them to its root.
fn control_groups(spec: &WorkerSpec) -> Result<Vec<Group>> {
    let parent = spec.cgroup_parent.trim_matches('/');
    let unified = fs::read_to_string(Path::new(CGROUP).join("cgroup.controllers")).unwrap_or_default();
    let hierarchies: Vec<(PathBuf, PathBuf)> = if unified.split_ascii_whitespace().any(|c| c == "memory") {
        // Controllers have to be handed down level by level.
        let mut level = PathBuf::from(CGROUP);
        for part in parent.split('/') {
            for controller in CONTROLLERS {
                let _ = fs::write(level.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            level.push(part);
            fs::create_dir_all(&level).map_err(Error::file(&level))?;
        }
        vec![(level, PathBuf::from("sys/fs/cgroup"))]
    } else {
        let usable = CONTROLLERS.into_iter().filter(|c| Path::new(CGROUP).join(c).join("cgroup.procs").exists());
        usable.map(|c| (Path::new(CGROUP).join(c).join(parent), Path::new("sys/fs/cgroup").join(c))).collect()
    };
    let mut groups = Vec::new();
    for (own, inside) in hierarchies {
        let init = own.join("init");
        fs::create_dir_all(&init).map_err(Error::file(&init))?;
        for directory in [&own, &init] {
            for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
                let path = directory.join(file);
                if path.exists() {
                    chown(&path, Some(spec.first_id), Some(spec.first_id)).map_err(Error::file(&path))?;
                }
            }
        }
        groups.push(Group { own, inside });
    }
    Ok(groups)
}

fn become_worker(
    spec: &WorkerSpec,
    files: &[(PathBuf, PathBuf)],
    groups: &[Group],
    ask: &mut fs::File,
    go: OwnedFd,
) -> Result<()> {
    nix::unistd::setsid().map_err(Error::system("setsid"))?;
    let null = fs::File::options().read(true).write(true).open("/dev/null").map_err(Error::file("/dev/null"))?;
    for standard in 0..=2 {
        sys::replace_standard(&null, standard).map_err(Error::system("detach"))?;
    }
    let _ = nix::sys::prctl::set_name(c"atoll-worker");
    unshare(CloneFlags::CLONE_NEWNS).map_err(Error::system("make a mount namespace"))?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).map_err(Error::system("make / private"))?;
    furnish(spec, files, groups)?;
    enter_root(&spec.root)?;
    let all = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(all).map_err(Error::system("make the user namespace"))?;
    ask.write_all(b"u").map_err(Error::file("pipe"))?;
    fs::File::from(go).read_exact(&mut [0; 1]).map_err(Error::file("pipe"))?;
    nix::unistd::setgroups(&[]).map_err(Error::system("drop groups"))?;
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    nix::unistd::setresgid(gid, gid, gid).map_err(Error::system("become group 0"))?;
    nix::unistd::setresuid(uid, uid, uid).map_err(Error::system("become user 0"))?;
    // A mount namespace of the user namespace's own: what is mounted so far is locked from here on.
    unshare(CloneFlags::CLONE_NEWNS).map_err(Error::system("make the worker's mount namespace"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("devpts"), "/dev/pts", Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=0620"))
        .map_err(Error::system("mount /dev/pts"))?;
    nix::unistd::sethostname(&spec.name).map_err(Error::system("set the host name"))
}

/// Puts everything into the root directory, as root of the machine.
fn furnish(spec: &WorkerSpec, files: &[(PathBuf, PathBuf)], groups: &[Group]) -> Result<()> {
    let root = &spec.root;
    let owner = spec.first_id;
    bind(root, root)?;
    for directory in ["proc", "dev", "run", "tmp", "sys", "var/lib", "var/log", "etc", "usr/local/bin", "root"] {
        own_dir(root, Path::new(directory), owner)?;
    }
    let tmpfs = |path: &str, mode: &str, size: &str| {
        let options = format!("mode={mode},size={size},uid={owner},gid={owner}");
        mount(Some("tmpfs"), &root.join(path), Some("tmpfs"), MsFlags::MS_NOSUID, Some(options.as_str()))
            .map_err(Error::system(format!("mount /{path}")))
    };
    tmpfs("dev", "755", "64k")?;
    tmpfs("run", "755", "64m")?;
    tmpfs("tmp", "1777", "64m")?;
    tmpfs("sys", "755", "64k")?;
    for directory in ["dev/pts", "dev/shm", "run/lock"] {
        own_dir(root, Path::new(directory), owner)?;
    }
    fs::set_permissions(root.join("dev/shm"), fs::Permissions::from_mode(0o1777)).map_err(Error::file("dev/shm"))?;
    for device in DEVICES {
        bind_file(&Path::new("/dev").join(device), &root.join("dev").join(device), false)?;
    }
    std::os::unix::fs::symlink("pts/ptmx", root.join("dev/ptmx")).map_err(Error::file("dev/ptmx"))?;
    std::os::unix::fs::symlink("/proc/self/fd", root.join("dev/fd")).map_err(Error::file("dev/fd"))?;
    for (source, inside) in files {
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        if let Some(parent) = inside.parent() {
            own_dir(root, parent, owner)?;
        }
        bind_file(source, &root.join(inside), true)?;
    }
    for group in groups {
        own_dir(root, &group.inside, owner)?;
        bind(&group.own, &root.join(&group.inside))?;
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), &root.join("proc"), Some("proc"), flags, NONE).map_err(Error::system("mount /proc"))
}

/// Makes directories one by one and gives each to the worker's root. A worker that ran before may have put links there:
/// none is followed.
fn own_dir(root: &Path, inside: &Path, owner: u32) -> Result<()> {
    let mut path = root.to_owned();
    for part in inside.components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => continue,
            Ok(_) => return Err(Error::Start(format!("{} is in the way of a directory", path.display()))),
            Err(_) => fs::create_dir(&path).map_err(Error::file(&path))?,
        }
        chown(&path, Some(owner), Some(owner)).map_err(Error::file(&path))?;
    }
    Ok(())
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE).map_err(Error::system(format!(
        "bind {} on {}",
        source.display(),
        target.display()
    )))
}

fn bind_file(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    match fs::symlink_metadata(target) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(Error::Start(format!("{} is in the way of a file", target.display()))),
        Err(_) => drop(fs::File::create(target).map_err(Error::file(target))?),
    }
    bind(source, target)?;
    if !read_only {
        return Ok(());
    }
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID;
    mount(NONE, target, NONE, flags, NONE).map_err(Error::system(format!("make {} read-only", target.display())))
}

fn enter_root(root: &Path) -> Result<()> {
    let old = root.join("run/lock");
    nix::unistd::pivot_root(root, &old).map_err(Error::system("pivot_root"))?;
    std::env::set_current_dir("/").map_err(Error::file("/"))?;
    umount2("/run/lock", MntFlags::MNT_DETACH).map_err(Error::system("leave the machine's root"))
}

/// Process 1: collects what ends. It ignores everything but SIGKILL, which only the machine can send it.
fn stay() -> ! {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    let _ = signals.thread_block();
    loop {
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        let _ = signals.wait();
    }
}
