//! The remains of a call, by the ends of body and transaction.

use super::prelude::*;

on_each_database!(
    each_end_in_a_transaction_of_the_caller,
    each_end_on_a_connection_without_a_transaction,
);
mod other_clients {
    use super::*;
    on_each_other_client!(each_end_in_a_transaction_of_the_caller);
    mod counting {
        use super::*;
        on_each_counting_client!(each_end_on_a_connection_without_a_transaction);
    }
}
mod pooled {
    use super::*;
    on_each_database!(each_end_on_a_connection_of_a_pool);
}

/// The number of rows, and the state of the record.
type Left = (i64, Option<EntryState>);

const NOTHING: Left = (0, None);
const VALUE: Left = (1, Some(EntryState::Answered(OutcomeKind::Value)));
const ERROR: Left = (0, Some(EntryState::Answered(OutcomeKind::Error)));
const UNKNOWN: Left = (0, Some(EntryState::Unknown));
/// The record of a dropped body, which prevents another body.
const HALF: Left = (1, Some(EntryState::Unknown));

/// Each end, its event, a commit's rows, and its own transaction's remains.
const ENDS: [(End, &str, Left, Left); 7] = [
    (End::Value, "completed value", VALUE, VALUE),
    (End::Business, "completed error", ERROR, ERROR),
    (End::BusinessAfterAnError, "completed error", ERROR, ERROR),
    (End::System, "released", NOTHING, NOTHING),
    (End::Unknown, "completed unknown", UNKNOWN, UNKNOWN),
    (End::Panic, "panicked", NOTHING, NOTHING),
    (End::Dropped, "claimed", HALF, NOTHING),
];

/// The caller's end of its transaction, and whether a repeat precedes it.
const THEN: [(Ended, bool); 4] = [
    (Ended::Commit, false),
    (Ended::Rollback, false),
    (Ended::Drop, false),
    (Ended::Commit, true),
];

/// Checks the reply of a repeat, whose body may have run: by the record that it has met.
fn assert_repeat<C: Client>(
    case: &str,
    fixture: &Fixture<C>,
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

async fn assert_left<C: Client>(case: &str, fixture: &Fixture<C>, key: &str, left: Left) {
    let found = (fixture.orders(key).await, state(fixture.call(key)).await);
    assert_eq!(found, left, "{case}");
}

async fn each_end_in_a_transaction_of_the_caller<C: Client>() {
    let fixture = Fixture::<C>::new().await;
    let mut conn = C::connect(&fixture.place.url).await;
    for (end, event, committed, _) in ENDS {
        for (then, again) in THEN {
            let case = &format!("{end:?}, {then:?}, {again}");
            let (runs, events) = (fixture.runs.count(), fixture.events.count(event));
            let around = fixture.orders("around").await;
            let call = async |tx: &mut C::Tx<'_>| {
                insert_by(tx, "around").await.unwrap();
                let reply = fixture.call_that_ends(tx, |tx| tx, case, end).await;
                assert_eq!(reply, end.answer(runs + 1), "{case}");
                assert_eq!(fixture.events.count(event), events + 1, "{case}: {event}");
                // The transaction is usable, and no other connection sees its writes.
                insert_by(tx, "around").await.unwrap();
                assert_left(case, &fixture, case, NOTHING).await;
                if again {
                    let repeat = fixture.call_that_ends(tx, |tx| tx, case, End::Value).await;
                    let repeat = repeat.expect("it ends");
                    assert_repeat(case, &fixture, runs + 1, committed, reply.clone(), repeat);
                }
                (reply, then)
            };
            let (reply, ended) = C::in_transaction(&mut conn, call).await;
            ended.unwrap();
            let commits = matches!(then, Ended::Commit);
            let left = match (commits, again) {
                (false, _) => NOTHING,
                (true, true) if committed == NOTHING => VALUE,
                (true, _) => committed,
            };
            // It is read behind the rollback of a dropped transaction.
            conn.run("SELECT 1").await.unwrap();
            assert_left(case, &fixture, case, left).await;
            let added = fixture.orders("around").await - around;
            assert_eq!(added, if commits { 2 } else { 0 }, "{case}");
            // Another transaction finds the remains.
            let runs = fixture.runs.count();
            let first = if left == committed {
                reply
            } else {
                Some(Ok(runs))
            };
            let call = async |tx: &mut C::Tx<'_>| {
                let repeat = fixture.call_that_ends(tx, |tx| tx, case, End::Value).await;
                (repeat.expect("it ends"), Ended::Commit)
            };
            let (repeat, ended) = C::in_transaction(&mut conn, call).await;
            ended.unwrap();
            assert_repeat(case, &fixture, runs, left, first, repeat);
        }
    }
}

/// Calls on a connection whose transaction idem begins and ends, twice.
async fn on_connection<C: Client, T: SqlTransaction, S: Sql>(
    fixture: &Fixture<C>,
    conn: &mut T,
    beneath: fn(&mut T) -> &mut S,
    kind: &str,
) {
    for (end, event, _, left) in ENDS {
        let case = &format!("{end:?}, {kind}");
        let (runs, events) = (fixture.runs.count(), fixture.events.count(event));
        let reply = fixture.call_that_ends(conn, beneath, case, end).await;
        assert_eq!(reply, end.answer(runs + 1), "{case}");
        assert_eq!(fixture.events.count(event), events + 1, "{case}: {event}");
        assert_left(case, fixture, case, left).await;
        if end == End::Dropped && !C::DISCARDS_REPLIES {
            let used = insert_by(beneath(conn), "after").await;
            used.expect_err("it is closed");
            return;
        }
        // No transaction is open on it: a write is visible at once.
        let after = format!("after {case}");
        insert_by(beneath(conn), &after).await.unwrap();
        assert_eq!(fixture.orders(&after).await, 1, "{case}");
        let runs = fixture.runs.count();
        let repeat = fixture
            .call_that_ends(conn, beneath, case, End::Value)
            .await;
        assert_repeat(case, fixture, runs, left, reply, repeat.expect("it ends"));
        insert_by(beneath(conn), &after).await.unwrap();
        assert_eq!(fixture.orders(&after).await, 2, "{case}");
    }
}

async fn each_end_on_a_connection_without_a_transaction<C: Client<Conn: SqlTransaction>>() {
    let fixture = Fixture::<C>::new().await;
    let mut conn = C::connect(&fixture.place.url).await;
    on_connection(&fixture, &mut conn, |conn| conn, "alone").await;
}

async fn each_end_on_a_connection_of_a_pool<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut pooled = fixture.connection().await;
    on_connection(&fixture, &mut pooled, |conn| &mut **conn, "of a pool").await;
}
