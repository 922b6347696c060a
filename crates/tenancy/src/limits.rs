//! Every bound of this crate.

use std::time::Duration;

/// Between two looks at a tenant in which nothing has changed: certificates age, and the addons that are not
/// watched are repaired.
pub const RESYNC: Duration = Duration::from_secs(60);
/// Between two looks while something is awaited that sends no event (the tenant's first answer).
pub const POLL: Duration = Duration::from_millis(100);
/// After an error, doubling up to `RETRY_MAX`.
pub const RETRY_MIN: Duration = Duration::from_millis(500);
pub const RETRY_MAX: Duration = Duration::from_secs(30);
/// Silence on a connection to a tenant's API server: a watch has a bookmark each minute.
pub const WATCH_SILENCE_MAX: Duration = Duration::from_secs(90);
/// For one request to a tenant's API server.
pub const TENANT_TIMEOUT: Duration = Duration::from_secs(5);
/// Tenants that are reconciled at once; one that stalls holds up no other.
pub const CONCURRENCY: u16 = 16;
/// Addresses in one pool that are looked at; a larger range is used up to here.
pub const POOL_ADDRESSES_MAX: usize = 65_536;
