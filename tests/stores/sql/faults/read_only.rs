//! A read-only server, and a file that is full or locked.

use idem_runtime::store::StoreErrorKind::Full;
use idem_runtime::store::author::Needs;
use idem_tests::claims::unhurried;
use idem_tests::shop::happened;
use idem_tests::sql::connect;

use super::prelude::*;

on_each_server!(answers_are_replayed_by_a_read_only_server,);

/// What makes a server read-only, what ends that, and what an operator reads.
fn read_only<B: Server>() -> &'static [(&'static str, &'static str, &'static str)] {
    if B::POSTGRES {
        &[(
            "ALTER DATABASE idem SET default_transaction_read_only = on",
            "SET default_transaction_read_only = off; \
             ALTER DATABASE idem RESET default_transaction_read_only",
            "`default_transaction_read_only` is on",
        )]
    } else {
        &[
            (
                "SET GLOBAL read_only = 1",
                "SET GLOBAL read_only = 0",
                "read-only",
            ),
            (
                "SET GLOBAL tx_read_only = 1",
                "SET GLOBAL tx_read_only = 0",
                "`tx_read_only` is on",
            ),
        ]
    }
}

async fn answers_are_replayed_by_a_read_only_server<B: Server>() {
    for (sets, resets, fact) in read_only::<B>() {
        let server = B::serve(&[]);
        // MariaDB exempts users with all rights from `read_only`.
        let url = server.password_url();
        let fixture = Fixture::hasty(&open::<B>(&url).await);
        let first = fixture.pay("a").await.unwrap();
        // New sessions begin with it, in the middle of a call.
        let ends = if B::POSTGRES {
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'"
        } else {
            "KILL USER app"
        };
        let locks = async |_| {
            server.execute(sets);
            server.execute(ends);
            Ok(())
        };
        let half = fixture.pay_by("half", locks).await.unwrap();
        let events = fixture.events.all();
        let reason = |event: &&String| event.starts_with("unsaved: a completion");
        let reason = events.iter().find(reason);
        assert!(
            reason.is_some_and(|text| text.contains("read-only")),
            "{events:?}"
        );
        let store = connect::<B>(&url).await;
        assert_says(claim(&store).await, Unavailable, &["a claim", "read-only"]);
        // A record that is absent here may exist on a server that accepts writes.
        let mut request = asks(Owner::random());
        request.needs = Needs::Record;
        let absent = store.claim(&elsewhere(7), &request, &unhurried()).await;
        assert_says(absent, Unavailable, &["a claim", "read-only"]);
        let effects = fixture.beside(&store);
        assert_eq!(effects.pay("a").await.unwrap(), first);
        let hasty = Fixture::hasty(&store);
        assert_retryable(hasty.pay("b").await);
        assert_eq!((fixture.effects("a"), hasty.effects("b")), (1, 0));
        let found = format!("{:?}", store.findings().await.unwrap());
        assert!(found.contains(fact), "{found}");
        server.execute(resets);
        happened(&fixture.events, "completed", 2).await;
        assert_eq!(fixture.pay("half").await.unwrap(), half);
        assert_eq!(fixture.effects("half"), 1);
        // Connections that refused a write are not used again.
        hasty.pay("b").await.unwrap();
        assert_eq!(hasty.effects("b"), 1);
    }
}

/// Answers are replayed. An answer without room reaches its caller, and is stored when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_refuses_claims_and_replays_answers() {
    let test_database = TestDatabase::new::<Sqlite>();
    let store = that_cannot_grow(&test_database, 12).await;
    let (fixture, others) = (Fixture::hasty(&store), Fixture::hasty(&store));
    let large = "an answer of several pages ".repeat(400);
    let call = || fixture.engine.operation("large").key(&1);
    let mut done = Vec::new();
    let body = async |_| {
        // In another engine, because a body must not wait for its own.
        let refused = loop {
            match others.pay(&done.len().to_string()).await {
                Ok(answer) => done.push(answer),
                refused => break refused,
            }
            assert!(done.len() < 1_000, "the file has no end");
        };
        assert_retryable(refused);
        Ok(large.clone())
    };
    let answer: Result<String, Error> = call().run(body).await;
    assert_eq!(answer.as_ref(), Ok(&large));
    assert_eq!(fixture.events.count("unsaved"), 1);
    assert!(done.len() > 3, "{}", done.len());
    assert_says(claim(&store).await, Full, &["a claim", "room", "purge"]);
    for (key, answer) in done.iter().enumerate() {
        assert_eq!(&others.pay(&key.to_string()).await.unwrap(), answer);
    }
    assert_eq!(others.all_effects(), done.len());
    let delete = "DELETE FROM idem_records WHERE op <> 'large'";
    test_database.sql(delete).await;
    happened(&fixture.events, "completed", 1).await;
    let again: Result<String, Error> = call().run(async |_| unreachable!("answered")).await;
    assert_eq!(again, answer);
    others.pay("more").await.unwrap();
}

/// A claim is refused, a replay unlocked, an answer stored later.
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
    // So that it does not expect an answer, and read first.
    for number in 0..200 {
        claim_of(&narrow, number).await.unwrap();
    }
    let held = Sqlite::hold(&test_database.url).await;
    let mut claimed = Box::pin(claim(&narrow));
    let soon = tokio::time::timeout(Duration::from_millis(60), claimed.as_mut());
    assert!(soon.await.is_err(), "it is written beside a writer");
    drop(held);
    let claimed = patiently("a claim", claimed).await.unwrap();
    assert!(matches!(claimed, ClaimReply::Granted { .. }), "{claimed:?}");
}
