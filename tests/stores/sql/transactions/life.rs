//! What remains of a call, by the end of its body and the end of its transaction.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;

use tokio::sync::Notify;

use super::prelude::*;

on_each_database!(
    each_end_in_a_transaction_of_the_caller,
    each_end_on_a_connection_without_a_transaction,
);

/// How a body ends after its row is written.
#[derive(Clone, Copy, Debug)]
enum End {
    Value,
    Business,
    /// After an error of the database, which aborts a transaction of PostgreSQL.
    BusinessAfterAnError,
    System,
    Unknown,
    Panic,
    /// Its call is dropped.
    Dropped,
}

/// The number of rows, and the state of the record.
type Left = (i64, Option<EntryState>);

const NOTHING: Left = (0, None);
const VALUE: Left = (1, Some(EntryState::Answered(OutcomeKind::Value)));
const ERROR: Left = (0, Some(EntryState::Answered(OutcomeKind::Error)));
const UNKNOWN: Left = (0, Some(EntryState::Unknown));
/// The record of a body that was dropped half-way, so that no other body runs.
const HALF: Left = (1, Some(EntryState::Unknown));

/// Each end, its event, what a commit of the caller keeps, and what remains if the transaction is the call's own.
const ENDS: [(End, &str, Left, Left); 7] = [
    (End::Value, "completed value", VALUE, VALUE),
    (End::Business, "completed error", ERROR, ERROR),
    (End::BusinessAfterAnError, "completed error", ERROR, ERROR),
    (End::System, "released", NOTHING, NOTHING),
    (End::Unknown, "completed unknown", UNKNOWN, UNKNOWN),
    (End::Panic, "panicked", NOTHING, NOTHING),
    (End::Dropped, "claimed", HALF, NOTHING),
];

/// How the caller ends its transaction.
#[derive(Clone, Copy, Debug)]
enum Then {
    Commit,
    Rollback,
    /// sqlx rolls it back.
    Drop,
    /// The call is repeated in the same transaction, and committed.
    AgainAndCommit,
}

const THEN: [Then; 4] = [
    Then::Commit,
    Then::Rollback,
    Then::Drop,
    Then::AgainAndCommit,
];

/// Calls with a body that writes a row of the key's name and ends like this. `None` after a panic or a drop.
async fn call<D: Database, T: SqlTransaction>(
    fixture: &Fixture<D>,
    tx: &mut T,
    beneath: fn(&mut T) -> &mut D::Conn,
    key: &str,
    end: End,
) -> Option<Answer> {
    let wrote = Notify::new();
    let call = fixture.call(key).in_tx(tx).run(async |tx: &mut T, _| {
        let conn = beneath(tx);
        let run = make::<D>(conn, &fixture.runs, key).await?;
        match end {
            End::Value => Ok(run),
            End::Business => Err(OrderError::SoldOut { run }),
            End::BusinessAfterAnError => {
                let refused = D::execute(conn, "INSERT INTO orders (name) VALUES (NULL)").await;
                refused.expect_err("a name is needed");
                Err(OrderError::SoldOut { run })
            }
            End::System => Err(OrderError::Down),
            End::Unknown => Err(OrderError::TimedOut),
            End::Panic => panic_any("out of paper"),
            End::Dropped => {
                wrote.notify_one();
                pending().await
            }
        }
    });
    let mut call = pin!(call);
    let ended = poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
        polled.map_or(Poll::Ready(None), |poll| poll.map(Some))
    });
    tokio::select! {
        answer = ended => answer,
        () = wrote.notified() => None,
    }
}

/// Checks the reply of the first run.
fn assert_reply(case: &str, end: End, run: u32, reply: Option<&Answer>) {
    let expected = match end {
        End::Value => Some(Ok(run)),
        End::Business | End::BusinessAfterAnError => Some(Err(OrderError::SoldOut { run })),
        End::System => Some(Err(OrderError::Down)),
        End::Unknown => Some(Err(OrderError::TimedOut)),
        End::Panic | End::Dropped => None,
    };
    assert_eq!(reply, expected.as_ref(), "{case}");
}

/// Checks the reply of a repeat, whose body may have run: by the record that it has met.
fn assert_repeat<D: Database>(
    case: &str,
    fixture: &Fixture<D>,
    runs: u32,
    met: Left,
    first: Option<Answer>,
    repeat: Answer,
) {
    let ran = fixture.runs.count() - runs;
    match met.1 {
        None => assert_eq!((repeat, ran), (Ok(runs + 1), 1), "{case}"),
        Some(EntryState::Answered(_)) => assert_eq!((Some(repeat), ran), (first, 0), "{case}"),
        Some(_) => {
            assert_unknown(&refusal(repeat));
            assert_eq!(ran, 0, "{case}");
        }
    }
}

async fn assert_left<D: Database>(case: &str, fixture: &Fixture<D>, key: &str, left: Left) {
    let found = (fixture.orders(key).await, state(fixture.call(key)).await);
    assert_eq!(found, left, "{case}");
}

async fn each_end_in_a_transaction_of_the_caller<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for (end, event, committed, _) in ENDS {
        for then in THEN {
            let case = &format!("{end:?}, {then:?}");
            let (runs, events) = (fixture.runs.count(), fixture.events.count(event));
            let mut tx = fixture.begin().await;
            insert::<D>(&mut tx, "around").await.done();
            // The connection that a transaction derefs to is in the same transaction.
            let reply = if let Then::Rollback = then {
                let conn: &mut D::Conn = &mut tx;
                call(&fixture, conn, |conn| conn, case, end).await
            } else {
                call(&fixture, &mut tx, |tx| tx, case, end).await
            };
            assert_reply(case, end, runs + 1, reply.as_ref());
            assert_eq!(fixture.events.count(event), events + 1, "{case}: {event}");
            // The transaction is usable, and no other connection sees its writes.
            insert::<D>(&mut tx, "around").await.done();
            assert_left(case, &fixture, case, NOTHING).await;
            let around = fixture.orders("around").await;
            let mut left = committed;
            match then {
                Then::Commit => D::commit(tx).await.done(),
                Then::Rollback => D::rollback(tx).await.done(),
                Then::Drop => drop(tx),
                Then::AgainAndCommit => {
                    let repeat = call(&fixture, &mut tx, |tx| tx, case, End::Value).await;
                    let repeat = repeat.expect("it ends");
                    assert_repeat(case, &fixture, runs + 1, committed, reply.clone(), repeat);
                    D::commit(tx).await.done();
                    if committed == NOTHING {
                        left = VALUE;
                    }
                }
            }
            let commits = matches!(then, Then::Commit | Then::AgainAndCommit);
            if !commits {
                left = NOTHING;
            }
            assert_left(case, &fixture, case, left).await;
            let added = fixture.orders("around").await - around;
            assert_eq!(added, if commits { 2 } else { 0 }, "{case}");
            // Another transaction finds what is left.
            let runs = fixture.runs.count();
            let first = if left == committed {
                reply
            } else {
                Some(Ok(runs))
            };
            let repeat = fixture.committed_as(case).await;
            assert_repeat(case, &fixture, runs, left, first, repeat);
        }
    }
}

/// Calls on a connection for which idem begins and ends the transaction, twice.
async fn on_connection<D: Database, T: SqlTransaction>(
    fixture: &Fixture<D>,
    conn: &mut T,
    beneath: fn(&mut T) -> &mut D::Conn,
    kind: &str,
) {
    for (end, event, _, left) in ENDS {
        let case = &format!("{end:?}, {kind}");
        let (runs, events) = (fixture.runs.count(), fixture.events.count(event));
        let reply = call(fixture, conn, beneath, case, end).await;
        assert_reply(case, end, runs + 1, reply.as_ref());
        assert_eq!(fixture.events.count(event), events + 1, "{case}: {event}");
        assert_left(case, fixture, case, left).await;
        // No transaction is open on it: a write is visible at once.
        let after = format!("after {case}");
        insert::<D>(beneath(conn), &after).await.done();
        assert_eq!(fixture.orders(&after).await, 1, "{case}");
        let runs = fixture.runs.count();
        let repeat = call(fixture, conn, beneath, case, End::Value).await;
        assert_repeat(case, fixture, runs, left, reply, repeat.expect("it ends"));
        insert::<D>(beneath(conn), &after).await.done();
        assert_eq!(fixture.orders(&after).await, 2, "{case}");
    }
}

async fn each_end_on_a_connection_without_a_transaction<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    on_connection(&fixture, &mut fixture.alone().await, |conn| conn, "alone").await;
    let mut pooled = fixture.connection().await;
    on_connection(&fixture, &mut pooled, |conn| conn, "of a pool").await;
}
