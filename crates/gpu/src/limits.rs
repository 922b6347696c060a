//! Every bound of this crate.

use std::time::Duration;

/// How long one call to the API server may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request body: an AdmissionReview holds two objects of up to 1.5 MiB each.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Connections that one listener serves at once; more wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 256;
/// How long a client may take for the TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to send a request's head.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send a request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a listener could not accept, which happens when descriptors run out.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the webhook goes on serving when it is asked to stop.
pub const LINGER: Duration = Duration::from_secs(1);
/// How long requests under way may take to end when the process is asked to stop.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the webhook looks whether its certificate has changed or has to be renewed.
pub const CERTIFICATE_CHECK_PERIOD: Duration = Duration::from_secs(30);
/// How soon it tries again as long as it has none.
pub const CERTIFICATE_RETRY_PERIOD: Duration = Duration::from_millis(500);

/// Life of the scheduler's Lease without renewal.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long the holder goes on without having renewed it; less than its life, so that it stops first.
pub const LEASE_RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often the Lease is renewed or tried for.
pub const LEASE_RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Attempts to write a decision onto a Pod that others write to at the same time.
pub const DECISION_ATTEMPTS_MAX: u32 = 5;
/// Events waiting to be written; above it they are dropped (they are best effort).
pub const EVENTS_QUEUED_MAX: usize = 512;
/// Bytes of an event's message.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 1024;
/// The same event of the same Pod is written once in this time.
pub const EVENT_REPEAT: Duration = Duration::from_secs(10);
/// Pods whose last event is remembered for that.
pub const EVENTS_REMEMBERED_MAX: usize = 4096;
/// How often the ledger is compared with a listing of all Pods.
pub const RECONCILE_PERIOD: Duration = Duration::from_secs(300);

/// How often a plugin looks whether the kubelet's socket was made anew, and whether its node's cards have changed.
pub const PLUGIN_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// How long a call to the node agent may take.
pub const NODE_AGENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a message from the node agent: an Allocate call names every device of a container.
pub const NODE_AGENT_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// How long Allocate waits for the Pod's record to be readable: the agent may know of a binding before this plugin does.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks at it.
pub const RECORD_PAUSE: Duration = Duration::from_millis(100);
/// Devices that one mock resource is registered with. A device takes about 35 bytes on the wire and gRPC's default limit
/// of 4 MiB holds about 119,000; a kubelet with that default needs a memory factor.
pub const MOCK_DEVICES_MAX: u64 = 4_000_000;
/// How often a kubelet is asked whose devices it allocated, as long as that is open.
pub const SETTLE_PERIOD: Duration = Duration::from_secs(1);
/// How long that may stay open: a Pod that failed at admission never shows up.
pub const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Allocations that are open at once; a node has fewer Pods.
pub const SETTLE_OPEN_MAX: usize = 256;
