//! Concurrent writes to a file share a commit: no reply before it, and none for a write that fails.

use super::crowds::{
    Request, claim_all, claiming, hold_file, is_granted, narrow, owner, replies, sent,
};
use super::prelude::*;
use idem_runtime::store::StoreErrorKind::Full;
use idem_tests::claims::unhurried;

/// A record key whose commit the file refuses; see [`spoil`].
fn spoilt(number: u64) -> RecordKey {
    of_operation("spoilt", number)
}

/// Panics unless exactly the recorded owners were granted their claims.
async fn assert_report(test_database: &TestDatabase, claims: &[Result<ClaimReply, StoreError>]) {
    let owners = "SELECT coalesce(group_concat(hex(owner), ' '), '') FROM idem_records";
    let there = test_database.sql(owners).await;
    for (number, reply) in (0..).zip(claims) {
        let digit = |byte: &u8| format!("{byte:02X}");
        let digits: String = owner(number).as_bytes().iter().map(digit).collect();
        assert_eq!(is_granted(reply), there.contains(&digits), "{reply:?}");
    }
}

/// Prevents commits of transactions with a record of this operation; only the commit itself fails.
async fn spoil(test_database: &TestDatabase) {
    for sql in [
        "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
        "CREATE TABLE children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TRIGGER spoils AFTER INSERT ON idem_records WHEN new.op = 'spoilt' \
         BEGIN INSERT INTO children VALUES (1); END",
    ] {
        test_database.sql(sql).await;
    }
}

/// Includes a claim committed alone, whose row exists before its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_commit_fails_is_not_granted_and_spoils_no_other() {
    let test_database = TestDatabase::new::<Sqlite>();
    let store = narrow::<Sqlite>(&test_database).await;
    spoil(&test_database).await;
    let reply = store.claim(&spoilt(0), &asks(owner(0)), &unhurried()).await;
    assert!(reply.is_err(), "{reply:?}");
    let claims = claim_all(&test_database, &store, (0..50).map(spoilt)).await;
    assert!(!claims.iter().any(is_granted));
    assert_report(&test_database, &claims).await;
    let keys = (0..50).map(|number| match number {
        20 => spoilt(number),
        _ => elsewhere(number),
    });
    let claims = claim_all(&test_database, &store, keys).await;
    assert_eq!(claims.iter().filter(|claim| is_granted(claim)).count(), 49);
    assert_report(&test_database, &claims).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_fills_up_within_a_group_stores_the_claims_that_fit() {
    let test_database = TestDatabase::new::<Sqlite>();
    let store = that_cannot_grow(&test_database, 6).await;
    let claims = claim_all(&test_database, &store, (0..200).map(elsewhere)).await;
    assert_report(&test_database, &claims).await;
    let (granted, refused): (Vec<_>, Vec<_>) = claims.into_iter().partition(is_granted);
    assert!(!granted.is_empty() && !refused.is_empty());
    for reply in refused {
        assert_says(reply, Full, &["a claim", "room"]);
    }
    test_database.sql("DELETE FROM idem_records").await;
    let more = claiming(&store, &elsewhere(1_000), owner(1_000)).await;
    assert!(is_granted(&more), "{more:?}");
}

/// A claim that was sent alone, without polls for its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stalls_delays_no_other() {
    let test_database = TestDatabase::new::<Sqlite>();
    let store = narrow::<Sqlite>(&test_database).await;
    let claim = |number| claiming(&store, &elsewhere(number), owner(number));
    let held = hold_file::<Sqlite>(&test_database).await;
    let still: Vec<Request<_>> = sent([claim(0)]).await;
    drop(held);
    for number in 1..20 {
        let reply = patiently("a reply", claim(number)).await;
        assert!(is_granted(&reply), "{reply:?}");
    }
    assert!(replies(still).await.iter().all(is_granted));
}

/// The store's thread holds the file open until its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_thread_ends_with_the_store() {
    let test_database = TestDatabase::new::<Sqlite>();
    let store = narrow::<Sqlite>(&test_database).await;
    let open = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        let file = test_database.path();
        open.filter(|path| path.as_os_str() == file).count()
    };
    assert!(open() > 1);
    drop(store);
    until("the file is closed", || open() == 0).await;
}
