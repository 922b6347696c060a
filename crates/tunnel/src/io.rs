//! A connection that remembers when bytes were last read from it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// When something was last read from a peer. Pings and their answers count: they are bytes.
#[derive(Clone, Debug)]
pub(crate) struct LastRead {
    start: Instant,
    millis: Arc<AtomicU64>,
}

impl LastRead {
    pub(crate) fn now() -> LastRead {
        LastRead { start: Instant::now(), millis: Arc::new(AtomicU64::new(0)) }
    }

    fn touch(&self) {
        self.millis.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// How long ago that was.
    pub(crate) fn silence(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// An IO object with a [`LastRead`].
#[derive(Debug)]
pub(crate) struct ObservedIo<T> {
    inner: T,
    last_read: LastRead,
}

impl<T> ObservedIo<T> {
    pub(crate) fn new(inner: T) -> ObservedIo<T> {
        ObservedIo { inner, last_read: LastRead::now() }
    }

    pub(crate) fn last_read(&self) -> LastRead {
        self.last_read.clone()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ObservedIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.last_read.touch();
        }
        poll
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ObservedIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
