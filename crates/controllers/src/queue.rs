//! The work queue of one controller: each key at most once waiting and at most once in work.

use crate::key::Key;
use crate::limits;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Key>,
    /// Keys in `ready`, and keys in work that became dirty again.
    dirty: HashSet<Key>,
    in_work: HashSet<Key>,
    later: BTreeSet<(Instant, Key)>,
    /// When each key in `later` is due: one time per key, the earliest asked for.
    due: HashMap<Key, Instant>,
    failures: HashMap<Key, u32>,
}

/// The queue. All methods may be called from anywhere.
#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Mutex<State>,
    changed: Notify,
}

impl State {
    fn add(&mut self, key: Key) {
        if self.dirty.insert(key.clone()) && !self.in_work.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, at: Instant, key: Key) {
        if let Some(known) = self.due.get(&key) {
            if *known <= at {
                return;
            }
            self.later.remove(&(*known, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.later.insert((at, key));
    }

    /// The next key, or when to look again.
    fn next(&mut self, now: Instant) -> Result<Key, Option<Instant>> {
        while let Some((at, _)) = self.later.first() {
            if *at > now {
                break;
            }
            if let Some((_, key)) = self.later.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
        let Some(key) = self.ready.pop_front() else { return Err(self.later.first().map(|(at, _)| *at)) };
        self.dirty.remove(&key);
        self.in_work.insert(key.clone());
        Ok(key)
    }

    fn done(&mut self, key: &Key) {
        self.in_work.remove(key);
        if self.dirty.contains(key) {
            self.ready.push_back(key.clone());
        }
    }
}

impl WorkQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a look at this key.
    pub fn add(&self, key: Key) {
        self.state().add(key);
        self.changed.notify_one();
    }

    /// Asks for a look after a time.
    pub fn add_after(&self, key: Key, wait: Duration) {
        self.state().add_at(Instant::now() + wait, key);
        self.changed.notify_one();
    }

    /// The next key; it is in work until `done`.
    pub async fn next(&self) -> Key {
        loop {
            let next = self.state().next(Instant::now());
            match next {
                Ok(key) => return key,
                Err(None) => self.changed.notified().await,
                Err(Some(at)) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at.into()) => {}
                    }
                }
            }
        }
    }

    /// Work on this key has ended well.
    pub fn done(&self, key: &Key) {
        let mut state = self.state();
        state.failures.remove(key);
        state.done(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Work on this key has failed: it is tried again after a wait that grows. Returns the number of failures in a row.
    pub fn failed(&self, key: &Key) -> u32 {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        *failures += 1;
        let count = *failures;
        let wait = limits::RETRY_MIN.saturating_mul(1 << (count - 1).min(16)).min(limits::RETRY_MAX);
        state.add_at(Instant::now() + wait, key.clone());
        state.done(key);
        drop(state);
        self.changed.notify_one();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_work_waits_until_it_is_done() {
        let (mut state, now) = (State::default(), Instant::now());
        let key = Key::new("", "a");
        state.add(key.clone());
        state.add(key.clone());
        assert_eq!(state.next(now), Ok(key.clone()));
        assert_eq!(state.next(now), Err(None));
        state.add(key.clone());
        assert_eq!(state.next(now), Err(None), "in work");
        state.done(&key);
        assert_eq!(state.next(now), Ok(key.clone()));
        state.done(&key);
        assert_eq!(state.next(now), Err(None));
    }

    #[test]
    fn later_keys_come_when_due() {
        let (mut state, now) = (State::default(), Instant::now());
        let due = now + Duration::from_secs(1);
        state.add_at(due + Duration::from_secs(5), Key::new("", "a"));
        state.add_at(due, Key::new("", "a"));
        state.add_at(due + Duration::from_secs(9), Key::new("", "a"));
        assert_eq!(state.next(now), Err(Some(due)));
        assert_eq!(state.next(due), Ok(Key::new("", "a")));
        assert!(state.later.is_empty() && state.due.is_empty());
    }
}
