//! What readers, watchers and the writer share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwap;

use super::{
    data_file::DataFile,
    log::{Log, Slice, Stream},
    state::State,
};
use crate::{Error, Event, Result, Revision};

pub(crate) struct Shared {
    pub state: ArcSwap<State>,
    pub log: Log,
    pub file: DataFile,
    pub closed: AtomicBool,
}

impl Shared {
    pub fn revision(&self) -> Revision {
        self.state.load().revision
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Events of `stream` under `prefix` in `(position, upto]`, from memory or from the file, and the position after them.
    pub async fn events(
        self: &Arc<Self>,
        stream: &Stream,
        position: Revision,
        upto: Revision,
        prefix: &Arc<str>,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, Revision)> {
        match stream.slice(position, upto, prefix, max) {
            Slice::Events { events, position } => Ok((events, position)),
            Slice::Compacted { oldest } => Err(Error::Compacted { oldest }),
            Slice::InFile { until } => {
                let shared = self.clone();
                let prefix = prefix.clone();
                let until = until.min(upto);
                // Reads from disk: not on a thread that drives other tasks.
                tokio::task::spawn_blocking(move || shared.file.history(position, until, &prefix, max))
                    .await
                    .map_err(|_| Error::Closed)?
            }
        }
    }
}
