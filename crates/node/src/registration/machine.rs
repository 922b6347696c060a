//! What the machine is and has, read from `/proc` and `/etc`.

use std::fs;

use k8s_openapi::api::core::v1::NodeSystemInfo;

/// Facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub cpus: u64,
    pub memory_kib: u64,
    pub disk_kib: u64,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default()
}

impl Machine {
    /// Reads the facts; `root` tells which disk counts.
    pub fn read(root: &std::path::Path) -> Machine {
        let disk = nix::sys::statvfs::statvfs(root);
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            memory_kib: memory_kib(&read("/proc/meminfo")),
            disk_kib: disk.map_or(0, |s| s.blocks() * s.fragment_size() / 1024),
        }
    }
}

fn memory_kib(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Identity of system and kernel. `runtime` is the container runtime's name and version.
pub fn system_info(runtime: String) -> NodeSystemInfo {
    let machine = read("/etc/machine-id");
    let system = read("/sys/class/dmi/id/product_uuid");
    NodeSystemInfo {
        architecture: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
        .to_owned(),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: runtime,
        kernel_version: read("/proc/sys/kernel/osrelease"),
        // The proxy's version is a field that Kubernetes no longer fills.
        kube_proxy_version: String::new(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        system_uuid: if system.is_empty() { machine.clone() } else { system },
        machine_id: machine,
        operating_system: "linux".to_owned(),
        os_image: os_image(&read("/etc/os-release")),
        ..NodeSystemInfo::default()
    }
}

/// The level of the kubelet's interface that the agent keeps to.
pub const KUBELET_VERSION: &str = "v1.36.0";

fn os_image(release: &str) -> String {
    let line = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    line.map_or("Linux", |l| l.trim_matches('"')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_their_files() {
        assert_eq!(memory_kib("MemFree: 1 kB\nMemTotal:       24575244 kB\n"), 24_575_244);
        assert_eq!(os_image("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        let info = system_info("host://1".into());
        assert!(!info.kernel_version.is_empty());
    }
}
