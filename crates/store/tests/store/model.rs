//! Random operations against a model: a plain map and the list of all that happened.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use atoll_store::{
    Applied, Conflict, EmbeddedStore, Entry, Error, Event, History, Key, Op, Options, Precondition, RangeQuery, Revision, Store,
    TxnOutcome, Watcher,
};
use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

/// What the test does to the store.
#[derive(Debug, Clone)]
enum Step {
    Txn(Vec<Op>),
    /// Transactions that are in flight together.
    Together(Vec<Vec<Op>>),
    /// Read a page as of so many revisions ago.
    Range {
        prefix: &'static str,
        back: u64,
        limit: Option<usize>,
        after: Option<String>,
    },
    /// Let a watcher read.
    Watch {
        which: usize,
        max: usize,
    },
    Reopen,
}

const PREFIXES: [&str; 6] = ["", "/r/", "/r/a/", "/r/a/1", "/r/b/", "/r"];

#[derive(Debug, Clone, Default)]
struct Model {
    revision: u64,
    entries: BTreeMap<Key, Entry>,
    events: Vec<Event>,
    /// The state after each revision, from revision 1.
    snapshots: Vec<BTreeMap<Key, Entry>>,
}

impl Model {
    fn new() -> Self {
        Model { revision: 1, snapshots: vec![BTreeMap::new()], ..Model::default() }
    }

    fn txn(&mut self, ops: &[Op]) -> TxnOutcome {
        let mut next = self.clone();
        let mut applied = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let current = next.entries.get(op.key()).cloned();
            let (Op::Put { precondition, .. } | Op::Delete { precondition, .. }) = op;
            let holds = match precondition {
                Precondition::Any => true,
                Precondition::Absent => current.is_none(),
                Precondition::ModRevision(revision) => current.as_ref().map(|e| e.mod_revision) == Some(*revision),
            };
            if !holds || (current.is_none() && matches!(op, Op::Delete { .. })) {
                return TxnOutcome::Conflict(Conflict { index, current });
            }
            next.revision += 1;
            let revision = Revision(next.revision);
            let entry = match op {
                Op::Put { value, .. } => Some(Entry {
                    value: value.clone(),
                    create_revision: current.as_ref().map_or(revision, |e| e.create_revision),
                    mod_revision: revision,
                }),
                Op::Delete { .. } => None,
            };
            match &entry {
                Some(entry) => drop(next.entries.insert(op.key().clone(), entry.clone())),
                None => drop(next.entries.remove(op.key())),
            }
            let event = Event { key: op.key().clone(), revision, current: entry, previous: current.clone() };
            next.events.push(event);
            next.snapshots.push(next.entries.clone());
            applied.push(Applied { revision, previous: current });
        }
        *self = next;
        TxnOutcome::Applied(applied)
    }

    fn range(&self, query: &RangeQuery<'_>, at: u64) -> (Vec<(Key, Entry)>, usize) {
        let snapshot = &self.snapshots[usize::try_from(at - 1).unwrap()];
        let found = snapshot
            .iter()
            .filter(|(key, _)| key.starts_with(query.prefix) && query.start_after.is_none_or(|after| key.as_str() > after));
        let mut all: Vec<(Key, Entry)> = found.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        let rest = all.split_off(all.len().min(query.limit.unwrap_or(usize::MAX)));
        (all, rest.len())
    }
}

struct Watching {
    prefix: &'static str,
    watcher: Box<dyn Watcher>,
    /// How many of the model's events it is past.
    position: usize,
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0..2_usize, 0..4_u8).prop_map(|(r, n)| format!("/r/{}/{n}", ["a", "b"][r])),
        1 => (0..2_u8).prop_map(|n| format!("/r{n}")),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let precondition = prop_oneof![
        3 => Just(Precondition::Any),
        1 => Just(Precondition::Absent),
        1 => (2..40_u64).prop_map(|r| Precondition::ModRevision(Revision(r))),
    ];
    (key(), precondition, proptest::option::weighted(0.7, 0..200_usize), any::<u8>()).prop_map(
        |(key, precondition, len, fill)| match len {
            Some(len) => Op::put(key, Bytes::from(vec![fill; len]), precondition),
            None => Op::Delete { key: key.into(), precondition, history: History::Keep },
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let prefix = || (0..PREFIXES.len()).prop_map(|at| PREFIXES[at]);
    let range = (prefix(), 0..60_u64, proptest::option::of(0..5_usize), proptest::option::of(key()));
    prop_oneof![
        6 => proptest::collection::vec(op(), 1..4).prop_map(Step::Txn),
        3 => proptest::collection::vec(proptest::collection::vec(op(), 1..3), 2..6).prop_map(Step::Together),
        3 => range.prop_map(|(prefix, back, limit, after)| Step::Range { prefix, back, limit, after }),
        4 => (0..PREFIXES.len(), 1..6_usize).prop_map(|(which, max)| Step::Watch { which, max }),
        1 => Just(Step::Reopen),
    ]
}

/// Options under which the log is mostly in the file, or all in memory.
fn options(dir: &TempDir, memory: usize) -> Options {
    Options { history_memory_bytes_max: memory, ..Options::new(dir.path()) }
}

async fn run(steps: Vec<Step>, memory: usize) {
    let dir = TempDir::new().unwrap();
    let mut store = EmbeddedStore::open(options(&dir, memory)).unwrap();
    let mut model = Model::new();
    let mut watching = Vec::new();
    for prefix in PREFIXES {
        let watcher = store.watch(prefix, Revision(1)).await.unwrap();
        watching.push(Watching { prefix, watcher, position: 0 });
    }
    for step in steps {
        match step {
            Step::Txn(ops) => assert_eq!(store.txn(ops.clone()).await.unwrap(), model.txn(&ops)),
            Step::Together(txns) => together(&store, &mut model, txns).await,
            Step::Range { prefix, back, limit, after } => {
                let at = model.revision.saturating_sub(back).max(1);
                let query = RangeQuery { prefix, start_after: after.as_deref(), limit, at: Some(Revision(at)) };
                let page = store.range(query).await.unwrap();
                assert_eq!((page.entries, page.remaining), model.range(&query, at));
                assert_eq!(page.revision, Revision(at));
            }
            Step::Watch { which, max } => watch(&mut watching[which], &model, max).await,
            Step::Reopen => {
                store.close().await.unwrap();
                store = EmbeddedStore::open(options(&dir, memory)).unwrap();
                for watching in &mut watching {
                    let from = watching.position.checked_sub(1).map_or(Revision(1), |at| model.events[at].revision);
                    watching.watcher = store.watch(watching.prefix, from).await.unwrap();
                }
            }
        }
        assert_eq!(store.revision(), Revision(model.revision));
    }
    for mut watching in watching {
        watch(&mut watching, &model, usize::MAX).await;
        let progress = watching.watcher.progress();
        assert!(progress <= Revision(model.revision));
        // With the log in the file, only reading it tells that there is nothing left.
        assert!(memory < 1 << 20 || progress == Revision(model.revision));
    }
}

/// Transactions in flight together are applied one after the other, in the order in which they were queued.
async fn together(store: &EmbeddedStore, model: &mut Model, txns: Vec<Vec<Op>>) {
    let outcomes = futures_in_order(txns.iter().map(|ops| store.txn(ops.clone())).collect()).await;
    for (ops, outcome) in txns.iter().zip(outcomes) {
        assert_eq!(outcome.unwrap(), model.txn(ops));
    }
}

async fn futures_in_order<T>(mut futures: Vec<std::pin::Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Reads up to `max` events and compares them with what happened under the watcher's prefix.
async fn watch(watching: &mut Watching, model: &Model, max: usize) {
    let mut expected = Vec::new();
    let mut end = watching.position;
    for (at, event) in model.events.iter().enumerate().skip(watching.position) {
        if expected.len() == max {
            break;
        }
        if event.key.starts_with(watching.prefix) {
            expected.push(event.clone());
            end = at + 1;
        }
    }
    let mut seen: Vec<Arc<Event>> = Vec::new();
    while seen.len() < expected.len() {
        let wanted = expected.len() - seen.len();
        let batch = tokio::time::timeout(Duration::from_secs(10), watching.watcher.next_batch(wanted));
        seen.extend(batch.await.expect("there are events left").unwrap());
    }
    let seen: Vec<Event> = seen.iter().map(|event| Event::clone(event)).collect();
    assert_eq!(seen, expected);
    watching.position = end;
}

fn cases(default: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(default))
}

proptest! {
    // PROPTEST_CASES asks for more; each case makes some forty durable commits.
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..cases(16) })]

    #[test]
    fn the_store_behaves_like_its_model(
        steps in proptest::collection::vec(step(), 1..40),
        memory in prop_oneof![Just(0_usize), Just(1500), Just(1 << 20)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps, memory));
    }
}

/// Under a bound on the history's bytes a watcher that falls behind is told so, and never skips what it should have seen.
#[tokio::test]
async fn a_watcher_that_falls_out_of_the_history_is_told_so() {
    let dir = TempDir::new().unwrap();
    let store = EmbeddedStore::open(Options { history_bytes_max: 4000, ..options(&dir, 1000) }).unwrap();
    let mut slow = store.watch("/r/a/", Revision(1)).await.unwrap();
    let mut quiet = store.watch("/r/b/", Revision(1)).await.unwrap();
    let put = |n: u64| Op::put("/r/a/1", vec![b'x'; 100], if n == 0 { Precondition::Absent } else { Precondition::Any });
    let mut last = Revision(0);
    for n in 0..200 {
        store.apply(put(n)).await.unwrap();
        if n == 2 {
            last = slow.next_batch(1).await.unwrap()[0].revision;
        }
    }
    assert_eq!(last, Revision(2));
    let Err(Error::Compacted { oldest }) = slow.next_batch(1).await else {
        panic!("its next event is gone");
    };
    assert!(oldest > last && oldest < store.revision());
    let query = RangeQuery { at: Some(last), ..RangeQuery::prefix("/r/a/") };
    assert!(matches!(store.range(query).await, Err(Error::Compacted { .. })));
    let query = RangeQuery { at: Some(oldest), ..query };
    assert_eq!(store.range(query).await.unwrap().entries[0].1.mod_revision, oldest);
    // A watcher that missed nothing goes on, however old its position.
    store.apply(Op::create("/r/b/1", "x")).await.unwrap();
    assert_eq!(quiet.next_batch(10).await.unwrap().len(), 1);
}

/// Old revisions go by age on a server where nothing happens, from memory and from the file.
#[tokio::test]
async fn history_ends_on_an_idle_server() {
    let dir = TempDir::new().unwrap();
    let options = Options {
        history_age: Duration::from_millis(100),
        history_slack: Duration::from_millis(100),
        ..Options::new(dir.path())
    };
    let store = EmbeddedStore::open(options.clone()).unwrap();
    store.apply(Op::create("/r/a/1", "x")).await.unwrap();
    store.apply(Op::put("/r/a/1", "y", Precondition::Any)).await.unwrap();
    store.apply(Op::create("/r/a/2", "x")).await.unwrap();
    let last = store.apply(Op::delete("/r/a/2", Precondition::Any)).await.unwrap();
    assert!(matches!(last, atoll_store::Outcome::Applied(_)));
    crate::support::eventually(Duration::from_secs(5), "revision 2 is gone", async || {
        matches!(store.watch("/r/a/", Revision(2)).await, Err(Error::Compacted { .. }))
    })
    .await;
    assert_eq!(store.get("/r/a/1").await.unwrap().unwrap().value, "y");
    drop(store);
    let store = EmbeddedStore::open(options).unwrap();
    assert_eq!(store.revision(), Revision(5), "the revision does not go back though its records are gone");
    let page = store.range(RangeQuery::prefix("/r/")).await.unwrap();
    assert_eq!(page.entries.len(), 1);
}
