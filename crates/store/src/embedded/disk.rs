//! The files of a store directory: the data file, the one that is to replace it, and the lock.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::StorageBackend;

use crate::{Error, Result};

const DATA: &str = "data.redb";
const REPLACEMENT: &str = "data.redb.new";
const LOCK: &str = "data.lock";

/// A store directory that this process holds the lock of.
#[derive(Debug)]
pub(crate) struct Directory {
    dir: PathBuf,
    /// Held for its lock. Apart from the data file, because that one gets replaced while the store is open.
    lock: File,
}

impl Directory {
    /// Creates the directory as needed, and takes its lock.
    pub fn lock(dir: &Path) -> Result<Self> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::io(path, source)
        };
        let missing: Vec<&Path> = dir.ancestors().take_while(|path| !path.exists()).collect();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(dir).map_err(failed(dir))?;
        for created in missing {
            let parent = created.parent().unwrap_or(created);
            sync_dir(parent).map_err(failed(parent))?;
        }
        let path = dir.join(LOCK);
        let lock = open_private(&path).map_err(failed(&path))?;
        lock.try_lock().map_err(|cause| match cause {
            TryLockError::WouldBlock => Error::InUse { dir: dir.to_owned() },
            TryLockError::Error(source) => Error::io(&path, source),
        })?;
        Ok(Directory { dir: dir.to_owned(), lock })
    }

    /// Lets others open the store, though watchers may still hold on to this.
    pub fn unlock(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the store's lock could not be released");
        }
    }

    /// The data file.
    pub fn data(&self) -> PathBuf {
        self.dir.join(DATA)
    }

    /// The file that a rewrite fills before it becomes the data file.
    pub fn replacement(&self) -> PathBuf {
        self.dir.join(REPLACEMENT)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

/// Makes the names in a directory durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    // The parent of a relative path of one segment is empty, which means the working directory.
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

/// How the store reaches its files; tests put faults here.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Opens a file for reading and writing, creates it if it is absent.
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageBackend>>;

    /// Puts a file in the place of another.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file if there is one.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(OsFile(open_private(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        sync_dir(dir)
    }
}

/// An open file as redb wants it, which notes when a sync fails.
#[derive(Debug)]
pub(crate) struct Backend {
    pub file: Box<dyn StorageBackend>,
    pub sync_failed: Arc<AtomicBool>,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.sync_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

#[derive(Debug)]
struct OsFile(File);

impl StorageBackend for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
