//! Where a node keeps what. Everything lies below the node's root, so that several nodes share a machine.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Paths below a node's root.
#[derive(Clone, Debug)]
pub struct NodePaths {
    root: PathBuf,
}

impl NodePaths {
    /// Paths below `root`, which is `/` for an agent in a root directory of its own.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        NodePaths { root: root.into() }
    }

    /// The node's root: what `hostPath: /` shows.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/var/lib/kubelet`.
    pub fn kubelet(&self) -> PathBuf {
        self.root.join("var/lib/kubelet")
    }

    /// Keys and certificates of the agent.
    pub fn pki(&self) -> PathBuf {
        self.kubelet().join("pki")
    }

    /// Directories of all Pods.
    pub fn pods(&self) -> PathBuf {
        self.kubelet().join("pods")
    }

    /// Directory of a Pod: volumes, records, generated files.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// What the agent remembers of a Pod.
    pub fn pod_record(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("record.json")
    }

    /// Directory of one run of a container: launch spec, shim record, exit status.
    pub fn container(&self, uid: &str, name: &str, attempt: u32) -> PathBuf {
        self.pod(uid).join("containers").join(name).join(attempt.to_string())
    }

    /// Directory of one volume. `plugin` is the kubelet's name for the kind, such as `kubernetes.io~secret`.
    pub fn volume(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pod(uid).join("volumes").join(plugin).join(name)
    }

    /// Directory of a Pod's logs.
    pub fn pod_logs(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.root.join("var/log/pods").join(format!("{namespace}_{name}_{uid}"))
    }

    /// Handles of the Pods' network namespaces.
    pub fn netns(&self, uid: &str) -> PathBuf {
        self.run().join("netns").join(uid)
    }

    /// What does not outlive a boot.
    pub fn run(&self) -> PathBuf {
        self.root.join("run/atoll")
    }

    /// An empty directory on which each container builds its root in its own mount namespace.
    pub fn stage(&self) -> PathBuf {
        self.run().join("stage")
    }

    /// Directory of the device plugins' sockets.
    pub fn device_plugins(&self) -> PathBuf {
        self.kubelet().join("device-plugins")
    }

    /// Socket of the PodResources service.
    pub fn pod_resources(&self) -> PathBuf {
        self.kubelet().join("pod-resources/kubelet.sock")
    }

    /// Makes the directories that must be there before the agent runs.
    pub fn create(&self) -> Result<()> {
        for (path, mode) in [
            (self.kubelet(), 0o755),
            (self.pki(), 0o700),
            (self.pods(), 0o755),
            (self.device_plugins(), 0o755),
            (self.kubelet().join("pod-resources"), 0o755),
            (self.root.join("var/log/pods"), 0o755),
            (self.run().join("netns"), 0o755),
            (self.run().join("attach"), 0o700),
            (self.stage(), 0o755),
        ] {
            make_dir(&path, mode)?;
        }
        Ok(())
    }
}

/// `mkdir -p` with a mode for what is made.
pub fn make_dir(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(Error::file(path))
}

/// Replaces a file in one step, so that a reader or a crash never meets half of it.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        fs::rename(&temporary, path)
    };
    write().map_err(Error::file(path))
}

/// Writes a record as JSON, readable by the agent alone.
pub fn write_record<T: Serialize>(path: &Path, record: &T) -> Result<()> {
    let bytes = serde_json::to_vec(record).map_err(|e| Error::Record { path: path.into(), why: e.to_string() })?;
    write_atomic(path, &bytes, 0o600)
}

/// Reads a record; `None` if there is no such file.
pub fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::Record { path: path.into(), why: e.to_string() })
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File { path: path.into(), source }),
    }
}

/// `rm -rf` that is content if there is nothing.
pub fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::File { path: path.into(), source: e }),
        _ => Ok(()),
    }
}
