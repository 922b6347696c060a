//! From a watch's events to plain changes: a list that starts anew names what has gone meanwhile.

use kube::runtime::watcher::Event;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// One change of one object.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// It appeared or changed; with what was known before.
    Set(Arc<K>, Option<Arc<K>>),
    /// It is gone; the last that was known.
    Gone(Arc<K>),
}

/// The objects of one watch by key.
#[derive(Debug)]
pub(crate) struct Listing<K> {
    known: HashMap<String, Arc<K>>,
    /// Keys of the list under way.
    seen: HashSet<String>,
    complete: bool,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), seen: HashSet::new(), complete: false }
    }
}

impl<K> Listing<K> {
    /// Whether a whole list has arrived.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// The changes that an event stands for.
    pub fn apply(&mut self, event: Event<K>, key: impl Fn(&K) -> String) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                self.seen.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.seen.insert(key(&object));
                vec![self.set(object, key)]
            }
            Event::Apply(object) => vec![self.set(object, key)],
            Event::Delete(object) => self.known.remove(&key(&object)).map(Change::Gone).into_iter().collect(),
            Event::InitDone => {
                self.complete = true;
                let seen = std::mem::take(&mut self.seen);
                self.known.extract_if(|key, _| !seen.contains(key)).map(|(_, object)| Change::Gone(object)).collect()
            }
        }
    }

    fn set(&mut self, object: K, key: impl Fn(&K) -> String) -> Change<K> {
        let object = Arc::new(object);
        let old = self.known.insert(key(&object), object.clone());
        Change::Set(object, old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_list_names_what_went_away_while_the_watch_was_down() {
        let mut listing = Listing::<String>::default();
        let key = |s: &String| s.clone();
        for event in [Event::Init, Event::InitApply("a".into()), Event::InitApply("b".into()), Event::InitDone, Event::Init] {
            assert!(!matches!(listing.apply(event, key)[..], [Change::Gone(_), ..]));
        }
        listing.apply(Event::InitApply("b".into()), key);
        let gone = listing.apply(Event::InitDone, key);
        assert!(matches!(&gone[..], [Change::Gone(a)] if **a == "a"));
    }
}
