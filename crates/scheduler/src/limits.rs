//! Every bound of the scheduler.

use std::time::Duration;

/// Wait before a Pod that did not fit is tried again although something relevant changed; doubles per attempt.
pub const UNSCHEDULABLE_BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Upper end of that wait. Kept short: a freed device should be used at once.
pub const UNSCHEDULABLE_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Wait after an attempt that ended in an error (not in a verdict); doubles per attempt.
pub const ERROR_BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Upper end of that wait.
pub const ERROR_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// A Pod that did not fit is tried again after this time even if nothing seemed to change.
pub const UNSCHEDULABLE_FLUSH: Duration = Duration::from_secs(60);
/// Bindings in flight at once; planning pauses above it.
pub const BINDINGS_IN_FLIGHT_MAX: usize = 64;
/// Events and conditions waiting to be written; above it they are dropped (they are best effort).
pub const REPORTS_QUEUED_MAX: usize = 1024;
/// How long one call to the API server may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How often one binding is prepared and sent if the Pod keeps changing in between.
pub const BIND_ATTEMPTS_MAX: u32 = 5;
/// Longest pause between two looks at a Pod whose binding has an unknown outcome.
pub const UNKNOWN_BIND_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Length of an Event's note (a limit of the API).
pub const EVENT_NOTE_BYTES_MAX: usize = 1024;
/// Highest score a plugin gives to one node.
pub const NODE_SCORE_MAX: i64 = 100;
