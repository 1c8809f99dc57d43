//! A file that another writer has locked.

use idem_tests::shop::happened;

use super::prelude::*;

/// A claim is refused, a replay needs no lock, and an answer is stored later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_stays_locked_is_reported() {
    let (test_database, store) = opened::<Sqlite>().await;
    let fixture = Fixture::hasty(&store);
    let mut held = None;
    let locks = async |_| {
        held = Some(Sqlite::hold(&test_database.url).await);
        Ok(())
    };
    let first = fixture.pay_by("a", locks).await.unwrap();
    assert_eq!(fixture.events.count("unsaved"), 1);
    let parts = ["a claim", "another transaction holds"];
    assert_says(claim(&store).await, Unavailable, &parts);
    assert_retryable(fixture.pay("b").await);
    drop(held);
    happened(&fixture.events, "completed", 1).await;
    let held = Sqlite::hold(&test_database.url).await;
    assert_eq!(fixture.beside(&store).pay("a").await.unwrap(), first);
    drop(held);
    // The abandoned claim of "b" may be written after all, and holds that key for its lease.
    fixture.pay("c").await.unwrap();
    let effects = ["a", "b", "c"].map(|key| fixture.effects(key));
    assert_eq!(effects, [1, 0, 1]);
}

/// Its statement has the only connection, and waits; so would its read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_beside_a_writer_needs_one_connection() {
    let test_database = TestDatabase::new::<Sqlite>();
    let narrow = open_with::<Sqlite>(&test_database.url, |store| store.connections(1)).await;
    let held = Sqlite::hold(&test_database.url).await;
    let mut claimed = Box::pin(claim(&narrow));
    let soon = tokio::time::timeout(Duration::from_millis(60), claimed.as_mut());
    assert!(soon.await.is_err(), "it is written beside a writer");
    drop(held);
    let claimed = patiently(claimed).await.unwrap();
    assert!(matches!(claimed, ClaimReply::Granted { .. }), "{claimed:?}");
}
