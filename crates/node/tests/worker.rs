//! A worker: root inside, nobody outside.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use atoll_node::worker::{Worker, WorkerSpec, spawn};

fn run(record: &Path, args: &[&str]) -> Output {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    Command::new(common::program()).args(Worker::arguments(record, &args)).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn root_in_a_worker_is_nobody_outside_and_sees_its_own_root() {
    if !common::is_root("root_in_a_worker_is_nobody_outside_and_sees_its_own_root") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.json");
    let mut spec = WorkerSpec::new("worker-test", directory.path().join("root"), 700_000, common::program());
    spec.cgroup_parent = format!("atoll-test-worker-{}", std::process::id());
    let worker = spawn(&spec, &record).unwrap();
    assert!(worker.is_alive());
    assert_eq!(std::fs::metadata(format!("/proc/{}", worker.init.pid)).unwrap().uid(), 700_000);

    let inside = run(&record, &["ls", "/"]);
    assert!(inside.status.success(), "{}", text(&inside));
    assert!(text(&inside).contains("/usr") && !text(&inside).contains("/home"), "{}", text(&inside));
    let processes = text(&run(&record, &["ls", "/proc"]));
    let count = processes.lines().filter(|l| l.trim_start_matches("/proc/").chars().all(|c| c.is_ascii_digit())).count();
    assert!(count <= 3, "it sees process 1 and itself, not the machine's: {processes}");
    let identity = text(&run(&record, &["id"]));
    assert!(identity.contains("Uid:\t0\t0"), "{identity}");

    // What it writes belongs to its own ids outside.
    assert_eq!(std::fs::metadata(directory.path().join("root/etc")).unwrap().uid(), 700_000);
    assert_eq!(run(&record, &["fail", "5"]).status.code(), Some(5), "the exit code comes out");

    worker.end();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while worker.is_alive() {
        assert!(std::time::Instant::now() < deadline, "the worker is still there");
        std::thread::yield_now();
    }
    let gone = run(&record, &["ls", "/"]);
    assert!(text(&gone).contains("the worker has ended"), "{}", text(&gone));
    for group in worker.cgroups {
        let _ = std::fs::remove_dir(&group);
        let _ = std::fs::remove_dir(group.parent().unwrap());
    }
}
