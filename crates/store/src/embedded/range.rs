//! Pages of a snapshot, the newest or an older one.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use super::{shared::Shared, state::State, watcher::Cursor};
use crate::{Entry, Error, Key, Page, RangeQuery, Result, limits};

/// What keys that changed since a snapshot held in it; none for those that did not exist then.
type Undone = BTreeMap<Key, Option<Entry>>;

/// Reads a page.
pub(crate) async fn read(shared: &Arc<Shared>, query: RangeQuery<'_>) -> Result<Page> {
    let state = shared.state.load_full();
    let revision = query.at.unwrap_or(state.revision);
    if revision > state.revision {
        return Err(Error::FutureRevision { requested: revision, current: state.revision });
    }
    let undone = undo(shared, &state, query.prefix, revision).await?;
    let mut page = Page { revision, entries: Vec::new(), remaining: 0 };
    let limit = query.limit.unwrap_or(usize::MAX);
    visit(&state, &undone, &query, |key, entry| {
        if page.entries.len() < limit {
            page.entries.push((key.clone(), entry.clone()));
        } else {
            page.remaining += 1;
        }
    });
    Ok(page)
}

/// Follows the log from the older revision to the state's: the first event of a key says what it held before.
async fn undo(shared: &Arc<Shared>, state: &State, prefix: &str, revision: crate::Revision) -> Result<Undone> {
    let mut undone = Undone::new();
    if revision == state.revision {
        return Ok(undone);
    }
    let mut cursor = Cursor::new(shared.clone(), prefix, revision)?;
    loop {
        let events = cursor.take(state.revision, limits::HISTORY_UNDO_EVENTS_MAX).await?;
        if events.is_empty() {
            return Ok(undone);
        }
        for event in events {
            undone.entry(event.key.clone()).or_insert_with(|| event.previous.clone());
        }
    }
}

/// Calls `found` with every entry of the snapshot in the query's range, in order of key.
fn visit<'a>(state: &'a State, undone: &'a Undone, query: &RangeQuery<'_>, mut found: impl FnMut(&'a Key, &'a Entry)) {
    let start = match query.start_after {
        Some(after) if after >= query.prefix => Bound::Excluded(after),
        _ => Bound::Included(query.prefix),
    };
    let range = (start, Bound::Unbounded);
    let mut older = undone.range::<str, _>(range).filter_map(|(key, entry)| Some((key, entry.as_ref()?))).peekable();
    let current = state
        .entries
        .range::<_, str>(range)
        .take_while(|(key, _)| key.starts_with(query.prefix))
        .filter(|(key, _)| !undone.contains_key(key.as_str()));
    for (key, entry) in current {
        while let Some((key, entry)) = older.next_if(|(older, _)| *older < key) {
            found(key, entry);
        }
        found(key, entry);
    }
    older.for_each(|(key, entry)| found(key, entry));
}
