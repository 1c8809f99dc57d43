//! What remains of a call, by the end of its body and the end of its transaction.

use super::prelude::*;

on_each_database!(
    each_end_in_a_transaction_of_the_caller,
    each_end_on_a_connection_without_a_transaction,
);

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
        use Then::{AgainAndCommit, Commit, Drop, Rollback};
        for then in [Commit, Rollback, Drop, AgainAndCommit] {
            let case = &format!("{end:?}, {then:?}");
            let (runs, events) = (fixture.runs.count(), fixture.events.count(event));
            let mut tx = fixture.begin().await;
            insert::<D>(&mut tx, "around").await.done();
            // The connection that a transaction derefs to is in the same transaction.
            let reply = if let Rollback = then {
                let conn: &mut D::Conn = &mut tx;
                fixture.call_that_ends(conn, |conn| conn, case, end).await
            } else {
                fixture.call_that_ends(&mut tx, |tx| tx, case, end).await
            };
            assert_eq!(reply, end.answer(runs + 1), "{case}");
            assert_eq!(fixture.events.count(event), events + 1, "{case}: {event}");
            // The transaction is usable, and no other connection sees its writes.
            insert::<D>(&mut tx, "around").await.done();
            assert_left(case, &fixture, case, NOTHING).await;
            let around = fixture.orders("around").await;
            let mut left = committed;
            match then {
                Commit => D::commit(tx).await.done(),
                Rollback => D::rollback(tx).await.done(),
                Drop => drop(tx),
                AgainAndCommit => {
                    let repeat = fixture
                        .call_that_ends(&mut tx, |tx| tx, case, End::Value)
                        .await;
                    let repeat = repeat.expect("it ends");
                    assert_repeat(case, &fixture, runs + 1, committed, reply.clone(), repeat);
                    D::commit(tx).await.done();
                    if committed == NOTHING {
                        left = VALUE;
                    }
                }
            }
            let commits = matches!(then, Commit | AgainAndCommit);
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
        let reply = fixture.call_that_ends(conn, beneath, case, end).await;
        assert_eq!(reply, end.answer(runs + 1), "{case}");
        assert_eq!(fixture.events.count(event), events + 1, "{case}: {event}");
        assert_left(case, fixture, case, left).await;
        // No transaction is open on it: a write is visible at once.
        let after = format!("after {case}");
        insert::<D>(beneath(conn), &after).await.done();
        assert_eq!(fixture.orders(&after).await, 1, "{case}");
        let runs = fixture.runs.count();
        let repeat = fixture
            .call_that_ends(conn, beneath, case, End::Value)
            .await;
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
