//! What runs containers. Pods know this trait only; [`host`] runs them as processes of this machine.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::process::Stdio;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::Result;
use host::cgroup::Limits;
use host::spec::{BindMount, DeviceNode, Identity};

pub mod host;

/// Which Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which run of which container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunKey {
    pub pod: PodKey,
    pub container: String,
    pub attempt: u32,
}

/// What the containers of a Pod share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The Pod's address.
    pub ip: String,
    /// Handle of its network namespace; `None` shares the node's.
    pub netns: Option<PathBuf>,
}

/// Whether an image can run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// It is here, under this id.
    Present { id: String },
    /// It is not here and counts as running without a process.
    Simulated,
    /// It is not here; the message names the remedy.
    Missing { message: String },
}

/// A container to be started.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    pub key: RunKey,
    /// `command` of the container; empty takes the image's.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_dir: Option<String>,
    pub hostname: String,
    pub sandbox: Sandbox,
    pub mounts: Vec<BindMount>,
    pub devices: Vec<DeviceNode>,
    pub user: Identity,
    pub capabilities: u64,
    pub no_new_privileges: bool,
    pub privileged: bool,
    pub host_network: bool,
    pub host_pid: bool,
    pub limits: Limits,
    /// What device plugins want to tell the runtime.
    pub annotations: BTreeMap<String, String>,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// `Completed`, `Error`, `OOMKilled`, `StartError` or `ContainerStatusUnknown`.
    pub reason: String,
    pub message: Option<String>,
}

/// A run that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub id: String,
    pub started_at: Timestamp,
}

/// Byte stream into a Pod.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A command to run inside a container.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    pub argv: Vec<String>,
    pub stdin: bool,
    pub tty: bool,
}

/// A program that runs in a container on behalf of a client.
pub struct ExecSession {
    pub child: tokio::process::Child,
    /// The terminal, if one was asked for; its output holds both streams.
    pub terminal: Option<std::os::fd::OwnedFd>,
    /// Where the launcher says why the program did not start.
    pub start_error: PathBuf,
}

impl ExecSession {
    /// Waits for the end: the exit code, or why the program did not start.
    pub async fn wait(&mut self) -> std::result::Result<i32, String> {
        let status = self.child.wait().await;
        let why = std::fs::read_to_string(&self.start_error);
        let _ = std::fs::remove_file(&self.start_error);
        if let Ok(why) = why {
            return Err(why);
        }
        match status {
            Ok(status) => Ok(status.code().unwrap_or(137)),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Runs containers.
pub trait Runtime: Send + Sync + 'static {
    /// Name and version, as in the Node's status.
    fn version(&self) -> String;
    /// Whether `image` can run.
    fn image(&self, image: &str) -> Image;
    /// Makes what the Pod's containers share; the same again if it is there.
    fn prepare(&self, pod: &PodKey, host_network: bool) -> impl Future<Output = Result<Sandbox>> + Send;
    /// Takes away what the Pod's containers shared.
    fn release(&self, pod: &PodKey) -> impl Future<Output = Result<()>> + Send;
    /// Starts a container.
    fn start(&self, spec: &ContainerSpec) -> impl Future<Output = Result<Running>> + Send;
    /// The run, if its process is there or has left its exit status: found again by a restarted agent.
    fn find(&self, key: &RunKey) -> Option<Running>;
    /// Waits for the end of a run.
    fn wait(&self, key: &RunKey) -> impl Future<Output = Exit> + Send;
    /// Sends a signal to a run's first process.
    fn signal(&self, key: &RunKey, signal: i32) -> Result<()>;
    /// Runs a command in a container.
    fn exec(&self, key: &RunKey, request: &ExecRequest, stdio: fn() -> Stdio) -> Result<ExecSession>;
    /// Connects to the standard streams of a container.
    fn attach(&self, key: &RunKey) -> impl Future<Output = Result<tokio::net::UnixStream>> + Send;
    /// Connects to a port on the loopback address inside the Pod.
    fn dial(&self, pod: &PodKey, sandbox: &Sandbox, port: u16) -> impl Future<Output = Result<Box<dyn Stream>>> + Send;
    /// Whether memory limits hold here.
    fn limits_memory(&self) -> bool;
}
