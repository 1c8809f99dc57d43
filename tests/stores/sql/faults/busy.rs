//! Several processes on one database, and a file locked by another writer.

use std::collections::HashMap;

use idem_harness::Worker;

use crate::prelude::*;

on_each_database!(eight_processes_have_one_effect_a_key);

async fn eight_processes_have_one_effect_a_key<B: Kind>() {
    let test_database = B::test_database();
    let worker = || {
        let worker = Worker::sibling("idem-sql-faults-worker");
        worker
            .args(["calls", &test_database.url, "500", "500"])
            .spawn()
    };
    let workers: Vec<_> = (0..8).map(|_| worker()).collect();
    let reading = |mut worker: Worker| {
        let mut lines = Vec::new();
        loop {
            match worker.line() {
                line if line == "done" => return lines,
                line => lines.push(line),
            }
        }
    };
    let threads = workers
        .into_iter()
        .map(|worker| std::thread::spawn(move || reading(worker)));
    let threads: Vec<_> = threads.collect();
    let lines = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap());
    let mut effects = HashMap::<_, usize>::new();
    for line in lines {
        *effects.entry(line).or_default() += 1;
    }
    let again = effects
        .extract_if(|line, _| line.starts_with("again"))
        .count();
    assert_eq!(again, 0, "no caller is told of a collision");
    assert_eq!(effects.len(), 500);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert_eq!(
        test_database.sql("SELECT count(*) FROM idem_records").await,
        "500"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_stays_locked_is_reported() {
    let (test_database, store) = opened::<Sqlite>().await;
    let fixture = Fixture::hasty(&store);
    let first = fixture.pay("a").await.unwrap();
    let held = Sqlite::hold(&test_database.url).await;
    let parts = ["a claim", "another transaction holds"];
    assert_says(claim(&store).await, Unavailable, &parts);
    assert_retryable(fixture.pay("b").await);
    // A replay needs no write lock.
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("b"), 0);
    drop(held);
    // The abandoned claim of "b" may be written after all, and holds that key for its lease.
    fixture.pay("c").await.unwrap();
    let effects = ["a", "b", "c"].map(|key| fixture.effects(key));
    assert_eq!(effects, [1, 0, 1]);
}

/// Longer than the time-out of one statement, shorter than the deadline of a call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_unlocked_in_time_delays_a_call() {
    let (test_database, store) = opened::<Sqlite>().await;
    let fixture = Fixture::with(&store, |engine| {
        engine.claim_deadline(Duration::from_secs(30))
    });
    for held_for in [200, 3_000] {
        let key = held_for.to_string();
        let held = Sqlite::hold(&test_database.url).await;
        let releases = tokio::spawn(async move {
            sleep(Duration::from_millis(held_for)).await;
            drop(held);
        });
        fixture.pay(&key).await.unwrap();
        assert_eq!(fixture.effects(&key), 1);
        releases.await.unwrap();
    }
}

/// The file is locked while a body runs and when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_for_a_locked_file() {
    let (test_database, store) = opened::<Sqlite>().await;
    let fixture = Fixture::hasty(&store);
    let mut held = None;
    let locks = async |_| {
        held = Some(Sqlite::hold(&test_database.url).await);
        Ok(())
    };
    let first = fixture.pay_by("a", locks).await.unwrap();
    assert_eq!(fixture.events.count("unsaved"), 1);
    drop(held);
    idem_tests::shop::happened(&fixture.events, "completed", 1).await;
    assert_eq!(fixture.beside(&store).pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("a"), 1);
}
