//! The receiving half of one connection: a queue with a byte budget instead of a window.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::limits;

/// Why a connection's data was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The reader is gone.
    Closed,
    /// The reader is too slow: the budget is used up.
    OverBudget,
}

/// Where the session's read loop puts a connection's bytes. Never waits.
#[derive(Debug)]
pub(crate) struct FlowSender {
    queue: mpsc::UnboundedSender<Bytes>,
    buffered: Arc<AtomicUsize>,
}

/// Where the connection's reader takes them from.
#[derive(Debug)]
pub(crate) struct FlowReceiver {
    queue: mpsc::UnboundedReceiver<Bytes>,
    buffered: Arc<AtomicUsize>,
}

/// A connection's queue. Unbounded in messages, bounded in bytes by [`limits::CONNECTION_BUFFER_BYTES_MAX`].
pub(crate) fn flow() -> (FlowSender, FlowReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let buffered = Arc::new(AtomicUsize::new(0));
    (FlowSender { queue: sender, buffered: buffered.clone() }, FlowReceiver { queue: receiver, buffered })
}

impl FlowSender {
    pub(crate) fn push(&self, data: Bytes) -> Result<(), Refused> {
        if data.is_empty() {
            return Ok(());
        }
        let size = data.len();
        if self.buffered.fetch_add(size, Ordering::AcqRel) + size > limits::CONNECTION_BUFFER_BYTES_MAX {
            return Err(Refused::OverBudget);
        }
        self.queue.send(data).map_err(|_| Refused::Closed)
    }
}

impl FlowReceiver {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let poll = self.queue.poll_recv(cx);
        if let Poll::Ready(Some(data)) = &poll {
            self.buffered.fetch_sub(data.len(), Ordering::AcqRel);
        }
        poll
    }

    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_refused_at_its_budget_and_served_again_once_it_reads() {
        let (sender, mut receiver) = flow();
        let chunk = Bytes::from(vec![0; limits::CONNECTION_BUFFER_BYTES_MAX / 2]);
        assert_eq!(sender.push(chunk.clone()), Ok(()));
        assert_eq!(sender.push(chunk.clone()), Ok(()));
        assert_eq!(receiver.next().await.map(|b| b.len()), Some(chunk.len()));
        assert_eq!(sender.push(chunk.clone()), Ok(()));
        assert_eq!(sender.push(Bytes::from_static(b"x")), Err(Refused::OverBudget));
        drop(receiver);
        let (sender, receiver) = flow();
        drop(receiver);
        assert_eq!(sender.push(Bytes::from_static(b"x")), Err(Refused::Closed));
    }
}
