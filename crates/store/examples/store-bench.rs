//! How fast the embedded store is on this machine.
//!
//! ```text
//! cargo run --release -p atoll-store --example store-bench -- [DIRECTORY [SECONDS [WRITERS [VALUE_BYTES]]]]
//! ```
//!
//! Measures opening, durable writes by one and by many writers (with 50 watchers on all of them), and reads. The directory
//! should be on the disk that matters; it gets a subdirectory that is removed afterwards.

use std::{
    env,
    error::Error,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use atoll_store::{EmbeddedStore, Op, Options, Precondition, RangeQuery, Revision, Store};
use bytes::Bytes;

const WATCHERS: usize = 50;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = env::args().skip(1).collect();
    let parent = args.first().map_or_else(env::temp_dir, PathBuf::from);
    let number = |at: usize, default: u64| -> Result<u64, Failure> {
        Ok(match args.get(at) {
            Some(text) => text.parse()?,
            None => default,
        })
    };
    let time = Duration::from_secs(number(1, 5)?);
    let writers = number(2, 16)?;
    let value_bytes = usize::try_from(number(3, 2048)?)?;
    let dir = parent.join(format!("store-bench-{}", std::process::id()));
    let result = measure(&dir, time, writers, value_bytes).await;
    std::fs::remove_dir_all(&dir)?;
    result
}

async fn measure(dir: &Path, time: Duration, writers: u64, value_bytes: usize) -> Result<(), Failure> {
    let start = Instant::now();
    let store = EmbeddedStore::open(Options::new(dir))?;
    let opened = start.elapsed();
    store.apply(Op::create("/r/first/1", "x")).await?;
    println!("open anew {opened:.1?}, with the first commit {:.1?}; {}", start.elapsed(), memory()?);
    store.close().await?;
    drop(store);
    let start = Instant::now();
    let store = Arc::new(EmbeddedStore::open(Options::new(dir))?);
    let opened = start.elapsed();
    store.apply(Op::create("/r/first/2", "x")).await?;
    println!("open again {opened:.1?}, with a commit {:.1?}; {}", start.elapsed(), memory()?);

    let value = Bytes::from(vec![b'v'; value_bytes]);
    write(&store, "1 writer", 1, time, &value).await?;
    write(&store, &format!("{writers} writers"), writers, time, &value).await?;

    let seen = Arc::new(AtomicU64::new(0));
    for _ in 0..WATCHERS {
        let mut watcher = store.watch("/r/pods/", store.revision()).await?;
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Ok(events) = watcher.next_batch(1000).await {
                seen.fetch_add(events.len() as u64, Ordering::Relaxed);
            }
        });
    }
    let label = format!("{writers} writers, {WATCHERS} watchers");
    let written = write(&store, &label, writers, time, &value).await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while seen.load(Ordering::Relaxed) < written * WATCHERS as u64 && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    println!(
        "  {} of {} events received, {:.0} per second",
        seen.load(Ordering::Relaxed),
        written * WATCHERS as u64,
        seen.load(Ordering::Relaxed) as f64 / time.as_secs_f64()
    );

    read(&store, time).await?;
    erase(&store, dir).await?;
    println!("before closing: {}", memory()?);
    let start = Instant::now();
    store.close().await?;
    println!("close {:.1?}", start.elapsed());
    let bytes = std::fs::metadata(dir.join("data.redb"))?.len();
    drop(store);
    let start = Instant::now();
    let store = EmbeddedStore::open(Options::new(dir))?;
    println!("open again, {} MiB: {:.1?}, revision {}", bytes >> 20, start.elapsed(), store.revision());
    Ok(())
}

/// Each writer updates objects of its own with compare-and-swap; returns how many writes there were.
async fn write(store: &Arc<EmbeddedStore>, label: &str, writers: u64, time: Duration, value: &Bytes) -> Result<u64, Failure> {
    let end = Instant::now() + time;
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (store, value) = (store.clone(), value.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                for n in 0.. {
                    let key = format!("/r/pods/{writer}/{}", n % 100);
                    let current = store.get(&key).await?;
                    let precondition =
                        current.map_or(Precondition::Absent, |entry| Precondition::ModRevision(entry.mod_revision));
                    let start = Instant::now();
                    // A copy, as each request of an API server brings bytes of its own.
                    let value = Bytes::copy_from_slice(&value);
                    store.apply(Op::put(key, value, precondition)).await?;
                    latencies.push(start.elapsed());
                    if Instant::now() > end {
                        break;
                    }
                }
                Ok::<_, atoll_store::Error>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    latencies.sort();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    println!(
        "{label}, {} bytes: {:.0} writes per second, p50 {:.2?}, p99 {:.2?}; {}",
        value.len(),
        latencies.len() as f64 / time.as_secs_f64(),
        at(50),
        at(99),
        memory()?
    );
    Ok(latencies.len() as u64)
}

async fn read(store: &Arc<EmbeddedStore>, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time.min(Duration::from_secs(2));
    let start = Instant::now();
    let mut gets = 0_u64;
    while Instant::now() < end {
        for n in 0..1000 {
            store.get(&format!("/r/pods/0/{}", n % 100)).await?;
        }
        gets += 1000;
    }
    println!("{:.0} gets per second", gets as f64 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let page = store.range(RangeQuery::prefix("/r/pods/")).await?;
    println!("list of {}: {:.2?}", page.entries.len(), start.elapsed());
    let older = RangeQuery { at: Some(Revision(store.revision().0.saturating_sub(1000))), ..RangeQuery::prefix("/r/pods/") };
    let start = Instant::now();
    let page = store.range(older).await?;
    println!("list of {} as of 1000 revisions ago: {:.2?}", page.entries.len(), start.elapsed());
    Ok(())
}

/// How long the file keeps what was deleted for good: it is another file once that is gone.
async fn erase(store: &Arc<EmbeddedStore>, dir: &Path) -> Result<(), Failure> {
    let inode = || Ok::<_, Failure>(std::fs::metadata(dir.join("data.redb"))?.ino());
    store.apply(Op::create("/r/secrets/1", "x")).await?;
    let old = inode()?;
    let start = Instant::now();
    store.apply(Op::erase("/r/secrets/1", Precondition::Any)).await?;
    let mut slowest = Duration::ZERO;
    while inode()? == old {
        let start = Instant::now();
        store.apply(Op::put("/r/first/1", "x", Precondition::Any)).await?;
        slowest = slowest.max(start.elapsed());
    }
    println!("erased after {:.1?}, the slowest write meanwhile took {slowest:.1?}; {}", start.elapsed(), memory()?);
    Ok(())
}

/// Private memory of this process.
fn memory() -> Result<String, Failure> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib: u64 = rollup
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum();
    Ok(format!("{:.1} MiB private", kib as f64 / 1024.0))
}
