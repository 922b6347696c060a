//! When the history of what was deleted for good is erased, and how the writer goes about it.

use std::{
    collections::BTreeMap,
    mem,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
};

use super::{
    clock::millis,
    rewrite::Replacement,
    writer::{Message, Writer},
};
use crate::{Error, Result, Revision, limits};

/// Histories to erase, by resource, each up to the delete that asked for it.
type Wanted = BTreeMap<Arc<str>, Revision>;

/// What is to be erased.
#[derive(Debug, Default)]
pub(crate) struct Erasure {
    wanted: Wanted,
    /// When the next copy should begin; meaningful while something is wanted.
    due_ms: u64,
    /// What the copy leaves out that is being made.
    copying: Option<Wanted>,
}

impl Erasure {
    /// What was still to be erased when the store was last open is due at once.
    pub fn resume(wanted: Wanted) -> Self {
        Erasure { wanted, ..Erasure::default() }
    }

    /// Notes what a commit asked to erase.
    pub fn ask(&mut self, erasures: Wanted, now_ms: u64) {
        if self.wanted.is_empty() {
            self.due_ms = now_ms + millis(limits::ERASE_DELAY);
        }
        self.wanted.extend(erasures);
    }

    /// When a copy should begin, unless one is being made.
    pub fn due_ms(&self) -> Option<u64> {
        (!self.wanted.is_empty() && !self.is_copying()).then_some(self.due_ms)
    }

    pub fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    fn begin(&mut self) -> Wanted {
        let wanted = mem::take(&mut self.wanted);
        self.copying = Some(wanted.clone());
        wanted
    }

    /// Ends a copy. After a failure what it was made for is wanted again, unless a later delete wants even more.
    fn end(&mut self, is_done: bool) {
        let copied = self.copying.take().unwrap_or_default();
        if !is_done {
            for (resource, revision) in copied {
                self.wanted.entry(resource).or_insert(revision);
            }
        }
    }
}

impl Writer {
    /// Begins the copy for an erasure that is due, on a thread of its own so that writes go on.
    pub(super) fn start_erasure(&mut self) {
        let now_ms = self.clock.now_ms();
        let due_ms = self.erasure.due_ms().map(|due| due.max(self.not_before_ms));
        if due_ms.is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        let wanted = self.erasure.begin();
        let revision = self.shared.revision();
        let (shared, sender) = (self.shared.clone(), self.sender.clone());
        let copy = move || {
            let copy = || shared.file.copy(wanted, revision);
            let result = panic::catch_unwind(AssertUnwindSafe(copy));
            let copied = result.unwrap_or_else(|_| Err(shared.file.corrupt("its pages contradict each other".into())));
            // Without a receiver the store is closed, and the erasure resumes when it is opened again.
            let _ = sender.send(Message::Copied(copied));
        };
        let spawned = thread::Builder::new().name("store-rewrite".into()).spawn(copy);
        if let Err(source) = spawned {
            let error = Error::io(self.shared.file.path(), source);
            self.finish_erasure(Err(error));
        }
    }

    /// Opens the file again after a failure.
    pub(super) fn recover(&mut self) -> Result<()> {
        if self.erasure.is_copying() {
            // Recovery may need the place of the copy. It ends soon, since the file that it reads from is closed.
            return Err(Error::io(self.shared.file.path(), std::io::Error::other("an earlier failure is being cleared up")));
        }
        self.shared.file.reopen(self.shared.revision(), &self.erasure.wanted)
    }

    /// Puts a finished copy in the data file's place and forgets the erased history.
    pub(super) fn finish_erasure(&mut self, copied: Result<Replacement>) {
        let result = copied.and_then(|replacement| self.replace(replacement));
        self.erasure.end(result.is_ok());
        if let Err(error) = result {
            self.not_before_ms = self.clock.now_ms() + millis(limits::RETRY_AFTER);
            tracing::warn!(%error, "the history of a deleted key could not be erased; it will be tried again");
            if let Err(error) = self.shared.file.discard_replacement() {
                tracing::warn!(%error, "an unfinished copy of the store is left behind");
            }
        }
    }

    fn replace(&mut self, replacement: Replacement) -> Result<()> {
        let erased = replacement.erased.clone();
        let erased_bytes = replacement.erased_bytes;
        let revision = self.shared.revision();
        self.shared.file.replace(replacement, revision, &self.erasure.wanted)?;
        self.shared.log.erase(&erased);
        self.extent.bytes = self.extent.bytes.saturating_sub(erased_bytes);
        Ok(())
    }

    /// Erases what is still to be erased, so that a store at rest does not hold it.
    pub(super) fn erase_before_closing(&mut self) {
        if self.erasure.is_copying() {
            // The copy that is being made ends with this message; transactions that come in before it are refused.
            while let Ok(message) = self.queue.recv() {
                if let Message::Copied(copied) = message {
                    self.finish_erasure(copied);
                    break;
                }
            }
        }
        if self.erasure.due_ms().is_some() {
            let wanted = self.erasure.begin();
            let copied = self.shared.file.copy(wanted, self.shared.revision());
            self.finish_erasure(copied);
        }
    }
}
