//! The real binary and the real kubectl: what a user does first with a control plane of their own.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane in a directory of its own; ended and removed when dropped.
struct Plane {
    process: Child,
    dir: PathBuf,
}

impl Plane {
    fn start(name: &str) -> Plane {
        let dir = std::env::temp_dir().join(format!("atoll-kubectl-{name}-{}", std::process::id()));
        let plane = Plane { process: Plane::spawn(&dir), dir };
        plane.kubectl(&["get", "--raw", "/readyz"]);
        plane
    }

    fn spawn(dir: &std::path::Path) -> Child {
        let mut process = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["control-plane", "--listen", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(Plane::log(dir)).expect("a log"))
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let stdout = process.stdout.as_mut().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert!(line.starts_with("ready: https://127.0.0.1:"), "{line}");
        process
    }

    fn log(dir: &std::path::Path) -> PathBuf {
        dir.with_extension("log")
    }

    /// Ends the process as a supervisor would and answers its log.
    fn stop(&mut self) -> String {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        assert!(self.process.wait().expect("ended").success());
        std::fs::read_to_string(Plane::log(&self.dir)).expect("its log")
    }

    /// Kills the process as a crash would, and starts it again on the same directory.
    fn crash_and_restart(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
        self.process = Plane::spawn(&self.dir);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.dir.join("admin.kubeconfig")).args(args).env("HOME", &self.dir);
        command
    }

    /// Runs kubectl and answers what it printed; a failure ends the test with what it said.
    fn kubectl(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("kubectl is installed: scripts/setup puts it into .tools/bin");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs kubectl that is to be refused; answers what it said.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("kubectl");
        assert!(!output.status.success(), "kubectl {args:?} went through");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn apply(&self, how: &[&str], manifest: &str) -> String {
        let args = [&["apply"], how, &["-f", "-"]].concat();
        let mut child =
            self.command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl");
        child.stdin.take().expect("its input").write_all(manifest.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Looks until kubectl prints what is wanted.
    fn until(&self, args: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let seen = self.kubectl(args);
            if wanted(&seen) {
                return seen;
            }
            assert!(start.elapsed() < PATIENCE, "kubectl {args:?} still prints {seen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = std::fs::remove_file(Plane::log(&self.dir));
    }
}

#[test]
fn a_deployment_gets_its_pods_and_survives_a_crash_of_the_control_plane() {
    let mut plane = Plane::start("deployment");
    plane.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    let pods = ["get", "pods", "-l", "app=web", "-o", "name"];
    plane.until(&pods, |seen| seen.lines().count() == 2);
    let before = plane.kubectl(&pods);
    plane.crash_and_restart();
    assert_eq!(plane.kubectl(&pods), before, "what was acknowledged is there after kill -9");
    plane.kubectl(&["scale", "deployment", "web", "--replicas=1"]);
    plane.until(&pods, |seen| seen.lines().count() == 1);
    plane.kubectl(&["delete", "deployment", "web"]);
    plane.until(&pods, |seen| seen.is_empty());
}

#[test]
fn apply_explain_and_tables_work_without_a_workaround() {
    let plane = Plane::start("apply");
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n";
    assert!(plane.apply(&[], manifest).contains("configmap/settings created"));
    assert!(plane.apply(&[], manifest).contains("unchanged"));
    let changed = manifest.replace("blue", "green");
    assert!(plane.apply(&["--server-side", "--force-conflicts"], &changed).contains("serverside-applied"));
    let colour = plane.kubectl(&["get", "configmap", "settings", "-o", "jsonpath={.data.colour}"]);
    assert_eq!(colour, "green");
    assert!(plane.kubectl(&["get", "namespaces"]).starts_with("NAME"), "a table");
    assert!(plane.kubectl(&["explain", "deployment.spec.replicas"]).contains("integer"));
    let unknown = plane.refused(&["patch", "configmap", "settings", "--type=merge", "-p", "{\"immutable\":\"yes\"}"]);
    assert!(unknown.contains("immutable"), "{unknown}");
}

#[test]
fn a_user_may_do_what_rbac_says_and_nothing_else() {
    let plane = Plane::start("rbac");
    plane.kubectl(&["create", "namespace", "team"]);
    plane.kubectl(&["create", "role", "reader", "-n", "team", "--verb=get,list", "--resource=pods"]);
    plane.kubectl(&["create", "rolebinding", "reader", "-n", "team", "--role=reader", "--user=jane"]);
    plane.kubectl(&["get", "pods", "-n", "team", "--as=jane"]);
    let elsewhere = plane.refused(&["get", "pods", "-n", "default", "--as=jane"]);
    assert!(elsewhere.contains("User \"jane\" cannot list resource \"pods\""), "{elsewhere}");
    let other = plane.refused(&["create", "configmap", "x", "-n", "team", "--as=jane"]);
    assert!(other.contains("cannot create resource \"configmaps\""), "{other}");
}

#[test]
fn an_open_watch_does_not_hold_up_the_end() {
    let mut plane = Plane::start("stop");
    plane.kubectl(&["create", "namespace", "watched"]);
    let mut watch =
        plane.command(&["get", "namespaces", "--watch"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("kubectl");
    let lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("watched")), "the watch is open");
    let log = plane.stop();
    assert!(!log.contains("cut off"), "a request was still open at the end: {log}");
    watch.wait().expect("ended");
}
