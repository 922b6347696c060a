//! A connection through the tunnel, as the control plane uses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::PollSender;

use crate::flow::FlowReceiver;
use crate::limits;
use crate::packet::{self, Packet};
use crate::server::{ConnectionGuard, TunnelSession};

/// A byte stream to an address on the worker's side. Dropping it closes the connection there. There is no half-close in the
/// protocol: `shutdown` flushes, and the connection is closed when the stream is dropped.
#[derive(Debug)]
pub struct TunnelStream {
    incoming: FlowReceiver,
    rest: Bytes,
    outgoing: PollSender<Packet>,
    guard: ConnectionGuard,
}

impl TunnelStream {
    pub(crate) fn new(incoming: FlowReceiver, outgoing: PollSender<Packet>, guard: ConnectionGuard) -> TunnelStream {
        TunnelStream { incoming, rest: Bytes::new(), outgoing, guard }
    }

    /// The number under which this connection was dialled: the agent's log has the same.
    pub fn dial_id(&self) -> i64 {
        self.guard.dial_id()
    }

    /// The session it goes over, to ask why nothing comes.
    pub fn session(&self) -> TunnelSession {
        self.guard.session()
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.incoming.poll_next(cx)) {
                Some(data) => self.rest = data,
                None => {
                    return Poll::Ready(match self.guard.failure() {
                        Some(why) => Err(io::Error::new(io::ErrorKind::ConnectionReset, why)),
                        None => Ok(()),
                    });
                }
            }
        }
        let size = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..size]);
        self.rest.advance(size);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the tunnel's session has ended");
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.guard.is_closed() {
            return Poll::Ready(Err(closed()));
        }
        ready!(self.outgoing.poll_reserve(cx)).map_err(|_| closed())?;
        let size = buf.len().min(limits::DATA_BYTES_MAX);
        let packet = packet::data(self.guard.connect_id(), Bytes::copy_from_slice(&buf[..size]));
        self.outgoing.send_item(packet).map_err(|_| closed())?;
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
