//! `exec`: a command in a container, its streams on the channels of a WebSocket.

use std::process::Stdio;
use std::sync::Arc;

use futures::StreamExt;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::Answer;
use super::query::Query;
use super::websocket::{self, CLOSE, Socket};
use crate::pods::context::Node;
use crate::runtime::host::sys;
use crate::runtime::{ExecRequest, ExecSession, RunKey, Runtime};

/// Protocols of exec and attach, the best first.
pub const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// Answers an exec request.
pub fn answer<R: Runtime>(request: Request<Incoming>, node: Arc<Node<R>>, run: RunKey, query: &Query) -> Answer {
    let command = query.all("command");
    if command.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "no command".to_owned()));
    }
    let flag = |kubelet: &str, api: &str| query.flag(kubelet) || query.flag(api);
    let exec = ExecRequest { argv: command, stdin: flag("input", "stdin"), tty: query.flag("tty") };
    let outputs = (flag("output", "stdout"), flag("error", "stderr"));
    let session = node.runtime.exec(&run, &exec, Stdio::piped);
    let session = session.map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    websocket::accept(request, &PROTOCOLS, move |socket, _| serve(socket, session, outputs))
}

async fn serve(socket: Socket, mut session: ExecSession, (stdout, stderr): (bool, bool)) {
    let (mut sink, mut stream) = socket.split();
    // An empty message tells the client that the connection stands.
    websocket::send(&mut sink, if stdout { 1 } else { 2 }, &[]).await;
    let (out, mut frames) = mpsc::channel::<(u8, Vec<u8>)>(16);
    let mut input: Option<Box<dyn AsyncWrite + Send + Unpin>> = None;
    let mut terminal = None;
    if let Some(master) = session.terminal.take() {
        let again = master.try_clone();
        if let (Ok(read), Ok(write)) = (Terminal::new(master), again.and_then(Terminal::new)) {
            let read = Arc::new(read);
            terminal = Some(read.clone());
            input = Some(Box::new(write));
            tokio::spawn(async move { read.copy(out).await });
        }
    } else {
        input = session.child.stdin.take().map(|stdin| Box::new(stdin) as _);
        if let Some(from) = session.child.stdout.take() {
            tokio::spawn(copy(from, 1, stdout, out.clone()));
        }
        if let Some(from) = session.child.stderr.take() {
            tokio::spawn(copy(from, 2, stderr, out));
        }
    }
    let pump_out = async {
        while let Some((channel, bytes)) = frames.recv().await {
            if !websocket::send(&mut sink, channel, &bytes).await {
                return false;
            }
        }
        true
    };
    let pump_in = async {
        while let Some((channel, bytes)) = websocket::receive(&mut stream).await {
            match (channel, bytes.as_slice()) {
                (0, bytes) => {
                    if let Some(to) = &mut input
                        && (to.write_all(bytes).await.is_err() || to.flush().await.is_err())
                    {
                        input = None;
                    }
                }
                (4, bytes) => {
                    if let (Some(terminal), Some((columns, rows))) = (&terminal, websocket::parse_size(bytes)) {
                        terminal.resize(columns, rows);
                    }
                }
                (CLOSE, [0]) => input = None,
                _ => {}
            }
        }
    };
    let (result, connected) = tokio::select! {
        (result, connected) = async { let sent = pump_out.await; (session.wait().await, sent) } => (result, connected),
        // The client is gone: the command goes with the session.
        () = pump_in => return,
    };
    if connected {
        websocket::send(&mut sink, 3, &websocket::status(&result)).await;
        websocket::close(&mut sink).await;
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, channel: u8, wanted: bool, out: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if wanted && out.send((channel, buffer[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

/// The agent's end of a terminal.
struct Terminal(AsyncFd<std::os::fd::OwnedFd>);

impl Terminal {
    fn new(fd: std::os::fd::OwnedFd) -> std::io::Result<Terminal> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(std::io::Error::from)?;
        let interest = tokio::io::Interest::READABLE | tokio::io::Interest::WRITABLE;
        Ok(Terminal(sys::asynchronous(fd, interest)?))
    }

    fn resize(&self, columns: u16, rows: u16) {
        let _ = sys::set_terminal_size(self.0.get_ref(), columns, rows);
    }

    async fn copy(&self, out: mpsc::Sender<(u8, Vec<u8>)>) {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(mut ready) = self.0.readable().await {
            let read = ready.try_io(|fd| nix::unistd::read(fd.get_ref(), &mut buffer).map_err(Into::into));
            match read {
                Ok(Ok(n @ 1..)) => {
                    if out.send((1, buffer[..n].to_vec())).await.is_err() {
                        return;
                    }
                }
                Err(_) => {}
                // EIO: the last process on the terminal is gone.
                Ok(_) => return,
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        loop {
            let mut ready = std::task::ready!(self.0.poll_write_ready(context))?;
            match ready.try_io(|fd| nix::unistd::write(fd.get_ref(), bytes).map_err(Into::into)) {
                Ok(result) => return std::task::Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
