//! Pods that wait for a node: ready ones by priority, failed ones until something changes or their backoff is over.
//! Pure: the current time is passed in.

use crate::limits;
use crate::snapshot::PodInfo;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In `active`.
    Active,
    /// In `waiting` until this time.
    Waiting(Instant),
    /// Did not fit; waits for a change, at the latest until this time (also in `waiting`).
    Unschedulable(Instant),
    /// Taken by `pop`. `changed`: something changed since.
    InFlight { changed: bool },
}

#[derive(Debug)]
struct Entry {
    info: Arc<PodInfo>,
    arrival: u64,
    attempts: u32,
    /// Before this time it is not tried again.
    not_before: Instant,
    state: State,
}

type ActiveKey = (Reverse<i32>, u64, String);

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    entries: HashMap<String, Entry>,
    active: BTreeSet<ActiveKey>,
    waiting: BTreeSet<(Instant, String)>,
    unschedulable: BTreeSet<String>,
    arrivals: u64,
}

fn backoff(attempts: u32, min: Duration, max: Duration) -> Duration {
    min.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(max)
}

impl Queue {
    /// Adds a Pod, or replaces what is known of it. `retry`: the change may make it fit.
    pub fn put(&mut self, info: Arc<PodInfo>, retry: Retry, now: Instant) {
        let uid = info.uid().to_owned();
        if !self.entries.contains_key(&uid) {
            self.arrivals += 1;
            let entry = Entry { info, arrival: self.arrivals, attempts: 0, not_before: now, state: State::Active };
            self.active.insert(active_key(&uid, &entry));
            self.entries.insert(uid, entry);
            return;
        }
        let Some(entry) = self.entries.get_mut(&uid) else { return };
        if entry.state == State::Active {
            self.active.remove(&active_key(&uid, entry));
            entry.info = info;
            self.active.insert(active_key(&uid, entry));
            return;
        }
        entry.info = info;
        if retry == Retry::Yes {
            self.wake_one(&uid, now);
        }
    }

    /// Forgets a Pod.
    pub fn remove(&mut self, uid: &str) {
        self.detach(uid);
        self.entries.remove(uid);
    }

    /// The Pod to place next, if one is ready.
    pub fn pop(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        while let Some((at, uid)) = self.waiting.first().cloned() {
            if at > now {
                break;
            }
            self.activate(&uid);
        }
        let (_, _, uid) = self.active.pop_first()?;
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts += 1;
        entry.state = State::InFlight { changed: false };
        Some(entry.info.clone())
    }

    /// The Pod fits nowhere: it waits for `wake`.
    pub fn did_not_fit(&mut self, uid: &str, now: Instant) {
        let (min, max) = (limits::UNSCHEDULABLE_BACKOFF_MIN, limits::UNSCHEDULABLE_BACKOFF_MAX);
        self.put_back(uid, now, min, max, State::Unschedulable(now + limits::UNSCHEDULABLE_FLUSH));
    }

    /// The attempt ended in an error: it is tried again after a while.
    pub fn failed(&mut self, uid: &str, now: Instant) {
        let (min, max) = (limits::ERROR_BACKOFF_MIN, limits::ERROR_BACKOFF_MAX);
        self.put_back(uid, now, min, max, State::InFlight { changed: true });
    }

    fn put_back(&mut self, uid: &str, now: Instant, min: Duration, max: Duration, otherwise: State) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let State::InFlight { changed } = entry.state else { return };
        entry.not_before = now + backoff(entry.attempts, min, max);
        match otherwise {
            State::Unschedulable(until) if !changed => {
                entry.state = otherwise;
                self.waiting.insert((until, uid.to_owned()));
                self.unschedulable.insert(uid.to_owned());
            }
            _ => {
                entry.state = State::Waiting(entry.not_before);
                self.waiting.insert((entry.not_before, uid.to_owned()));
            }
        }
    }

    /// Something changed that may let Pods fit: all that did not fit are tried again, each not before its backoff.
    pub fn wake(&mut self, now: Instant) {
        for uid in std::mem::take(&mut self.unschedulable) {
            self.wake_one(&uid, now);
        }
        for entry in self.entries.values_mut() {
            if let State::InFlight { changed } = &mut entry.state {
                *changed = true;
            }
        }
    }

    fn wake_one(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match &mut entry.state {
            State::InFlight { changed } => *changed = true,
            State::Unschedulable(until) => {
                self.waiting.remove(&(*until, uid.to_owned()));
                self.unschedulable.remove(uid);
                let at = entry.not_before.max(now);
                entry.state = State::Waiting(at);
                self.waiting.insert((at, uid.to_owned()));
            }
            State::Active | State::Waiting(_) => {}
        }
    }

    /// When `pop` may next have something that it has not now.
    pub fn next_at(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Whether `pop` has something.
    pub fn is_ready(&self, now: Instant) -> bool {
        !self.active.is_empty() || self.next_at().is_some_and(|at| at <= now)
    }

    fn activate(&mut self, uid: &str) {
        self.detach(uid);
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.state = State::Active;
            self.active.insert(active_key(uid, entry));
        }
    }

    fn detach(&mut self, uid: &str) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.state {
            State::Active => {
                self.active.remove(&active_key(uid, entry));
            }
            State::Waiting(at) | State::Unschedulable(at) => {
                self.waiting.remove(&(at, uid.to_owned()));
                self.unschedulable.remove(uid);
            }
            State::InFlight { .. } => {}
        }
    }
}

/// Whether a change of a waiting Pod is a reason to try it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is.
    Yes,
    /// It is not (its status, for example).
    No,
}

fn active_key(uid: &str, entry: &Entry) -> ActiveKey {
    (Reverse(entry.info.priority()), entry.arrival, uid.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::tests::info;
    use serde_json::json;

    fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
        Arc::new(info(json!({"metadata": {"name": name}, "spec": {"priority": priority}})))
    }

    fn pop(queue: &mut Queue, now: Instant) -> Option<String> {
        queue.pop(now).map(|p| p.name().to_owned())
    }

    #[test]
    fn priority_first_then_arrival() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for p in [pod("a", 0), pod("b", 5), pod("c", 0)] {
            queue.put(p, Retry::Yes, now);
        }
        assert_eq!(
            [pop(&mut queue, now), pop(&mut queue, now), pop(&mut queue, now), pop(&mut queue, now)],
            [Some("b".into()), Some("a".into()), Some("c".into()), None]
        );
    }

    #[test]
    fn a_pod_that_did_not_fit_waits_for_a_change_and_its_backoff() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.put(pod("a", 0), Retry::Yes, now);
        assert!(queue.pop(now).is_some());
        queue.did_not_fit("a", now);
        assert_eq!(pop(&mut queue, now + Duration::from_secs(30)), None);
        queue.wake(now);
        assert_eq!(pop(&mut queue, now), None, "backoff");
        assert_eq!(pop(&mut queue, now + limits::UNSCHEDULABLE_BACKOFF_MIN), Some("a".into()));
    }

    #[test]
    fn a_change_during_the_attempt_is_not_lost() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.put(pod("a", 0), Retry::Yes, now);
        assert!(queue.pop(now).is_some());
        queue.wake(now);
        queue.did_not_fit("a", now);
        assert_eq!(pop(&mut queue, now + limits::UNSCHEDULABLE_BACKOFF_MIN), Some("a".into()));
    }

    #[test]
    fn without_any_change_it_is_tried_again_in_the_end_and_removed_ones_never() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["a", "b"] {
            queue.put(pod(name, 0), Retry::Yes, now);
            assert!(queue.pop(now).is_some());
            queue.did_not_fit(name, now);
        }
        queue.remove("b");
        let later = now + limits::UNSCHEDULABLE_FLUSH;
        assert_eq!((pop(&mut queue, later), pop(&mut queue, later)), (Some("a".into()), None));
    }
}
