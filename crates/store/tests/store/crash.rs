//! The process is killed, or the file is damaged.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use atoll_store::{EmbeddedStore, Entry, Error, Key, Op, Options, Precondition, RangeQuery, Revision, Store};
use tempfile::TempDir;

use crate::support::{applied, copy_files, eventually};

/// Where the child process finds its store.
const DIR: &str = "ATOLL_STORE_CRASH_TEST_DIR";

/// Runs in a process of its own: writes until it is killed and prints what was acknowledged.
#[test]
#[ignore = "only meaningful as the child process of another test"]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let options = Options { history_bytes_max: 20_000, ..Options::new(dir) };
        let store = Arc::new(EmbeddedStore::open(options).unwrap());
        for n in 0_u64.. {
            let mut ops: Vec<Op> =
                (0..4).map(|writer| Op::put(format!("/r/a/{writer}-{}", n % 20), vec![b'v'; 700], Precondition::Any)).collect();
            if n % 10 == 9 {
                ops.push(Op::put("/r/secrets/s", "s", Precondition::Any));
                ops.push(Op::erase("/r/secrets/s", Precondition::Any));
            }
            let puts = ops.into_iter().map(|op| {
                let store = store.clone();
                tokio::spawn(async move { store.apply(op).await.unwrap() })
            });
            for put in puts.collect::<Vec<_>>() {
                let outcome = put.await.unwrap();
                let atoll_store::Outcome::Applied(applied) = outcome else { panic!("nothing is in the way") };
                println!("acknowledged {}", applied.revision);
            }
        }
    });
}

#[tokio::test]
async fn killed_at_any_moment_it_loses_nothing_acknowledged() {
    let dir = TempDir::new().unwrap();
    let mut last = 1;
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::child", "--exact", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = 0;
        let mut wanted = 40 + 61 * round;
        let mut revision_of = |line: String| {
            if let Some(revision) = line.strip_prefix("acknowledged ") {
                acknowledged += 1;
                last = last.max(revision.parse::<u64>().unwrap());
            }
            acknowledged
        };
        for line in lines.by_ref() {
            if revision_of(line.unwrap()) >= wanted {
                child.kill().unwrap();
                wanted = u64::MAX;
            }
        }
        child.wait().unwrap();
        assert_eq!(wanted, u64::MAX, "the child wrote until it was killed");

        let store = EmbeddedStore::open(Options::new(dir.path())).unwrap();
        assert!(store.revision() >= Revision(last), "revision {} was acknowledged, found {}", last, store.revision());
        let page = store.range(RangeQuery::prefix("/r/a/")).await.unwrap();
        assert!(page.entries.iter().all(|(_, entry)| entry.value.len() == 700));
        last = store.revision().0;
    }
}

async fn contents(dir: &Path) -> Result<(Vec<(Key, Entry)>, Revision), Error> {
    let store = EmbeddedStore::open(Options::new(dir))?;
    let page = store.range(RangeQuery::prefix("")).await?;
    Ok((page.entries, page.revision))
}

/// A store in good order with some contents.
async fn filled(dir: &Path) {
    let store = EmbeddedStore::open(Options::new(dir)).unwrap();
    for n in 0..40 {
        applied(&store, Op::put(format!("/r/a/{}", n % 30), vec![b'a' + n % 26; 900], Precondition::Any)).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_reported_and_never_believed() {
    let dir = TempDir::new().unwrap();
    filled(dir.path()).await;
    let intact = contents(dir.path()).await.unwrap();
    let data = std::fs::read(dir.path().join("data.redb")).unwrap();
    let broken = TempDir::new().unwrap();
    let file = broken.path().join("data.redb");
    let mut errors = 0;
    for at in (0..data.len()).step_by(2039).chain((0..320).step_by(5)) {
        let mut bytes = data.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&file, &bytes).unwrap();
        match contents(broken.path()).await {
            Ok(found) => assert_eq!(found, intact, "byte {at} matters"),
            Err(error @ (Error::Corrupt { .. } | Error::Format { .. })) => {
                errors += 1;
                assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(errors > 20, "only {errors} of the damages were met");
}

#[tokio::test]
async fn a_file_cut_short_is_reported() {
    let dir = TempDir::new().unwrap();
    filled(dir.path()).await;
    let intact = contents(dir.path()).await.unwrap();
    let data = std::fs::read(dir.path().join("data.redb")).unwrap();
    let broken = TempDir::new().unwrap();
    for len in (1..data.len()).step_by(1021) {
        std::fs::write(broken.path().join("data.redb"), &data[..len]).unwrap();
        match contents(broken.path()).await {
            Ok(found) => assert_eq!(found, intact, "cut to {len} bytes"),
            Err(Error::Corrupt { .. }) => {}
            Err(error) => panic!("cut to {len} bytes: {error}"),
        }
    }
    std::fs::write(broken.path().join("data.redb"), "not a database at all, but long enough".repeat(200)).unwrap();
    let Err(error @ Error::Corrupt { .. }) = contents(broken.path()).await else { panic!("it is not a database") };
    assert!(error.to_string().contains("Restore it from a backup"), "{error}");
}

/// A copy of the files while the store is written to is what a crash of the machine could leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_copied_while_written_to_open() {
    let dir = TempDir::new().unwrap();
    let store = EmbeddedStore::open(Options::new(dir.path())).unwrap();
    let copies = TempDir::new().unwrap();
    for n in 0..30_u8 {
        applied(&store, Op::put(format!("/r/a/{n}"), vec![n; 3000], Precondition::Any)).await;
        let copy = copies.path().join(n.to_string());
        copy_files(dir.path(), &copy);
        let (entries, revision) = contents(&copy).await.unwrap();
        assert_eq!((entries.len(), revision), (usize::from(n) + 1, store.revision()));
    }
    eventually(Duration::from_secs(1), "the original is still there", async || store.get("/r/a/0").await.is_ok()).await;
}
