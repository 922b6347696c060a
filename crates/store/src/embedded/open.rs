//! Opening: from the file to the state and the newest part of the log in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{
    EmbeddedStore, Options,
    clock::Clock,
    data_file::DataFile,
    disk::{Directory, Disk},
    erasure::Erasure,
    log::Log,
    record::{Record, encoded_len},
    shared::Shared,
    state::State,
    writer::{LogExtent, Retention, Writer},
};
use crate::{Error, Event, Key, Result, Revision, limits, types::resource_of};

pub(super) fn open(options: &Options, disk: Box<dyn Disk>) -> Result<EmbeddedStore> {
    let directory = Directory::lock(&options.dir)?;
    let file = DataFile::open(directory, disk)?;
    let Loaded { state, log, extent, newest_ms, erasures } = load(&file, options.history_memory_bytes_max)?;
    let shared = Arc::new(Shared { state: ArcSwap::from_pointee(state), log, file, closed: AtomicBool::new(false) });
    let (queue, receiver) = mpsc::channel();
    let writer = Writer {
        shared: shared.clone(),
        queue: receiver,
        sender: queue.clone(),
        clock: Clock::start(newest_ms),
        retention: Retention { age: options.history_age, slack: options.history_slack, bytes_max: options.history_bytes_max },
        extent,
        erasure: Erasure::resume(erasures),
        not_before_ms: 0,
    };
    let thread = thread::Builder::new()
        .name("store-writer".into())
        .spawn(move || writer.run())
        .map_err(|source| Error::io(&options.dir, source))?;
    Ok(EmbeddedStore {
        shared,
        queue,
        places: Arc::new(Semaphore::new(limits::QUEUE_TXNS_MAX)),
        writer: Mutex::new(Some(thread)),
    })
}

struct Loaded {
    state: State,
    log: Log,
    extent: LogExtent,
    newest_ms: u64,
    /// What was to be erased when the store was last open.
    erasures: BTreeMap<Arc<str>, Revision>,
}

/// Reads the file from its first record to its last, which replays the store's history as far as it is kept.
fn load(file: &DataFile, memory_bytes_max: usize) -> Result<Loaded> {
    let mut state = State::empty();
    let mut extent = LogExtent::default();
    let mut newest_ms = 0;
    let numbers = file.read(|txn| file.numbers(txn))?;
    let log = Log::new(numbers.compacted, &numbers.floors, memory_bytes_max);
    extent.compacted = numbers.compacted;
    state.revision = state.revision.max(numbers.revision).max(numbers.compacted);
    file.load(|revision, record| {
        newest_ms = newest_ms.max(record.time_ms);
        state.revision = state.revision.max(revision);
        let event = replay(&mut state, revision, record);
        if revision <= numbers.compacted {
            return Ok(());
        }
        extent.bytes += encoded_len(&event) as u64;
        extent.oldest_ms.get_or_insert(record.time_ms);
        if revision <= numbers.oldest(resource_of(record.key)) {
            // A live version whose event was erased together with its resource's history.
            return Ok(());
        }
        if event.previous.as_ref().map(|p| p.mod_revision) != record.previous {
            return Err(file.corrupt(format!("the version that record {revision} replaced is missing")));
        }
        log.append(&[Arc::new(event)]);
        Ok(())
    })?;
    Ok(Loaded { state, log, extent, newest_ms, erasures: numbers.erasures })
}

/// Applies a record to the state and returns the event that it is.
fn replay(state: &mut State, revision: Revision, record: Record<'_>) -> Event {
    let known = state.entries.get_key_value(record.key);
    let key = known.map_or_else(|| Key::from(record.key), |(key, _)| key.clone());
    let current = record.entry(revision);
    let previous = match &current {
        Some(entry) => state.entries.insert(key.clone(), entry.clone()),
        None => state.entries.remove(record.key),
    };
    Event { key, revision, current, previous }
}
