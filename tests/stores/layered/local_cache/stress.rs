//! Many threads that call and reset; no caller gets an answer that was reset before its call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{ErrorKind, cache::LocalCache};
use tokio::task::JoinSet;

use super::fixture::Fixture;

const KEYS: usize = 4;
const RESETS: usize = 5_000;
/// Minimum number of answers of each engine's cache during the resets.
const HITS: u64 = 100;

/// The lowest run of each key whose answer is still valid.
type Floors = Arc<[AtomicU32; KEYS]>;

/// Calls until the resets end and the cache has answered often.
async fn calls(fixture: Fixture, floors: Floors, resets: Arc<AtomicUsize>) {
    loop {
        for (key, floor) in floors.iter().enumerate() {
            let floor = floor.load(Ordering::SeqCst);
            let run = fixture.pay(&key.to_string()).await.unwrap();
            assert!(run >= floor, "run {run} of key {key} was taken back");
        }
        let is_over = resets.load(Ordering::SeqCst) >= RESETS;
        if is_over && fixture.stats().hits > HITS {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn takes_back(fixture: Fixture, floors: Floors, resets: Arc<AtomicUsize>) {
    while resets.load(Ordering::SeqCst) < RESETS {
        for (key, floor) in floors.iter().enumerate() {
            let name = key.to_string();
            let run = fixture.pay(&name).await.unwrap();
            let Some(entry) = fixture.call(&name).entry().await.unwrap() else {
                panic!("a record is kept for a day");
            };
            match entry.reset().await {
                // The reset removes this answer, or a later one.
                Ok(()) => {
                    floor.fetch_max(run + 1, Ordering::SeqCst);
                    resets.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::Changed | ErrorKind::Running { .. }),
                    "{error}"
                ),
            }
        }
    }
}

/// On the memory store a reset reaches every engine before it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reset_answer_is_never_replayed() {
    let store = Arc::new(MemoryStore::new());
    // One shard each, and so small that answers are evicted as well.
    let cache = || LocalCache::new().max_entries(KEYS - 1);
    let one = Fixture::with(store.clone(), cache(), |engine| engine).await;
    let other = Fixture::with(store, cache(), |engine| engine).await;
    let other = other.sharing(&one);
    let floors = Floors::default();
    let resets = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for fixture in [&one, &other] {
        for _ in 0..3 {
            tasks.spawn(calls(fixture.clone(), floors.clone(), resets.clone()));
        }
        tasks.spawn(takes_back(fixture.clone(), floors.clone(), resets.clone()));
    }
    tasks.join_all().await;
    let one = one.stats();
    assert!(one.evictions > 0 && one.invalidations > 0, "{one:?}");
}
