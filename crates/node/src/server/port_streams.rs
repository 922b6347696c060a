//! `port-forward` over SPDY streams: for each connection of the client an error stream and a data stream.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::port_forward::dial;
use super::spdy::{Decoder, Encoder, Frame};
use super::websocket::Socket;
use crate::limits;
use crate::pods::context::{Node, Placed};
use crate::runtime::Runtime;

/// Carries the SPDY bytes of a tunnelling WebSocket.
pub async fn tunnel<R: Runtime>(socket: Socket, node: Arc<Node<R>>, placed: Placed) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (mut from, mut to) = tokio::io::split(ours);
    let (mut sink, mut stream) = socket.split();
    let inward = async {
        while let Some(Ok(message)) = stream.next().await {
            let sent = match message {
                Message::Binary(bytes) => to.write_all(&bytes).await,
                Message::Close(_) => break,
                _ => Ok(()),
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    let outward = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if sink.send(Message::Binary(buffer[..n].to_vec().into())).await.is_err() {
                return;
            }
        }
        super::websocket::close(&mut sink).await;
    };
    tokio::select! {
        () = serve(theirs, node, placed) => {}
        () = async { tokio::join!(inward, outward); } => {}
    }
}

/// Serves one SPDY connection until the client leaves it.
pub async fn serve<R: Runtime>(io: impl AsyncRead + AsyncWrite + Unpin + Send, node: Arc<Node<R>>, placed: Placed) {
    let (mut from, mut to) = tokio::io::split(io);
    let (out, mut frames) = mpsc::channel::<Vec<u8>>(64);
    let write = async move {
        while let Some(frame) = frames.recv().await {
            if to.write_all(&frame).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
    };
    let read = async move {
        let mut session =
            Session { node, placed, out, encoder: Mutex::default().into(), errors: HashMap::new(), inputs: HashMap::new() };
        let mut tasks = tokio::task::JoinSet::new();
        let (mut decoder, mut buffer) = (Decoder::default(), vec![0; 32 << 10]);
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            decoder.push(&buffer[..n]);
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => {
                        if !session.take(frame, &mut tasks).await {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(e) => {
                        tracing::debug!("port-forward: {e}");
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}

struct Session<R: Runtime> {
    node: Arc<Node<R>>,
    placed: Placed,
    out: mpsc::Sender<Vec<u8>>,
    encoder: Arc<Mutex<Encoder>>,
    /// Error streams that wait for their data stream, by request id.
    errors: HashMap<String, u32>,
    inputs: HashMap<u32, mpsc::Sender<Vec<u8>>>,
}

impl<R: Runtime> Session<R> {
    /// Acts on a frame; `false` ends the connection.
    async fn take(&mut self, frame: Frame, tasks: &mut tokio::task::JoinSet<()>) -> bool {
        match frame {
            Frame::Open { stream, headers, .. } => {
                let accept = self.encoder.lock().accept(stream);
                let _ = self.out.send(accept).await;
                let get = |name: &str| headers.get(name).cloned().unwrap_or_default();
                let request = get("requestid");
                if get("streamtype") == "error" {
                    self.errors.insert(request, stream);
                } else if let Ok(port) = get("port").parse::<u16>() {
                    while tasks.try_join_next().is_some() {}
                    self.inputs.retain(|_, input| !input.is_closed());
                    if tasks.len() >= limits::SERVER_CONNECTIONS_MAX {
                        return false;
                    }
                    let error = self.errors.remove(&request);
                    let (input, data) = mpsc::channel(16);
                    self.inputs.insert(stream, input);
                    let (node, placed) = (self.node.clone(), self.placed.clone());
                    let wire = Wire { out: self.out.clone(), encoder: self.encoder.clone(), stream, error };
                    tasks.spawn(forward(node, placed, port, data, wire));
                }
            }
            Frame::Data { stream, bytes, fin } => {
                if let Some(input) = self.inputs.get(&stream)
                    && !bytes.is_empty()
                {
                    let _ = input.send(bytes).await;
                }
                if fin {
                    self.inputs.remove(&stream);
                }
            }
            Frame::Reset { stream } => drop(self.inputs.remove(&stream)),
            Frame::Ping { id } => {
                let ping = self.encoder.lock().ping(id);
                let _ = self.out.send(ping).await;
            }
            Frame::GoAway => return false,
            Frame::Other => {}
        }
        true
    }
}

/// The two streams of one connection, on the way to the client.
struct Wire {
    out: mpsc::Sender<Vec<u8>>,
    encoder: Arc<Mutex<Encoder>>,
    stream: u32,
    error: Option<u32>,
}

impl Wire {
    async fn send(&self, stream: u32, bytes: &[u8], fin: bool) -> bool {
        let frame = self.encoder.lock().data(stream, bytes, fin);
        self.out.send(frame).await.is_ok()
    }

    /// Closes both streams, with what went wrong.
    async fn end(&self, error: &str) {
        if let Some(stream) = self.error {
            self.send(stream, error.as_bytes(), true).await;
        }
        self.send(self.stream, &[], true).await;
    }
}

async fn forward<R: Runtime>(node: Arc<Node<R>>, placed: Placed, port: u16, mut data: mpsc::Receiver<Vec<u8>>, wire: Wire) {
    let stream = match dial(&node, &placed, port).await {
        Ok(stream) => stream,
        Err(e) => return wire.end(&e).await,
    };
    let (mut from, mut to) = tokio::io::split(stream);
    let send = async {
        while let Some(bytes) = data.recv().await {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
        // The client has said all; the answer may still be on its way.
        std::future::pending::<()>().await;
    };
    let receive = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if !wire.send(wire.stream, &buffer[..n], false).await {
                return;
            }
        }
    };
    tokio::select! {
        () = send => {}
        () = receive => {}
    }
    wire.end("").await;
}
