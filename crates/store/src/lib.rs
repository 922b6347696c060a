//! `atoll-store`: a revisioned key-value store with watch.
//!
//! # What it owns
//!
//! Keys, value bytes and revisions, and how they get to disk and back. One async trait, [`Store`], is all that callers see;
//! [`EmbeddedStore`] implements it over one redb file. The trait's shape follows what etcd can do, so that a driver for etcd
//! fits behind it: transactions with compares, reads at a revision, watches from a revision, compaction.
//!
//! # Invariants
//!
//! - **Durable before visible.** An operation is acknowledged, readable and watchable only after its commit is on disk. One that
//!   fails leaves no trace in what is read or watched.
//! - **One revision per operation.** Revisions rise strictly; every put and delete gets its own, so an entry's `mod_revision` names
//!   exactly one version of one key. Revisions never go back, not after a restart, a failed disk or an erasure.
//! - **A transaction is all or nothing.** Its operations are judged in order, each against what the earlier ones left.
//! - **Every event once, in order.** A watcher is a cursor into a shared log, not a queue: it can be slow, it cannot lose or repeat
//!   an event. When the log no longer reaches back to its position it is told so ([`Error::Compacted`]) and nothing else happens.
//! - **One write, one copy.** The bytes of a value are in memory once, shared by the current state, the log and all watchers.
//! - **History is bounded** by age and bytes, on an idle server too, and what was to be erased is in neither the log nor the file.
//!
//! # What it deliberately does not know
//!
//! Kubernetes. A key is text with `/` in it; the first two segments (`/registry/pods/`) are the *resource* by which the log is
//! indexed, and that is all the structure that a key has here. Values are opaque.
//!
//! # Inside the embedded driver
//!
//! Reads of the current state never touch the file: the state is a persistent ordered map in memory, published as a whole after
//! each commit, so every read is a consistent snapshot. The file holds one table of records by revision. A record is a version of
//! a key and an event of the log at once; trimming the log removes the versions that the trimmed events replaced. An older
//! snapshot is the current one with the events since then undone. One writer thread, parked when idle, commits what is queued in
//! one transaction.

mod driver;
mod embedded;
mod error;
pub mod limits;
mod types;

pub use driver::{Store, Watcher};
pub use embedded::{EmbeddedStore, Options};
pub use error::{Error, Result};
pub use types::{
    Applied, Conflict, Entry, Event, History, Key, Op, Outcome, Page, Precondition, RangeQuery, Revision, TxnOutcome,
};
