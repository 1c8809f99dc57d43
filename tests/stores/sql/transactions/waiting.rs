//! Duplicates on other connections while the first call's transaction is open.

use std::sync::atomic::{AtomicBool, Ordering};

use super::prelude::*;

on_each_database!(a_duplicate_waits_for_the_end_of_the_transaction,);
on_each_server!(
    a_caller_that_does_not_wait_gets_running_and_continues,
    a_dropped_claim_leaves_a_usable_connection,
    a_deadlock_ends_with_one_of_two_aborted,
);
mod other_clients {
    use super::*;
    on_each_other_client_of_a_server!(a_deadlock_ends_with_one_of_two_aborted);
}

/// A short lock wait, on databases whose calls can limit it.
const SHORT: Duration = Duration::from_secs(1);

/// After a commit it replays, and after a rollback its body runs.
async fn a_duplicate_waits_for_the_end_of_the_transaction<D: Database>() {
    for (commits, run) in [(true, 1), (false, 2)] {
        let fixture = Arc::new(Fixture::<D>::new().await);
        let ended = Arc::new(AtomicBool::new(false));
        let mut tx = fixture.begin().await;
        assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
        let waits = tokio::spawn({
            let (fixture, ended) = (Arc::clone(&fixture), Arc::clone(&ended));
            async move {
                let mut tx = fixture.begin().await;
                let call = fixture.order().on_running(OnRunning::Wait(PATIENCE));
                let answer = ordered(&fixture, call, &mut tx, "mine").await;
                let before = ended.load(Ordering::SeqCst);
                D::commit(tx).await.done();
                (answer, before)
            }
        });
        fixture.until_waiting(1).await;
        ended.store(true, Ordering::SeqCst);
        if commits {
            D::commit(tx).await.done();
        } else {
            D::rollback(tx).await.done();
        }
        let seen = patiently("the duplicate has its answer", waits).await;
        assert_eq!(seen.unwrap(), (Ok(run), true), "{commits}");
        let kept = (fixture.orders("mine").await, fixture.runs.count());
        assert_eq!(kept, (1, run), "{commits}");
    }
}

/// Databases where a call can wait for less than its connection does.
async fn a_caller_that_does_not_wait_gets_running_and_continues<D: Server>() {
    for on_running in [OnRunning::Reject, OnRunning::Wait(SHORT)] {
        let fixture = Fixture::<D>::new().await;
        let mut first = fixture.begin().await;
        assert_eq!(fixture.ordered(&mut first).await, Ok(1));
        // Settings of the session and of the transaction stay the same.
        let mut conn = fixture.connection().await;
        let session = settings::<D>(&mut conn).await;
        drop(conn);
        let mut tx = fixture.begin().await;
        if D::POSTGRES {
            let local = "SET LOCAL lock_timeout = '88s'";
            D::execute(&mut tx, local).await.done();
        }
        let local = settings::<D>(&mut tx).await;
        insert::<D>(&mut tx, "before").await.done();
        let call = fixture.order().on_running(on_running);
        let error = refusal(answered(call, &mut tx).await);
        assert_running(&error);
        assert_eq!(settings::<D>(&mut tx).await, local);
        insert::<D>(&mut tx, "after").await.done();
        // Another key is free.
        assert_eq!(fixture.ordered_as("other", &mut tx).await, Ok(2));
        assert_eq!(settings::<D>(&mut tx).await, local);
        D::commit(tx).await.done();
        for name in ["before", "after", "other"] {
            assert_eq!(fixture.orders(name).await, 1, "{name}");
        }
        D::rollback(first).await.done();
        if D::POSTGRES {
            assert_ne!(session, local);
        }
    }
}

/// A claim that is dropped while it waits: the server grants it later, or ends its statement with no client listening.
async fn a_dropped_claim_leaves_a_usable_connection<D: Server>() {
    // Long enough to be observed, and short enough to be waited for.
    for (wait, gives_up) in [(PATIENCE, false), (SHORT * 5, true)] {
        let fixture = Fixture::<D>::new().await;
        let mut conn = fixture.connection().await;
        let before = settings::<D>(&mut conn).await;
        let mut first = fixture.begin().await;
        assert_eq!(fixture.ordered(&mut first).await, Ok(1));
        let call = fixture.order().on_running(OnRunning::Wait(wait));
        tokio::select! {
            answer = answered(call, &mut *conn) => panic!("the first call is not committed: {answer:?}"),
            () = fixture.until_waiting(1) => {}
        }
        if gives_up {
            fixture.until_none_waits().await;
        }
        D::commit(first).await.done();
        if gives_up {
            // The pending reply of the server is read now.
            drop(conn.ping().await);
        }
        assert_eq!(answered(fixture.order(), &mut *conn).await, Ok(1));
        assert_eq!(settings::<D>(&mut conn).await, before, "{wait:?}");
    }
}

/// Two transactions that call two keys in opposite order.
async fn a_deadlock_ends_with_one_of_two_aborted<C: Client<Database: Server>>() {
    let fixture = Fixture::<C>::new().await;
    let both = tokio::sync::Barrier::new(2);
    let order = async |tx: &mut C::Tx<'_>, name: &str| {
        let call = fixture.call(name).on_running(OnRunning::Wait(PATIENCE));
        let call = call.in_tx(tx).run(async |tx: &mut C::Tx<'_>, _| {
            let run = fixture.runs.start();
            insert_by(tx, name).await?;
            Ok(run)
        });
        call.await
    };
    let orders = async |names: [&str; 2]| {
        let mut conn = C::connect(&fixture.place.url).await;
        let before = conn.count(C::Database::SETTING).await;
        let mut aborted = 0;
        loop {
            let work = async |tx: &mut C::Tx<'_>| {
                let mut answers: Vec<Answer> = vec![order(tx, names[0]).await];
                if aborted == 0 {
                    both.wait().await;
                }
                answers.push(order(tx, names[1]).await);
                let answers = answers.into_iter().collect::<Result<Vec<_>, _>>();
                let ends = if answers.is_ok() {
                    Ended::Commit
                } else {
                    Ended::Rollback
                };
                (answers, ends)
            };
            let (answers, ended) = C::in_transaction(&mut conn, work).await;
            ended.expect("the server is up");
            // Neither the claim nor the deadlock has changed the session.
            assert_eq!(conn.count(C::Database::SETTING).await, before);
            let Err(error) = answers else {
                return aborted;
            };
            assert_aborted(&refusal(Err::<(), _>(error)));
            aborted += 1;
        }
    };
    let both = async { tokio::join!(orders(["a", "b"]), orders(["b", "a"])) };
    let (one, other) = patiently("the deadlock is found", both).await;
    assert!(one + other >= 1, "neither was aborted");
    assert_eq!(fixture.orders_of(["a", "b"]).await, [1, 1]);
    assert_eq!(fixture.records().await, 2);
}
