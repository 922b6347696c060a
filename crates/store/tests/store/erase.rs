//! What was deleted for good leaves the log and the file.
use std::{sync::Arc, time::Duration};

use crate::support::{applied, copy_files, eventually, files_with, next};
use atoll_store::{EmbeddedStore, Error, Op, Options, Precondition, RangeQuery, Revision, Store};
use tempfile::TempDir;

const NONCE: &str = "nonce-5b1f6f0d-7a61-4c0e-9d5e-0e6f1a2b3c4d";
const WITHIN: Duration = Duration::from_secs(5);

/// A store with a Secret that had three versions, among other things, and the revision before the last of them.
async fn store_with_secret(dir: &TempDir) -> (EmbeddedStore, Revision) {
    let store = EmbeddedStore::open(Options::new(dir.path())).unwrap();
    applied(&store, Op::create("/r/pods/a/1", "pod")).await;
    applied(&store, Op::create("/r/secrets/a/other", "kept")).await;
    applied(&store, Op::create("/r/secrets/a/s", NONCE)).await;
    let long = format!("{}{NONCE}", "x".repeat(20_000));
    let before = applied(&store, Op::put("/r/secrets/a/s", long, Precondition::Any)).await.revision;
    applied(&store, Op::put("/r/secrets/a/s", format!("2{NONCE}"), Precondition::Any)).await;
    applied(&store, Op::put("/r/pods/a/1", "pod2", Precondition::Any)).await;
    assert!(!files_with(dir.path(), NONCE.as_bytes()).is_empty(), "the search would find it");
    (store, before)
}

#[tokio::test]
async fn a_deleted_secret_leaves_the_file_and_the_log() {
    let dir = TempDir::new().unwrap();
    let (store, before) = store_with_secret(&dir).await;
    let mut live = store.watch("/r/secrets/", store.revision()).await.unwrap();
    let mut slow = store.watch("/r/secrets/", before).await.unwrap();
    let deleted = applied(&store, Op::erase("/r/secrets/a/s", Precondition::Any)).await;
    let event = next(&mut live, 10).await.remove(0);
    let previous = event.previous.as_ref().unwrap();
    assert!(previous.value.ends_with(NONCE.as_bytes()), "a live watcher learns what was deleted");

    eventually(WITHIN, "the nonce is gone", async || files_with(dir.path(), NONCE.as_bytes()).is_empty()).await;
    // The log in memory follows the file. A slow watcher that reads in between gets what there still is, and is then not slow
    // any more: it is asked only once the log is known to have followed.
    let is_refused = async || matches!(store.watch("/r/secrets/", before).await, Err(Error::Compacted { .. }));
    eventually(WITHIN, "the log has forgotten it too", is_refused).await;
    let told = tokio::time::timeout(WITHIN, slow.next_batch(1)).await.expect("the slow watcher is told");
    assert!(matches!(told, Err(Error::Compacted { oldest }) if oldest == deleted.revision));
    let at = |prefix, at| RangeQuery { at: Some(at), ..RangeQuery::prefix(prefix) };
    assert!(matches!(store.range(at("/r/secrets/", before)).await, Err(Error::Compacted { .. })));
    let pods = store.range(at("/r/pods/", before)).await.unwrap();
    assert_eq!(pods.entries[0].1.value, "pod", "other resources keep their history");
    assert_eq!(store.get("/r/secrets/a/other").await.unwrap().unwrap().value, "kept");
    assert!(store.watch("/r/secrets/", deleted.revision).await.is_ok());

    store.close().await.unwrap();
    drop(store);
    let store = EmbeddedStore::open(Options::new(dir.path())).unwrap();
    assert_eq!(store.revision(), deleted.revision);
    assert!(matches!(store.watch("/r/secrets/", before).await, Err(Error::Compacted { .. })));
    let mut pods = store.watch("/r/pods/", before).await.unwrap();
    assert_eq!(next(&mut pods, 10).await[0].previous.as_ref().unwrap().value, "pod");
    assert_eq!(store.get("/r/secrets/a/other").await.unwrap().unwrap().value, "kept");
}

#[tokio::test]
async fn an_erasure_outlives_a_crash_and_does_not_outlive_closing() {
    let dir = TempDir::new().unwrap();
    let (store, _) = store_with_secret(&dir).await;
    applied(&store, Op::erase("/r/secrets/a/s", Precondition::Any)).await;
    let crashed = TempDir::new().unwrap();
    copy_files(dir.path(), crashed.path());
    assert!(!files_with(crashed.path(), NONCE.as_bytes()).is_empty());
    store.close().await.unwrap();
    assert!(files_with(dir.path(), NONCE.as_bytes()).is_empty(), "closing finishes the erasure");

    // What a rewrite leaves behind that is cut short by the crash.
    std::fs::write(crashed.path().join("data.redb.new"), NONCE).unwrap();
    let store = EmbeddedStore::open(Options::new(crashed.path())).unwrap();
    let is_gone = async || files_with(crashed.path(), NONCE.as_bytes()).is_empty();
    eventually(WITHIN, "the erasure resumes", is_gone).await;
    assert_eq!(store.get("/r/pods/a/1").await.unwrap().unwrap().value, "pod2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_watchers_go_on_during_erasures() {
    let dir = TempDir::new().unwrap();
    let store = Arc::new(EmbeddedStore::open(Options::new(dir.path())).unwrap());
    let mut watcher = store.watch("/r/pods/", store.revision()).await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..300 {
                    let key = format!("/r/pods/{writer}/{}", n % 7);
                    applied(&*store, Op::put(key, format!("{n}"), Precondition::Any)).await;
                    if n % 50 == 0 {
                        let secret = format!("/r/secrets/{writer}/s");
                        applied(&*store, Op::create(secret.clone(), NONCE)).await;
                        applied(&*store, Op::erase(secret, Precondition::Any)).await;
                        tokio::time::sleep(Duration::from_millis(300)).await;
                    }
                }
            })
        })
        .collect();
    let mut last = Revision(0);
    let mut seen = 0;
    while seen < 4 * 300 {
        for event in next(&mut watcher, 100).await {
            assert!(event.revision > last);
            last = event.revision;
            seen += 1;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    eventually(WITHIN, "the nonce is gone", async || files_with(dir.path(), NONCE.as_bytes()).is_empty()).await;
    let pods = store.range(RangeQuery::prefix("/r/pods/")).await.unwrap();
    let revision = store.revision();
    drop(store);
    let store = EmbeddedStore::open(Options::new(dir.path())).unwrap();
    assert_eq!(store.revision(), revision);
    assert_eq!(store.range(RangeQuery::prefix("/r/pods/")).await.unwrap().entries, pods.entries);
}
