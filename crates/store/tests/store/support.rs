//! What several tests need.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atoll_store::{Applied, Event, Op, Outcome, Store, Watcher};

/// Applies an operation that nothing is in the way of.
pub async fn applied(store: &dyn Store, op: Op) -> Applied {
    match store.apply(op).await.unwrap() {
        Outcome::Applied(applied) => applied,
        Outcome::Conflict { current } => panic!("conflict with {current:?}"),
    }
}

/// The next events of a watcher that has some coming.
pub async fn next(watcher: &mut Box<dyn Watcher>, max: usize) -> Vec<Arc<Event>> {
    let batch = tokio::time::timeout(Duration::from_secs(10), watcher.next_batch(max));
    batch.await.expect("an event within ten seconds").unwrap()
}

/// Polls until `holds`, and fails after `within`, also when a look never comes back.
pub async fn eventually(within: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(within, polling).await.is_ok(), "not within {within:?}: {what}");
}

/// The files of a directory that contain some bytes.
pub fn files_with(dir: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    // A file may be renamed while this looks.
    let holds =
        |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.windows(needle.len()).any(|window| window == needle));
    files.filter(holds).collect()
}

/// Copies the files of a store as a crash would leave them.
pub fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
