//! The worker's side: dials out to the control plane and, on its word, to addresses on the worker's side.

mod connections;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Endpoint, Uri};
use tonic::{Request, Status};
use tracing::{debug, info, warn};

use crate::io::{LastRead, ObservedIo};
use crate::limits;
use crate::packet::{self, Packet};
use crate::wire::agent_service_client::AgentServiceClient;
use connections::Connections;

/// What an agent needs to know.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The tunnel server's host name or address.
    pub server_host: String,
    pub server_port: u16,
    /// The authorities that the server's certificate is checked against, and a client certificate if there is one.
    pub tls: Arc<rustls::ClientConfig>,
    /// A file with a service-account token (audience `system:konnectivity-server`), read anew for each connection.
    pub token_file: Option<PathBuf>,
    /// Unique among the agents of one control plane.
    pub agent_id: String,
    /// `ipv4=…&host=…`: the hosts this agent stands for.
    pub identifiers: String,
}

/// Why a connection to a server ended or was not made.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot read the token file {path:?}: {why}")]
    Token { path: PathBuf, why: std::io::Error },
    #[error("{0:?} is not a host name")]
    Host(String),
    #[error("cannot connect: {0}")]
    Connect(#[from] tonic::transport::Error),
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("the server refused: {}", .0.message())]
    Refused(Status),
    #[error("connected to this server already")]
    Duplicate,
    #[error("the server stopped answering")]
    Silent,
    #[error("the server closed the stream")]
    Closed,
}

impl AgentError {
    /// Whether the server does not know the agent's credential, or does not let it serve.
    pub fn is_unauthenticated(&self) -> bool {
        matches!(self, AgentError::Refused(status) if status.code() == tonic::Code::Unauthenticated)
    }
}

/// The servers this agent is connected to, and how many there are by their own word.
#[derive(Debug, Default)]
struct Servers {
    connected: HashSet<String>,
    count: usize,
}

/// What an agent says of itself; clones share it.
#[derive(Clone, Debug, Default)]
pub struct AgentStatus(Arc<Mutex<Servers>>);

impl AgentStatus {
    /// Whether at least one server is connected.
    pub fn is_connected(&self) -> bool {
        !lock(&self.0).connected.is_empty()
    }
}

/// Runs an agent until `shutdown` turns true: one stream to each server, redialled for ever. On shutdown the servers are told
/// to send no new dials, and the streams end.
pub async fn run(options: AgentOptions, status: AgentStatus, mut shutdown: watch::Receiver<bool>) {
    let servers = status.0;
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let wanted = lock(&servers).count.clamp(1, limits::AGENT_SERVERS_MAX);
        while tasks.len() < wanted {
            tasks.spawn(keep_one(options.clone(), servers.clone(), shutdown.clone()));
        }
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => break,
            Some(_) = tasks.join_next() => {}
            () = tokio::time::sleep(limits::REDIAL_INTERVAL), if tasks.len() < limits::AGENT_SERVERS_MAX => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Connects to a server once and hangs up: whether it takes this agent. Answers the server's id.
pub async fn check(options: &AgentOptions) -> Result<String, AgentError> {
    let (outgoing, packets) = mpsc::channel(1);
    let opened = tokio::time::timeout(limits::CONNECT_TIMEOUT, open_stream(options, packets)).await;
    let opened = opened.map_err(|_| AgentError::TimedOut(limits::CONNECT_TIMEOUT))??;
    // No dial comes to an agent that goes.
    let _ = outgoing.try_send(packet::drain());
    Ok(opened.server_id)
}

fn lock(servers: &Mutex<Servers>) -> std::sync::MutexGuard<'_, Servers> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn keep_one(options: AgentOptions, servers: Arc<Mutex<Servers>>, mut shutdown: watch::Receiver<bool>) {
    loop {
        let error = match connect_once(&options, &servers, &mut shutdown).await {
            Ok(()) => return,
            Err(error) => error,
        };
        match error {
            AgentError::Duplicate => debug!("a second connection led to the same server"),
            error => warn!(server = options.server_host, port = options.server_port, %error, "tunnel connection lost"),
        }
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(limits::REDIAL_INTERVAL) => {}
        }
    }
}

/// Removes a server from the set of connected ones when its stream is over.
struct Presence<'a> {
    servers: &'a Mutex<Servers>,
    server_id: String,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        lock(self.servers).connected.remove(&self.server_id);
    }
}

/// One stream from connect to end; `Ok` means shutdown.
async fn connect_once(
    options: &AgentOptions,
    servers: &Mutex<Servers>,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<(), AgentError> {
    let (outgoing, packets) = mpsc::channel(limits::SESSION_QUEUE_PACKETS);
    let opening = open_stream(options, packets);
    let opened = tokio::select! {
        _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
        opened = tokio::time::timeout(limits::CONNECT_TIMEOUT, opening) => opened,
    };
    let opened = opened.map_err(|_| AgentError::TimedOut(limits::CONNECT_TIMEOUT))??;
    {
        let mut servers = lock(servers);
        servers.count = opened.server_count;
        if !servers.connected.insert(opened.server_id.clone()) {
            return Err(AgentError::Duplicate);
        }
    }
    let presence = Presence { servers, server_id: opened.server_id };
    info!(server = options.server_host, server_id = presence.server_id, "tunnel connected");
    serve(opened.packets, outgoing, opened.last_read, opened.server_pings, shutdown).await
}

struct OpenedStream {
    server_id: String,
    server_count: usize,
    server_pings: bool,
    packets: tonic::Streaming<Packet>,
    last_read: LastRead,
}

async fn open_stream(options: &AgentOptions, packets: mpsc::Receiver<Packet>) -> Result<OpenedStream, AgentError> {
    let name = ServerName::try_from(options.server_host.clone()).map_err(|_| AgentError::Host(options.server_host.clone()))?;
    let last_read = Arc::new(Mutex::new(LastRead::now()));
    let connector = {
        let (tls, last_read) = (TlsConnector::from(options.tls.clone()), last_read.clone());
        let address = (options.server_host.clone(), options.server_port);
        tower::service_fn(move |_: Uri| {
            let (tls, last_read, address, name) = (tls.clone(), last_read.clone(), address.clone(), name.clone());
            async move {
                let socket = TcpStream::connect(address).await?;
                socket.set_nodelay(true)?;
                let observed = ObservedIo::new(socket);
                *last_read.lock().unwrap_or_else(PoisonError::into_inner) = observed.last_read();
                tls.connect(name, observed).await.map(TokioIo::new)
            }
        })
    };
    // The authority only: the connector above decides where the bytes go.
    let channel = Endpoint::from_static("https://konnectivity-server")
        .http2_keep_alive_interval(limits::FOREIGN_PING_INTERVAL)
        .keep_alive_timeout(limits::SILENCE_MAX)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await?;
    let mut request = Request::new(ReceiverStream::new(packets));
    let metadata = request.metadata_mut();
    metadata.insert(packet::AGENT_ID, value(&options.agent_id)?);
    if !options.identifiers.is_empty() {
        metadata.insert(packet::AGENT_IDENTIFIERS, value(&options.identifiers)?);
    }
    if let Some(path) = &options.token_file {
        let token = std::fs::read_to_string(path).map_err(|why| AgentError::Token { path: path.clone(), why })?;
        metadata.insert("authorization", value(&format!("Bearer {}", token.trim()))?);
    }
    let response = AgentServiceClient::new(channel)
        .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
        .connect(request)
        .await
        .map_err(AgentError::Refused)?;
    let header = |key: &str| response.metadata().get(key).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let server_id = header(packet::SERVER_ID).unwrap_or_default();
    let server_count = header(packet::SERVER_COUNT).and_then(|c| c.parse().ok()).unwrap_or(1);
    let server_pings = header(packet::ATOLL_PINGS).is_some();
    let last_read = last_read.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(OpenedStream { server_id, server_count, server_pings, packets: response.into_inner(), last_read })
}

fn value(text: &str) -> Result<MetadataValue<tonic::metadata::Ascii>, AgentError> {
    text.parse().map_err(|_| AgentError::Refused(Status::invalid_argument(format!("{text:?} is not a metadata value"))))
}

/// Takes packets until the stream ends or falls silent. Silence is judged by reads alone: a server of Atoll's pings each
/// second, so its bytes come even when nothing is to be said; another server is pinged by the transport.
async fn serve(
    mut packets: tonic::Streaming<Packet>,
    outgoing: mpsc::Sender<Packet>,
    last_read: LastRead,
    server_pings: bool,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<(), AgentError> {
    let connections = Connections::new(outgoing.clone());
    let mut check = tokio::time::interval(limits::PING_INTERVAL / 4);
    check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            packet = packets.message() => match packet {
                Ok(Some(packet)) => connections.receive(packet),
                Ok(None) => return Err(AgentError::Closed),
                Err(status) => return Err(AgentError::Refused(status)),
            },
            _ = check.tick() => {
                if server_pings && last_read.silence() > limits::SILENCE_MAX {
                    return Err(AgentError::Silent);
                }
            }
            _ = shutdown.wait_for(|stop| *stop) => {
                let _ = outgoing.try_send(packet::drain());
                return Ok(());
            }
        }
    }
}
