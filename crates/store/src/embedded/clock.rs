//! Time for the log's records.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall-clock time that does not jump while the store is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start_ms: u64,
    start: Instant,
}

impl Clock {
    /// A clock that is not behind `newest_ms`, the time of the newest record, should the machine's clock have been set back.
    pub fn start(newest_ms: u64) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock { start_ms: millis(since_epoch.unwrap_or_default()).max(newest_ms), start: Instant::now() }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.start_ms + millis(self.start.elapsed())
    }
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
