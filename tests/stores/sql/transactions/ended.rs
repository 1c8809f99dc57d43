//! Transactions that are over before the body that runs in them.

use idem_runtime::EngineBuilder;
use idem_tests::orders::database::Database as _;
use tokio::sync::Barrier;

use super::prelude::*;

on_each_database!(
    no_end_of_a_body_that_has_ended_its_transaction_is_acknowledged,
    no_body_runs_without_the_transaction_that_sqlx_counts,
    a_body_that_leaves_a_transaction_open,
);
on_each_server!(
    no_end_of_a_body_whose_session_has_ended_is_acknowledged,
    a_body_that_swallows_a_deadlock,
);

/// The ways in which a body ends.
const BODIES: [End; 4] = [End::Value, End::System, End::Business, End::Dropped];

/// A pool of one connection: each call after a failure gets the connection of that failure.
pub(crate) fn pool_of_one<D: Database>(fixture: &Fixture<D>) -> sqlx::Pool<D::Driver> {
    D::Plain::pool(&fixture.place.url, 1)
}

/// Calls of other keys run, and their answers are committed.
pub(crate) async fn assert_usable<D: Database>(
    case: &str,
    fixture: &Fixture<D>,
    pool: &sqlx::Pool<D::Driver>,
) {
    for key in ["next", "undone", "last"] {
        let mut tx = D::begin_plain(pool).await.done();
        let call = fixture.call(key);
        if key == "undone" {
            let answer = failed(fixture, call, &mut tx, OrderError::Down).await;
            assert_eq!(answer, Err(OrderError::Down), "{case}: {key}");
            D::rollback(tx).await.done();
            assert_eq!(fixture.orders(key).await, 0, "{case}: {key}");
        } else {
            let run = fixture.runs.count() + 1;
            let answer = ordered(fixture, call, &mut tx, key).await;
            assert_eq!(answer, Ok(run), "{case}: {key}");
            D::commit(tx).await.done();
            assert_eq!(fixture.orders(key).await, 1, "{case}: {key}");
        }
    }
    // No lock is left behind.
    let mut other = fixture.connection().await;
    insert::<D>(&mut other, "free").await.done();
}

/// With each end of the body: nothing of it is acknowledged, in a transaction of the caller and in one of idem.
/// `commits`: the end of the transaction commits earlier writes.
async fn assert_none_is_acknowledged<D: Database>(
    what: &str,
    commits: bool,
    ends: impl AsyncFn(&Fixture<D>, &mut D::Conn),
) {
    let left = (i64::from(commits), commits.then_some(EntryState::Unknown));
    for own in [false, true] {
        // A caller that drops a body in a transaction of its own gets no answer.
        for body in BODIES {
            if !own && body == End::Dropped {
                continue;
            }
            let case = &format!("{what}, {body:?}, in a transaction of idem: {own}");
            let fixture = Fixture::<D>::new().await;
            let pool = pool_of_one(&fixture);
            let ends = async |conn: &mut D::Conn| ends(&fixture, conn).await;
            if own {
                let mut conn = D::acquire(&pool).await.done();
                let call = fixture.call_that_ends_after(&mut conn, |conn| conn, "mine", ends, body);
                // Nothing of the call remains, and its transaction is idem's: its error may be its answer.
                if let Some(answer) = call.await
                    && answer != Err(OrderError::Down)
                {
                    assert_aborted(&refusal(answer));
                }
            } else {
                let mut tx = D::begin_plain(&pool).await.done();
                let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", ends, body);
                assert_aborted(&refusal(call.await.expect("it is not dropped")));
                // In the same transaction no other body runs.
                let other = answered(fixture.call("other"), &mut tx).await;
                assert_aborted(&refusal(other));
                if D::shared().is_none() {
                    // SQLite would commit each of the caller's next statements alone.
                    let next = insert::<D>(&mut tx, "mine").await;
                    next.expect_err("the connection is closed");
                    D::commit(tx).await.expect_err("there is nothing to commit");
                } else {
                    D::rollback(tx).await.ok();
                }
            }
            let found = (
                fixture.orders("mine").await,
                state(fixture.call("mine")).await,
            );
            assert_eq!(found, left, "{case}");
            assert_usable(case, &fixture, &pool).await;
        }
    }
}

/// By a SQL text of the body. SQLite rolls back by itself after some errors.
async fn no_end_of_a_body_that_has_ended_its_transaction_is_acknowledged<D: Database>() {
    for (text, commits) in D::ENDS {
        let ends = async |_: &Fixture<D>, conn: &mut D::Conn| {
            let ended = D::execute(conn, text).await;
            assert_eq!(ended.is_err(), text.contains("INSERT"), "{text}: {ended:?}");
        };
        assert_none_is_acknowledged(text, *commits, ends).await;
    }
}

async fn no_end_of_a_body_whose_session_has_ended_is_acknowledged<D: Server>() {
    let killed = async |fixture: &Fixture<D>, conn: &mut D::Conn| end_session(fixture, conn).await;
    assert_none_is_acknowledged("killed", false, killed).await;
    let idle = async |fixture: &Fixture<D>, conn: &mut D::Conn| {
        let session = D::number(conn, D::SESSION_ID).await.done();
        D::execute(conn, D::END_WHEN_IDLE).await.done();
        session_ends(fixture, session).await;
    };
    assert_none_is_acknowledged("idle", false, idle).await;
}

async fn no_body_runs_without_the_transaction_that_sqlx_counts<D: Database>() {
    for (text, _) in D::ENDS {
        let fixture = Fixture::<D>::new().await;
        let pool = pool_of_one(&fixture);
        let mut tx = D::begin_plain(&pool).await.done();
        insert::<D>(&mut tx, "before").await.done();
        drop(D::execute(&mut tx, text).await);
        assert_aborted(&refusal(answered(fixture.order(), &mut tx).await));
        D::rollback(tx).await.ok();
        assert_eq!(fixture.records().await, 0, "{text}");
        assert_usable(text, &fixture, &pool).await;
    }
}

/// A database that detects a deadlock may undo the whole transaction. A caller that then commits the rest must not
/// believe that the transaction is complete.
async fn a_body_that_swallows_a_deadlock<D: Server>() {
    for body in BODIES.iter().filter_map(|body| body.answer(1)) {
        let case = &format!("{body:?}");
        let fixture = Arc::new(Fixture::<D>::new().await);
        let pool = pool_of_one(&fixture);
        fixture.shelves().await;
        let both = Arc::new(Barrier::new(2));
        let strong = tokio::spawn(strong(Arc::clone(&fixture), Arc::clone(&both)));
        let mut tx = D::begin_plain(&pool).await.done();
        insert::<D>(&mut tx, "before").await.done();
        let call = fixture.order().in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, _| -> Answer {
            is_victim::<D>(tx, &both).await?;
            // Without its transaction no call within the body runs.
            assert_aborted(&refusal(answered(fixture.call("inner"), tx).await));
            body.clone()
        });
        let answer = patiently("the deadlock is found", answer).await;
        match answer {
            Err(OrderError::Idem(error)) => {
                assert_aborted(&error);
                assert_aborted(&refusal(answered(fixture.call("other"), &mut tx).await));
                D::rollback(tx).await.ok();
                assert_eq!(fixture.kept("before").await, (0, 0), "{case}");
            }
            Err(_) => {
                assert_eq!(answer, body, "{case}");
                D::commit(tx).await.done();
                assert_eq!(fixture.orders("before").await, 1, "{case}");
            }
            Ok(_) => panic!("{case}"),
        }
        patiently("the other one ends", strong).await.unwrap();
        assert_usable(case, &fixture, &pool).await;
    }
}

/// A transaction of sqlx that is neither committed, rolled back nor dropped: a commit would be that of a
/// savepoint. Also by an engine that is disabled.
async fn a_body_that_leaves_a_transaction_open<D: Database>() {
    for fixture in [
        Fixture::<D>::new().await,
        Fixture::with(EngineBuilder::disabled).await,
    ] {
        let pool = pool_of_one(&fixture);
        let mut conn = D::acquire(&pool).await.done();
        let leaves = async |conn: &mut D::Conn| {
            let mut tx = conn.begin().await.done();
            insert::<D>(&mut tx, "mine").await.done();
            std::mem::forget(tx);
        };
        let call = fixture.call_that_ends_after(&mut conn, |conn| conn, "mine", leaves, End::Value);
        assert_aborted(&refusal(call.await.expect("it ends")));
        drop(conn);
        assert_eq!(fixture.kept("mine").await, (0, 0));
        assert_usable("left open", &fixture, &pool).await;
    }
}
