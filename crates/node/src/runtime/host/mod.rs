//! Containers as processes of this machine, each in namespaces of its own. The only image is the one that this binary is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::process::Command;

use crate::error::{Error, Result};
use crate::limits;
use crate::network::PodNetwork;
use crate::paths::{NodePaths, make_dir, read_record, write_record};
use crate::runtime::{ContainerSpec, ExecRequest, ExecSession, Exit, Image, PodKey, RunKey, Running, Runtime, Sandbox, Stream};
use cgroup::Cgroups;
use spec::{EXIT_FILE, ExecSpec, ExitRecord, LAUNCH_FILE, LaunchSpec, SHIM_FILE, ShimRecord};

pub mod capabilities;
pub mod cgroup;
mod container;
mod dial;
pub mod elf;
pub mod launch;
pub mod log;
pub mod relay;
mod rootfs;
pub mod shim;
pub mod spec;
pub mod sys;

/// Where the image has its program.
pub const PROGRAM: &str = "/usr/local/bin/atoll";

/// The `host` runtime.
pub struct HostRuntime {
    paths: NodePaths,
    program: PathBuf,
    image: String,
    image_id: String,
    simulate: bool,
    image_files: Vec<(PathBuf, PathBuf)>,
    network: Arc<PodNetwork>,
    cgroups: Cgroups,
    root: bool,
}

impl HostRuntime {
    /// A runtime whose only image `image` consists of `program` and the libraries it loads.
    pub fn new(
        paths: NodePaths,
        program: PathBuf,
        image: String,
        simulate: bool,
        cgroups: Cgroups,
        network: Arc<PodNetwork>,
    ) -> Result<Self> {
        let mut image_files = vec![(program.clone(), PathBuf::from(PROGRAM))];
        for library in elf::libraries(&program)? {
            let source = fs::canonicalize(&library).map_err(Error::file(&library))?;
            image_files.push((source, library));
        }
        let meta = fs::metadata(&program).map_err(Error::file(&program))?;
        let image_id = format!("host://{}#{}", program.display(), meta.len());
        let root = nix::unistd::geteuid().is_root();
        Ok(HostRuntime { paths, program, image, image_id, simulate, image_files, network, cgroups, root })
    }

    fn directory(&self, key: &RunKey) -> PathBuf {
        self.paths.container(&key.pod.uid, &key.container, key.attempt)
    }

    fn launch_spec(&self, spec: &ContainerSpec) -> Result<LaunchSpec> {
        let key = &spec.key;
        let id = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let group = format!("{}.{}", key.container, key.attempt);
        let (cgroups, oom_counter) = self.cgroups.create(&key.pod.uid, &group, spec.limits)?;
        let mut argv = spec.command.clone();
        if argv.is_empty() {
            argv.push(PROGRAM.to_owned());
        }
        argv.extend(spec.args.iter().cloned());
        let mut env =
            vec![("PATH".to_owned(), container::DEFAULT_PATH.to_owned()), ("HOSTNAME".to_owned(), spec.hostname.clone())];
        env.extend(spec.env.iter().cloned());
        if !env.iter().any(|(k, _)| k == "HOME") {
            env.push(("HOME".to_owned(), if spec.user.uid == 0 { "/root" } else { "/" }.to_owned()));
        }
        let log = self.paths.pod_logs(&key.pod.namespace, &key.pod.name, &key.pod.uid);
        Ok(LaunchSpec {
            attach_socket: self.paths.run().join("attach").join(&id[..16]),
            directory: self.directory(key),
            argv,
            env,
            working_dir: spec.working_dir.clone().unwrap_or_else(|| "/".to_owned()),
            hostname: spec.hostname.clone(),
            stage: self.paths.stage(),
            image_files: self.image_files.clone(),
            mounts: spec.mounts.clone(),
            devices: spec.devices.clone(),
            netns: spec.sandbox.netns.clone(),
            host_pid: spec.host_pid,
            host_uts: spec.host_network,
            user: spec.user.clone(),
            own_user_namespace: !self.root,
            capabilities: spec.capabilities,
            no_new_privileges: spec.no_new_privileges,
            privileged: spec.privileged,
            cgroups,
            oom_counter,
            log: log.join(&key.container).join(format!("{}.log", key.attempt)),
            annotations: spec.annotations.clone(),
            stdin: spec.stdin,
            stdin_once: spec.stdin_once,
            tty: spec.tty,
            id,
        })
    }

    fn shim(&self, key: &RunKey) -> Option<ShimRecord> {
        read_record(&self.directory(key).join(SHIM_FILE)).ok().flatten()
    }

    fn exit(&self, key: &RunKey) -> Option<Exit> {
        let record: ExitRecord = read_record(&self.directory(key).join(EXIT_FILE)).ok().flatten()?;
        let reason = match &record {
            ExitRecord { start_error: Some(_), .. } => "StartError",
            ExitRecord { oom_killed: true, .. } => "OOMKilled",
            ExitRecord { exit_code: 0, .. } => "Completed",
            _ => "Error",
        };
        Some(Exit {
            exit_code: record.exit_code,
            signal: record.signal,
            started_at: record.started_at,
            finished_at: record.finished_at,
            reason: reason.to_owned(),
            message: record.start_error,
        })
    }
}

impl Runtime for HostRuntime {
    fn version(&self) -> String {
        format!("host://{}", env!("CARGO_PKG_VERSION"))
    }

    fn image(&self, image: &str) -> Image {
        if image == self.image {
            return Image::Present { id: self.image_id.clone() };
        }
        if self.simulate {
            return Image::Simulated;
        }
        let message = format!(
            "the host runtime pulls nothing and runs only {:?} (the node's --image); use that image, or add the worker with \
             --simulate to have {image:?} count as running without a process",
            self.image
        );
        Image::Missing { message }
    }

    async fn prepare(&self, pod: &PodKey, host_network: bool) -> Result<Sandbox> {
        self.network.attach(pod, host_network).await
    }

    async fn release(&self, pod: &PodKey) -> Result<()> {
        self.cgroups.remove(&pod.uid);
        self.network.detach(pod).await
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Running> {
        let launch = self.launch_spec(spec)?;
        make_dir(&launch.directory, 0o755)?;
        for stale in [SHIM_FILE, EXIT_FILE] {
            let _ = fs::remove_file(launch.directory.join(stale));
        }
        let path = launch.directory.join(LAUNCH_FILE);
        write_record(&path, &launch)?;
        let mut command = Command::new(&self.program);
        command.arg("node-shim").arg(&path).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let run = command.output();
        let output = tokio::time::timeout(limits::START_TIMEOUT, run)
            .await
            .map_err(|_| Error::Start("the shim did not report in time".to_owned()))?
            .map_err(Error::file(&self.program))?;
        if !output.status.success() {
            return Err(Error::Start(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let record = self.shim(&spec.key).ok_or_else(|| Error::Start("the shim left no record".to_owned()))?;
        Ok(Running { id: launch.id, started_at: record.started_at })
    }

    fn find(&self, key: &RunKey) -> Option<Running> {
        let launch: LaunchSpec = read_record(&self.directory(key).join(LAUNCH_FILE)).ok().flatten()?;
        let shim = self.shim(key)?;
        Some(Running { id: launch.id, started_at: shim.started_at })
    }

    async fn wait(&self, key: &RunKey) -> Exit {
        if let Some(shim) = self.shim(key)
            && shim.shim.is_alive()
        {
            wait_for_process(shim.shim.pid).await;
        }
        // Without a status the shim itself was killed, and the container with it.
        self.exit(key).unwrap_or_else(|| Exit {
            exit_code: 137,
            signal: None,
            started_at: self.shim(key).map(|s| s.started_at),
            finished_at: jiff::Timestamp::now(),
            reason: "ContainerStatusUnknown".to_owned(),
            message: Some("the process that held the container is gone and left no exit status".to_owned()),
        })
    }

    fn signal(&self, key: &RunKey, signal: i32) -> Result<()> {
        let Some(shim) = self.shim(key) else { return Ok(()) };
        if !shim.container.is_alive() {
            return Ok(());
        }
        let signal = nix::sys::signal::Signal::try_from(signal).map_err(Error::system("signal number"))?;
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim.container.pid), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(e) => Err(Error::system(format!("signal {}", key.container))(e)),
        }
    }

    fn exec(&self, key: &RunKey, request: &ExecRequest, stdio: fn() -> Stdio) -> Result<ExecSession> {
        let launch: LaunchSpec = read_record(&self.directory(key).join(LAUNCH_FILE))?
            .ok_or_else(|| Error::Start(format!("container {} has not run", key.container)))?;
        let shim = self.shim(key).filter(|s| s.container.is_alive());
        let shim = shim.ok_or_else(|| Error::Start(format!("container {} is not running", key.container)))?;
        let spec = ExecSpec {
            pid: shim.container.pid,
            argv: request.argv.clone(),
            env: launch.env,
            working_dir: launch.working_dir,
            user: launch.user,
            own_user_namespace: launch.own_user_namespace,
            host_pid: launch.host_pid,
            capabilities: launch.capabilities,
            no_new_privileges: launch.no_new_privileges,
            cgroups: launch.cgroups,
            tty: request.tty,
        };
        let path = self.paths.run().join(format!("exec-{}.json", uuid::Uuid::new_v4().simple()));
        write_record(&path, &spec)?;
        let mut command = Command::new(&self.program);
        command.args(["node-launch", "exec"]).arg(&path).env_clear().kill_on_drop(true);
        let terminal = if request.tty {
            let pty = nix::pty::openpty(None, None).map_err(Error::system("open a terminal"))?;
            let again = || pty.slave.try_clone().map_err(Error::file("terminal"));
            command.stdin(again()?).stdout(again()?).stderr(again()?);
            Some(pty.master)
        } else {
            command.stdin(if request.stdin { Stdio::piped() } else { Stdio::null() }).stdout(stdio()).stderr(stdio());
            None
        };
        let child = command.spawn().map_err(Error::file(&self.program))?;
        Ok(ExecSession { child, terminal, start_error: path.with_extension("error") })
    }

    async fn attach(&self, key: &RunKey) -> Result<UnixStream> {
        let launch: Option<LaunchSpec> = read_record(&self.directory(key).join(LAUNCH_FILE))?;
        let launch = launch.ok_or_else(|| Error::Start(format!("container {} has not run", key.container)))?;
        UnixStream::connect(&launch.attach_socket).await.map_err(Error::file(launch.attach_socket))
    }

    async fn dial(&self, _pod: &PodKey, sandbox: &Sandbox, port: u16) -> Result<Box<dyn Stream>> {
        dial::dial(&self.program, sandbox, port).await
    }

    fn limits_memory(&self) -> bool {
        self.cgroups.limits_memory()
    }
}

/// Waits for the end of a process that need not be a child.
async fn wait_for_process(pid: i32) {
    let Ok(fd) = sys::pidfd_open(pid) else { return };
    if let Ok(fd) = sys::asynchronous(fd, tokio::io::Interest::READABLE) {
        let _ = fd.readable().await;
    }
}

/// Runs a hidden role of the binary if `args` (without the program's name) ask for one. To be called first in `main`,
/// before any thread exists; the result is the exit code.
pub fn hidden_main(args: &[String]) -> Option<i32> {
    match args.split_first()? {
        (role, rest) if role == "node-launch" => Some(launch::main(rest)),
        (role, [spec, record]) if role == "node-worker" => Some(crate::worker::init::main(Path::new(spec), Path::new(record))),
        (role, [path]) if role == "node-shim" => Some(shim::main(Path::new(path))),
        _ => None,
    }
}
