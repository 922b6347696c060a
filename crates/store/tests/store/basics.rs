//! What the store promises to a caller, one promise per test.
use std::sync::Arc;

use crate::support::{applied, next};
use atoll_store::{Conflict, EmbeddedStore, Error, Op, Options, Outcome, Precondition, RangeQuery, Revision, Store, TxnOutcome};
use tempfile::TempDir;

fn open(dir: &TempDir) -> EmbeddedStore {
    EmbeddedStore::open(Options::new(dir.path().join("a/b"))).unwrap()
}

#[tokio::test]
async fn operations_have_revisions_of_their_own_and_conflicts_show_the_entry() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    assert_eq!(store.revision(), Revision(1));
    let ops = vec![Op::create("/r/a/1", "one"), Op::create("/r/a/2", "two")];
    let TxnOutcome::Applied(results) = store.txn(ops).await.unwrap() else {
        panic!("nothing is in the way");
    };
    assert_eq!(results[0].revision, Revision(2));
    assert_eq!(results[1].revision, Revision(3));

    let conflict = store.apply(Op::create("/r/a/1", "again")).await.unwrap();
    let Outcome::Conflict { current: Some(entry) } = conflict else {
        panic!("the key exists: {conflict:?}");
    };
    assert_eq!((&entry.value[..], entry.mod_revision), (&b"one"[..], Revision(2)));

    let update = Op::put("/r/a/1", "uno", Precondition::ModRevision(entry.mod_revision));
    let updated = applied(&store, update.clone()).await;
    assert_eq!(updated.previous, Some(entry));
    assert!(
        matches!(store.apply(update).await.unwrap(), Outcome::Conflict { current: Some(e) } if e.mod_revision == Revision(4))
    );
    let gone = store.apply(Op::delete("/r/a/9", Precondition::Any)).await.unwrap();
    assert_eq!(gone, Outcome::Conflict { current: None });
    assert_eq!(store.revision(), Revision(4));
}

#[tokio::test]
async fn a_transaction_is_all_or_nothing_and_sees_its_own_writes() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let ops = vec![
        Op::create("/r/a/1", "x"),
        Op::put("/r/a/1", "y", Precondition::ModRevision(Revision(2))),
        Op::create("/r/a/1", "z"),
    ];
    let TxnOutcome::Conflict(Conflict { index, current }) = store.txn(ops).await.unwrap() else {
        panic!("the third operation finds what the first left");
    };
    assert_eq!((index, current.unwrap().mod_revision), (2, Revision(3)));
    assert_eq!(store.revision(), Revision(1));
    assert_eq!(store.get("/r/a/1").await.unwrap(), None);
    let next = applied(&store, Op::create("/r/a/1", "x")).await;
    assert_eq!(next.revision, Revision(2));
}

#[tokio::test]
async fn pages_of_an_older_snapshot_stay_as_they_were() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    for i in 0..6 {
        applied(&store, Op::create(format!("/r/a/{i}"), "old")).await;
    }
    let query = RangeQuery { limit: Some(2), ..RangeQuery::prefix("/r/a/") };
    let first = store.range(query).await.unwrap();
    assert_eq!((first.entries.len(), first.remaining), (2, 4));
    applied(&store, Op::delete("/r/a/2", Precondition::Any)).await;
    applied(&store, Op::put("/r/a/3", "new", Precondition::Any)).await;
    applied(&store, Op::create("/r/a/35", "new")).await;
    applied(&store, Op::create("/r/a/2", "new")).await;
    let rest = RangeQuery { start_after: Some(&first.entries[1].0), at: Some(first.revision), ..RangeQuery::prefix("/r/a/") };
    let rest = store.range(rest).await.unwrap();
    let keys: Vec<&str> = rest.entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["/r/a/2", "/r/a/3", "/r/a/4", "/r/a/5"]);
    assert!(rest.entries.iter().all(|(_, entry)| entry.value == "old"));
    assert_eq!(rest.revision, first.revision);
    let future = RangeQuery { at: Some(Revision(1000)), ..RangeQuery::prefix("/r/") };
    assert!(matches!(store.range(future).await, Err(Error::FutureRevision { .. })));
}

#[tokio::test]
async fn a_watcher_resumes_after_a_restart_and_wakes_for_its_prefix() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    applied(&store, Op::create("/r/a/1", "x")).await;
    applied(&store, Op::put("/r/a/1", "y", Precondition::Any)).await;
    applied(&store, Op::create("/r/b/1", "other")).await;
    applied(&store, Op::delete("/r/a/1", Precondition::Any)).await;
    store.close().await.unwrap();
    drop(store);

    let store = open(&dir);
    assert_eq!(store.revision(), Revision(5));
    let mut watcher = store.watch("/r/a/", Revision(2)).await.unwrap();
    let events = next(&mut watcher, 1).await;
    assert_eq!(events[0].revision, Revision(3));
    assert_eq!(events[0].previous.as_ref().unwrap().value, "x");
    let events = next(&mut watcher, 10).await;
    assert_eq!((events.len(), events[0].revision), (1, Revision(5)));
    assert_eq!(events[0].current, None);
    applied(&store, Op::create("/r/b/2", "other")).await;
    assert_eq!(watcher.progress(), Revision(6));
    let (events, _) = tokio::join!(next(&mut watcher, 10), applied(&store, Op::create("/r/a/2", "z")));
    assert_eq!(events[0].revision, Revision(7));
    store.close().await.unwrap();
    assert!(matches!(watcher.next_batch(1).await, Err(Error::Closed)));
    let late = store.apply(Op::create("/r/a/3", "z")).await;
    assert!(matches!(late, Err(Error::Closed)));
}

#[tokio::test]
async fn a_second_opener_is_told_so_until_the_first_closes() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let second = EmbeddedStore::open(Options::new(dir.path().join("a/b")));
    let Err(error @ Error::InUse { .. }) = second else {
        panic!("the store is in use");
    };
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(store);
    drop(open(&dir));
}

#[tokio::test]
async fn the_file_is_private_and_the_store_is_send() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(open(&dir));
    store.apply(Op::create("/r/a/1", "x")).await.unwrap();
    let data = std::fs::metadata(dir.path().join("a/b/data.redb")).unwrap();
    assert_eq!(data.permissions().mode() & 0o777, 0o600);
}
