//! Taking agents' connections: TLS, then the gRPC stream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info, warn};

use super::session::{Ended, Identifiers, Session};
use super::{AgentCredentials, TunnelServer};
use crate::io::{LastRead, ObservedIo};
use crate::limits;
use crate::packet::{self, Packet};
use crate::wire::agent_service_server::{AgentService, AgentServiceServer};

/// A TLS connection of an agent.
struct AgentIo(TlsStream<ObservedIo<TcpStream>>);

/// What the service needs to know of the connection a stream came on.
#[derive(Clone)]
struct Peer {
    certificates: Vec<CertificateDer<'static>>,
    last_read: LastRead,
}

impl Connected for AgentIo {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let (io, tls) = self.0.get_ref();
        let certificates = tls.peer_certificates().unwrap_or_default().iter().map(|c| c.clone().into_owned()).collect();
        Peer { certificates, last_read: io.last_read() }
    }
}

impl AsyncRead for AgentIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for AgentIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl TunnelServer {
    /// Serves agents on `listener` until `shutdown` ends. `tls` must offer ALPN `h2` and should ask for client certificates
    /// without judging them: that is the authenticator's part.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(limits::PING_INTERVAL))
            .http2_keepalive_timeout(Some(limits::SILENCE_MAX))
            .add_service(
                AgentServiceServer::new(self.clone())
                    .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
                    .max_encoding_message_size(limits::MESSAGE_BYTES_MAX),
            )
            .serve_with_incoming_shutdown(incoming(listener, tls), shutdown)
            .await
    }
}

/// Accepts connections and shakes hands beside each other, so that a peer that stalls in TLS holds up nobody.
fn incoming(listener: TcpListener, tls: Arc<rustls::ServerConfig>) -> impl Stream<Item = std::io::Result<AgentIo>> {
    let (sender, receiver) = mpsc::channel(1);
    let acceptor = TlsAcceptor::from(tls);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let Ok((socket, address)) = accepted else {
                // Out of file descriptors, most likely: others must end before it helps to try again.
                tokio::time::sleep(limits::REDIAL_INTERVAL).await;
                continue;
            };
            let (sender, acceptor) = (sender.clone(), acceptor.clone());
            tokio::spawn(async move {
                let _ = socket.set_nodelay(true);
                let handshake = acceptor.accept(ObservedIo::new(socket));
                match tokio::time::timeout(limits::CONNECT_TIMEOUT, handshake).await {
                    Ok(Ok(stream)) => drop(sender.send(Ok(AgentIo(stream))).await),
                    Ok(Err(error)) => debug!(%address, %error, "a tunnel connection failed in TLS"),
                    Err(_) => debug!(%address, "a tunnel connection stalled in TLS"),
                }
            });
        }
    });
    ReceiverStream::new(receiver)
}

fn text(metadata: &MetadataMap, key: &str) -> Option<String> {
    metadata.get(key).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

fn credentials(metadata: &MetadataMap, peer: Option<&Peer>) -> AgentCredentials {
    let bearer = text(metadata, "authorization").and_then(|v| {
        let (scheme, token) = v.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    AgentCredentials { bearer, certificates: peer.map(|p| p.certificates.clone()).unwrap_or_default() }
}

#[tonic::async_trait]
impl AgentService for TunnelServer {
    type ConnectStream = Pin<Box<dyn Stream<Item = Result<Packet, Status>> + Send>>;

    async fn connect(&self, request: Request<Streaming<Packet>>) -> Result<Response<Self::ConnectStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let agent_id = text(request.metadata(), packet::AGENT_ID)
            .filter(|id| !id.is_empty())
            .ok_or_else(|| Status::invalid_argument("the stream's metadata has no agentID"))?;
        let user = self
            .shared
            .authenticator
            .authenticate(&credentials(request.metadata(), peer.as_ref()))
            .await
            .map_err(Status::unauthenticated)?;
        let identifiers = text(request.metadata(), packet::AGENT_IDENTIFIERS).unwrap_or_default();

        let (outgoing, packets) = mpsc::channel(limits::SESSION_QUEUE_PACKETS);
        let id = self.shared.next_session.fetch_add(1, Ordering::Relaxed);
        let last_read = peer.map_or_else(LastRead::now, |p| p.last_read);
        let session = Arc::new(Session::new(id, agent_id, Identifiers::parse(&identifiers), outgoing, last_read));
        if !self.admit(session.clone()) {
            return Err(Status::resource_exhausted("too many tunnel agents are connected"));
        }
        info!(agent = session.agent_id(), user, session = id, "tunnel agent connected");
        let (over, ended) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(run(self.clone(), session, request.into_inner(), over));

        let stream = ReceiverStream::new(packets).map(Ok).take_until(ended);
        let mut response = Response::new(Box::pin(stream) as Self::ConnectStream);
        let metadata = response.metadata_mut();
        metadata.insert(packet::SERVER_ID, header(&self.shared.server_id)?);
        metadata.insert(packet::SERVER_COUNT, header(&self.shared.server_count.to_string())?);
        metadata.insert(packet::ATOLL_PINGS, MetadataValue::from_static("true"));
        Ok(response)
    }
}

fn header(value: &str) -> Result<MetadataValue<tonic::metadata::Ascii>, Status> {
    value.parse().map_err(|_| Status::internal("the server's id is not a header value"))
}

/// Reads a session's packets until the stream ends or falls silent. `over` ends the outgoing half with it.
async fn run(
    server: TunnelServer,
    session: Arc<Session>,
    mut packets: Streaming<Packet>,
    over: tokio::sync::oneshot::Sender<()>,
) {
    let mut check = tokio::time::interval(limits::PING_INTERVAL / 4);
    check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            packet = packets.next() => match packet {
                Some(Ok(packet)) => session.receive(packet),
                Some(Err(status)) => {
                    debug!(agent = session.agent_id(), %status, "tunnel stream broke");
                    break Ended { silent: session.silence() > limits::SILENCE_SUSPECT };
                }
                None => break Ended { silent: false },
            },
            _ = check.tick() => {
                if session.silence() > limits::SILENCE_MAX {
                    break Ended { silent: true };
                }
            }
        }
    };
    server.remove(&session, ended.silent);
    session.end(ended);
    drop(over);
    let cause = if ended.silent { "it stopped answering" } else { "it closed the stream" };
    warn!(agent = session.agent_id(), session = session.id(), cause, "tunnel agent gone");
}
