//! One agent's stream: its pending dials and its connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::PollSender;
use tracing::{debug, warn};

use super::TunnelSession;
use crate::flow::{FlowReceiver, FlowSender, Refused, flow};
use crate::io::LastRead;
use crate::packet::{self, Packet, Payload};
use crate::{TunnelStream, limits};

/// Why one session did not give a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DialFailure {
    /// The agent answered that it could not connect.
    Refused(String),
    TimedOut,
    /// The stream ended first. `silent`: because the peer stopped answering.
    SessionEnded {
        silent: bool,
    },
}

struct Opened {
    connect_id: i64,
    incoming: FlowReceiver,
    failure: Arc<Mutex<Option<String>>>,
}

struct Connection {
    incoming: FlowSender,
    failure: Arc<Mutex<Option<String>>>,
}

#[derive(Default)]
struct Table {
    /// Set once, when the stream has ended; nothing is added afterwards.
    ended: Option<Ended>,
    pending: HashMap<i64, oneshot::Sender<Result<Opened, DialFailure>>>,
    connections: HashMap<i64, Connection>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) silent: bool,
}

/// The hosts an agent says it stands for: hints for the choice, never a permission.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Identifiers {
    hosts: Vec<String>,
}

impl Identifiers {
    /// Parses the URL-query form `ipv4=…&ipv6=…&host=…`; what is not understood is left out.
    pub(crate) fn parse(text: &str) -> Identifiers {
        let hosts = text
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(key, _)| matches!(*key, "ipv4" | "ipv6" | "host"))
            .map(|(_, value)| percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
            .collect();
        Identifiers { hosts }
    }
}

/// One agent's stream.
pub(crate) struct Session {
    id: u64,
    agent_id: String,
    identifiers: Identifiers,
    outgoing: mpsc::Sender<Packet>,
    last_read: LastRead,
    draining: AtomicBool,
    table: Mutex<Table>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("agent", &self.agent_id).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(
        id: u64,
        agent_id: String,
        identifiers: Identifiers,
        outgoing: mpsc::Sender<Packet>,
        last_read: LastRead,
    ) -> Session {
        Session {
            id,
            agent_id,
            identifiers,
            outgoing,
            last_read,
            draining: AtomicBool::new(false),
            table: Mutex::new(Table::default()),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn agent_id(&self) -> &str {
        &self.agent_id
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.table().ended.is_some()
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.table().ended
    }

    pub(crate) fn silence(&self) -> Duration {
        self.last_read.silence()
    }

    /// Whether the agent was heard of both after `begun` and a moment ago.
    pub(crate) fn answered_since(&self, begun: Instant) -> bool {
        let silence = self.silence();
        silence <= limits::SILENCE_SUSPECT && silence < begun.elapsed()
    }

    pub(crate) fn serves_host(&self, host: &str) -> bool {
        self.identifiers.hosts.iter().any(|h| h == host)
    }

    pub(crate) fn load(&self) -> usize {
        let table = self.table();
        table.pending.len() + table.connections.len()
    }

    /// The table is valid after each statement, so poison is ignored.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn dial(
        self: &Arc<Self>,
        dial_id: i64,
        address: &str,
        timeout: Duration,
    ) -> Result<TunnelStream, DialFailure> {
        let (reply, answer) = oneshot::channel();
        {
            let mut table = self.table();
            if let Some(ended) = table.ended {
                return Err(DialFailure::SessionEnded { silent: ended.silent });
            }
            if table.pending.len() + table.connections.len() >= limits::SESSION_CONNECTIONS_MAX {
                let max = limits::SESSION_CONNECTIONS_MAX;
                return Err(DialFailure::Refused(format!("{max} connections are open over this agent already")));
            }
            table.pending.insert(dial_id, reply);
        }
        // Whatever ends this future early, the caller's included, gives the place back and tells the agent.
        let mut place = PendingPlace { session: self, dial_id, settled: false };
        let exchange = async {
            let request = packet::dial_request(address, dial_id);
            self.outgoing.send(request).await.map_err(|_| DialFailure::SessionEnded { silent: false })?;
            answer.await.map_err(|_| DialFailure::SessionEnded { silent: false })?
        };
        let result = tokio::time::timeout(timeout, exchange).await;
        let opened = match result {
            Err(_) => return Err(DialFailure::TimedOut),
            Ok(result) => {
                place.settled = true;
                result?
            }
        };
        let guard = ConnectionGuard {
            session: self.clone(),
            address: address.to_owned(),
            connect_id: opened.connect_id,
            dial_id,
            failure: opened.failure,
        };
        Ok(TunnelStream::new(opened.incoming, PollSender::new(self.outgoing.clone()), guard))
    }

    /// Takes one packet from the agent. Never waits.
    pub(crate) fn receive(self: &Arc<Self>, packet: Packet) {
        match packet.payload {
            Some(Payload::DialResponse(response)) => self.dial_answered(response),
            Some(Payload::Data(data)) => {
                let pushed = match self.table().connections.get(&data.connect_id) {
                    Some(connection) => connection.incoming.push(data.data),
                    None => Err(Refused::Closed),
                };
                match pushed {
                    Ok(()) => {}
                    Err(Refused::Closed) => self.post(packet::close_request(data.connect_id)),
                    Err(Refused::OverBudget) => {
                        warn!(agent = self.agent_id, connect_id = data.connect_id, "a connection's reader is too slow: closed");
                        self.drop_connection(data.connect_id, Some("the reader was too slow".to_owned()));
                        self.post(packet::close_request(data.connect_id));
                    }
                }
            }
            Some(Payload::CloseResponse(response)) => {
                let why = Some(response.error).filter(|e| !e.is_empty());
                self.drop_connection(response.connect_id, why);
            }
            Some(Payload::CloseRequest(request)) => self.drop_connection(request.connect_id, None),
            Some(Payload::Drain(_)) => self.draining.store(true, Ordering::Relaxed),
            Some(Payload::DialRequest(_) | Payload::CloseDial(_)) | None => {
                debug!(agent = self.agent_id, kind = packet.r#type, "a packet that an agent does not send: left out");
            }
        }
    }

    fn dial_answered(self: &Arc<Self>, response: packet::DialResponse) {
        let mut table = self.table();
        let Some(reply) = table.pending.remove(&response.random) else {
            drop(table);
            // The dial was given up; an agent that connected all the same must let go.
            if response.error.is_empty() {
                self.post(packet::close_request(response.connect_id));
            }
            return;
        };
        if !response.error.is_empty() {
            let _ = reply.send(Err(DialFailure::Refused(response.error)));
            return;
        }
        let (sender, receiver) = flow();
        let failure = Arc::new(Mutex::new(None));
        let connection = Connection { incoming: sender, failure: failure.clone() };
        table.connections.insert(response.connect_id, connection);
        let opened = Opened { connect_id: response.connect_id, incoming: receiver, failure };
        if reply.send(Ok(opened)).is_err() {
            table.connections.remove(&response.connect_id);
            drop(table);
            self.post(packet::close_request(response.connect_id));
        }
    }

    fn drop_connection(&self, connect_id: i64, why: Option<String>) {
        let removed = self.table().connections.remove(&connect_id);
        if let (Some(connection), Some(why)) = (removed, why) {
            *connection.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }

    /// Queues a packet from where one cannot wait. A full queue gets a task of its own, so that a close is never lost.
    fn post(&self, packet: Packet) {
        if let Err(mpsc::error::TrySendError::Full(packet)) = self.outgoing.try_send(packet)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let outgoing = self.outgoing.clone();
            runtime.spawn(async move { outgoing.send(packet).await });
        }
    }

    /// The stream has ended: so have all its dials and connections.
    pub(crate) fn end(&self, ended: Ended) {
        let mut table = self.table();
        table.ended = Some(ended);
        for (_, reply) in table.pending.drain() {
            let _ = reply.send(Err(DialFailure::SessionEnded { silent: ended.silent }));
        }
        for (_, connection) in table.connections.drain() {
            let why = "the tunnel's session has ended".to_owned();
            *connection.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }
}

/// A pending dial's place in the table.
struct PendingPlace<'a> {
    session: &'a Arc<Session>,
    dial_id: i64,
    settled: bool,
}

impl Drop for PendingPlace<'_> {
    fn drop(&mut self) {
        if !self.settled && self.session.table().pending.remove(&self.dial_id).is_some() {
            self.session.post(packet::close_dial(self.dial_id));
        }
    }
}

/// Holds a connection open; dropping it closes the connection at the agent.
pub(crate) struct ConnectionGuard {
    session: Arc<Session>,
    address: String,
    connect_id: i64,
    dial_id: i64,
    failure: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for ConnectionGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionGuard").field("dial_id", &self.dial_id).finish_non_exhaustive()
    }
}

impl ConnectionGuard {
    pub(crate) fn connect_id(&self) -> i64 {
        self.connect_id
    }

    pub(crate) fn dial_id(&self) -> i64 {
        self.dial_id
    }

    pub(crate) fn session(&self) -> TunnelSession {
        TunnelSession { session: self.session.clone(), address: self.address.clone() }
    }

    /// Why the connection ended, if not by an ordinary close.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        !self.session.table().connections.contains_key(&self.connect_id)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if self.session.table().connections.remove(&self.connect_id).is_some() {
            self.session.post(packet::close_request(self.connect_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_keep_hosts_and_addresses() {
        let parsed = Identifiers::parse("ipv4=10.0.0.1&host=node%2D1&cidr=10.0.0.0/8&default-route=true");
        assert_eq!(parsed.hosts, ["10.0.0.1", "node-1"]);
    }
}
