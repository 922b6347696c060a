//! Every bound of the node agent.

use std::time::Duration;

/// Bytes of one container log before it is rotated; one rotated file is kept beside it.
pub const LOG_BYTES_MAX: u64 = 10 << 20;
/// Bytes of a line that go into one CRI log entry; longer lines are split into partial entries.
pub const LOG_LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes of a termination message taken into a container's status.
pub const TERMINATION_MESSAGE_BYTES_MAX: usize = 4096;
/// Bytes of output that an exec probe or hook may produce before the rest is thrown away.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Clients attached to one container at a time.
pub const ATTACH_CLIENTS_MAX: usize = 8;
/// Bytes waiting for a slow attached client before it is dropped.
pub const ATTACH_BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Bytes of one frame between a shim and an attached client.
pub const ATTACH_FRAME_BYTES_MAX: usize = 1 << 20;

/// First pause before a container is started again: one second and a minute, as KEP-4603 has them.
pub const RESTART_BACKOFF_START: Duration = Duration::from_secs(1);
/// Longest pause before a container is started again.
pub const RESTART_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A container that ran this long starts again without a pause.
pub const RESTART_BACKOFF_RESET: Duration = Duration::from_secs(600);
/// Pause before a failed step of a Pod (volumes, sandbox) is tried again.
pub const POD_RETRY: Duration = Duration::from_secs(1);
/// Longest pause between two tries of a failed step of a Pod.
pub const POD_RETRY_MAX: Duration = Duration::from_secs(30);
/// Grace of a Pod that vanished from the API without a grace period of its own.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(2);
/// How long a start may take until the shim has reported.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Life of a container that is sent SIGKILL before the agent stops waiting for its shim.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Period of the Node lease's renewal.
pub const LEASE_RENEW: Duration = Duration::from_secs(10);
/// Life of the Node lease without renewal.
pub const LEASE_SECONDS: i32 = 40;
/// Period in which the Node's status is computed and sent if it changed.
pub const STATUS_PERIOD: Duration = Duration::from_secs(10);
/// The Node's status is sent at least this often.
pub const STATUS_FORCED: Duration = Duration::from_secs(300);
/// Wait between two looks at a certificate request.
pub const CSR_POLL: Duration = Duration::from_millis(500);
/// How long a client certificate is waited for before a new request is made.
pub const CSR_WAIT: Duration = Duration::from_secs(300);
/// Life of the service-account tokens of a projected volume, unless the volume says otherwise.
pub const TOKEN_SECONDS: i64 = 3607;
/// How often the content of Secret, ConfigMap, token and downward API volumes is compared with the API.
pub const VOLUME_REFRESH: Duration = Duration::from_secs(60);
/// Requests to the API that the agent's Pods have in flight at a time.
pub const API_IN_FLIGHT: usize = 16;
/// Events that wait to be sent; more are dropped, as an event is advice.
pub const EVENT_QUEUE: usize = 256;
/// Pods that a Node takes.
pub const PODS_MAX: u32 = 110;

/// Message size on the device plugin and PodResources sockets. gRPC's own default of 4 MiB is too small for the device
/// list of a worker with many fractional cards.
pub const PLUGIN_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// How long a device plugin's `Allocate` and the dial of its socket may take.
pub const PLUGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a plugin may be away before the capacity of its resource becomes 0.
pub const PLUGIN_GONE: Duration = Duration::from_secs(300);

/// How long a verdict of TokenReview or SubjectAccessReview is used again.
pub const REVIEW_CACHE: Duration = Duration::from_secs(30);
/// Verdicts kept at a time.
pub const REVIEW_CACHE_ENTRIES_MAX: usize = 1024;
/// Connections that the kubelet API serves at a time.
pub const SERVER_CONNECTIONS_MAX: usize = 256;
/// How often a followed log is looked at.
pub const LOG_FOLLOW_POLL: Duration = Duration::from_millis(150);

/// Changes of Services and endpoints within this time become one ruleset.
pub const SERVICE_DEBOUNCE: Duration = Duration::from_millis(50);
/// How long `ip` and `nft` may take.
pub const TOOL_TIMEOUT: Duration = Duration::from_secs(15);
