//! Every bound of this crate.

use std::time::Duration;

/// Largest request body, as upstream.
pub const BODY_BYTES_MAX: usize = 3 << 20;
/// Time in which a connection has to finish its TLS handshake.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which the headers of an HTTP/1.1 request have to arrive.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(32);
/// Time in which the body of a request has to arrive.
pub const BODY_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a request that is not a watch or a stream gets 504, and the upper bound of the `timeout` parameter.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest life of a watch whose client names none; each gets a random time up to twice that.
pub const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);
/// Time between two bookmarks of a watch that asked for them.
pub const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Open connections; more wait in the accept queue.
pub const CONNECTIONS_MAX: usize = 4096;
/// HTTP/2 streams per connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 250;
/// Time that open requests get after the server was told to stop.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Answers from this size on are compressed if the client takes gzip (upstream's threshold).
pub const GZIP_BYTES_MIN: usize = 128 << 10;
/// Events that one read of a watcher takes from the log.
pub const WATCH_BATCH_EVENTS_MAX: usize = 256;
/// Times that a patch or an unconditional update starts again from a newer object.
pub const CONFLICT_RETRIES_MAX: usize = 1000;
/// Attempts to find a free name for `generateName`.
pub const GENERATE_NAME_ATTEMPTS: usize = 8;
/// Longest name that `generateName` makes, and the random part of it.
pub const GENERATED_NAME_BYTES_MAX: usize = 63;
pub const GENERATED_SUFFIX_BYTES: usize = 5;
/// Entries of one chunk where the server lists for itself.
pub const INTERNAL_LIST_CHUNK: usize = 500;
/// Warning headers of one answer, and the bytes of all of them together.
pub const WARNINGS_MAX: usize = 64;
pub const WARNING_BYTES_MAX: usize = 4096;
/// Time to reach something inside the cluster (kubelet, Pod, webhook) unless the caller states a shorter one.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Compiled match conditions that are kept.
pub const COMPILED_CONDITIONS_MAX: usize = 256;
/// A webhook call ends this long before its timeout, so that the refusal arrives within it.
pub const WEBHOOK_REFUSAL_MARGIN: Duration = Duration::from_millis(100);
/// TLS settings of webhooks, one for each CA bundle, that are kept.
pub const WEBHOOK_TLS_CONFIGS_MAX: usize = 64;
/// Largest answer of a webhook.
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 3 << 20;
/// Characters of a webhook's error answer that are shown.
pub const WEBHOOK_ERROR_CHARS_MAX: usize = 512;
/// Namespaces share this many turns for charging their quotas.
pub const QUOTA_TURNS: usize = 16;
/// Times that a charge starts again from a newer quota.
pub const QUOTA_ATTEMPTS: usize = 50;
/// Bytes of a list that are written at a time.
pub const LIST_CHUNK_BYTES: usize = 64 << 10;
/// Wait after a connection could not be accepted.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Pings on idle HTTP/2 connections, and how long their answer may take.
pub const HTTP2_PING_PERIOD: Duration = Duration::from_secs(30);
pub const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two looks at the objects that the server keeps.
pub const KEEP_PERIOD: Duration = Duration::from_secs(10);
/// Life of the Lease by which the server tells that it is there.
pub const IDENTITY_LEASE_SECONDS: i64 = 3600;
/// Life of a service-account token that is asked for without one, and the bounds of what may be asked for.
pub const TOKEN_SECONDS_DEFAULT: i64 = 3600;
pub const TOKEN_SECONDS_MIN: i64 = 600;
pub const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// The life that Pods from before token rotation are given by their volume, and how long such a token lives then.
pub const ROTATION_UNAWARE_TOKEN_SECONDS: i64 = 3607;
pub const EXTENDED_TOKEN_SECONDS: i64 = 365 * 24 * 3600;
/// How long a token is good after the deletion of what it is bound to began.
pub const DELETED_TOKEN_GRACE_SECONDS: i64 = 60;
/// How far the clock of a token's maker may be ahead.
pub const TOKEN_CLOCK_SKEW_SECONDS: i64 = 60;
/// Of a node's refusal of a log, so much is passed on (upstream's bound of an unexpected answer).
pub const NODE_REFUSAL_BYTES: usize = 50_000;
