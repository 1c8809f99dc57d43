//! A read-only server, and a file without room.

use idem_runtime::store::Needs;
use idem_runtime::store::StoreErrorKind::Full;
use idem_tests::shop::happened;

use super::prelude::*;

on_each_server!(answers_are_replayed_by_a_read_only_server,);

async fn answers_are_replayed_by_a_read_only_server<B: Server>() {
    let server = B::serve(&[]);
    // MariaDB exempts users with all rights from `read_only`.
    let url = server.password_url();
    let fixture = Fixture::hasty(&open::<B>(&url).await);
    let first = fixture.pay("a").await.unwrap();
    server.execute(if B::POSTGRES {
        "ALTER DATABASE idem SET default_transaction_read_only = on"
    } else {
        "SET GLOBAL read_only = 1"
    });
    let store = SqlStore::<B>::connect(&url).await.unwrap();
    assert_says(claim(&store).await, Unavailable, &["a claim", "read-only"]);
    // A record that is absent here may exist on a server that accepts writes.
    let mut request = asks(Owner::random());
    request.needs = Needs::Record;
    let absent = store.claim(&elsewhere(7), &request).await;
    assert_says(absent, Unavailable, &["a claim", "read-only"]);
    let effects = fixture.beside(&store);
    assert_eq!(effects.pay("a").await.unwrap(), first);
    let hasty = Fixture::hasty(&store);
    assert_retryable(hasty.pay("b").await);
    assert_eq!((fixture.effects("a"), hasty.effects("b")), (1, 0));
    server.execute(if B::POSTGRES {
        "SET default_transaction_read_only = off; \
         ALTER DATABASE idem RESET default_transaction_read_only"
    } else {
        "SET GLOBAL read_only = 0"
    });
    // Connections that refused a write are not used again.
    hasty.pay("b").await.unwrap();
    assert_eq!(hasty.effects("b"), 1);
}

/// Calls until there is no room for another claim.
async fn fill(fixture: &Fixture) -> Vec<String> {
    let mut done = Vec::new();
    while done.len() < 1_000 {
        match fixture.pay(&done.len().to_string()).await {
            Ok(answer) => done.push(answer),
            Err(error) => {
                assert_retryable(Err(error));
                return done;
            }
        }
    }
    panic!("the file has no end");
}

/// Answers are replayed, an answer without room reaches its caller, and is stored as soon as there is room.
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
        done = fill(&others).await;
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
