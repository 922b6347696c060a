//! The connections an agent holds for one server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::flow::{FlowReceiver, FlowSender, Refused, flow};
use crate::limits;
use crate::packet::{self, Packet, Payload};

#[derive(Default)]
struct Table {
    dials: HashMap<i64, Dial>,
    open: HashMap<i64, FlowSender>,
}

/// A dial under way.
struct Dial {
    address: String,
    task: AbortHandle,
}

/// Dials and connections of one stream; dropping it ends them all. Connection ids start at 1 for each stream.
#[derive(Clone)]
pub(super) struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    outgoing: mpsc::Sender<Packet>,
    next_id: AtomicI64,
    table: Mutex<Table>,
}

impl Connections {
    pub(super) fn new(outgoing: mpsc::Sender<Packet>) -> Connections {
        Connections { shared: Arc::new(Shared { outgoing, next_id: AtomicI64::new(1), table: Mutex::default() }) }
    }

    /// Takes one packet from the server. Never waits: each dial and each connection is a task of its own.
    pub(super) fn receive(&self, packet: Packet) {
        match packet.payload {
            Some(Payload::DialRequest(request)) => self.start_dial(request),
            Some(Payload::CloseDial(close)) => {
                if let Some(dial) = self.shared.table().dials.remove(&close.random) {
                    dial.task.abort();
                    warn!(dial_id = close.random, address = dial.address, "tunnel dial given up");
                }
            }
            Some(Payload::Data(data)) => {
                let pushed = match self.shared.table().open.get(&data.connect_id) {
                    Some(connection) => connection.push(data.data),
                    None => Err(Refused::Closed),
                };
                if let Err(refused) = pushed {
                    let why = match refused {
                        Refused::Closed => "no such connection",
                        Refused::OverBudget => "the destination reads too slowly",
                    };
                    self.shared.close(data.connect_id, why);
                }
            }
            Some(Payload::CloseRequest(request)) => self.shared.close(request.connect_id, ""),
            _ => {}
        }
    }

    fn start_dial(&self, request: packet::DialRequest) {
        let shared = self.shared.clone();
        let mut table = self.shared.table();
        if table.dials.len() + table.open.len() >= limits::SESSION_CONNECTIONS_MAX {
            drop(table);
            shared.post(packet::dial_response(request.random, Err("too many connections at this agent".to_owned())));
            return;
        }
        let (random, address) = (request.random, request.address.clone());
        let task = tokio::spawn(async move { shared.dial(request).await });
        table.dials.insert(random, Dial { address, task: task.abort_handle() });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for dial in self.table().dials.values() {
            dial.task.abort();
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        for (_, dial) in table.dials.drain() {
            dial.task.abort();
        }
        // Dropping the senders ends the writers; those end their readers.
        table.open.clear();
    }
}

impl Shared {
    /// The table is valid after each statement, so poison is ignored.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(self: &Arc<Self>, packet: Packet) {
        if let Err(mpsc::error::TrySendError::Full(packet)) = self.outgoing.try_send(packet) {
            let outgoing = self.outgoing.clone();
            tokio::spawn(async move { outgoing.send(packet).await });
        }
    }

    /// Ends a connection from either side; the server hears of it once.
    fn close(self: &Arc<Self>, connect_id: i64, why: &str) {
        self.table().open.remove(&connect_id);
        self.post(packet::close_response(connect_id, why));
    }

    async fn dial(self: Arc<Self>, request: packet::DialRequest) {
        let (random, address) = (request.random, request.address);
        let result = match request.protocol.as_str() {
            "tcp" => match tokio::time::timeout(limits::AGENT_DIAL_TIMEOUT, TcpStream::connect(&address)).await {
                Ok(Ok(socket)) => Ok(socket),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {:?}", limits::AGENT_DIAL_TIMEOUT)),
            },
            other => Err(format!("protocol {other:?} is not supported, tcp is")),
        };
        self.table().dials.remove(&random);
        let socket = match result {
            Ok(socket) => socket,
            Err(why) => {
                warn!(dial_id = random, address, why, "tunnel dial failed");
                return self.post(packet::dial_response(random, Err(why)));
            }
        };
        let connect_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        info!(dial_id = random, address, connect_id, "tunnel dial");
        let _ = socket.set_nodelay(true);
        let (reader, writer) = socket.into_split();
        let (sender, receiver) = flow();
        self.table().open.insert(connect_id, sender);
        // Data must not overtake the answer that announces its connection: both go through the same queue, this one first.
        if self.outgoing.send(packet::dial_response(random, Ok(connect_id))).await.is_err() {
            self.table().open.remove(&connect_id);
            return;
        }
        let copying = tokio::spawn(self.clone().copy_out(connect_id, reader));
        copy_in(receiver, writer).await;
        copying.abort();
    }

    /// Destination → tunnel, until the destination closes or the stream is gone.
    async fn copy_out(self: Arc<Self>, connect_id: i64, mut reader: OwnedReadHalf) {
        let mut buffer = BytesMut::new();
        let why = loop {
            buffer.reserve(limits::DATA_BYTES_MAX);
            let mut room = (&mut reader).take(limits::DATA_BYTES_MAX as u64);
            match room.read_buf(&mut buffer).await {
                Ok(0) => break String::new(),
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
            if self.outgoing.send(packet::data(connect_id, buffer.split().freeze())).await.is_err() {
                return;
            }
        };
        // In order behind the data above; `post` might overtake it through a task of its own.
        self.table().open.remove(&connect_id);
        let _ = self.outgoing.send(packet::close_response(connect_id, &why)).await;
    }
}

/// Tunnel → destination, until the connection is closed.
async fn copy_in(mut receiver: FlowReceiver, mut writer: OwnedWriteHalf) {
    while let Some(data) = receiver.next().await {
        if writer.write_all(&data).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}
