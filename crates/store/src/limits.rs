//! Every bound of this crate, in one place.

use std::time::Duration;

/// Longest key, in bytes. Kubernetes names end at 253 bytes per segment; this leaves room for all segments of a path.
pub const KEY_BYTES_MAX: usize = 2048;

/// Largest value, in bytes. Above what an API server lets through (3 MiB), so that the caller's limit is the one users meet.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Most operations in one transaction.
pub const TXN_OPS_MAX: usize = 4096;

/// Transactions that may wait for the writer; further callers wait for a place.
pub const QUEUE_TXNS_MAX: usize = 1024;

/// A group commit takes no further transactions once it holds this many operations.
pub const COMMIT_OPS_MAX: usize = 1024;

/// A group commit takes no further transactions once its values have this many bytes.
pub const COMMIT_BYTES_MAX: usize = 8 << 20;

/// How long revisions stay readable, unless [`HISTORY_BYTES_MAX`] is passed.
pub const HISTORY_AGE: Duration = Duration::from_secs(300);

/// How much older than [`HISTORY_AGE`] the oldest revision gets before a trim starts. Larger means fewer wake-ups on an idle
/// server; age plus slack must stay below the ten minutes after which history has to be gone.
pub const HISTORY_SLACK: Duration = Duration::from_secs(45);

/// Bytes of history in the file; beyond it the oldest revisions go early.
pub const HISTORY_BYTES_MAX: u64 = 128 << 20;

/// Bytes of the newest history that stay in memory. Older events are read from the file.
pub const HISTORY_MEMORY_BYTES_MAX: usize = 8 << 20;

/// What an event in memory costs besides its key and value (allocation headers, reference counts, places in two queues).
pub const EVENT_OVERHEAD_BYTES: usize = 256;

/// Log records that one commit may trim, so that trimming never holds up writers for long.
pub const TRIM_RECORDS_MAX: usize = COMMIT_OPS_MAX;

/// Records that one read of history from the file looks at before it returns what it has.
pub const HISTORY_SCAN_RECORDS_MAX: usize = 4096;

/// Events that a read of an older snapshot takes from the log at a time.
pub const HISTORY_UNDO_EVENTS_MAX: usize = 1024;

/// redb's page cache. Small, because reads of the current state never reach it.
pub const PAGE_CACHE_BYTES: usize = 1 << 20;

/// After a failed commit that no caller asked for (trimming, erasing), the next attempt comes this much later.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An erasure starts this long after the first delete that asks for one: live watchers get to see the delete with the deleted
/// version, and deletes that follow each other share one rewrite of the file. Well below the five seconds that are promised.
pub const ERASE_DELAY: Duration = Duration::from_millis(500);
