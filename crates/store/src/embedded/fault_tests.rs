//! The driver on a disk that fails, fills up, or loses power.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;
use redb::StorageBackend;
use tempfile::TempDir;

use super::{Options, disk::Disk, open::open};
use crate::{Error, Op, Outcome, Precondition, RangeQuery, Revision, Store, TxnOutcome};

/// What an operation on the disk does once it is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// This one operation fails, the next ones succeed.
    Once(io::ErrorKind),
    /// From here on everything fails.
    Lasting(io::ErrorKind),
}

#[derive(Debug, Default)]
struct Sim {
    files: BTreeMap<PathBuf, Arc<Mutex<SimFile>>>,
    /// Writes, size changes and syncs so far.
    operations: u64,
    /// The operation to fail, and how.
    fault: Option<(u64, Fault)>,
}

/// A file as it is on the medium, and what was written since the last sync.
#[derive(Debug, Default, Clone)]
struct SimFile {
    durable: Vec<u8>,
    now: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

/// A disk in memory. Clones are the same disk.
#[derive(Debug, Default, Clone)]
struct SimDisk(Arc<Mutex<Sim>>);

impl SimDisk {
    fn fail_at(&self, operation: u64, fault: Fault) {
        self.0.lock().fault = Some((operation, fault));
    }

    fn repair(&self) {
        self.0.lock().fault = None;
    }

    fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// What is left after a loss of power: what was synced, and of the later writes those that `survives` says, in part.
    fn after_power_loss(&self, mut survives: impl FnMut() -> u8) -> SimDisk {
        let mut files = self.0.lock().files.clone();
        for file in files.values_mut() {
            let crashed = file.lock().clone();
            let mut left = crashed.durable;
            left.resize(left.len().max(crashed.now.len()), 0);
            for (at, data) in &crashed.pending {
                // Whole sectors of 512 bytes.
                let sectors = data.len().div_ceil(512);
                let len = (usize::from(survives()) % (sectors + 1) * 512).min(data.len());
                left[*at..at + len].copy_from_slice(&data[..len]);
            }
            *file = Arc::new(Mutex::new(SimFile { now: left.clone(), durable: left, pending: Vec::new() }));
        }
        SimDisk(Arc::new(Mutex::new(Sim { files, ..Sim::default() })))
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageBackend>> {
        let file = self.0.lock().files.entry(path.to_owned()).or_default().clone();
        Ok(Box::new(OpenFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut sim = self.0.lock();
        sim.operation()?;
        let file = sim.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        sim.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().files.remove(path);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.0.lock().operation()
    }
}

impl Sim {
    /// Counts an operation, or fails it.
    fn operation(&mut self) -> io::Result<()> {
        let operation = self.operations;
        self.operations += 1;
        match self.fault {
            Some((at, Fault::Once(kind))) if operation == at => Err(kind.into()),
            Some((at, Fault::Lasting(kind))) if operation >= at => Err(kind.into()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: SimDisk,
    file: Arc<Mutex<SimFile>>,
}

impl StorageBackend for OpenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let file = self.file.lock();
        let bytes = file.now.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.0.lock().operation()?;
        let len = usize::try_from(len).unwrap();
        let mut file = self.file.lock();
        file.now.resize(len, 0);
        file.pending.retain(|(at, data)| at + data.len() <= len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let operation = self.disk.0.lock().operation();
        let mut file = self.file.lock();
        let pending = std::mem::take(&mut file.pending);
        // Of a sync that fails, the writes are lost for good, though reads still see them.
        operation?;
        let len = file.now.len();
        file.durable.resize(len, 0);
        for (at, data) in pending {
            file.durable[at..at + data.len()].copy_from_slice(&data);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.0.lock().operation()?;
        let start = usize::try_from(offset).unwrap();
        let mut file = self.file.lock();
        file.now[start..start + data.len()].copy_from_slice(data);
        file.pending.push((start, data.to_vec()));
        Ok(())
    }
}

type Contents = Vec<(String, Bytes, Revision)>;

async fn contents(store: &dyn Store) -> Contents {
    let page = store.range(RangeQuery::prefix("")).await.unwrap();
    page.entries.into_iter().map(|(key, entry)| (key.to_string(), entry.value, entry.mod_revision)).collect()
}

/// A transaction that can always be applied.
fn txn(n: u8, len: usize) -> Vec<Op> {
    vec![
        Op::put(format!("/r/a/{}", n % 5), vec![n; len], Precondition::Any),
        Op::put(format!("/r/b/{}", n % 3), vec![n; 3], Precondition::Any),
        Op::delete(format!("/r/b/{}", n % 3), Precondition::Any),
    ]
}

/// Trims nearly every commit, so that deletes in the file are under test too.
fn options(dir: &TempDir) -> Options {
    Options { history_bytes_max: 6000, ..Options::new(dir.path()) }
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_nothing_else() {
    // Every operation on the disk that these writes make is the one that fails, once each.
    for fail_at in 0.. {
        let dir = TempDir::new().unwrap();
        let disk = SimDisk::default();
        let store = open(&options(&dir), Box::new(disk.clone())).unwrap();
        let start = disk.operations();
        disk.fail_at(start + fail_at, Fault::Lasting(io::ErrorKind::StorageFull));
        let mut has_failed = false;
        for n in 0..6 {
            let before = (contents(&store).await, store.revision());
            let mut watcher = store.watch("", store.revision()).await.unwrap();
            let Err(error) = store.txn(txn(n, 1500)).await else {
                assert_eq!(watcher.next_batch(10).await.unwrap().len(), 3);
                continue;
            };
            has_failed = true;
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert_eq!((contents(&store).await, store.revision()), before, "nothing is visible");
            assert!(store.txn(txn(n, 1500)).await.is_err(), "the disk is still full");
            disk.repair();
            let outcome = store.txn(txn(n, 1500)).await.unwrap();
            let TxnOutcome::Applied(applied) = outcome else { panic!("nothing is in the way: {outcome:?}") };
            assert_eq!(applied[0].revision.0, before.1.0 + 1);
            assert_eq!(watcher.next_batch(10).await.unwrap().len(), 3, "the watcher sees it once");
        }
        disk.repair();
        let after = (contents(&store).await, store.revision());
        store.close().await.unwrap();
        let store = open(&options(&dir), Box::new(disk)).unwrap();
        assert_eq!((contents(&store).await, store.revision()), after);
        if !has_failed {
            assert!(fail_at > 20, "the faults were met");
            return;
        }
    }
}

#[tokio::test]
async fn a_failed_sync_is_not_taken_for_success() {
    let dir = TempDir::new().unwrap();
    for fail_at in 0..40 {
        let disk = SimDisk::default();
        let store = open(&options(&dir), Box::new(disk.clone())).unwrap();
        for n in 0..8 {
            store.txn(txn(n, 1500)).await.unwrap();
        }
        disk.fail_at(disk.operations() + fail_at, Fault::Once(io::ErrorKind::Other));
        for n in 8..11 {
            if let Err(error) = store.txn(txn(n, 1500)).await {
                assert!(matches!(error, Error::Io { .. }), "{error}");
            }
        }
        disk.repair();
        let outcome = store.apply(Op::create("/r/c/1", "x")).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied(_)));
        let after = contents(&store).await;
        let left = disk.after_power_loss(|| 0);
        drop(store);
        let store = open(&options(&dir), Box::new(left)).unwrap();
        assert_eq!(contents(&store).await, after);
    }
}

#[tokio::test]
async fn history_in_the_file_comes_back_without_a_write() {
    let dir = TempDir::new().unwrap();
    let disk = SimDisk::default();
    let options = Options { history_memory_bytes_max: 0, ..Options::new(dir.path()) };
    let store = open(&options, Box::new(disk.clone())).unwrap();
    store.apply(Op::create("/r/a/1", "x")).await.unwrap();
    disk.fail_at(0, Fault::Lasting(io::ErrorKind::Other));
    assert!(store.apply(Op::create("/r/a/2", "x")).await.is_err());
    let older = RangeQuery { at: Some(Revision(1)), ..RangeQuery::prefix("/r/a/") };
    assert!(matches!(store.range(older).await, Err(Error::Io { .. })), "the file is closed");
    disk.repair();
    let deadline = Instant::now() + Duration::from_secs(10);
    while store.range(older).await.is_err() {
        assert!(Instant::now() < deadline, "the file was not opened again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(store.range(older).await.unwrap().entries.is_empty());
}

fn cases(default: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(default))
}

proptest! {
    #![proptest_config(cases(100))]

    /// Power is lost at any operation on the disk, and any of the writes since the last sync are lost or torn.
    #[test]
    fn power_loss_loses_nothing_that_was_acknowledged(
        lens in proptest::collection::vec(0..9000_usize, 1..12),
        cut_at in 0..400_u64,
        fates in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = TempDir::new().unwrap();
            let disk = SimDisk::default();
            let store = open(&options(&dir), Box::new(disk.clone())).unwrap();
            disk.fail_at(disk.operations() + cut_at, Fault::Lasting(io::ErrorKind::Other));
            let mut failed = None;
            for (n, len) in (0_u8..).zip(&lens) {
                if store.txn(txn(n, *len)).await.is_err() {
                    failed = Some(txn(n, *len));
                    break;
                }
            }
            if failed.is_none() && store.apply(Op::erase("/r/a/0", Precondition::Any)).await.is_err() {
                failed = Some(vec![Op::erase("/r/a/0", Precondition::Any)]);
            }
            let acknowledged = contents(&store).await;
            // Closing erases, if the power lasts: copies the file and changes places with it.
            drop(store);
            let mut fates = fates.iter().copied().cycle();
            let disk = disk.after_power_loss(|| fates.next().unwrap());
            let store = open(&options(&dir), Box::new(disk)).unwrap();
            let found = contents(&store).await;
            if found != acknowledged {
                // The transaction that was cut short may have made it, as a whole.
                let keys: Vec<String> = failed.iter().flatten().map(|op| op.key().to_string()).collect();
                let others = |contents: &Contents| -> Contents {
                    contents.iter().filter(|(key, ..)| !keys.contains(key)).cloned().collect()
                };
                prop_assert_eq!(others(&found), others(&acknowledged));
                match failed.iter().flatten().next() {
                    Some(Op::Put { key, value, .. }) => {
                        let put = store.get(key).await.unwrap().unwrap();
                        prop_assert_eq!(&put.value, value);
                        prop_assert_eq!(store.revision().0, put.mod_revision.0 + 2);
                    }
                    Some(Op::Delete { key, .. }) => prop_assert_eq!(store.get(key).await.unwrap(), None),
                    None => return Err(TestCaseError::fail("no transaction was cut short")),
                }
            }
            // And it goes on from there.
            prop_assert!(store.txn(txn(99, 10)).await.is_ok());
            Ok(())
        })?;
    }
}
