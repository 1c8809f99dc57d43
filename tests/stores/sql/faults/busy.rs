//! A file that another writer has locked.

use idem_tests::shop::happened;

use super::prelude::*;

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

/// The file is locked while a call claims, for longer than the time-out of one statement, and then while a body runs
/// and when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_answers_wait_for_a_locked_file() {
    let (test_database, store) = opened::<Sqlite>().await;
    let fixture = Fixture::hasty(&store);
    let patient = fixture.beside_with(&store, |engine| engine.claim_deadline(5 * PATIENCE));
    let held = Sqlite::hold(&test_database.url).await;
    let waits = tokio::spawn({
        let patient = patient.clone();
        async move { patient.pay("late").await }
    });
    sleep(Duration::from_secs(3)).await;
    drop(held);
    waits.await.unwrap().unwrap();
    assert_eq!(fixture.effects("late"), 1);

    let mut held = None;
    let locks = async |_| {
        held = Some(Sqlite::hold(&test_database.url).await);
        Ok(())
    };
    let first = fixture.pay_by("a", locks).await.unwrap();
    assert_eq!(fixture.events.count("unsaved"), 1);
    drop(held);
    happened(&fixture.events, "completed", 1).await;
    assert_eq!(fixture.beside(&store).pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("a"), 1);
}
