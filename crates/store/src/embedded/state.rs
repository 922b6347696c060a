//! The current state, and what a batch of transactions makes of it. Pure.

use std::{collections::BTreeMap, sync::Arc};

use imbl::OrdMap;

use crate::{Applied, Conflict, Entry, Event, History, Key, Op, Precondition, Revision, TxnOutcome, types::resource_or_key};

/// All keys as of a revision. Cloning is cheap and gives a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub revision: Revision,
    pub entries: OrdMap<Key, Entry>,
}

impl State {
    pub fn empty() -> Self {
        State { revision: Revision::INITIAL, entries: OrdMap::new() }
    }
}

/// A batch of transactions on its way to disk: each sees what the earlier ones did, nobody else sees anything yet.
#[derive(Debug)]
pub(crate) struct Batch {
    pub state: State,
    /// What was applied, in order of revision.
    pub events: Vec<Arc<Event>>,
    /// Resources whose history has to go, up to and including the delete that asked for it.
    pub erasures: BTreeMap<Arc<str>, Revision>,
}

impl Batch {
    pub fn on(state: &State) -> Self {
        Batch { state: state.clone(), events: Vec::new(), erasures: BTreeMap::new() }
    }

    /// Applies a transaction, or nothing of it.
    pub fn apply(&mut self, ops: Vec<Op>) -> TxnOutcome {
        // A single operation is judged before it changes anything; only longer transactions need a way back.
        let before = (ops.len() > 1).then(|| (self.state.clone(), self.erasures.clone()));
        let event_count = self.events.len();
        let mut applied = Vec::with_capacity(ops.len());
        for (index, op) in ops.into_iter().enumerate() {
            match self.apply_op(op) {
                Ok(result) => applied.push(result),
                Err(current) => {
                    if let Some((state, erasures)) = before {
                        self.state = state;
                        self.erasures = erasures;
                        self.events.truncate(event_count);
                    }
                    return TxnOutcome::Conflict(Conflict { index, current });
                }
            }
        }
        TxnOutcome::Applied(applied)
    }

    /// Applies one operation, or says what the key holds instead.
    fn apply_op(&mut self, op: Op) -> Result<Applied, Option<Entry>> {
        let existing = self.state.entries.get(op.key().as_str());
        let (Op::Put { precondition, .. } | Op::Delete { precondition, .. }) = &op;
        if !holds(*precondition, existing) {
            return Err(existing.cloned());
        }
        let revision = self.state.revision.next();
        let event = match op {
            Op::Put { key, value, .. } => {
                let entry =
                    Entry { value, create_revision: existing.map_or(revision, |e| e.create_revision), mod_revision: revision };
                // The map keeps the first key it was given, so all events of a key share that one's text.
                let key = match self.state.entries.get_key_value(key.as_str()) {
                    Some((known, _)) => known.clone(),
                    None => key,
                };
                let previous = self.state.entries.insert(key.clone(), entry.clone());
                Event { key, revision, current: Some(entry), previous }
            }
            Op::Delete { key, history, .. } => {
                let Some((key, previous)) = self.state.entries.remove_with_key(key.as_str()) else {
                    return Err(None);
                };
                if history == History::Erase {
                    let resource = resource_or_key(&key);
                    self.erasures.insert(resource.into(), revision);
                }
                Event { key, revision, current: None, previous: Some(previous) }
            }
        };
        self.state.revision = revision;
        let previous = event.previous.clone();
        self.events.push(Arc::new(event));
        Ok(Applied { revision, previous })
    }
}

fn holds(precondition: Precondition, existing: Option<&Entry>) -> bool {
    match (precondition, existing) {
        (Precondition::Any, _) | (Precondition::Absent, None) => true,
        (Precondition::ModRevision(wanted), Some(entry)) => entry.mod_revision == wanted,
        (Precondition::Absent, Some(_)) | (Precondition::ModRevision(_), None) => false,
    }
}
