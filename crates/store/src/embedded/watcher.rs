//! A watcher: a position in a stream of the log.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    log::{Slice, Stream},
    shared::Shared,
};
use crate::{Error, Event, Result, Revision, Watcher};

pub(crate) struct Cursor {
    shared: Arc<Shared>,
    stream: Arc<Stream>,
    prefix: Arc<str>,
    /// Everything up to here has been returned, or was not under the prefix.
    position: Revision,
}

impl Cursor {
    pub fn new(shared: Arc<Shared>, prefix: &str, from: Revision) -> Result<Self> {
        let (stream, oldest) = shared.log.stream(prefix);
        if from < oldest {
            return Err(Error::Compacted { oldest });
        }
        Ok(Cursor { shared, stream, prefix: prefix.into(), position: from })
    }

    /// The events between the position and `upto` that come next, none if there are none.
    pub async fn take(&mut self, upto: Revision, max: usize) -> Result<Vec<Arc<Event>>> {
        while self.position < upto {
            let (events, position) = self.shared.events(&self.stream, self.position, upto, &self.prefix, max).await?;
            self.position = position;
            if !events.is_empty() {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Watcher for Cursor {
    async fn next_batch(&mut self, max: usize) -> Result<Vec<Arc<Event>>> {
        let stream = self.stream.clone();
        loop {
            // Registered before looking, so that what is published in between wakes it.
            let mut published = std::pin::pin!(stream.notify.notified());
            published.as_mut().enable();
            let events = self.take(self.shared.revision(), max.max(1)).await?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.shared.is_closed() {
                return Err(Error::Closed);
            }
            published.await;
        }
    }

    fn progress(&mut self) -> Revision {
        let upto = self.shared.revision();
        if self.position < upto {
            // One event is enough to know that there is something left.
            let slice = self.stream.slice(self.position, upto, &self.prefix, 1);
            if let Slice::Events { events, position } = slice
                && events.is_empty()
            {
                self.position = position;
            }
        }
        self.position
    }
}
