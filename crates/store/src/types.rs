//! Keys, revisions, operations and what comes of them.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use bytes::Bytes;

/// A point in the store's history. Each applied operation makes one; an empty store is at revision 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a store in which nothing was ever written (etcd's choice too: 0 means 'any' to Kubernetes clients).
    pub const INITIAL: Revision = Revision(1);

    pub(crate) fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key: text such as `/registry/pods/default/web`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Key {
    fn from(text: T) -> Self {
        Key(text.into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The resource of a key or prefix: its first two segments with their slashes (`/registry/pods/`), if it has them whole.
pub(crate) fn resource_of(key: &str) -> Option<&str> {
    let mut slashes = key.match_indices('/').map(|(at, _)| at);
    let third = slashes.nth(2)?;
    key.starts_with('/').then(|| &key[..=third])
}

/// What a key's history is erased by: its resource, or the key itself if it is too short to have one.
pub(crate) fn resource_or_key(key: &str) -> &str {
    resource_of(key).unwrap_or(key)
}

/// One version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The stored bytes. The store keeps this very buffer: pass one that is not a small part of a large allocation.
    pub value: Bytes,
    /// Revision at which the key came into being (again, if it was deleted in between).
    pub create_revision: Revision,
    /// Revision of this version.
    pub mod_revision: Revision,
}

/// What has to hold for an operation to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing. (A delete still needs something to delete.)
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists in exactly this version.
    ModRevision(Revision),
}

/// What a delete does about the earlier versions of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// They stay readable for as long as history is kept.
    Keep,
    /// They leave the log and the file within five seconds, and with them the older history of the key's
    /// resource: who still needs that gets [`crate::Error::Compacted`].
    Erase,
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Store a value.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// If what holds.
        precondition: Precondition,
    },
    /// Delete a key. Without a key to delete it is a conflict, whatever the precondition.
    Delete {
        /// Which.
        key: Key,
        /// If what holds.
        precondition: Precondition,
        /// What becomes of its past.
        history: History,
    },
}

impl Op {
    /// A put that needs the key to be absent.
    pub fn create(key: impl Into<Key>, value: impl Into<Bytes>) -> Op {
        Op::put(key, value, Precondition::Absent)
    }

    /// A put.
    pub fn put(key: impl Into<Key>, value: impl Into<Bytes>, precondition: Precondition) -> Op {
        Op::Put { key: key.into(), value: value.into(), precondition }
    }

    /// A delete that keeps the key's history.
    pub fn delete(key: impl Into<Key>, precondition: Precondition) -> Op {
        Op::Delete { key: key.into(), precondition, history: History::Keep }
    }

    /// A delete that erases the key's history.
    pub fn erase(key: impl Into<Key>, precondition: Precondition) -> Op {
        Op::Delete { key: key.into(), precondition, history: History::Erase }
    }

    /// The key that the operation is about.
    pub fn key(&self) -> &Key {
        match self {
            Op::Put { key, .. } | Op::Delete { key, .. } => key,
        }
    }
}

/// An operation that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The operation's own revision: the `mod_revision` of what was put, or the revision of the delete.
    pub revision: Revision,
    /// What the key held before.
    pub previous: Option<Entry>,
}

/// An operation whose precondition did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Which operation of the transaction.
    pub index: usize,
    /// What the key holds, so that the caller needs no second read.
    pub current: Option<Entry>,
}

/// What came of a transaction: all of it, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// Every operation was applied; the results are in the order of the operations.
    Applied(Vec<Applied>),
    /// A precondition did not hold and nothing was applied.
    Conflict(Conflict),
}

/// What came of a single operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied.
    Applied(Applied),
    /// Its precondition did not hold.
    Conflict {
        /// What the key holds.
        current: Option<Entry>,
    },
}

/// What to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct RangeQuery<'a> {
    /// Keys that begin with this.
    pub prefix: &'a str,
    /// Only keys after this one (where the previous page ended).
    pub start_after: Option<&'a str>,
    /// At most so many entries.
    pub limit: Option<usize>,
    /// As of this revision; the newest if not given.
    pub at: Option<Revision>,
}

impl<'a> RangeQuery<'a> {
    /// All keys under `prefix`, as they are now.
    pub fn prefix(prefix: &'a str) -> Self {
        RangeQuery { prefix, ..RangeQuery::default() }
    }
}

/// One page of a range, in key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The snapshot that was read. Passing it as [`RangeQuery::at`] continues over the same snapshot.
    pub revision: Revision,
    /// The entries.
    pub entries: Vec<(Key, Entry)>,
    /// How many entries follow after this page.
    pub remaining: usize,
}

/// A change of one key. At least one of `current` and `previous` is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The changed key.
    pub key: Key,
    /// The change's revision.
    pub revision: Revision,
    /// What the key holds since then; none after a delete.
    pub current: Option<Entry>,
    /// What it held before; none at its creation.
    pub previous: Option<Entry>,
}

#[cfg(test)]
mod tests {
    use super::resource_of;

    #[test]
    fn a_resource_is_two_whole_segments() {
        assert_eq!(resource_of("/registry/pods/ns/name"), Some("/registry/pods/"));
        assert_eq!(resource_of("/registry/pods/"), Some("/registry/pods/"));
        assert_eq!(resource_of("/registry/pods"), None);
        assert_eq!(resource_of("/registry/"), None);
        assert_eq!(resource_of(""), None);
        assert_eq!(resource_of("a/b/c/d"), None);
    }
}
