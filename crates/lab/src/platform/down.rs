//! Taking the platform down: every process, namespace, link and file it made, also after a crash of any part.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::net::{self, Names};
use super::{Dirs, Error, process, workers};

/// Ends everything and removes the state directory. Answers what was there.
pub async fn down(dirs: &Dirs) -> Result<Vec<String>, Error> {
    let mut ended = Vec::new();
    if !dirs.root().exists() {
        return Ok(ended);
    }
    end_supervisor(dirs).await;
    let _lock = dirs.lock()?;
    for entry in fs::read_dir(dirs.workers()).into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str() {
            workers::remove(dirs, name).await?;
            ended.push(format!("worker {name}"));
        }
    }
    // Agents first: they would start again what is ended below.
    for (name, record) in process::records(dirs).into_iter().rev() {
        if record.is_alive() {
            record.end().await;
            ended.push(format!("process {name}"));
        }
    }
    let left = end_programs(&dirs.bin());
    if left > 0 {
        ended.push(format!("{left} container processes"));
    }
    if nix::unistd::geteuid().is_root() {
        net::remove(&Names::of_dir(dirs.root()))?;
    }
    remove_cgroups(&Names::of_dir(dirs.root()).platform());
    unmount_below(dirs.root());
    fs::remove_dir_all(dirs.root()).map_err(|e| Error::io(format!("cannot remove {}", dirs.root().display()), e))?;
    ended.push(format!("directory {}", dirs.root().display()));
    Ok(ended)
}

/// The supervisor holds the lock and would restart what is ended: it goes first.
async fn end_supervisor(dirs: &Dirs) {
    let text = fs::read_to_string(dirs.root().join("lock")).unwrap_or_default();
    let Ok(pid) = text.trim().parse::<i32>() else { return };
    if dirs.lock().is_ok() || pid == std::process::id().cast_signed() {
        return;
    }
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while dirs.lock().is_err() {
        if std::time::Instant::now() > deadline {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        if std::time::Instant::now() > deadline + std::time::Duration::from_secs(5) {
            return;
        }
    }
}

/// Kills every process whose program lies below `bin`: shims and containers of this platform, and nobody else's.
fn end_programs(bin: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        if pid == std::process::id().cast_signed() {
            continue;
        }
        let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if program.starts_with(bin) && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            count += 1;
        }
    }
    count
}

/// Control groups of the platform's workers, in each hierarchy. A group with a process in it stays: it is then not ours alone.
fn remove_cgroups(name: &str) {
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([Path::new("/sys/fs/cgroup").to_owned()]) {
        remove_group(&hierarchy.join(name));
    }
}

/// Groups are removed from the leaves up; their files go with them.
pub(super) fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// Mounts below the directory would keep it from being removed.
fn unmount_below(root: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split_whitespace().nth(1));
    let mut below: Vec<&str> = points.filter(|p| Path::new(p).starts_with(root)).collect();
    below.sort_by_key(|p| std::cmp::Reverse(p.len()));
    for point in below {
        let _ = nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH);
    }
}
