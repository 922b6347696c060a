//! Network namespaces of the platform: connections from within them, and packets dropped there.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use super::{Lab, Tenant};
use crate::platform::net::{Names, Plan, tool};
use crate::platform::read_options;

/// Ports of a tenant's address.
pub const API_PORT: u16 = 6443;
pub const TUNNEL_PORT: u16 = 8132;
/// How long a connection may take; what is filtered takes all of it.
const CONNECT: Duration = Duration::from_millis(800);

/// Whether a TCP connection to `address` opens from the namespace at `namespace`.
pub async fn connects(namespace: &Path, address: SocketAddr) -> Result<bool, String> {
    within(namespace, async move { TcpStream::connect_timeout(&address, CONNECT).is_ok() }).await
}

/// Does `work` in the namespace at `namespace`.
pub async fn within<T: Send + 'static>(namespace: &Path, work: impl Future<Output = T> + Send + 'static) -> Result<T, String> {
    let path = namespace.to_owned();
    let (done, outcome) = tokio::sync::oneshot::channel();
    // A thread of its own: the namespace is the thread's and ends with it.
    std::thread::spawn(move || {
        let run = || -> Result<T, String> {
            let file = std::fs::File::open(&path).map_err(|e| format!("open {}: {e}", path.display()))?;
            setns(&file, CloneFlags::CLONE_NEWNET).map_err(|e| format!("enter {}: {e}", path.display()))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            Ok(runtime.map_err(|e| format!("a runtime: {e}"))?.block_on(work))
        };
        let _ = done.send(run());
    });
    outcome.await.map_err(|_| format!("the thread in {} panicked", namespace.display()))?
}

/// The network namespace of the platform.
pub fn platform(lab: &Lab) -> PathBuf {
    Path::new("/run/netns").join(Names::of_dir(lab.dirs.root()).platform())
}

/// The network namespace of a tenant's first worker.
pub fn worker(lab: &Lab, tenant: &Tenant) -> Result<PathBuf, String> {
    Ok(PathBuf::from(format!("/proc/{}/ns/net", worker_init(lab, tenant)?)))
}

/// Process 1 of a tenant's first worker.
pub fn worker_init(lab: &Lab, tenant: &Tenant) -> Result<i32, String> {
    let record = lab.dirs.processes().join(format!("{}-worker-1.worker", tenant.name));
    let bytes = std::fs::read(&record).map_err(|e| format!("read {}: {e}", record.display()))?;
    let worker: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let pid = worker["init"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.ok_or_else(|| "a worker's record names no process".to_owned())
}

/// The lab's own table of filters beside the platform's.
const CUT: &str = "inet atoll_lab";

/// From now on the platform drops all packets between this port of a tenant's address and anybody else, both ways.
pub fn drop_packets(lab: &Lab, tenant: &Tenant, port: u16) -> Result<(), String> {
    // Before the platform's own filter, which lets established connections pass.
    filter(
        lab,
        &format!(
            "table {CUT} {{ chain cut {{ type filter hook forward priority filter - 10; policy accept;\n\
             meta l4proto tcp ct original ip daddr {} ct original proto-dst {port} drop\n}}\n}}\n",
            tenant.address
        ),
    )
}

/// Ends [`drop_packets`].
pub fn pass_packets(lab: &Lab) -> Result<(), String> {
    filter(lab, &format!("table {CUT}\ndelete table {CUT}\n"))
}

fn filter(lab: &Lab, rules: &str) -> Result<(), String> {
    let namespace = Names::of_dir(lab.dirs.root()).platform();
    tool("ip", &["netns", "exec", &namespace, "nft", "-f", "-"], Some(rules)).map(drop).map_err(|e| e.to_string())
}

/// The addresses of the platform.
pub fn plan(lab: &Lab) -> Result<Plan, String> {
    let options = read_options(&lab.dirs).ok_or("the platform's options are not to be read")?;
    Plan::new(&options.platform_cidr, &options.pool).map_err(|e| e.to_string())
}
