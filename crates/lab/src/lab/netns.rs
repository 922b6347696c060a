//! TCP connections from within another network namespace.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use super::{Lab, Tenant};
use crate::platform::net::{Names, Plan};
use crate::platform::read_options;

/// How long a connection may take; what is filtered takes all of it.
const CONNECT: Duration = Duration::from_millis(800);

/// Whether a TCP connection to `address` opens from the namespace at `namespace`.
pub async fn connects(namespace: &Path, address: SocketAddr) -> Result<bool, String> {
    let path = namespace.to_owned();
    // A thread of its own: the namespace is the thread's and ends with it.
    let thread = std::thread::spawn(move || -> Result<bool, String> {
        let file = std::fs::File::open(&path).map_err(|e| format!("open {}: {e}", path.display()))?;
        setns(&file, CloneFlags::CLONE_NEWNET).map_err(|e| format!("enter {}: {e}", path.display()))?;
        Ok(TcpStream::connect_timeout(&address, CONNECT).is_ok())
    });
    tokio::task::spawn_blocking(move || thread.join().map_err(|_| "the connecting thread panicked".to_owned())?)
        .await
        .map_err(|e| e.to_string())?
}

/// The network namespace of the platform.
pub fn platform(lab: &Lab) -> PathBuf {
    Path::new("/run/netns").join(Names::of_dir(lab.dirs.root()).platform())
}

/// The network namespace of a tenant's first worker.
pub fn worker(lab: &Lab, tenant: &Tenant) -> Result<PathBuf, String> {
    let record = lab.dirs.processes().join(format!("{}-worker-1.worker", tenant.name));
    let bytes = std::fs::read(&record).map_err(|e| format!("read {}: {e}", record.display()))?;
    let worker: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let pid = worker["init"]["pid"].as_i64().ok_or("a worker's record names no process")?;
    Ok(PathBuf::from(format!("/proc/{pid}/ns/net")))
}

/// The addresses of the platform.
pub fn plan(lab: &Lab) -> Result<Plan, String> {
    let options = read_options(&lab.dirs).ok_or("the platform's options are not to be read")?;
    Plan::new(&options.platform_cidr, &options.pool).map_err(|e| e.to_string())
}
