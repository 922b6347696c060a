//! Limits in control groups, version 1 or 2, whichever carries the controller.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What a container may use. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    pub cpu_millis: Option<u64>,
    pub cpu_request_millis: Option<u64>,
}

/// The hierarchies that this node may write to.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    v2: Option<PathBuf>,
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
    pids: Option<PathBuf>,
}

const MOUNT: &str = "/sys/fs/cgroup";
const CPU_PERIOD_US: u64 = 100_000;

impl Cgroups {
    /// Finds the hierarchies and makes the node's own group `parent` in each.
    pub fn detect(parent: &str) -> Cgroups {
        Cgroups::detect_at(Path::new(MOUNT), parent)
    }

    fn detect_at(mount: &Path, parent: &str) -> Cgroups {
        let parent = parent.trim_matches('/');
        let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_ascii_whitespace().any(|c| c == "memory") {
            let v2 = usable_v2(mount, parent);
            return Cgroups { v2, ..Cgroups::default() };
        }
        let v1 = |name: &str| {
            let group = mount.join(name).join(parent);
            (mount.join(name).join("cgroup.procs").exists() && fs::create_dir_all(&group).is_ok()).then_some(group)
        };
        Cgroups { v2: None, memory: v1("memory"), cpu: v1("cpu"), pids: v1("pids") }
    }

    /// Whether a memory limit holds on this node.
    pub fn limits_memory(&self) -> bool {
        self.v2.is_some() || self.memory.is_some()
    }

    fn hierarchies(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.v2, &self.memory, &self.cpu, &self.pids].into_iter().flatten()
    }

    /// Makes the group of a container with its limits: the directories to join and the file that counts kills.
    pub fn create(&self, pod: &str, container: &str, limits: Limits) -> Result<(Vec<PathBuf>, Option<PathBuf>)> {
        let inside = |root: &PathBuf| root.join("kubepods").join(pod).join(container);
        for root in self.hierarchies() {
            let group = inside(root);
            fs::create_dir_all(&group).map_err(Error::file(&group))?;
        }
        if let Some(root) = &self.v2 {
            for level in [root.clone(), root.join("kubepods"), root.join("kubepods").join(pod)] {
                enable_v2(&level)?;
            }
            let group = inside(root);
            let cpu = limits.cpu_millis.map_or("max".to_owned(), |m| (m * CPU_PERIOD_US / 1000).to_string());
            set(&group, "memory.max", &limits.memory_bytes.map_or("max".to_owned(), |b| b.to_string()))?;
            set_if_there(&group, "cpu.max", &format!("{cpu} {CPU_PERIOD_US}"))?;
            set_if_there(&group, "cpu.weight", &weight_v2(limits.cpu_request_millis).to_string())?;
        }
        if let (Some(root), Some(bytes)) = (&self.memory, limits.memory_bytes) {
            set(&inside(root), "memory.limit_in_bytes", &bytes.to_string())?;
            set_if_there(&inside(root), "memory.memsw.limit_in_bytes", &bytes.to_string())?;
        }
        if let Some(root) = &self.cpu {
            let shares = (limits.cpu_request_millis.unwrap_or(0) * 1024 / 1000).max(2);
            set_if_there(&inside(root), "cpu.shares", &shares.to_string())?;
            if let Some(millis) = limits.cpu_millis {
                set_if_there(&inside(root), "cpu.cfs_quota_us", &(millis * CPU_PERIOD_US / 1000).max(1000).to_string())?;
            }
        }
        let counter = match (&self.v2, &self.memory) {
            (Some(root), _) => Some(inside(root).join("memory.events")),
            (None, Some(root)) => Some(inside(root).join("memory.oom_control")),
            (None, None) => None,
        };
        Ok((self.hierarchies().map(inside).collect(), counter))
    }

    /// Removes the groups of a Pod; what still has processes stays.
    pub fn remove(&self, pod: &str) {
        for root in self.hierarchies() {
            let group = root.join("kubepods").join(pod);
            if let Ok(entries) = fs::read_dir(&group) {
                for entry in entries.flatten().filter(|e| e.path().is_dir()) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
            let _ = fs::remove_dir(group);
        }
    }
}

/// cgroup v2: the group, if it can be made and children of it can have the memory controller.
fn usable_v2(mount: &Path, parent: &str) -> Option<PathBuf> {
    let mut group = mount.to_owned();
    for part in parent.split('/').filter(|p| !p.is_empty()) {
        enable_v2(&group).ok()?;
        group.push(part);
        fs::create_dir_all(&group).ok()?;
    }
    enable_v2(&group).ok()?;
    Some(group)
}

fn enable_v2(group: &Path) -> Result<()> {
    let have = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    let offered = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in ["memory", "cpu", "pids"] {
        let is_in = |list: &str| list.split_ascii_whitespace().any(|c| c == controller);
        if is_in(&offered) && !is_in(&have) {
            set(group, "cgroup.subtree_control", &format!("+{controller}"))?;
        }
    }
    Ok(())
}

fn set(group: &Path, file: &str, value: &str) -> Result<()> {
    let path = group.join(file);
    fs::write(&path, value).map_err(Error::file(path))
}

fn set_if_there(group: &Path, file: &str, value: &str) -> Result<()> {
    if group.join(file).exists() { set(group, file, value) } else { Ok(()) }
}

/// CPU shares of version 1 (2 to 262144) on version 2's scale (1 to 10000).
fn weight_v2(request_millis: Option<u64>) -> u64 {
    let shares = (request_millis.unwrap_or(0) * 1024 / 1000).clamp(2, 262_144);
    1 + (shares - 2) * 9999 / 262_142
}

/// How often the kernel has killed a process of the group for memory.
pub fn oom_kills(counter: &Path) -> u64 {
    let text = fs::read_to_string(counter).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_found_by_its_directories_and_gets_the_limit() {
        let mount = tempfile::tempdir().unwrap();
        for controller in ["memory", "cpu"] {
            fs::create_dir(mount.path().join(controller)).unwrap();
            fs::write(mount.path().join(controller).join("cgroup.procs"), "").unwrap();
        }
        let cgroups = Cgroups::detect_at(mount.path(), "/atoll/n1");
        assert!(cgroups.limits_memory());
        let limits = Limits { memory_bytes: Some(1 << 20), ..Limits::default() };
        let (join, counter) = cgroups.create("uid", "c", limits).unwrap();
        assert_eq!(join.len(), 2);
        let group = mount.path().join("memory/atoll/n1/kubepods/uid/c");
        assert_eq!(fs::read_to_string(group.join("memory.limit_in_bytes")).unwrap(), "1048576");
        fs::write(counter.as_ref().unwrap(), "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n").unwrap();
        assert_eq!(oom_kills(&counter.unwrap()), 2);
    }

    #[test]
    fn a_machine_without_a_memory_controller_says_so() {
        let mount = tempfile::tempdir().unwrap();
        fs::write(mount.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        assert!(!Cgroups::detect_at(mount.path(), "atoll").limits_memory());
    }

    #[test]
    fn weights_span_the_scale() {
        assert_eq!((weight_v2(None), weight_v2(Some(1_000_000))), (1, 10_000));
    }
}
