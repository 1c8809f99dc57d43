//! Transactions that end during a call: by the database itself, or by a statement of the body.

use std::fmt::Write as _;

use idem_runtime::store::sql::Sqlite;
use tokio::sync::Barrier;

use crate::prelude::*;

/// The ways in which a body ends.
pub(crate) fn ends() -> [Answer; 3] {
    [
        Ok(1),
        Err(OrderError::Down),
        Err(OrderError::SoldOut { run: 1 }),
    ]
}

/// A pool of one connection: each call after a failure gets the connection of that failure.
pub(crate) async fn pool_of_one<D: Database>(fixture: &Fixture<D>) -> sqlx::Pool<D::Db> {
    let pool = sqlx::pool::PoolOptions::new()
        .max_connections(1)
        .acquire_timeout(PATIENCE);
    let options = D::options(&fixture.place.url);
    pool.connect_with(options).await.done()
}

/// Calls of other keys run, and their answers are committed.
pub(crate) async fn assert_usable<D: Database>(fixture: &Fixture<D>, pool: &sqlx::Pool<D::Db>) {
    for key in ["next", "undone", "last"] {
        let mut tx = D::begin_plain(pool).await.done();
        let call = fixture.call(key);
        if key == "undone" {
            let answer = failed(fixture, call, &mut tx, OrderError::Down).await;
            assert_eq!(answer, Err(OrderError::Down), "{key}");
            D::rollback(tx).await.done();
            assert_eq!(fixture.orders(key).await, 0, "{key}");
        } else {
            let run = fixture.runs.count() + 1;
            assert_eq!(ordered(fixture, call, &mut tx, key).await, Ok(run), "{key}");
            D::commit(tx).await.done();
            assert_eq!(fixture.orders(key).await, 1, "{key}");
        }
    }
    // No lock is left behind.
    let mut other = fixture.connection().await;
    insert::<D>(&mut other, "free").await.done();
}

/// Each text, and whether it leaves the outcome unknown; otherwise the key is free.
const TEXTS: [(&str, bool); 2] = [("ROLLBACK", false), ("COMMIT", true)];

/// A SQL text in the body ends the transaction; no answer of such a body is acknowledged.
pub(crate) async fn a_body_that_ends_the_transaction_is_refused<D: Database>() {
    for (text, commits) in TEXTS {
        for end in ends() {
            let fixture = Fixture::<D>::new().await;
            let pool = pool_of_one(&fixture).await;
            let mut tx = D::begin_plain(&pool).await.done();
            let call = fixture.order().in_tx(&mut tx);
            let answer = call.run(async |tx: &mut D::Tx, _| {
                make::<D>(tx, &fixture.runs, "mine").await?;
                D::execute(tx, text).await?;
                end.clone()
            });
            assert_aborted(&refusal(answer.await));
            D::rollback(tx).await.ok();
            let left = i64::from(commits);
            assert_eq!(fixture.orders("mine").await, left, "{text} {end:?}");
            let stands = commits.then_some(EntryState::Unknown);
            assert_eq!(fixture.stands().await, stands, "{text} {end:?}");
            assert_usable(&fixture, &pool).await;
        }
    }
}

/// The same where idem has begun the transaction itself.
pub(crate) async fn a_body_that_ends_idems_transaction_is_refused<D: Database>() {
    for (text, commits) in TEXTS {
        for end in ends() {
            let fixture = Fixture::<D>::new().await;
            let mut conn = fixture.alone().await;
            let call = fixture.order().in_tx(&mut conn);
            let answer = call.run(async |conn: &mut D::Conn, _| {
                make::<D>(conn, &fixture.runs, "mine").await?;
                D::execute(conn, text).await?;
                end.clone()
            });
            let answer = answer.await;
            // Nothing of the call remains, and its transaction is idem's: its error may be its answer.
            if answer != Err(OrderError::Down) {
                assert_aborted(&refusal(answer));
            }
            let stands = commits.then_some(EntryState::Unknown);
            assert_eq!(fixture.stands().await, stands, "{text} {end:?}");
            // The connection is in no transaction.
            let call = fixture.call("next").in_tx(&mut conn);
            let body = async |conn: &mut D::Conn, _| make::<D>(conn, &fixture.runs, "next").await;
            assert_eq!(call.run(body).await, Ok(2), "{text} {end:?}");
            assert_eq!(fixture.orders("next").await, 1, "{text} {end:?}");
        }
    }
}

/// sqlx counts a transaction, but the database has none: no body runs.
pub(crate) async fn a_claim_without_its_transaction_is_refused<D: Database>() {
    for (text, _) in TEXTS {
        let fixture = Fixture::<D>::new().await;
        let pool = pool_of_one(&fixture).await;
        let mut tx = D::begin_plain(&pool).await.done();
        insert::<D>(&mut tx, "before").await.done();
        D::execute(&mut tx, text).await.done();
        assert_aborted(&refusal(answered(fixture.order(), &mut tx).await));
        D::rollback(tx).await.ok();
        assert_eq!(fixture.records().await, 0, "{text}");
        assert_usable(&fixture, &pool).await;
    }
}

/// A body makes a table, which MySQL commits at once.
pub(crate) async fn a_body_that_makes_a_table<D: Database>() {
    for end in ends() {
        let fixture = Fixture::<D>::new().await;
        let pool = pool_of_one(&fixture).await;
        let mut tx = D::begin_plain(&pool).await.done();
        let call = fixture.order().in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, _| {
            make::<D>(tx, &fixture.runs, "mine").await?;
            D::execute(tx, "CREATE TABLE extra (number BIGINT)").await?;
            end.clone()
        });
        let answer = answer.await;
        if D::TABLES_COMMIT {
            assert_aborted(&refusal(answer));
            D::rollback(tx).await.done();
            assert_eq!(fixture.orders("mine").await, 1);
            assert_eq!(fixture.stands().await, Some(EntryState::Unknown));
            let mut tx = D::begin_plain(&pool).await.done();
            assert_unknown(&refusal(answered(fixture.order(), &mut tx).await));
            D::rollback(tx).await.done();
        } else {
            assert_eq!(answer, end);
            D::rollback(tx).await.done();
            assert_eq!(fixture.kept("mine").await, (0, 0));
        }
        assert_usable(&fixture, &pool).await;
    }
}

/// The victim of a deadlock ignores its error and continues.
pub(crate) async fn a_body_that_swallows_a_deadlock<D: Database>() {
    let fixture = Arc::new(Fixture::<D>::new().await);
    let pool = pool_of_one(&fixture).await;
    fixture.shelves().await;
    let both = Arc::new(Barrier::new(2));
    let strong = tokio::spawn(strong(Arc::clone(&fixture), Arc::clone(&both)));
    let mut tx = D::begin_plain(&pool).await.done();
    let call = fixture.order().in_tx(&mut tx);
    let answer = call.run(async |tx: &mut D::Tx, _| -> Answer {
        is_victim::<D>(tx, &both).await?;
        // Without its transaction no call within the body runs.
        assert_aborted(&refusal(answered(fixture.call("inner"), tx).await));
        Ok(1)
    });
    let answer = patiently("the deadlock is found", answer).await;
    assert_aborted(&refusal(answer));
    assert_aborted(&refusal(answered(fixture.call("other"), &mut tx).await));
    D::rollback(tx).await.done();
    patiently("the other one ends", strong).await.unwrap();
    assert_eq!(fixture.records().await, 0);
    assert_usable(&fixture, &pool).await;
}

/// A transaction of sqlx that is neither committed, rolled back nor dropped: a commit would be that of a
/// savepoint.
pub(crate) async fn a_body_that_leaves_a_transaction_open<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let pool = pool_of_one(&fixture).await;
    let mut conn = D::acquire(&pool).await.done();
    let call = fixture.order().in_tx(&mut conn);
    let answer = call.run(async |conn: &mut D::Pooled, _| {
        let mut tx = conn.begin().await?;
        make::<D>(&mut tx, &fixture.runs, "mine").await?;
        std::mem::forget(tx);
        Answer::Ok(1)
    });
    assert_aborted(&refusal(answer.await));
    drop(conn);
    assert_eq!(fixture.kept("mine").await, (0, 0));
    assert_usable(&fixture, &pool).await;
}

/// The server ends a session that is idle in its transaction.
pub(crate) async fn a_session_that_is_idle_for_too_long<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let pool = pool_of_one(&fixture).await;
    let mut tx = D::begin_plain(&pool).await.done();
    let session = D::number(&mut tx, D::SESSION).await.done();
    let call = fixture.order().in_tx(&mut tx);
    let answer = call.run(async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, "mine").await?;
        let ends = D::END_WHEN_IDLE.expect("it has sessions");
        D::execute(tx, ends).await?;
        session_ends(&fixture, session).await;
        Answer::Ok(1)
    });
    assert_aborted(&refusal(answer.await));
    D::rollback(tx).await.ok();
    assert_eq!(fixture.kept("mine").await, (0, 0));
    assert_usable(&fixture, &pool).await;
}

/// A case that no call can refuse: the caller's own statement fails after the call, the caller ignores that, and the
/// commit of `PostgreSQL` is a rollback that sqlx reports as `Ok`.
pub(crate) async fn an_error_of_the_caller_after_the_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let pool = pool_of_one(&fixture).await;
    let mut tx = D::begin_plain(&pool).await.done();
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    let refused = D::execute(&mut tx, "INSERT INTO orders (name) VALUES (NULL)").await;
    refused.expect_err("a name is needed");
    let claim = fixture.call("other").in_tx(&mut tx);
    let claim = claim.run(async |_: &mut D::Tx, _| Answer::Ok(7)).await;
    D::commit(tx).await.done();
    let kept = if D::ERRORS_ABORT {
        assert_aborted(&refusal(claim));
        0
    } else {
        assert_eq!(claim, Ok(7));
        1
    };
    // Together, or not at all.
    let there = fixture.kept("mine").await;
    assert_eq!(there, (kept, 2 * kept));
    assert_usable(&fixture, &pool).await;
}

/// SQLite's error about a missing savepoint must not be taken for a missing table.
#[tokio::test]
async fn an_ended_transaction_is_not_reported_as_a_missing_table() {
    let fixture = Fixture::<Sqlite>::new().await;
    let mut conn = fixture.alone().await;
    let mut tx = conn.begin().await.done();
    let answer = fixture.order().in_tx(&mut tx).run(
        async |tx: &mut sqlx::SqliteTransaction<'_>, _| -> Answer {
            Sqlite::execute(tx, "COMMIT").await?;
            Ok(1)
        },
    );
    let error = refusal(answer.await);
    assert_aborted(&error);
    let mut texts = format!("{error} {error:?}");
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        write!(texts, " {error} {error:?}").expect("a string takes any text");
        source = error.source();
    }
    assert!(!texts.contains("migrate"), "{texts}");
    assert!(texts.contains("ended the transaction"), "{texts}");
}
