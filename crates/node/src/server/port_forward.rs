//! `port-forward` over the channels of a WebSocket: two per port, data and errors, each opened by the port's number.

use std::sync::Arc;

use futures::StreamExt;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::query::Query;
use super::websocket::{self, Socket};
use super::{Answer, port_streams};
use crate::pods::context::{Node, Placed};
use crate::pods::worker::key_of;
use crate::runtime::{Runtime, Stream};

const PROTOCOLS: [&str; 2] = ["v4.channel.k8s.io", "portforward.k8s.io"];

/// The protocol of kubectl since 1.31: SPDY streams inside a WebSocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// Answers a port-forward request.
pub fn answer<R: Runtime>(request: Request<Incoming>, node: Arc<Node<R>>, placed: Placed, query: &Query) -> Answer {
    if websocket::offers(&request, TUNNEL) {
        return websocket::accept(request, &[TUNNEL], move |socket, _| port_streams::tunnel(socket, node, placed));
    }
    if websocket::is_spdy(&request) {
        return websocket::accept_spdy(request, "portforward.k8s.io", move |io| port_streams::serve(io, node, placed));
    }
    let lists = query.all("port").into_iter().chain(query.all("ports"));
    let words: Vec<String> = lists.flat_map(|l| l.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let ports: Result<Vec<u16>, _> = words.iter().map(|p| p.parse()).collect();
    let ports = ports.map_err(|_| (StatusCode::BAD_REQUEST, format!("{words:?} are not port numbers")))?;
    if ports.is_empty() || ports.len() > 120 {
        return Err((StatusCode::BAD_REQUEST, "query parameter \"port\" is required".to_owned()));
    }
    websocket::accept(request, &PROTOCOLS, move |socket, _| serve(socket, node, placed, ports))
}

async fn serve<R: Runtime>(socket: Socket, node: Arc<Node<R>>, placed: Placed, ports: Vec<u16>) {
    let (mut sink, mut stream) = socket.split();
    let (out, mut frames) = mpsc::channel::<(u8, Vec<u8>)>(16);
    let mut inputs: Vec<mpsc::Sender<Vec<u8>>> = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (i, port) in ports.into_iter().enumerate() {
        let channel = (2 * i) as u8;
        for channel in [channel, channel + 1] {
            websocket::send(&mut sink, channel, &port.to_le_bytes()).await;
        }
        let (input, data) = mpsc::channel(16);
        inputs.push(input);
        tasks.spawn(forward(node.clone(), placed.clone(), port, channel, data, out.clone()));
    }
    drop(out);
    let pump_out = async {
        while let Some((channel, bytes)) = frames.recv().await {
            if !websocket::send(&mut sink, channel, &bytes).await {
                return;
            }
        }
        websocket::close(&mut sink).await;
    };
    let pump_in = async {
        while let Some((channel, bytes)) = websocket::receive(&mut stream).await {
            if let Some(input) = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0) {
                let _ = input.send(bytes).await;
            }
        }
    };
    tokio::select! {
        () = pump_out => {}
        () = pump_in => {}
    }
}

async fn forward<R: Runtime>(
    node: Arc<Node<R>>,
    placed: Placed,
    port: u16,
    channel: u8,
    mut data: mpsc::Receiver<Vec<u8>>,
    out: mpsc::Sender<(u8, Vec<u8>)>,
) {
    let connected = dial(&node, &placed, port).await;
    let stream = match connected {
        Ok(stream) => stream,
        Err(e) => {
            let _ = out.send((channel + 1, e.into_bytes())).await;
            return;
        }
    };
    let (mut from, mut to) = tokio::io::split(stream);
    let send = async {
        while let Some(bytes) = data.recv().await {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let receive = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if out.send((channel, buffer[..n].to_vec())).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = send => {}
        () = receive => {}
    }
}

/// Connects to a port inside the Pod.
pub async fn dial<R: Runtime>(node: &Node<R>, placed: &Placed, port: u16) -> Result<Box<dyn Stream>, String> {
    let sandbox = placed.sandbox.as_ref().ok_or_else(|| "the Pod has no network yet".to_owned())?;
    let stream = node.runtime.dial(&key_of(&placed.pod), sandbox, port).await;
    stream.map_err(|e| format!("error forwarding port {port} to pod: {e}"))
}
