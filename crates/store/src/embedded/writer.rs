//! The one thread that writes: takes what is queued, commits it in one transaction, publishes it, answers.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    clock::{Clock, millis},
    data_file::{Trim, Trimmed},
    erasure::Erasure,
    record::encoded_len,
    rewrite::Replacement,
    shared::Shared,
    state::Batch,
};
use crate::{Op, Result, Revision, TxnOutcome, limits};

/// A transaction that waits for the writer.
pub(crate) struct Request {
    pub ops: Vec<Op>,
    pub reply: oneshot::Sender<Result<TxnOutcome>>,
    /// Its place in the queue, given back with the answer.
    pub place: OwnedSemaphorePermit,
}

pub(crate) enum Message {
    Txn(Request),
    /// The copy for an erasure is ready, or failed.
    Copied(Result<Replacement>),
    Close,
}

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    pub age: Duration,
    pub slack: Duration,
    pub bytes_max: u64,
}

/// The log in the file, as far as trimming it needs to know.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogExtent {
    pub compacted: Revision,
    pub bytes: u64,
    /// When its oldest record was written.
    pub oldest_ms: Option<u64>,
    /// Whether the last trim left some that should have gone.
    pub is_partial: bool,
}

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    pub queue: Receiver<Message>,
    /// For the thread that copies.
    pub sender: Sender<Message>,
    pub clock: Clock,
    pub retention: Retention,
    pub extent: LogExtent,
    pub erasure: Erasure,
    /// No attempt at what nobody waits for before this time, because one failed.
    pub not_before_ms: u64,
}

/// What the queue had.
#[derive(Default)]
struct Work {
    requests: Vec<Request>,
    next: Next,
}

#[derive(Default)]
enum Next {
    #[default]
    GoOn,
    Replace(Result<Replacement>),
    Stop,
}

/// Tells watchers that nothing will come any more, also should the writer panic.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.log.wake_all();
    }
}

impl Writer {
    /// Runs until the store is closed.
    pub fn run(mut self) {
        let _ending = Ending(self.shared.clone());
        loop {
            let Work { requests, next } = self.wait();
            self.step(requests);
            match next {
                Next::GoOn => self.start_erasure(),
                Next::Replace(copied) => self.finish_erasure(copied),
                Next::Stop => break,
            }
        }
        self.erase_before_closing();
        if let Err(error) = self.shared.file.close() {
            tracing::warn!(%error, "the store's file could not be closed in good order");
        }
    }

    /// Parks until there is a request or something falls due.
    fn wait(&self) -> Work {
        let first = match self.due_in() {
            None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(time) => self.queue.recv_timeout(time),
        };
        let mut work = Work::default();
        let (mut ops, mut bytes) = (0, 0);
        let mut message = match first {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return work,
            Err(RecvTimeoutError::Disconnected) => Message::Close,
        };
        loop {
            match message {
                Message::Close => {
                    work.next = Next::Stop;
                    return work;
                }
                Message::Copied(copied) => {
                    work.next = Next::Replace(copied);
                    return work;
                }
                Message::Txn(request) => {
                    ops += request.ops.len();
                    bytes += request.ops.iter().map(value_bytes).sum::<usize>();
                    work.requests.push(request);
                }
            }
            if ops >= limits::COMMIT_OPS_MAX || bytes >= limits::COMMIT_BYTES_MAX {
                return work;
            }
            message = match self.queue.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => return work,
                Err(TryRecvError::Disconnected) => Message::Close,
            };
        }
    }

    /// Commits the requests and what is due, then answers.
    fn step(&mut self, requests: Vec<Request>) {
        let mut batch = Batch::on(&self.shared.state.load());
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let outcome = batch.apply(request.ops);
            answers.push((request.reply, outcome, request.place));
        }
        // A conflict may rest on an operation of this very batch, so conflicts wait for the commit too.
        let result = self.commit(batch);
        if let Err(error) = &result {
            self.not_before_ms = self.clock.now_ms() + millis(limits::RETRY_AFTER);
            tracing::warn!(%error, "a commit failed; nothing of it is visible");
        }
        for (reply, outcome, place) in answers {
            drop(place);
            // Nobody listens any more if the caller went away.
            let _ = reply.send(result.clone().map(|()| outcome));
        }
    }

    fn commit(&mut self, batch: Batch) -> Result<()> {
        let trim = self.trim();
        let is_nothing = batch.events.is_empty() && trim.is_none();
        if !self.shared.file.is_open() && (!is_nothing || self.is_recovery_due()) {
            self.recover()?;
        }
        if is_nothing {
            return Ok(());
        }
        let now_ms = self.clock.now_ms();
        let trimmed = self.shared.file.commit(&batch.events, &batch.erasures, now_ms, trim)?;
        self.erasure.ask(batch.erasures, now_ms);
        self.extent.bytes += batch.events.iter().map(|e| encoded_len(e) as u64).sum::<u64>();
        let touched = self.shared.log.append(&batch.events);
        self.shared.state.store(Arc::new(batch.state));
        for stream in touched {
            stream.notify.notify_waiters();
        }
        if trim.is_some() {
            self.note_trimmed(&trimmed);
        } else if !batch.events.is_empty() {
            self.extent.oldest_ms.get_or_insert(now_ms);
        }
        Ok(())
    }

    /// A file that failed is opened again for those who read history, though nobody writes.
    fn is_recovery_due(&self) -> bool {
        self.not_before_ms <= self.clock.now_ms()
    }

    /// Time until the log needs a trim, an erasure is due or the file has to be recovered; none if nothing of that sort will be.
    fn due_in(&self) -> Option<Duration> {
        let recovery = (!self.shared.file.is_open()).then_some(0);
        let due = [self.trim_due_ms(), self.erasure.due_ms(), recovery];
        let due_ms = due.into_iter().flatten().min()?.max(self.not_before_ms);
        let now_ms = self.clock.now_ms();
        Some(Duration::from_millis(due_ms.saturating_sub(now_ms)))
    }

    fn trim_due_ms(&self) -> Option<u64> {
        // What a copy is made of must stay as it is until the copy is in place.
        if self.erasure.is_copying() {
            return None;
        }
        let oldest_ms = self.extent.oldest_ms?;
        if self.extent.is_partial || self.extent.bytes > self.retention.bytes_max {
            return Some(0);
        }
        Some(oldest_ms + millis(self.retention.age + self.retention.slack))
    }

    /// The trim that this commit should carry, if one is due.
    fn trim(&self) -> Option<Trim> {
        let now_ms = self.clock.now_ms();
        let due_ms = self.trim_due_ms()?.max(self.not_before_ms);
        (due_ms <= now_ms).then(|| Trim {
            compacted: self.extent.compacted,
            before_ms: now_ms.saturating_sub(millis(self.retention.age)),
            excess_bytes: self.extent.bytes.saturating_sub(self.retention.bytes_max),
        })
    }

    fn note_trimmed(&mut self, trimmed: &Trimmed) {
        self.extent.oldest_ms = trimmed.oldest_ms;
        self.extent.is_partial = trimmed.is_partial;
        self.extent.bytes = self.extent.bytes.saturating_sub(trimmed.bytes);
        if let Some(until) = trimmed.until {
            self.extent.compacted = until;
            self.shared.log.trim(until);
        }
    }
}

fn value_bytes(op: &Op) -> usize {
    match op {
        Op::Put { value, .. } => value.len(),
        Op::Delete { .. } => 0,
    }
}
