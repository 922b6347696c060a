//! The trait that every driver implements.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Entry, Event, Op, Outcome, Page, RangeQuery, Result, Revision, TxnOutcome};

/// A revisioned key-value store with watch.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies all operations, or none if a precondition does not hold. Returns once the result is durable and visible.
    ///
    /// Dropping the future does not take the transaction back. An error means that nothing of it is visible; after
    /// [`crate::Error::Io`] a crash of the process before the next successful write may still bring it to light.
    async fn txn(&self, ops: Vec<Op>) -> Result<TxnOutcome>;

    /// The newest version of a key.
    async fn get(&self, key: &str) -> Result<Option<Entry>>;

    /// A page of the keys under a prefix, from one consistent snapshot.
    async fn range(&self, query: RangeQuery<'_>) -> Result<Page>;

    /// A watcher that yields every event under `prefix` whose revision is greater than `from`.
    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watcher>>;

    /// The newest visible revision.
    fn revision(&self) -> Revision;

    /// Stops accepting transactions, finishes those that were accepted and releases the data. Watchers end with
    /// [`crate::Error::Closed`].
    async fn close(&self) -> Result<()>;

    /// A transaction of one operation.
    async fn apply(&self, op: Op) -> Result<Outcome> {
        Ok(match self.txn(vec![op]).await? {
            TxnOutcome::Applied(mut applied) => {
                Outcome::Applied(applied.pop().expect("a transaction of one operation has one result"))
            }
            TxnOutcome::Conflict(conflict) => Outcome::Conflict { current: conflict.current },
        })
    }
}

/// A cursor into the store's log.
#[async_trait]
pub trait Watcher: Send {
    /// The next events in order of revision, at least one and at most `max` (which is taken as at least 1); waits until there is
    /// one. Cancel-safe: a dropped future has consumed nothing.
    async fn next_batch(&mut self, max: usize) -> Result<Vec<Arc<Event>>>;

    /// A revision up to which this watcher has returned everything there is; what a bookmark may say. Rises on a quiet prefix
    /// too, without an event. May be behind while [`Watcher::next_batch`] still has older history to look through.
    fn progress(&mut self) -> Revision;
}
