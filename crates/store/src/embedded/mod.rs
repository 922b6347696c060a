//! The embedded driver: the state in memory, the log and the data in one file.

mod clock;
mod data_file;
mod disk;
mod erasure;
#[cfg(test)]
mod fault_tests;
mod log;
mod numbers;
mod open;
mod range;
mod record;
mod rewrite;
mod shared;
mod state;
mod watcher;
mod writer;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc::Sender},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use self::{
    shared::Shared,
    watcher::Cursor,
    writer::{Message, Request},
};
use crate::{Entry, Error, Op, Page, RangeQuery, Result, Revision, Store, TxnOutcome, Watcher, limits};

/// Where an embedded store lives and how much history it keeps.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store's directory; created as needed, with mode 0700.
    pub dir: PathBuf,
    /// How long revisions stay readable.
    pub history_age: Duration,
    /// How much older than that the oldest revision gets before a trim starts.
    pub history_slack: Duration,
    /// Bytes of history in the file; beyond it the oldest revisions go early.
    pub history_bytes_max: u64,
    /// Bytes of the newest history that stay in memory.
    pub history_memory_bytes_max: usize,
}

impl Options {
    /// A store in `dir` with the bounds of [`crate::limits`].
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Options {
            dir: dir.into(),
            history_age: limits::HISTORY_AGE,
            history_slack: limits::HISTORY_SLACK,
            history_bytes_max: limits::HISTORY_BYTES_MAX,
            history_memory_bytes_max: limits::HISTORY_MEMORY_BYTES_MAX,
        }
    }
}

/// A store in a directory of this machine. Closes itself in good order when it is dropped.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    queue: Sender<Message>,
    places: Arc<Semaphore>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the store of a directory, creates it if there is none. Blocks for as long as it takes to read the data.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process has it open, [`Error::Corrupt`] or [`Error::Format`] if the file cannot be read,
    /// [`Error::Io`] or [`Error::Full`] if the operating system refuses.
    pub fn open(options: Options) -> Result<Self> {
        open::open(&options, Box::new(disk::OsDisk))
    }

    fn stop(&self) {
        // The writer is gone already if this fails.
        let _ = self.queue.send(Message::Close);
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.stop();
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn txn(&self, ops: Vec<Op>) -> Result<TxnOutcome> {
        check(&ops)?;
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| Error::Closed)?;
        let (reply, answer) = oneshot::channel();
        let request = Request { ops, reply, place };
        self.queue.send(Message::Txn(request)).map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        Ok(self.shared.state.load().entries.get(key).cloned())
    }

    async fn range(&self, query: RangeQuery<'_>) -> Result<Page> {
        range::read(&self.shared, query).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watcher>> {
        Ok(Box::new(Cursor::new(self.shared.clone(), prefix, from)?))
    }

    fn revision(&self) -> Revision {
        self.shared.revision()
    }

    async fn close(&self) -> Result<()> {
        let _ = self.queue.send(Message::Close);
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            let join = tokio::task::spawn_blocking(move || writer.join());
            if !matches!(join.await, Ok(Ok(()))) {
                tracing::error!("the store's writer panicked");
            }
        }
        Ok(())
    }
}

/// Holds operations to their bounds before they take a place in the queue.
fn check(ops: &[Op]) -> Result<()> {
    let within = |what, size, max| {
        if size > max {
            return Err(Error::TooLarge { what, size, max });
        }
        Ok(())
    };
    within("operations per transaction", ops.len(), limits::TXN_OPS_MAX)?;
    for op in ops {
        within("bytes of key", op.key().len(), limits::KEY_BYTES_MAX)?;
        if let Op::Put { value, .. } = op {
            within("bytes of value", value.len(), limits::VALUE_BYTES_MAX)?;
        }
    }
    Ok(())
}
