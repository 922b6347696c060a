//! Every bound of the tunnel.

use std::time::Duration;

/// How often Atoll's peers ping each other. Upstream's agents are pinged too (a client accepts any rate).
pub const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How often a server that is not Atoll's is pinged: upstream's enforcement answers faster pings with GOAWAY.
pub const FOREIGN_PING_INTERVAL: Duration = Duration::from_secs(30);
/// A peer from which nothing was read for this long is gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);
/// A session from which nothing was read for this long is used only if there is no other.
pub const SILENCE_SUSPECT: Duration = Duration::from_millis(1500);
/// How long the loss of a silent session is remembered, so that a refused dial can tell why there is no agent.
pub const LOSS_MEMORY: Duration = Duration::from_secs(30);
/// Between two attempts of an agent to connect.
pub const REDIAL_INTERVAL: Duration = Duration::from_millis(700);
/// For an agent's connection to a server: TCP, TLS and the stream's headers together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For an agent's dial of a destination.
pub const AGENT_DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Payload of one DATA packet, bytes.
pub const DATA_BYTES_MAX: usize = 32 * 1024;
/// Received but unread bytes of one connection; past it that connection is closed.
pub const CONNECTION_BUFFER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Packets that wait to be written to one session; writers of connections wait for room.
pub const SESSION_QUEUE_PACKETS: usize = 64;
/// Connections and pending dials of one session.
pub const SESSION_CONNECTIONS_MAX: usize = 4096;
/// Sessions of one server.
pub const SESSIONS_MAX: usize = 1024;
/// Servers that one agent connects to.
pub const AGENT_SERVERS_MAX: usize = 16;
/// Size of one gRPC message, bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
