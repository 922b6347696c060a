//! Every bound of this crate.

use std::time::Duration;

/// Life of a certificate authority.
pub const CA_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Life of a leaf certificate.
pub const LEAF_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// How far `notBefore` lies in the past, against clocks that differ.
pub const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Part of a certificate's life after which it is renewed, in percent (client-go renews between 70 and 90 %).
pub const RENEW_AFTER_PERCENT: i64 = 80;
