//! The fast store, a Redis in front of PostgreSQL, is killed and restarted repeatedly, while many processes call.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use idem_harness::PostgresServer;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::PostgresStore;
use idem_tests::shop::{PATIENCE, until};
use tokio::task::JoinSet;

use crate::prelude::*;

const KILLS: u32 = 50;
const PROCESSES: usize = 4;
const CALLERS: u64 = 4;
/// Keys in use at about the same time; the window moves on with the number of calls.
const WINDOW: u64 = 40;

/// Runs and answers, by key.
#[derive(Default)]
struct Journal {
    runs: Mutex<HashMap<u64, u32>>,
    answers: Mutex<HashMap<u64, Receipt>>,
    next: AtomicU32,
    calls: AtomicU64,
    over: AtomicBool,
}

impl Journal {
    fn start(&self, key: u64) -> Receipt {
        *self.runs.lock().unwrap().entry(key).or_default() += 1;
        let run = self.next.fetch_add(1, Ordering::SeqCst);
        Receipt { run }
    }

    fn answered(&self, key: u64, receipt: &Receipt) {
        let mut answers = self.answers.lock().unwrap();
        let first = answers.entry(key).or_insert_with(|| receipt.clone());
        assert_eq!(first, receipt, "two answers for key {key}");
    }
}

/// Calls keys of the window, most of which other callers use as well.
async fn call(fixture: Arc<Fixture>, journal: Arc<Journal>, caller: u64) {
    let mut random = caller.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while !journal.over.load(Ordering::SeqCst) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let number = journal.calls.fetch_add(1, Ordering::SeqCst);
        let key = number / 16 + random % WINDOW;
        let body = async |_| {
            let receipt = journal.start(key);
            if random.is_multiple_of(8) {
                tokio::time::sleep(Duration::from_millis(random % 30)).await;
            }
            Ok::<_, PayError>(receipt)
        };
        let answer = fixture.call(&key.to_string()).run(body).await;
        let receipt = answer.expect("the durable store is up, and calls wait for each other");
        journal.answered(key, &receipt);
        // Limits the load to the capacity of two cores.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Restarts the server with its last snapshot, or with no data.
fn kill(server: &RedisServer, dump: &Path, number: u32) {
    server.kill();
    if number % 2 == 1 {
        let _ = std::fs::remove_file(dump);
    }
    server.restart();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_lead_to_no_second_run_and_no_second_answer() {
    let server = Arc::new(RedisServer::start());
    let database = tokio::task::spawn_blocking(PostgresServer::start);
    let database = database.await.unwrap();
    let mut durable = Vec::new();
    for _ in 0..PROCESSES {
        let store = PostgresStore::builder(database.url());
        let store = store.response_timeout(PATIENCE).connect().await.unwrap();
        store.migrate().await.unwrap();
        durable.push(Counted::over(Arc::new(store)));
    }
    let journal = Arc::new(Journal::default());
    let hasty = |store: LayeredStoreBuilder| store.pause(Duration::from_millis(100));
    let mut desks = Vec::new();
    for durable in &durable {
        let url = server.url();
        let fast = LazyStore::new(move || RedisStore::connect(url.clone()));
        desks.push(Arc::new(Fixture::with(fast, durable, hasty)));
    }
    let mut callers = JoinSet::new();
    for (fixture, first) in desks.iter().zip((0..).step_by(100)) {
        for caller in 0..CALLERS {
            let (fixture, journal) = (Arc::clone(fixture), Arc::clone(&journal));
            callers.spawn(call(fixture, journal, first + caller + 1));
        }
    }
    let hits = || {
        desks
            .iter()
            .map(|fixture| fixture.stats().hits)
            .sum::<u64>()
    };
    let dump = server.dir().join("dump.rdb");
    for number in 0..KILLS {
        // Each time the store has served hits in between, and half of the time it keeps some of its data.
        for part in 0..2 {
            let before = hits();
            until("the fast store answers calls", || hits() > before + 100).await;
            if part == 0 && number % 2 == 0 {
                let server = Arc::clone(&server);
                let saved = tokio::task::spawn_blocking(move || server.cli(&["SAVE"]));
                assert_eq!(saved.await.unwrap(), "OK");
            }
        }
        let (server, dump) = (Arc::clone(&server), dump.clone());
        let killed = tokio::task::spawn_blocking(move || kill(&server, &dump, number));
        killed.await.unwrap();
    }
    journal.over.store(true, Ordering::SeqCst);
    callers.join_all().await;

    let runs = journal.runs.lock().unwrap();
    let twice: Vec<_> = runs.iter().filter(|(_, runs)| **runs > 1).collect();
    assert!(twice.is_empty(), "run twice: {twice:?}");
    let asked = durable.iter().map(Counted::asked);
    let add = |(claims, completions), (c, d)| (claims + c, completions + d);
    let (claims, completions) = asked.fold((0, 0), add);
    let degraded: usize = desks
        .iter()
        .map(|fixture| fixture.events.count("degraded"))
        .sum();
    let failures: u64 = desks.iter().map(|fixture| fixture.stats().failures).sum();
    eprintln!(
        "{} calls, {} keys, {claims} claims and {completions} completions of the durable store, \
         {} hits, {failures} failures, degraded {degraded} times",
        journal.calls.load(Ordering::SeqCst),
        runs.len(),
        hits(),
    );
    assert!(failures > 0, "nothing was killed in the middle of anything");
}
