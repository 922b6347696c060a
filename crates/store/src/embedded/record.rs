//! How one version of a key is laid out in the file.
//!
//! ```text
//! kind u8 (1 put, 2 delete) | create revision u64 | previous revision u64 | unix time ms u64 | key length u32 | key | value
//! ```
//!
//! Numbers are little-endian. The record's own revision is its place in the table. `previous` names the record of the version that
//! this one replaced, 0 if there was none.

use crate::{Event, Revision};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const HEAD_BYTES: usize = 1 + 8 + 8 + 8 + 4;

/// A record, borrowed from the file's page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub kind: Kind,
    pub create_revision: Revision,
    /// The replaced version, if there was one.
    pub previous: Option<Revision>,
    pub time_ms: u64,
    pub key: &'a str,
    pub value: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
}

impl<'a> Record<'a> {
    /// Reads a record; `None` if the bytes are not one.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let kind = match head[0] {
            PUT => Kind::Put,
            DELETE => Kind::Delete,
            _ => return None,
        };
        let number = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(raw)
        };
        let mut raw = [0; 4];
        raw.copy_from_slice(&head[25..29]);
        let (key, value) = rest.split_at_checked(u32::from_le_bytes(raw) as usize)?;
        let previous = number(9);
        Some(Record {
            kind,
            create_revision: Revision(number(1)),
            previous: (previous != 0).then_some(Revision(previous)),
            time_ms: number(17),
            key: std::str::from_utf8(key).ok()?,
            value,
        })
    }
}

/// Bytes that the record of `event` takes.
pub(crate) fn encoded_len(event: &Event) -> usize {
    HEAD_BYTES + event.key.len() + event.current.as_ref().map_or(0, |entry| entry.value.len())
}

/// Writes the record of `event` into `out`, which has [`encoded_len`] bytes.
pub(crate) fn encode(event: &Event, time_ms: u64, out: &mut [u8]) {
    let (kind, create, value): (_, _, &[u8]) = match &event.current {
        Some(entry) => (PUT, entry.create_revision, &entry.value),
        None => (DELETE, Revision(0), &[]),
    };
    let previous = event.previous.as_ref().map_or(0, |p| p.mod_revision.0);
    let key_len = u32::try_from(event.key.len()).expect("keys are bounded by KEY_BYTES_MAX");
    let (head, rest) = out.split_at_mut(HEAD_BYTES);
    head[0] = kind;
    head[1..9].copy_from_slice(&create.0.to_le_bytes());
    head[9..17].copy_from_slice(&previous.to_le_bytes());
    head[17..25].copy_from_slice(&time_ms.to_le_bytes());
    head[25..29].copy_from_slice(&key_len.to_le_bytes());
    let (key, rest) = rest.split_at_mut(event.key.len());
    key.copy_from_slice(event.key.as_bytes());
    rest.copy_from_slice(value);
}
