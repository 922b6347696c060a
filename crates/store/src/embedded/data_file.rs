//! The data file: a table of records by revision and a few numbers, in redb.
//!
//! Records with a revision greater than `compacted` are the log. A record at or below it is the live version of its key: when an
//! event leaves the log, the version that it replaced leaves the table, and so does the event itself if it was a delete.

use std::{
    collections::BTreeMap,
    io,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::RwLock;
use redb::{
    Builder, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError,
    TableHandle, WriteTransaction,
};

use super::{
    disk::{Backend, Directory, Disk},
    numbers::{self, Name, Numbers},
    record::{self, Kind, Record},
};
use crate::{Entry, Error, Event, Key, Result, Revision, limits};

/// The names carry the number of the file format.
pub(super) const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records-1");

/// The open data file. Without a database inside after a failure, until [`DataFile::reopen`] succeeds.
pub(crate) struct DataFile {
    pub(super) directory: Directory,
    pub(super) disk: Box<dyn Disk>,
    pub(super) database: RwLock<Option<Database>>,
    /// Whether the directory on disk has the file under its name. Nothing is written before it has.
    pub(super) is_name_durable: AtomicBool,
    /// Whether a sync has failed since the file was last known to be good.
    pub(super) sync_failed: Arc<AtomicBool>,
}

/// Which part of the log is to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trim {
    /// Where the log begins now.
    pub compacted: Revision,
    /// Records written before this time go.
    pub before_ms: u64,
    /// So many bytes go, whatever their age.
    pub excess_bytes: u64,
}

/// What one commit trimmed.
#[derive(Debug, Default)]
pub(crate) struct Trimmed {
    /// The last revision that left, if any did.
    pub until: Option<Revision>,
    /// Bytes that left the log.
    pub bytes: u64,
    /// Whether the bound on records per commit left some that should have gone.
    pub is_partial: bool,
    /// When the record was written that is now the oldest of the log; none if the log is empty.
    pub oldest_ms: Option<u64>,
}

impl DataFile {
    /// Opens the data file of a directory, creates it if there is none, and removes what an interrupted rewrite left.
    pub fn open(directory: Directory, disk: Box<dyn Disk>) -> Result<Self> {
        let sync_failed = Arc::new(AtomicBool::new(false));
        let database = open_database(disk.as_ref(), &directory.data(), &sync_failed)?;
        let database = RwLock::new(Some(database));
        let file = DataFile { directory, disk, database, is_name_durable: AtomicBool::new(false), sync_failed };
        file.discard_replacement()?;
        Ok(file)
    }

    /// Makes sure that the data file is found under its name after a crash.
    pub(super) fn sync_name(&self) -> Result<()> {
        if !self.is_name_durable.load(Ordering::Acquire) {
            let dir = self.directory.path();
            self.disk.sync_dir(dir).map_err(|e| Error::io(dir, e))?;
            self.is_name_durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub fn path(&self) -> PathBuf {
        self.directory.data()
    }

    /// Closes the file in good order, so that the next opening needs no repair.
    pub fn close(&self) -> Result<()> {
        let closed = match self.database.write().take() {
            Some(database) => database.close().map_err(|e| failure(&self.path(), e)),
            None => Ok(()),
        };
        self.directory.unlock();
        closed
    }

    /// Calls `visit` with every record in order of revision.
    pub fn load(&self, mut visit: impl FnMut(Revision, Record<'_>) -> Result<()>) -> Result<()> {
        // redb may answer with a panic to what its own check does not see.
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            self.read(|txn| {
                let Some(records) = self.records(txn)? else {
                    return Ok(());
                };
                for item in records.iter().map_err(|e| self.failed(e))? {
                    let (revision, bytes) = item.map_err(|e| self.failed(e))?;
                    let revision = Revision(revision.value());
                    visit(revision, self.decode(revision, bytes.value())?)?;
                }
                Ok(())
            })
        }));
        result.unwrap_or_else(|_| Err(self.corrupt("its pages contradict each other".into())))
    }

    /// Makes events durable, and trims the log in the same commit.
    pub fn commit(
        &self,
        events: &[Arc<Event>],
        erasures: &BTreeMap<Arc<str>, Revision>,
        now_ms: u64,
        trim: Option<Trim>,
    ) -> Result<Trimmed> {
        self.write(|txn| {
            let mut records = txn.open_table(RECORDS).map_err(|e| self.failed(e))?;
            for event in events {
                let mut place =
                    records.insert_reserve(event.revision.0, record::encoded_len(event)).map_err(|e| self.failed(e))?;
                record::encode(event, now_ms, place.as_mut());
            }
            let trimmed = match trim {
                Some(trim) => self.trim(&mut records, trim)?,
                None => Trimmed::default(),
            };
            let erasures = erasures.iter().map(|(resource, revision)| (Name::Erase(resource), *revision));
            let compacted = trimmed.until.map(|until| (Name::Compacted, until));
            numbers::set(txn, &self.path(), erasures.chain(compacted))?;
            Ok(trimmed)
        })
    }

    /// Opens the file again after a failure, as it was at `revision`. `pending` are the erasures that are still to be done.
    pub fn reopen(&self, revision: Revision, pending: &BTreeMap<Arc<str>, Revision>) -> Result<()> {
        let mut slot = self.database.write();
        // Closed before it is opened anew: two of them on one file would overwrite each other.
        drop(slot.take());
        *slot = Some(open_database(self.disk.as_ref(), &self.path(), &self.sync_failed)?);
        drop(slot);
        let recovered =
            if self.sync_failed.load(Ordering::Acquire) { self.start_over(revision, pending) } else { self.roll_back(revision) };
        if recovered.is_err() {
            drop(self.database.write().take());
        }
        recovered
    }

    /// Puts a fresh copy in the place of a file of which a sync failed: the system may have dropped the pages that it could not
    /// write, reads them back from its cache nonetheless, and the next sync would succeed without them.
    fn start_over(&self, revision: Revision, pending: &BTreeMap<Arc<str>, Revision>) -> Result<()> {
        let replacement = self.copy(BTreeMap::new(), revision)?;
        self.replace(replacement, revision, pending)?;
        self.sync_failed.store(false, Ordering::Release);
        Ok(())
    }

    /// Takes out what the failed commit may have left beyond `revision`.
    fn roll_back(&self, revision: Revision) -> Result<()> {
        let is_beyond = self.read(|txn| {
            let Some(records) = self.records(txn)? else {
                return Ok(false);
            };
            let last = records.last().map_err(|e| self.failed(e))?;
            Ok(last.is_some_and(|(last, _)| last.value() > revision.0))
        })?;
        if !is_beyond {
            return Ok(());
        }
        self.write(|txn| {
            let mut records = txn.open_table(RECORDS).map_err(|e| self.failed(e))?;
            records.retain_in(revision.next().0.., |_, _| false).map_err(|e| self.failed(e))
        })
    }

    /// Events of the log in `(position, until]` under `prefix`, at most `max`, and the position after them.
    pub fn history(&self, position: Revision, until: Revision, prefix: &str, max: usize) -> Result<(Vec<Arc<Event>>, Revision)> {
        self.read(|txn| {
            let oldest = self.numbers(txn)?.oldest(crate::types::resource_of(prefix));
            if position < oldest {
                return Err(Error::Compacted { oldest });
            }
            let mut events = Vec::new();
            let Some(records) = self.records(txn)? else {
                return Ok((events, until));
            };
            let range = position.next().0..=until.0;
            let found = records.range(range).map_err(|e| self.failed(e))?;
            for (scanned, item) in found.enumerate() {
                let (revision, bytes) = item.map_err(|e| self.failed(e))?;
                let revision = Revision(revision.value());
                let record = self.decode(revision, bytes.value())?;
                if record.key.starts_with(prefix) {
                    events.push(Arc::new(self.event(&records, revision, record)?));
                }
                if events.len() == max || scanned + 1 == limits::HISTORY_SCAN_RECORDS_MAX {
                    return Ok((events, revision));
                }
            }
            Ok((events, until))
        })
    }

    /// The event that a record of the log is.
    fn event(&self, records: &ReadOnlyTable<u64, &'static [u8]>, revision: Revision, record: Record<'_>) -> Result<Event> {
        let previous = match record.previous {
            None => None,
            Some(previous) => {
                let bytes = records.get(previous.0).map_err(|e| self.failed(e))?;
                let Some(bytes) = bytes else {
                    return Err(self.corrupt(format!("record {previous} is missing")));
                };
                self.decode(previous, bytes.value())?.entry(previous)
            }
        };
        Ok(Event { key: Key::from(record.key), revision, current: record.entry(revision), previous })
    }

    fn trim(&self, records: &mut Table<'_, u64, &'static [u8]>, trim: Trim) -> Result<Trimmed> {
        let mut trimmed = Trimmed::default();
        let mut leaving = Vec::new();
        let log = records.range(trim.compacted.next().0..).map_err(|e| self.failed(e))?;
        for (scanned, item) in log.enumerate() {
            let (revision, bytes) = item.map_err(|e| self.failed(e))?;
            let revision = Revision(revision.value());
            let bytes = bytes.value();
            let record = self.decode(revision, bytes)?;
            let is_leaving = record.time_ms < trim.before_ms || trimmed.bytes < trim.excess_bytes;
            if !is_leaving || scanned == limits::TRIM_RECORDS_MAX {
                trimmed.oldest_ms = Some(record.time_ms);
                trimmed.is_partial = is_leaving;
                break;
            }
            trimmed.until = Some(revision);
            trimmed.bytes += bytes.len() as u64;
            leaving.extend(record.previous);
            leaving.extend((record.kind == Kind::Delete).then_some(revision));
        }
        for revision in leaving {
            records.remove(revision.0).map_err(|e| self.failed(e))?;
        }
        Ok(trimmed)
    }

    /// Runs `body` in a write transaction and commits it durably. After a failure the file counts as closed.
    fn write<T>(&self, body: impl FnOnce(&WriteTransaction) -> Result<T>) -> Result<T> {
        self.sync_name()?;
        let result = {
            let slot = self.database.read();
            let database = slot.as_ref().ok_or(Error::Closed)?;
            write_to(database, &self.path(), body)
        };
        if result.is_err() {
            drop(self.database.write().take());
        }
        result
    }

    pub(super) fn read<T>(&self, body: impl FnOnce(&ReadTransaction) -> Result<T>) -> Result<T> {
        // The transaction outlives the guard: a long read holds up nobody, and one whose file is closed meanwhile fails.
        let begun = self.database.read().as_ref().map(Database::begin_read);
        let Some(begun) = begun else {
            let source = io::Error::other("it is closed after an earlier failure");
            return Err(Error::io(self.path(), source));
        };
        body(&begun.map_err(|e| self.failed(e))?)
    }

    pub fn is_open(&self) -> bool {
        self.database.read().is_some()
    }

    pub(super) fn records(&self, txn: &ReadTransaction) -> Result<Option<ReadOnlyTable<u64, &'static [u8]>>> {
        match txn.open_table(RECORDS) {
            Ok(records) => Ok(Some(records)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// The numbers in the file.
    pub fn numbers(&self, txn: &ReadTransaction) -> Result<Numbers> {
        Numbers::read(txn, &self.path())
    }

    pub(super) fn decode<'a>(&self, revision: Revision, bytes: &'a [u8]) -> Result<Record<'a>> {
        Record::decode(bytes).ok_or_else(|| self.corrupt(format!("record {revision} cannot be read")))
    }

    pub(super) fn failed(&self, cause: impl Into<redb::Error>) -> Error {
        failure(&self.path(), cause)
    }

    pub(super) fn corrupt(&self, detail: String) -> Error {
        Error::Corrupt { path: self.path(), detail }
    }
}

impl Record<'_> {
    /// The version that a put stored, with bytes of its own.
    pub fn entry(&self, revision: Revision) -> Option<Entry> {
        (self.kind == Kind::Put).then(|| Entry {
            value: Bytes::copy_from_slice(self.value),
            create_revision: self.create_revision,
            mod_revision: revision,
        })
    }
}

/// Opens or creates a database, every page of it checked.
pub(super) fn open_database(disk: &dyn Disk, path: &Path, sync_failed: &Arc<AtomicBool>) -> Result<Database> {
    let file = disk.open(path).map_err(|e| Error::io(path, e))?;
    let backend = Backend { file, sync_failed: sync_failed.clone() };
    let opened = panic::catch_unwind(AssertUnwindSafe(|| {
        Builder::new().set_cache_size(limits::PAGE_CACHE_BYTES).set_check_integrity_on_open(true).create_with_backend(backend)
    }));
    let database = match opened {
        Ok(result) => result.map_err(|e| failure(path, e))?,
        Err(_) => {
            return Err(Error::Corrupt { path: path.to_owned(), detail: "its pages contradict each other".into() });
        }
    };
    check_format(&database, path)?;
    Ok(database)
}

fn check_format(database: &Database, path: &Path) -> Result<()> {
    let txn = database.begin_read().map_err(|e| failure(path, e))?;
    let tables = txn.list_tables().map_err(|e| failure(path, e))?;
    let names: Vec<String> = tables.map(|table| table.name().to_owned()).collect();
    if names.is_empty() || names.iter().any(|name| name == RECORDS.name()) {
        return Ok(());
    }
    Err(Error::Format { path: path.to_owned(), found: names.join(", ") })
}

pub(super) fn write_to<T>(database: &Database, path: &Path, body: impl FnOnce(&WriteTransaction) -> Result<T>) -> Result<T> {
    // Durability::Immediate is redb's default: commit returns once the pages are on disk.
    let txn = database.begin_write().map_err(|e| failure(path, e))?;
    let value = body(&txn)?;
    txn.commit().map_err(|e| failure(path, e))?;
    Ok(value)
}

/// What redb says, in this crate's terms.
pub(super) fn failure(path: &Path, cause: impl Into<redb::Error>) -> Error {
    let corrupt = |detail: String| Error::Corrupt { path: path.to_owned(), detail };
    match cause.into() {
        redb::Error::Io(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            corrupt(e.to_string())
        }
        redb::Error::Io(e) => Error::io(path, e),
        redb::Error::Corrupted(detail) => corrupt(detail),
        other => Error::io(path, io::Error::other(other)),
    }
}
