//! Every bound of the controllers.

use std::time::Duration;

/// Keys that one controller works on at once.
pub const KEYS_IN_FLIGHT_MAX: usize = 4;
/// Largest batch of creates or deletes sent side by side; batches start at 1 and double while all succeed.
pub const BATCH_MAX: usize = 16;
/// Pods that one plan creates or deletes at most; the rest follows in the next.
pub const BURST_MAX: usize = 500;
/// First wait after a failure; doubles per failure of the same key.
pub const RETRY_MIN: Duration = Duration::from_millis(25);
/// Longest wait after a failure.
pub const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long one call to the API server may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(35);
/// How long a controller waits until its own writes show up in its caches, before it plans on without them.
pub const OBSERVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Events waiting to be written; above it they are dropped (they are best effort).
pub const EVENTS_QUEUED_MAX: usize = 512;
/// Events remembered so that a repetition counts up instead of making a new one.
pub const EVENTS_REMEMBERED_MAX: usize = 256;
/// Every key of a controller that depends on time or on things it does not watch is looked at again after this time.
pub const RESYNC: Duration = Duration::from_secs(300);
