//! The few numbers in the data file beside the records.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::data_file::failure;
use crate::{Result, Revision};

const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers-1");

const COMPACTED: &str = "compacted";
const REVISION: &str = "revision";
const FLOOR: &str = "floor ";
const ERASE: &str = "erase ";

/// The name of a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name<'a> {
    /// Everything up to there has left the log.
    Compacted,
    /// The store's revision, in case that the record which made it is gone.
    Revision,
    /// The history of a resource begins there, because something in it was erased.
    Floor(&'a str),
    /// The history of a resource up to there is still in the file and has to go.
    Erase(&'a str),
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Compacted => f.write_str(COMPACTED),
            Name::Revision => f.write_str(REVISION),
            Name::Floor(resource) => write!(f, "{FLOOR}{resource}"),
            Name::Erase(resource) => write!(f, "{ERASE}{resource}"),
        }
    }
}

/// All numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub compacted: Revision,
    pub revision: Revision,
    pub floors: BTreeMap<Arc<str>, Revision>,
    pub erasures: BTreeMap<Arc<str>, Revision>,
}

impl Numbers {
    /// Reads the numbers of the file at `path`.
    pub fn read(txn: &ReadTransaction, path: &Path) -> Result<Self> {
        let mut numbers = Numbers::default();
        let table = match txn.open_table(NUMBERS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(numbers),
            Err(e) => return Err(failure(path, e)),
        };
        for item in table.iter().map_err(|e| failure(path, e))? {
            let (name, value) = item.map_err(|e| failure(path, e))?;
            numbers.note(name.value(), Revision(value.value()));
        }
        Ok(numbers)
    }

    fn note(&mut self, name: &str, value: Revision) {
        if let Some(resource) = name.strip_prefix(FLOOR) {
            self.floors.insert(resource.into(), value);
        } else if let Some(resource) = name.strip_prefix(ERASE) {
            self.erasures.insert(resource.into(), value);
        } else if name == COMPACTED {
            self.compacted = value;
        } else if name == REVISION {
            self.revision = value;
        }
    }

    /// The oldest readable revision of a resource, or of everything.
    pub fn oldest(&self, resource: Option<&str>) -> Revision {
        let floor = match resource {
            Some(resource) => self.floors.get(resource).copied(),
            None => self.floors.values().copied().max(),
        };
        floor.unwrap_or_default().max(self.compacted)
    }
}

/// Sets numbers in the file at `path`.
pub(super) fn set<'a>(
    txn: &WriteTransaction,
    path: &Path,
    changes: impl IntoIterator<Item = (Name<'a>, Revision)>,
) -> Result<()> {
    let mut changes = changes.into_iter().peekable();
    // The table is not touched, and so not written, by the many commits that change no number.
    if changes.peek().is_none() {
        return Ok(());
    }
    let mut numbers = txn.open_table(NUMBERS).map_err(|e| failure(path, e))?;
    for (name, value) in changes {
        numbers.insert(name.to_string().as_str(), value.0).map_err(|e| failure(path, e))?;
    }
    Ok(())
}
