//! Erasure: the file is written anew without what has to go, and the new file takes the old one's place.
//!
//! Nothing less will do: a page that redb freed keeps its bytes until it happens to be used again. The copy is made beside the
//! running writer, from a snapshot; what was written meanwhile is added before the files change places. A crash at any moment
//! leaves one complete file and a mark of what is still to be erased.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

use redb::{Database, ReadOnlyTable};

use super::{
    data_file::{DataFile, RECORDS, failure, open_database, write_to},
    numbers::{self, Name, Numbers},
    record::{Kind, Record},
};
use crate::{Error, Result, Revision, types::resource_or_key};

/// A copy of the data file on its way to become the data file.
pub(crate) struct Replacement {
    database: Database,
    /// The copy has everything up to here.
    upto: Revision,
    /// What was left out: the history of these resources up to these revisions.
    pub erased: BTreeMap<Arc<str>, Revision>,
    /// Bytes of the log that were left out.
    pub erased_bytes: u64,
}

impl DataFile {
    /// Copies what is in the file up to `upto` into the replacement file, without the history to be erased. The log must not
    /// be trimmed until the replacement is in place.
    pub fn copy(&self, erasures: BTreeMap<Arc<str>, Revision>, upto: Revision) -> Result<Replacement> {
        let path = self.directory.replacement();
        self.discard_replacement()?;
        let database = open_database(self.disk.as_ref(), &path, &self.sync_failed)?;
        let mut erased_bytes = 0;
        self.read(|source| {
            let mut numbers = self.numbers(source)?;
            for (resource, revision) in &erasures {
                numbers.floors.insert(resource.clone(), *revision);
            }
            numbers.floors.retain(|_, floor| *floor > numbers.compacted);
            let Some(records) = self.records(source)? else {
                return Ok(());
            };
            let replaced_by = self.replaced_by(&records, &numbers, &erasures)?;
            write_to(&database, &path, |target| {
                let mut copy = target.open_table(RECORDS).map_err(|e| failure(&path, e))?;
                for item in records.range(..=upto.0).map_err(|e| self.failed(e))? {
                    let (revision, bytes) = item.map_err(|e| self.failed(e))?;
                    let (revision, bytes) = (Revision(revision.value()), bytes.value());
                    let record = self.decode(revision, bytes)?;
                    let floor = erasures.get(resource_or_key(record.key));
                    let floor = floor.copied().unwrap_or_default();
                    if is_needed(revision, &record, floor, &replaced_by) {
                        copy.insert(revision.0, bytes).map_err(|e| failure(&path, e))?;
                    } else if revision > numbers.compacted {
                        erased_bytes += bytes.len() as u64;
                    }
                }
                let floors = numbers.floors.iter().map(|(resource, floor)| (Name::Floor(resource), *floor));
                let marks = [(Name::Compacted, numbers.compacted), (Name::Revision, upto)];
                numbers::set(target, &path, floors.chain(marks))
            })
        })?;
        Ok(Replacement { database, upto, erased: erasures, erased_bytes })
    }

    /// Brings the replacement up to `revision` and puts it in the place of the data file. `pending` are the erasures that were
    /// asked for since it was begun.
    pub fn replace(&self, replacement: Replacement, revision: Revision, pending: &BTreeMap<Arc<str>, Revision>) -> Result<()> {
        let path = self.directory.replacement();
        let Replacement { database, upto, .. } = replacement;
        self.read(|source| {
            let records = self.records(source)?;
            write_to(&database, &path, |target| {
                let mut copy = target.open_table(RECORDS).map_err(|e| failure(&path, e))?;
                if let Some(records) = &records {
                    let since = upto.next().0..=revision.0;
                    for item in records.range(since).map_err(|e| self.failed(e))? {
                        let (revision, bytes) = item.map_err(|e| self.failed(e))?;
                        copy.insert(revision.value(), bytes.value()).map_err(|e| failure(&path, e))?;
                    }
                }
                let pending = pending.iter().map(|(resource, revision)| (Name::Erase(resource), *revision));
                numbers::set(target, &path, pending.chain([(Name::Revision, revision)]))
            })
        })?;
        self.disk.rename(&path, &self.path()).map_err(|e| Error::io(&path, e))?;
        // From here on the new file is the store's, whatever happens; nothing is acknowledged before its name is durable.
        self.is_name_durable.store(false, Ordering::Release);
        let old = self.database.write().replace(database);
        drop(old);
        self.sync_name()
    }

    /// Removes a replacement file that is not going to be used.
    pub fn discard_replacement(&self) -> Result<()> {
        let path = self.directory.replacement();
        self.disk.remove(&path).map_err(|e| Error::io(path, e))
    }

    /// For each version in the resources to be erased that was replaced: the event that replaced it.
    fn replaced_by(
        &self,
        records: &ReadOnlyTable<u64, &'static [u8]>,
        numbers: &Numbers,
        erasures: &BTreeMap<Arc<str>, Revision>,
    ) -> Result<HashMap<Revision, Revision>> {
        let mut replaced_by = HashMap::new();
        let log = records.range(numbers.compacted.next().0..).map_err(|e| self.failed(e))?;
        for item in log {
            let (revision, bytes) = item.map_err(|e| self.failed(e))?;
            let revision = Revision(revision.value());
            let record = self.decode(revision, bytes.value())?;
            if let Some(previous) = record.previous
                && erasures.contains_key(resource_or_key(record.key))
            {
                replaced_by.insert(previous, revision);
            }
        }
        Ok(replaced_by)
    }
}

/// Whether a record is still needed when the history of its resource begins after `floor`: as the live version of its key, as
/// an event, or as the version that a later event replaced.
fn is_needed(revision: Revision, record: &Record<'_>, floor: Revision, replaced_by: &HashMap<Revision, Revision>) -> bool {
    match (replaced_by.get(&revision), record.kind) {
        (Some(by), _) => *by > floor,
        (None, Kind::Put) => true,
        (None, Kind::Delete) => revision > floor,
    }
}
