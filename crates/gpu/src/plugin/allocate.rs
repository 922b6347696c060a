//! What a container is given for its slices: HAMi's environment and mounts.

use std::collections::HashMap;
use std::path::PathBuf;

use atoll_devices::Slice;
use atoll_node_protocol::device_plugin::{ContainerAllocateResponse, Mount};

/// HAMi-core as installed on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Directory on the node with `libvgpu.so` and `ld.so.preload`, usually `/usr/local/vgpu`.
    pub directory: PathBuf,
    /// `GPU_CORE_UTILIZATION_POLICY=disable` for all containers.
    pub disable_core_limit: bool,
}

/// Where HAMi-core's files are in a container.
const CONTAINER_DIRECTORY: &str = "/usr/local/vgpu";

/// The environment: which cards, and how much of each. HAMi-core takes one limit of cores for all of them, the first's.
fn environment(slices: &[Slice], pod_uid: &str, hook: Option<&Hook>) -> HashMap<String, String> {
    let cards: Vec<&str> = slices.iter().map(|slice| slice.uuid.0.as_str()).collect();
    let mut env = HashMap::from([
        ("NVIDIA_VISIBLE_DEVICES".to_owned(), cards.join(",")),
        ("CUDA_DEVICE_MEMORY_SHARED_CACHE".to_owned(), format!("{CONTAINER_DIRECTORY}/{pod_uid}.cache")),
    ]);
    for (at, slice) in slices.iter().enumerate() {
        env.insert(format!("CUDA_DEVICE_MEMORY_LIMIT_{at}"), format!("{}m", slice.memory_mib));
    }
    if let Some(first) = slices.first() {
        env.insert("CUDA_DEVICE_SM_LIMIT".to_owned(), first.cores.to_string());
    }
    if hook.is_some_and(|hook| hook.disable_core_limit) {
        env.insert("GPU_CORE_UTILIZATION_POLICY".to_owned(), "disable".to_owned());
    }
    env
}

/// Directory on the node for a container's shared region.
pub fn region_directory(hook: &Hook, pod_uid: &str, container: &str) -> PathBuf {
    hook.directory.join("containers").join(format!("{pod_uid}_{container}"))
}

fn mounts(hook: &Hook, pod_uid: &str, container: &str, preload: Preload) -> Vec<Mount> {
    let host = |name: &str| hook.directory.join(name).display().to_string();
    let mount = |container_path: &str, host_path: String, read_only| Mount {
        container_path: container_path.to_owned(),
        host_path,
        read_only,
    };
    let mut mounts = vec![
        mount(&format!("{CONTAINER_DIRECTORY}/libvgpu.so"), host("libvgpu.so"), true),
        mount(CONTAINER_DIRECTORY, region_directory(hook, pod_uid, container).display().to_string(), false),
        mount("/tmp/vgpulock", "/tmp/vgpulock".to_owned(), false),
    ];
    if preload == Preload::Yes {
        mounts.push(mount("/etc/ld.so.preload", host("ld.so.preload"), true));
    }
    mounts
}

/// Whether HAMi-core is put in front of the container's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// It is.
    Yes,
    /// Not if the container's environment says `CUDA_DISABLE_CONTROL=true`.
    No,
}

/// The answer for one container.
pub fn response(
    slices: &[Slice],
    pod_uid: &str,
    container: &str,
    preload: Preload,
    hook: Option<&Hook>,
) -> ContainerAllocateResponse {
    ContainerAllocateResponse {
        envs: environment(slices, pod_uid, hook),
        mounts: hook.map(|hook| mounts(hook, pod_uid, container, preload)).unwrap_or_default(),
        ..ContainerAllocateResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices() -> Vec<Slice> {
        vec![Slice::new("GPU-a".into(), 4000, 30), Slice::new("GPU-b".into(), 500, 10)]
    }

    #[test]
    fn the_environment_names_cards_and_limits() {
        let response = response(&slices(), "u", "c", Preload::Yes, None);
        let env = |name: &str| response.envs.get(name).map(String::as_str);
        assert_eq!(env("NVIDIA_VISIBLE_DEVICES"), Some("GPU-a,GPU-b"));
        assert_eq!(env("CUDA_DEVICE_MEMORY_LIMIT_0"), Some("4000m"));
        assert_eq!(env("CUDA_DEVICE_MEMORY_LIMIT_1"), Some("500m"));
        assert_eq!(env("CUDA_DEVICE_SM_LIMIT"), Some("30"));
        assert_eq!(env("CUDA_DEVICE_MEMORY_SHARED_CACHE"), Some("/usr/local/vgpu/u.cache"));
        assert!(response.mounts.is_empty(), "nothing to mount on a node without HAMi-core");
    }

    #[test]
    fn disabled_control_drops_the_preload_alone() {
        let hook = Hook { directory: "/usr/local/vgpu".into(), disable_core_limit: true };
        let paths = |preload| {
            let response = response(&slices(), "u", "c", preload, Some(&hook));
            assert_eq!(response.envs["GPU_CORE_UTILIZATION_POLICY"], "disable");
            response.mounts.into_iter().map(|mount| (mount.container_path, mount.host_path)).collect::<Vec<_>>()
        };
        let with = paths(Preload::Yes);
        assert_eq!(with[1], ("/usr/local/vgpu".into(), "/usr/local/vgpu/containers/u_c".into()));
        assert_eq!(with[3].0, "/etc/ld.so.preload");
        assert_eq!(paths(Preload::No), with[..3]);
    }
}
