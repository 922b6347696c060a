//! The state directory: what lies where, and that one supervisor owns it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::Error;

/// Paths below one state directory.
#[derive(Clone, Debug)]
pub struct Dirs {
    root: PathBuf,
}

impl Dirs {
    pub fn new(root: PathBuf) -> Dirs {
        Dirs { root }
    }

    /// `/var/lib/atoll` as root, else `$XDG_STATE_HOME/atoll` or `~/.local/state/atoll`.
    pub fn default_root() -> PathBuf {
        if nix::unistd::geteuid().is_root() {
            return PathBuf::from("/var/lib/atoll");
        }
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/state"));
        state.or_else(home).unwrap_or_else(std::env::temp_dir).join("atoll")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }
    pub fn management(&self) -> PathBuf {
        self.root.join("management")
    }
    pub fn management_kubeconfig(&self) -> PathBuf {
        self.root.join("management.kubeconfig")
    }
    pub fn tenant_kubeconfig(&self, tenant: &str) -> PathBuf {
        self.root.join(format!("{tenant}.kubeconfig"))
    }
    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }
    /// Where the management node's directory volumes lie, as the node's `hostPath` sees it.
    pub fn volumes_in_node(&self) -> PathBuf {
        PathBuf::from("/volumes")
    }
    pub fn workers(&self) -> PathBuf {
        self.root.join("workers")
    }
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }
    pub fn processes(&self) -> PathBuf {
        self.root.join("processes")
    }
    pub fn record(&self) -> PathBuf {
        self.root.join("platform.json")
    }

    /// Makes the directories that are not another's to make. Tenants' ids can pass through to the binary, and nothing else.
    pub fn create(&self) -> Result<(), Error> {
        let make = |path: &Path, mode: u32| {
            fs::create_dir_all(path)
                .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
                .map_err(|e| Error::io(format!("cannot make {}", path.display()), e))
        };
        make(&self.root, 0o711)?;
        make(&self.bin(), 0o755)?;
        for private in [self.management(), self.logs(), self.processes()] {
            make(&private, 0o700)?;
        }
        for passable in [self.node(), self.workers()] {
            make(&passable, 0o711)?;
        }
        Ok(())
    }

    /// Takes the directory for this process. The lock ends with it, however it ends.
    pub fn lock(&self) -> Result<Lock, Error> {
        let path = self.root.join("lock");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| Error::io(format!("cannot open {}", path.display()), e))?;
        let mut owner = String::new();
        let _ = file.read_to_string(&mut owner);
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let write = |lock: &mut Flock<File>| -> std::io::Result<()> {
                    lock.set_len(0)?;
                    lock.rewind()?;
                    writeln!(lock, "{}", std::process::id())
                };
                write(&mut lock).map_err(|e| Error::io(format!("cannot write {}", path.display()), e))?;
                Ok(Lock { _file: lock })
            }
            Err((_, errno)) if errno == nix::errno::Errno::EWOULDBLOCK => {
                Err(Error::InUse { dir: self.root.clone(), owner: owner.trim().to_owned() })
            }
            Err((_, errno)) => Err(Error::io(format!("cannot lock {}", path.display()), errno.into())),
        }
    }
}

/// Ownership of a state directory.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

/// Copies this program under the state directory, where every tenant's id can execute it, under a name of its content: a rebuild
/// becomes a new file and what runs keeps the old one.
pub fn install_binary(dirs: &Dirs) -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    let bytes = fs::read(&own).map_err(|e| Error::io(format!("cannot read {}", own.display()), e))?;
    let name = format!("atoll-{}-{:016x}", env!("CARGO_PKG_VERSION"), fnv1a(&bytes));
    let target = dirs.bin().join(name);
    if target.exists() {
        return Ok(target);
    }
    let fresh = dirs.bin().join(format!(".new-{}", std::process::id()));
    let install = || -> std::io::Result<()> {
        let mut file = File::create(&fresh)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
        fs::rename(&fresh, &target)
    };
    install().map_err(|e| Error::io(format!("cannot install {}", target.display()), e))?;
    Ok(target)
}

/// FNV-1a, 64 bits: tells builds apart, protects nothing.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_names_it() {
        let root = std::env::temp_dir().join(format!("atoll-lock-{}", std::process::id()));
        let dirs = Dirs::new(root.clone());
        dirs.create().expect("directories");
        let lock = dirs.lock().expect("free");
        let error = dirs.lock().expect_err("taken").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        dirs.lock().expect("free again");
        fs::remove_dir_all(root).expect("removed");
    }
}
