//! `attach`: the standard streams of a container that runs, on the channels of a WebSocket.

use std::sync::Arc;

use futures::StreamExt;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::Answer;
use super::exec::PROTOCOLS;
use super::query::Query;
use super::websocket::{self, CLOSE, Socket};
use crate::pods::context::Node;
use crate::runtime::host::relay::{channel, frame, take_frame};
use crate::runtime::{RunKey, Runtime};

/// Answers an attach request.
pub async fn answer<R: Runtime>(request: Request<Incoming>, node: Arc<Node<R>>, run: RunKey, query: &Query) -> Answer {
    let flag = |kubelet: &str, api: &str| query.flag(kubelet) || query.flag(api);
    let wanted = (flag("output", "stdout"), flag("error", "stderr"));
    let shim = node.runtime.attach(&run).await.map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    websocket::accept(request, &PROTOCOLS, move |socket, _| serve(socket, shim, wanted))
}

async fn serve(socket: Socket, shim: UnixStream, (stdout, stderr): (bool, bool)) {
    let (mut sink, mut stream) = socket.split();
    let (mut from, mut to) = shim.into_split();
    websocket::send(&mut sink, if stdout { 1 } else { 2 }, &[]).await;
    let pump_out = async {
        let (mut input, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            input.extend_from_slice(&buffer[..n]);
            while let Ok(Some((which, bytes))) = take_frame(&mut input) {
                let wanted = match which {
                    channel::STDOUT => stdout,
                    _ => stderr,
                };
                if wanted && !websocket::send(&mut sink, which, &bytes).await {
                    return;
                }
            }
        }
        websocket::send(&mut sink, 3, &websocket::status(&Ok(0))).await;
        websocket::close(&mut sink).await;
    };
    let pump_in = async {
        while let Some((which, bytes)) = websocket::receive(&mut stream).await {
            let out = match (which, bytes.as_slice()) {
                (0, bytes) => frame(channel::STDIN, bytes),
                (4, bytes) => match websocket::parse_size(bytes) {
                    Some((columns, rows)) => {
                        let size = [columns.to_be_bytes(), rows.to_be_bytes()].concat();
                        frame(channel::RESIZE, &size)
                    }
                    None => continue,
                },
                (CLOSE, [0]) => frame(channel::STDIN_CLOSE, &[]),
                _ => continue,
            };
            if to.write_all(&out).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = pump_out => {}
        () = pump_in => {}
    }
}
