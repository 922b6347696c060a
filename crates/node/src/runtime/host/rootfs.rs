//! The root of a container: a small tmpfs with the image's files, `/proc`, `/dev`, `/tmp` and the volumes, read-only at
//! the end. Runs in the launcher, in the container's own mount namespace.
//!
//! Volumes are mounted after `pivot_root`, so that a symbolic link planted in one cannot lead a later mount point out of
//! the container; their sources are opened beforehand, each inside its own base directory.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;

use super::spec::{BindMount, LaunchSpec};
use crate::error::{Error, Result};

const NONE: Option<&str> = None;
/// What every container's `/dev` has; bound from the node, as `mknod` is not for user namespaces.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Parts of `/proc` that act on the whole kernel.
const PROC_READ_ONLY: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
const PROC_HIDDEN: [&str; 4] = ["kcore", "keys", "timer_list", "sched_debug"];

/// Builds the root and makes it this process's `/`.
pub fn enter(spec: &LaunchSpec) -> Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).map_err(Error::system("make / private"))?;
    let sources = open_sources(&spec.mounts)?;
    let stage = &spec.stage;
    mount(Some("tmpfs"), stage, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=755,size=4m"))
        .map_err(Error::system("mount the root"))?;
    for (source, target) in &spec.image_files {
        bind_file(source, &within(stage, target))?;
    }
    image_links(spec, stage)?;
    devices(spec, stage)?;
    proc(spec, stage)?;
    let old = stage.join(".node");
    make_dir(&old)?;
    nix::unistd::pivot_root(stage, &old).map_err(Error::system("pivot_root"))?;
    std::env::set_current_dir("/").map_err(Error::file("/"))?;
    temporary(spec)?;
    for (volume, source) in spec.mounts.iter().zip(&sources) {
        attach(volume, source)?;
    }
    drop(sources);
    let working_dir = Path::new(&spec.working_dir);
    if !working_dir.exists() {
        make_dir(working_dir)?;
    }
    umount2("/.node", MntFlags::MNT_DETACH).map_err(Error::system("leave the node's root"))?;
    fs::remove_dir("/.node").map_err(Error::file("/.node"))?;
    read_only("/")?;
    std::env::set_current_dir(working_dir).map_err(Error::file(working_dir))
}

fn within(stage: &Path, path: &Path) -> PathBuf {
    stage.join(path.strip_prefix("/").unwrap_or(path))
}

fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::file(path))
}

fn make_file(path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    if path.exists() {
        return Ok(());
    }
    fs::OpenOptions::new().create(true).append(true).open(path).map(drop).map_err(Error::file(path))
}

fn bind_file(source: &Path, target: &Path) -> Result<()> {
    make_file(target)?;
    bind(source, target)?;
    read_only(target)
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).map_err(Error::system(format!(
        "bind {} on {}",
        source.display(),
        target.display()
    )))
}

/// Makes a mount point read-only, keeping the flags that a user namespace may not clear.
fn read_only(target: impl AsRef<Path>) -> Result<()> {
    let target = target.as_ref();
    let flags = nix::sys::statvfs::statvfs(target).map(|s| s.flags()).unwrap_or(nix::sys::statvfs::FsFlags::empty());
    let mut keep = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    use nix::sys::statvfs::FsFlags;
    for (have, want) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if flags.contains(have) {
            keep |= want;
        }
    }
    mount(NONE, target, NONE, keep, NONE).map_err(Error::system(format!("make {} read-only", target.display())))
}

/// Accounts and links that programs expect of an image.
fn image_links(spec: &LaunchSpec, stage: &Path) -> Result<()> {
    let etc = stage.join("etc");
    make_dir(&etc)?;
    let (uid, gid) = (spec.user.uid, spec.user.gid);
    let mut passwd = "root:x:0:0:root:/root:/sbin/nologin\n".to_owned();
    let mut group = "root:x:0:\n".to_owned();
    if uid != 0 {
        passwd.push_str(&format!("app:x:{uid}:{gid}:app:/:/sbin/nologin\n"));
    }
    if gid != 0 {
        group.push_str(&format!("app:x:{gid}:\n"));
    }
    for (name, content) in [("passwd", passwd), ("group", group), ("nsswitch.conf", "hosts: files dns\n".to_owned())] {
        let path = etc.join(name);
        fs::write(&path, content).map_err(Error::file(path))?;
    }
    for dir in ["root", "var/run", "var/tmp", "run"] {
        make_dir(&stage.join(dir))?;
    }
    Ok(())
}

fn devices(spec: &LaunchSpec, stage: &Path) -> Result<()> {
    let dev = stage.join("dev");
    make_dir(&dev)?;
    mount(Some("tmpfs"), &dev, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=755,size=64k"))
        .map_err(Error::system("mount /dev"))?;
    for name in DEVICES {
        let target = dev.join(name);
        make_file(&target)?;
        bind(&Path::new("/dev").join(name), &target)?;
    }
    for device in &spec.devices {
        let target = within(stage, Path::new(&device.container_path));
        make_file(&target)?;
        bind(&device.host_path, &target)?;
    }
    for (link, target) in
        [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")]
    {
        symlink(target, dev.join(link)).map_err(Error::file(dev.join(link)))?;
    }
    make_dir(&dev.join("shm"))?;
    mount(Some("tmpfs"), &dev.join("shm"), Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=1777,size=64m"))
        .map_err(Error::system("mount /dev/shm"))?;
    make_dir(&dev.join("pts"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    if mount(Some("devpts"), &dev.join("pts"), Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=0620")).is_ok() {
        symlink("pts/ptmx", dev.join("ptmx")).map_err(Error::file(dev.join("ptmx")))?;
    }
    Ok(())
}

fn proc(spec: &LaunchSpec, stage: &Path) -> Result<()> {
    let proc = stage.join("proc");
    make_dir(&proc)?;
    if spec.host_pid {
        bind(Path::new("/proc"), &proc)?;
    } else {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), &proc, Some("proc"), flags, NONE).map_err(Error::system("mount /proc"))?;
    }
    if spec.privileged {
        return Ok(());
    }
    for name in PROC_READ_ONLY {
        let path = proc.join(name);
        if path.exists() && bind(&path, &path).is_ok() {
            read_only(&path)?;
        }
    }
    for name in PROC_HIDDEN {
        let path = proc.join(name);
        if path.exists() {
            bind(Path::new("/dev/null"), &path)?;
        }
    }
    Ok(())
}

/// `/tmp`, unless a volume takes its place.
fn temporary(spec: &LaunchSpec) -> Result<()> {
    let tmp = Path::new("/tmp");
    make_dir(tmp)?;
    if spec.mounts.iter().any(|m| Path::new(&m.target) == tmp) {
        return Ok(());
    }
    mount(Some("tmpfs"), tmp, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=1777,size=64m"))
        .map_err(Error::system("mount /tmp"))
}

fn open_sources(mounts: &[BindMount]) -> Result<Vec<OwnedFd>> {
    mounts.iter().map(open_source).collect()
}

/// Opens the source inside its base: an absolute link starts again at the base, `..` ends there.
fn open_source(volume: &BindMount) -> Result<OwnedFd> {
    let base = nix::fcntl::open(&volume.base, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(Error::system(format!("open {}", volume.base.display())))?;
    let path = volume.path.trim_start_matches('/');
    if path.is_empty() {
        return Ok(base);
    }
    let how = || {
        OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS)
    };
    match openat2(&base, path, how()) {
        Err(nix::errno::Errno::ENOENT) if volume.create => {
            make_inside(&base, path)?;
            openat2(&base, path, how())
        }
        other => other,
    }
    .map_err(Error::system(format!("open {path} in {}", volume.base.display())))
}

/// Makes the directories of `path` one by one, never following a link out of `base`.
fn make_inside(base: &OwnedFd, path: &str) -> Result<()> {
    let mut made = PathBuf::new();
    for part in Path::new(path).components() {
        let parent = if made.as_os_str().is_empty() { Path::new(".") } else { made.as_path() };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let directory = openat2(base, parent, how).map_err(Error::system(format!("open {}", parent.display())))?;
        match nix::sys::stat::mkdirat(&directory, part.as_os_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
            Err(e) => return Err(Error::system(format!("make {path}"))(e)),
        }
        made.push(part);
    }
    Ok(())
}

fn attach(volume: &BindMount, source: &OwnedFd) -> Result<()> {
    let link = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
    let target = Path::new(&volume.target);
    if fs::metadata(&link).map_err(Error::file(&link))?.is_dir() {
        make_dir(target)?;
    } else {
        make_file(target)?;
    }
    bind(&link, target)?;
    if volume.read_only { read_only(target) } else { Ok(()) }
}
