//! Listing and watching as informers do it, while writers race with trimming, eviction and erasure.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use atoll_store::{EmbeddedStore, Entry, Error, Key, Op, Options, Precondition, RangeQuery, Revision, Store};
use tempfile::TempDir;

use crate::support::applied;

/// Follows a prefix until `stop` and until it has seen revision `last`; returns what it then knows.
///
/// Each event must build on exactly the version that is known: that shows a lost, repeated or reordered one.
async fn follow(
    store: Arc<EmbeddedStore>,
    prefix: &'static str,
    max: usize,
    last: Arc<AtomicUsize>,
) -> (BTreeMap<Key, Entry>, usize) {
    let mut relists = 0;
    'list: loop {
        let (mut known, revision) = list(&store, prefix).await;
        let mut watcher = store.watch(prefix, revision).await.unwrap();
        let mut position = revision;
        loop {
            let wanted = last.load(Ordering::SeqCst);
            if wanted != 0 && watcher.progress() >= Revision(wanted as u64) {
                return (known, relists);
            }
            let batch = tokio::time::timeout(std::time::Duration::from_millis(20), watcher.next_batch(max)).await;
            let events = match batch {
                Err(_) => continue,
                Ok(Err(Error::Compacted { .. })) => {
                    relists += 1;
                    continue 'list;
                }
                Ok(events) => events.unwrap(),
            };
            for event in events {
                assert!(event.revision > position, "events come in order");
                position = event.revision;
                let held = match &event.current {
                    Some(entry) => known.insert(event.key.clone(), entry.clone()),
                    None => known.remove(&event.key),
                };
                assert_eq!(held, event.previous, "nothing between is missing");
            }
            tokio::task::yield_now().await;
        }
    }
}

/// All pages of one snapshot; begins again when it is gone before the last page.
async fn list(store: &EmbeddedStore, prefix: &str) -> (BTreeMap<Key, Entry>, Revision) {
    'snapshot: loop {
        let mut known = BTreeMap::new();
        let mut page = store.range(RangeQuery { limit: Some(7), ..RangeQuery::prefix(prefix) }).await.unwrap();
        loop {
            known.extend(page.entries.iter().cloned());
            if page.remaining == 0 {
                return (known, page.revision);
            }
            tokio::task::yield_now().await;
            let after = page.entries.last().map(|(key, _)| key.clone());
            let next = RangeQuery { prefix, start_after: after.as_deref(), limit: Some(7), at: Some(page.revision) };
            page = match store.range(next).await {
                Ok(page) => page,
                Err(Error::Compacted { .. }) => continue 'snapshot,
                Err(error) => panic!("{error}"),
            };
        }
    }
}

async fn write(store: Arc<EmbeddedStore>, writer: u64, stop: Arc<AtomicBool>) {
    let mut random = writer.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while !stop.load(Ordering::SeqCst) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = format!("/r/{}/{}", ["pods", "leases", "secrets"][(random % 3) as usize], random / 8 % 30);
        let op = match random / 1024 % 5 {
            0 if random.is_multiple_of(7) => Op::erase(key, Precondition::Any),
            0 => Op::delete(key, Precondition::Any),
            _ => Op::put(key, vec![b'x'; (random / 65536 % 600) as usize], Precondition::Any),
        };
        store.apply(op).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn informers_converge_on_the_state() {
    let dir = TempDir::new().unwrap();
    let options = Options { history_bytes_max: 60_000, history_memory_bytes_max: 20_000, ..Options::new(dir.path()) };
    let store = Arc::new(EmbeddedStore::open(options).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (1..=6).map(|writer| tokio::spawn(write(store.clone(), writer, stop.clone()))).collect();
    let prefixes = ["/r/pods/", "/r/leases/", "/r/secrets/", "/r/", "/r/pods/1"];
    let informers: Vec<_> = prefixes
        .into_iter()
        .cycle()
        .take(20)
        .enumerate()
        .map(|(n, prefix)| (prefix, tokio::spawn(follow(store.clone(), prefix, 1 + n * 3, last.clone()))))
        .collect();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    applied(&*store, Op::put("/r/pods/last", "x", Precondition::Any)).await;
    last.store(usize::try_from(store.revision().0).unwrap(), Ordering::SeqCst);
    for (prefix, informer) in informers {
        let (known, relists) = informer.await.unwrap();
        let page = store.range(RangeQuery::prefix(prefix)).await.unwrap();
        assert!(known.into_iter().eq(page.entries), "{prefix} after {relists} relists");
    }
}
