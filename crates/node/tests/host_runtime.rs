//! The `host` runtime with real processes: start, log, exec, limits, and a second agent that takes up what runs.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use atoll_node::NetworkMode;
use atoll_node::network::PodNetwork;
use atoll_node::paths::NodePaths;
use atoll_node::runtime::host::HostRuntime;
use atoll_node::runtime::host::cgroup::{Cgroups, Limits};
use atoll_node::runtime::host::spec::{BindMount, Identity};
use atoll_node::runtime::{ContainerSpec, ExecRequest, Image, PodKey, RunKey, Runtime, Sandbox};
use tokio::io::AsyncReadExt;

fn runtime(root: &Path) -> HostRuntime {
    let paths = NodePaths::new(root);
    paths.create().unwrap();
    let network = PodNetwork::new(paths.clone(), common::program(), NetworkMode::Loopback, Ipv4Addr::LOCALHOST).unwrap();
    let cgroups = Cgroups::detect(&format!("atoll-test-{}", std::process::id()));
    HostRuntime::new(paths, common::program(), "atoll".into(), false, cgroups, Arc::new(network)).unwrap()
}

/// Removes the groups of this test's process when a test ends.
struct Groups;

impl Drop for Groups {
    fn drop(&mut self) {
        for hierarchy in ["", "memory", "cpu", "pids"] {
            let own = format!("atoll-test-{}", std::process::id());
            let own = Path::new("/sys/fs/cgroup").join(hierarchy).join(own);
            let _ = fs::remove_dir(own.join("kubepods"));
            let _ = fs::remove_dir(own);
        }
    }
}

fn container(name: &str, args: &[&str]) -> ContainerSpec {
    let pod = PodKey { namespace: "n".into(), name: "p".into(), uid: "uid-1".into() };
    ContainerSpec {
        key: RunKey { pod, container: name.into(), attempt: 0 },
        command: Vec::new(),
        args: args.iter().map(|a| (*a).to_owned()).collect(),
        env: vec![("COLOUR".into(), "green".into())],
        working_dir: None,
        hostname: "p".into(),
        sandbox: Sandbox { ip: "127.0.0.1".into(), netns: None },
        mounts: Vec::new(),
        devices: Vec::new(),
        user: Identity::default(),
        capabilities: 0,
        no_new_privileges: true,
        privileged: false,
        host_network: false,
        host_pid: false,
        limits: Limits::default(),
        annotations: std::collections::BTreeMap::new(),
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

fn log(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(format!("var/log/pods/n_p_uid-1/{name}/0.log"))).unwrap_or_default()
}

async fn exec(runtime: &HostRuntime, key: &RunKey, argv: &[&str]) -> (Result<i32, String>, String) {
    let argv = argv.iter().map(|a| (*a).to_owned()).collect();
    let mut session = runtime.exec(key, &ExecRequest { argv, stdin: false, tty: false }, Stdio::piped).unwrap();
    let mut text = String::new();
    session.child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    (session.wait().await, text)
}

#[tokio::test]
async fn a_container_sees_its_image_and_its_volumes_alone() {
    if !common::is_root("a_container_sees_its_image_and_its_volumes_alone") {
        return;
    }
    let _groups = Groups;
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path());
    assert!(matches!(runtime.image("atoll"), Image::Present { .. }));
    assert!(matches!(runtime.image("nginx"), Image::Missing { .. }));
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("file"), "content").unwrap();
    std::os::unix::fs::symlink("/etc", volume.path().join("out")).unwrap();
    let mut spec = container("c", &["wait"]);
    spec.user = Identity { uid: 1234, gid: 1234, groups: vec![4321] };
    let mount = |path: &str, target: &str| BindMount {
        base: volume.path().to_owned(),
        path: path.into(),
        target: target.into(),
        read_only: true,
        create: false,
    };
    spec.mounts = vec![mount("", "/data")];
    runtime.start(&spec).await.unwrap();
    let (code, text) = exec(&runtime, &spec.key, &["atoll", "cat", "/data/file"]).await;
    assert_eq!((code, text.trim()), (Ok(0), "content"));
    let (_, text) = exec(&runtime, &spec.key, &["atoll", "ls", "/"]).await;
    assert!(!text.contains("/home") && text.contains("/data"), "{text}");
    let (_, text) = exec(&runtime, &spec.key, &["atoll", "id"]).await;
    assert!(
        text.contains("Uid:\t1234") && text.contains("CapEff:\t0000000000000000") && text.contains("NoNewPrivs:\t1"),
        "{text}"
    );
    let (code, _) = exec(&runtime, &spec.key, &["atoll", "fail", "7"]).await;
    assert_eq!(code, Ok(7));
    let (code, _) = exec(&runtime, &spec.key, &["missing"]).await;
    assert!(code.unwrap_err().contains("executable file not found"));
    runtime.signal(&spec.key, 15).unwrap();
    let exit = runtime.wait(&spec.key).await;
    assert_eq!((exit.exit_code, exit.reason.as_str()), (0, "Completed"));
    assert!(log(root.path(), "c").contains(" stdout F ended by SIGTERM"), "{}", log(root.path(), "c"));

    // A link in a volume that leads out of it ends inside it.
    let mut spec = container("d", &["ls", "/data"]);
    spec.mounts = vec![mount("out", "/data")];
    let refused = runtime.start(&spec).await.unwrap_err().to_string();
    assert!(refused.contains("ENOENT"), "{refused}");
    runtime.release(&spec.key.pod).await.unwrap();
}

#[tokio::test]
async fn a_second_agent_takes_up_what_runs() {
    if !common::is_root("a_second_agent_takes_up_what_runs") {
        return;
    }
    let _groups = Groups;
    let root = tempfile::tempdir().unwrap();
    let spec = container("c", &["wait"]);
    let running = runtime(root.path()).start(&spec).await.unwrap();
    let second = runtime(root.path());
    assert_eq!(second.find(&spec.key), Some(running));
    let waiting = second.wait(&spec.key);
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(), "it runs on");
    second.signal(&spec.key, 9).unwrap();
    let exit = waiting.await;
    assert_eq!((exit.exit_code, exit.signal), (137, Some(9)));
    second.release(&spec.key.pod).await.unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why() {
    if !common::is_root("a_program_that_cannot_start_says_why") {
        return;
    }
    let _groups = Groups;
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path());
    let mut spec = container("c", &[]);
    spec.command = vec!["/bin/nothing".into()];
    let error = runtime.start(&spec).await.unwrap_err().to_string();
    assert!(error.contains("executable file not found"), "{error}");
    let exit = runtime.wait(&spec.key).await;
    assert_eq!((exit.exit_code, exit.reason.as_str()), (128, "StartError"));
    runtime.release(&spec.key.pod).await.unwrap();
}

#[tokio::test]
async fn a_container_that_takes_too_much_memory_is_killed_alone() {
    if !common::is_root("a_container_that_takes_too_much_memory_is_killed_alone") {
        return;
    }
    let _groups = Groups;
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path());
    if !runtime.limits_memory() {
        eprintln!("SKIPPED a_container_that_takes_too_much_memory_is_killed_alone: no memory controller");
        return;
    }
    let mut spec = container("c", &["hog", "200"]);
    spec.limits.memory_bytes = Some(32 << 20);
    runtime.start(&spec).await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(30), runtime.wait(&spec.key)).await.unwrap();
    assert_eq!((exit.exit_code, exit.reason.as_str()), (137, "OOMKilled"));
    runtime.release(&spec.key.pod).await.unwrap();
}
