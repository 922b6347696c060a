//! A pool of numbers: addresses of a range, or node ports.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use parking_lot::Mutex;
use rand::Rng;

/// Numbers of a range that are taken. A random start keeps a number that was just freed from being handed out at once.
#[derive(Debug)]
pub struct Pool {
    range: RangeInclusive<u32>,
    taken: Mutex<BTreeSet<u32>>,
}

impl Pool {
    pub fn new(range: RangeInclusive<u32>) -> Pool {
        Pool { range, taken: Mutex::default() }
    }

    pub fn contains(&self, number: u32) -> bool {
        self.range.contains(&number)
    }

    /// Takes a number; false if it is taken.
    pub fn take(&self, number: u32) -> bool {
        self.taken.lock().insert(number)
    }

    /// Takes any free number.
    pub fn take_any(&self) -> Option<u32> {
        let mut taken = self.taken.lock();
        let (low, high) = (*self.range.start(), *self.range.end());
        let start = rand::rng().random_range(low..=high);
        let free = (start..=high).chain(low..start).find(|n| !taken.contains(n))?;
        taken.insert(free);
        Some(free)
    }

    pub fn free(&self, number: u32) {
        self.taken.lock().remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_each_number_once_and_takes_it_back() {
        let pool = Pool::new(5..=7);
        let mut got: Vec<u32> = (0..3).filter_map(|_| pool.take_any()).collect();
        got.sort_unstable();
        assert_eq!(got, [5, 6, 7]);
        assert_eq!(pool.take_any(), None);
        pool.free(6);
        assert!(pool.take(6));
        assert!(!pool.take(6));
    }
}
