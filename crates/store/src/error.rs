//! The crate's one error type.

use std::{io, path::PathBuf, sync::Arc};

use crate::Revision;

/// Result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store operation failed. Cloneable, because all transactions of one failed commit share its cause.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The revision asked for is no longer in the history; `oldest` is the oldest that still can be read.
    #[error("the requested revision has been compacted; the oldest readable revision is {oldest}")]
    Compacted {
        /// Oldest revision that a read or a watch may start from.
        oldest: Revision,
    },
    /// The revision asked for has not been reached yet.
    #[error("revision {requested} is in the future; the current revision is {current}")]
    FutureRevision {
        /// What was asked for.
        requested: Revision,
        /// What the store has.
        current: Revision,
    },
    /// A key, value or transaction is over its bound in [`crate::limits`].
    #[error("{what} is {size}, the limit is {max}")]
    TooLarge {
        /// What is too large, with its unit.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// The disk is full. Nothing of the operation was stored; reads go on, and writes succeed again once there is space.
    #[error("no space left on the disk of {}: the write was not stored; free some space and try again", path.display())]
    Full {
        /// The data file.
        path: PathBuf,
    },
    /// The disk failed. Nothing of the operation is visible; the next write tries to recover the file.
    #[error("input or output on {} failed: {source}", path.display())]
    Io {
        /// File or directory concerned.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The data file's contents are not what this store wrote.
    #[error(
        "the data file {} is damaged: {detail}. Restore it from a backup, or move it away to begin with an empty store",
        path.display()
    )]
    Corrupt {
        /// The data file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// Another process, or another part of this one, has the store open.
    #[error("the store in {} is in use by another process; stop that one first, or choose another directory", dir.display())]
    InUse {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The data file was written by a version of this program with another file format.
    #[error("the data file {} has a format that this program does not read (it holds {found})", path.display())]
    Format {
        /// The data file.
        path: PathBuf,
        /// The tables in the file.
        found: String,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// An operating system error on `path`, a full disk told apart from the rest.
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Error::Full { path },
            _ => Error::Io { path, source: Arc::new(source) },
        }
    }
}
