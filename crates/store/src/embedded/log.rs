//! The newest part of the event log, in memory.
//!
//! Events are kept in a *stream* per resource, and once more, as further references, in the root stream for watchers of shorter
//! prefixes. A stream knows up to where its older events have moved to the file only ([`Window::evicted`]) or are gone
//! ([`Window::trimmed`]).
//!
//! Only the writer changes streams. It appends before it publishes the state, and readers take events only up to the revision of
//! the published state, so nobody sees an event before the state that contains it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{
    Entry, Event, Revision,
    limits::EVENT_OVERHEAD_BYTES,
    types::{resource_of, resource_or_key},
};

/// The events of one resource (or of all).
#[derive(Debug)]
pub(crate) struct Stream {
    window: RwLock<Window>,
    pub notify: Notify,
}

#[derive(Debug)]
struct Window {
    /// In order of revision, all greater than `evicted`.
    events: VecDeque<Arc<Event>>,
    /// Events up to here are in the file only.
    evicted: Revision,
    /// Events up to here are nowhere any more.
    trimmed: Revision,
}

/// What a stream has for a cursor.
#[derive(Debug)]
pub(crate) enum Slice {
    /// The events, and the position after them.
    Events { events: Vec<Arc<Event>>, position: Revision },
    /// The cursor is behind what is in memory; the file has everything up to and including this revision.
    InFile { until: Revision },
    /// The cursor is behind what is left at all.
    Compacted { oldest: Revision },
}

impl Stream {
    fn new(evicted: Revision, trimmed: Revision) -> Arc<Self> {
        Arc::new(Stream { window: RwLock::new(Window { events: VecDeque::new(), evicted, trimmed }), notify: Notify::new() })
    }

    /// The events under `prefix` in `(position, upto]`, at most `max`.
    pub fn slice(&self, position: Revision, upto: Revision, prefix: &str, max: usize) -> Slice {
        let window = self.window.read();
        if position < window.trimmed {
            return Slice::Compacted { oldest: window.trimmed };
        }
        if position < window.evicted {
            return Slice::InFile { until: window.evicted };
        }
        let first = window.events.partition_point(|e| e.revision <= position);
        let mut events = Vec::new();
        for event in window.events.range(first..) {
            if event.revision > upto {
                break;
            }
            if !event.key.starts_with(prefix) {
                continue;
            }
            events.push(event.clone());
            if events.len() == max {
                let position = event.revision;
                return Slice::Events { events, position };
            }
        }
        Slice::Events { events, position: upto.max(position) }
    }

    /// Where a cursor at `position` would be compacted, if it is.
    pub fn trimmed(&self) -> Revision {
        self.window.read().trimmed
    }

    fn append(&self, event: Arc<Event>) {
        self.window.write().events.push_back(event);
    }

    /// Drops the events up to `revision`, which the file still has.
    fn evict(&self, revision: Revision) {
        let mut window = self.window.write();
        window.drop_front(revision);
        window.evicted = window.evicted.max(revision);
    }

    /// Forgets the events up to `revision`, which have left the file. The mark moves only as far as events of this stream may
    /// have gone: a watcher of a quiet resource misses nothing by what others lost.
    fn trim(&self, revision: Revision) {
        let mut window = self.window.write();
        let gone = window.drop_front(revision).unwrap_or(window.evicted.min(revision));
        window.evicted = window.evicted.max(gone);
        window.trimmed = window.trimmed.max(gone);
    }

    /// Drops the events that are gone from the middle of the log, and refuses cursors that may need them.
    fn remove(&self, is_gone: impl Fn(&Event) -> bool, floor: Revision) -> usize {
        let mut window = self.window.write();
        let mut freed = 0;
        window.events.retain(|event| {
            let is_gone = is_gone(event);
            freed += if is_gone { cost(event) } else { 0 };
            !is_gone
        });
        window.trimmed = window.trimmed.max(floor);
        freed
    }

    fn cost_until(&self, revision: Revision) -> usize {
        let window = self.window.read();
        let leaving = window.events.iter().take_while(|e| e.revision <= revision);
        leaving.map(|e| cost(e)).sum()
    }

    fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.window.read().events.is_empty()
    }
}

impl Window {
    /// Drops the events up to `revision` and returns the revision of the last one dropped.
    fn drop_front(&mut self, revision: Revision) -> Option<Revision> {
        let count = self.events.partition_point(|e| e.revision <= revision);
        let last = self.events.drain(..count).next_back()?.revision;
        if self.events.is_empty() {
            // A burst's buffer is not kept for a quiet time.
            self.events.shrink_to_fit();
        }
        Some(last)
    }
}

/// All streams.
#[derive(Debug)]
pub(crate) struct Log {
    root: Arc<Stream>,
    streams: RwLock<HashMap<Arc<str>, Arc<Stream>>>,
    accounts: Mutex<Accounts>,
    bytes_max: usize,
}

/// The writer's book-keeping.
#[derive(Debug)]
struct Accounts {
    bytes: usize,
    evicted: Revision,
    /// Everything up to here has left the history.
    compacted: Revision,
    /// Resources whose history begins later than the rest's, because something in it was erased.
    floors: BTreeMap<Arc<str>, Revision>,
}

impl Log {
    pub fn new(compacted: Revision, floors: &BTreeMap<Arc<str>, Revision>, bytes_max: usize) -> Self {
        let root_trimmed = floors.values().copied().fold(compacted, Revision::max);
        Log {
            root: Stream::new(compacted, root_trimmed),
            streams: RwLock::default(),
            accounts: Mutex::new(Accounts { bytes: 0, evicted: compacted, compacted, floors: floors.clone() }),
            bytes_max,
        }
    }

    /// The stream that has all events under `prefix`, and the oldest revision that a cursor may start from there.
    pub fn stream(&self, prefix: &str) -> (Arc<Stream>, Revision) {
        let Some(resource) = resource_of(prefix) else {
            let oldest = self.root.trimmed();
            return (self.root.clone(), oldest);
        };
        let accounts = self.accounts.lock();
        let oldest = accounts.oldest(resource);
        let mut streams = self.streams.write();
        if let Some(stream) = streams.get(resource) {
            return (stream.clone(), oldest);
        }
        let stream = Stream::new(accounts.evicted.max(oldest), oldest);
        streams.insert(resource.into(), stream.clone());
        (stream, oldest)
    }

    /// Appends events, evicts what is too much, and returns the streams to wake once the state is published.
    pub fn append(&self, events: &[Arc<Event>]) -> Vec<Arc<Stream>> {
        if events.is_empty() {
            return Vec::new();
        }
        let mut touched = vec![self.root.clone()];
        for event in events {
            self.root.append(event.clone());
            let Some(resource) = resource_of(&event.key) else {
                continue;
            };
            let known = self.streams.read().get(resource).cloned();
            let stream = known.unwrap_or_else(|| self.stream(resource).0);
            stream.append(event.clone());
            if !touched.iter().any(|seen| Arc::ptr_eq(seen, &stream)) {
                touched.push(stream);
            }
        }
        self.accounts.lock().bytes += events.iter().map(|e| cost(e)).sum::<usize>();
        self.evict();
        touched
    }

    fn evict(&self) {
        loop {
            let mut accounts = self.accounts.lock();
            if accounts.bytes <= self.bytes_max {
                return;
            }
            let Some(oldest) = self.root.window.read().events.front().cloned() else {
                return;
            };
            accounts.bytes = accounts.bytes.saturating_sub(cost(&oldest));
            accounts.evicted = oldest.revision;
            self.root.evict(oldest.revision);
            if let Some(resource) = resource_of(&oldest.key)
                && let Some(stream) = self.streams.read().get(resource)
            {
                stream.evict(oldest.revision);
            }
        }
    }

    /// Forgets all events up to `revision`, which have left the file.
    pub fn trim(&self, revision: Revision) {
        let mut accounts = self.accounts.lock();
        accounts.compacted = accounts.compacted.max(revision);
        accounts.evicted = accounts.evicted.max(revision);
        accounts.floors.retain(|_, floor| *floor > revision);
        accounts.bytes = accounts.bytes.saturating_sub(self.root.cost_until(revision));
        self.root.trim(revision);
        let mut streams = self.streams.write();
        for stream in streams.values() {
            stream.trim(revision);
        }
        streams.retain(|_, stream| !stream.is_idle());
    }

    /// Forgets the history of resources up to the given revisions, which has left the file.
    pub fn erase(&self, erased: &BTreeMap<Arc<str>, Revision>) {
        let mut accounts = self.accounts.lock();
        for (resource, floor) in erased {
            accounts.floors.insert(resource.clone(), *floor);
            let is_gone = |event: &Event| event.revision <= *floor && resource_or_key(&event.key) == &**resource;
            let freed = self.root.remove(is_gone, *floor);
            accounts.bytes = accounts.bytes.saturating_sub(freed);
            if let Some(stream) = self.streams.read().get(resource) {
                stream.remove(is_gone, *floor);
            }
        }
    }

    /// Wakes every watcher.
    pub fn wake_all(&self) {
        self.root.notify.notify_waiters();
        for stream in self.streams.read().values() {
            stream.notify.notify_waiters();
        }
    }
}

impl Accounts {
    fn oldest(&self, resource: &str) -> Revision {
        let floor = self.floors.get(resource).copied();
        floor.unwrap_or_default().max(self.compacted)
    }
}

/// Bytes that an event may keep in memory. Its previous value may be shared with an older event, but once that is evicted this
/// one alone holds it, so it counts.
fn cost(event: &Event) -> usize {
    let bytes = |entry: &Option<Entry>| entry.as_ref().map_or(0, |e| e.value.len());
    EVENT_OVERHEAD_BYTES + event.key.len() + bytes(&event.current) + bytes(&event.previous)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Key;

    fn event(revision: u64, key: &str) -> Arc<Event> {
        let revision = Revision(revision);
        let entry = Entry { value: Bytes::new(), create_revision: revision, mod_revision: revision };
        Arc::new(Event { key: Key::from(key), revision, current: Some(entry), previous: None })
    }

    fn log(bytes_max: usize) -> Log {
        Log::new(Revision(1), &BTreeMap::new(), bytes_max)
    }

    fn revisions(slice: Slice) -> (Vec<u64>, u64) {
        let Slice::Events { events, position } = slice else { panic!("not in memory: {slice:?}") };
        (events.iter().map(|e| e.revision.0).collect(), position.0)
    }

    #[test]
    fn only_the_streams_of_what_changed_are_woken() {
        let log = log(1 << 20);
        let (pods, _) = log.stream("/r/pods/ns/");
        let (leases, _) = log.stream("/r/leases/");
        let touched = log.append(&[event(2, "/r/pods/ns/1"), event(3, "/r/pods/ns/2")]);
        assert!(touched.iter().any(|stream| Arc::ptr_eq(stream, &pods)));
        assert!(!touched.iter().any(|stream| Arc::ptr_eq(stream, &leases)));
        assert_eq!(revisions(pods.slice(Revision(1), Revision(3), "/r/pods/ns/2", 10)), (vec![3], 3));
        assert_eq!(revisions(leases.slice(Revision(1), Revision(3), "/r/leases/", 10)), (vec![], 3));
    }

    #[test]
    fn nothing_is_seen_before_its_state_is_published() {
        let log = log(1 << 20);
        log.append(&[event(2, "/r/a/1"), event(3, "/r/a/2")]);
        let (stream, _) = log.stream("/r/a/");
        assert_eq!(revisions(stream.slice(Revision(1), Revision(2), "/r/a/", 10)), (vec![2], 2));
    }

    #[test]
    fn what_does_not_fit_in_memory_is_left_to_the_file() {
        let log = log(2 * EVENT_OVERHEAD_BYTES + 100);
        log.append(&[event(2, "/r/a/1"), event(3, "/r/b/1"), event(4, "/r/a/2"), event(5, "/r/b/2")]);
        let (a, _) = log.stream("/r/a/");
        assert!(matches!(a.slice(Revision(1), Revision(5), "/r/a/", 10), Slice::InFile { until: Revision(2) }));
        assert_eq!(revisions(a.slice(Revision(2), Revision(5), "/r/a/", 10)), (vec![4], 5));
    }

    #[test]
    fn a_trim_spares_the_watchers_that_lose_nothing_by_it() {
        let log = log(1 << 20);
        let (quiet, _) = log.stream("/r/quiet/");
        log.append(&[event(2, "/r/quiet/1"), event(3, "/r/busy/1"), event(4, "/r/busy/2")]);
        let (busy, _) = log.stream("/r/busy/");
        log.trim(Revision(3));
        assert_eq!(revisions(quiet.slice(Revision(2), Revision(4), "/r/quiet/", 10)), (vec![], 4));
        assert!(matches!(quiet.slice(Revision(1), Revision(4), "/r/quiet/", 10), Slice::Compacted { .. }));
        assert!(matches!(busy.slice(Revision(2), Revision(4), "/r/busy/", 10), Slice::Compacted { .. }));
        assert_eq!(log.stream("/r/quiet/").1, Revision(3), "new watchers have to begin within the history");
    }

    #[test]
    fn streams_that_nobody_needs_are_forgotten() {
        let log = log(1 << 20);
        log.append(&[event(2, "/r/a/1")]);
        let watched = log.stream("/r/b/");
        drop(log.stream("/r/c/"));
        log.trim(Revision(2));
        assert_eq!(log.streams.read().keys().map(|k| &**k).collect::<Vec<_>>(), ["/r/b/"]);
        drop(watched);
    }
}
