//! Steps that are committed with the rows of the caller.

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{EngineBuilder, OnDuplicate, OnLeaseLost, step, step_in_tx};
use idem_tests::payment::Runs;
use tokio::sync::Notify;

use super::prelude::*;

on_each_database!(
    a_step_and_its_rows_are_committed_together,
    each_end_of_a_step_and_of_its_transaction,
    a_reset_and_a_later_call_forget_the_step,
    a_connection_is_committed_for_the_step,
    a_step_is_refused_where_it_cannot_be_kept,
    no_step_begins_after_the_lease_is_lost,
    a_body_in_a_transaction_does_not_repeat_steps,
    a_step_of_class_unknown_can_be_freed_without_the_other_steps,
);
on_each_server!(attempts_that_overlap_book_once);

/// Longer than a lease.
const LEASE_OVER: Duration = Duration::from_secs(31);
const FAILS: Answer = Err(OrderError::Down);

/// The step `book`, which makes an order of this name.
async fn booked<D: Database>(fixture: &Fixture<D>, tx: &mut D::Tx, name: &str) -> Answer {
    step_in_tx("book", tx, async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, name).await
    })
    .await
}

/// A body that books, commits, and ends like this.
async fn books<D: Database>(fixture: &Fixture<D>, ends: Answer) -> Answer {
    let mut tx = fixture.begin().await;
    let run = booked(fixture, &mut tx, "mine").await?;
    D::commit(tx).await.done();
    ends.map(|_| run)
}

/// The call of the key `order-7` in another process.
fn elsewhere<D: Database>(fixture: &Fixture<D>) -> CallBuilder<Classified> {
    let engine = Engine::new(fixture.store.clone());
    engine.operation("orders.create").key("order-7")
}

async fn a_step_and_its_rows_are_committed_together<D: Database>() {
    let hours = Duration::from_hours;
    let long = format!("größe \u{1F600}/{}", "x".repeat(700));
    let plain: fn(EngineBuilder) -> EngineBuilder = |engine| engine;
    let rejects_running: fn(EngineBuilder) -> EngineBuilder =
        |engine| engine.on_running(OnRunning::Reject);
    // A cool-down of the engine is not one of its steps.
    let cools_down: fn(EngineBuilder) -> EngineBuilder =
        |engine| engine.on_duplicate(OnDuplicate::Reject);
    for (case, settings, name, ttl, age) in [
        ("at once", plain, "book", hours(24), Duration::ZERO),
        ("a long name", plain, &*long, hours(24), Duration::ZERO),
        // Each attempt retains the records of the call and of the step anew.
        ("retried for days", plain, "book", hours(24), hours(20)),
        (
            "for ever",
            rejects_running,
            "book",
            Duration::MAX,
            hours(24 * 400),
        ),
        ("cool-down", cools_down, "book", hours(24), Duration::ZERO),
    ] {
        let fixture = Fixture::<D>::with(settings).await;
        let charge = Runs::default();
        for (ends, answer) in [(FAILS, FAILS), (FAILS, FAILS), (Ok(0), Ok(1))] {
            let order = fixture.order().ttl(ttl).run(|_| async {
                step("charge", async |_| Ok::<_, OrderError>(charge.start())).await?;
                let mut tx = fixture.begin().await;
                let book = step_in_tx(name, &mut tx, async |tx: &mut D::Tx, _| {
                    make::<D>(tx, &fixture.runs, "mine").await
                });
                let run = book.await?;
                // Its record is claimed while the transaction has written.
                let ship = step_in_tx(("ship", 7), &mut tx, async |tx: &mut D::Tx, step| {
                    assert_eq!((step.name(), step.key().len()), ("ship", 43));
                    make::<D>(tx, &fixture.runs, "shipped").await
                });
                assert_eq!(ship.await, Ok(2));
                D::commit(tx).await.done();
                ends.map(|_| run)
            });
            assert_eq!(order.await, answer, "{case}");
            let orders = fixture.orders_of(["mine", "shipped"]).await;
            assert_eq!(orders, [1, 1], "{case}");
            fixture.age(age).await;
        }
        assert_eq!((charge.count(), fixture.runs.count()), (1, 2), "{case}");
    }
}

/// A call whose step ends like this fails; the next one books.
async fn each_end_of_a_step_and_of_its_transaction<D: Database>() {
    for (end, commits, is_kept) in [
        (End::Value, true, true),
        (End::Value, false, false),
        (End::Business, true, true),
        (End::Business, false, false),
        (End::System, true, false),
        // As a time-out around it does.
        (End::Dropped, true, false),
    ] {
        let case = &format!("{end:?}, committed: {commits}");
        let fixture = Fixture::<D>::new().await;
        let order = fixture.order().run(|_| async {
            let (mut tx, wrote) = (fixture.begin().await, Notify::new());
            let book = step_in_tx("book", &mut tx, async |tx: &mut D::Tx, _| {
                let run = make::<D>(tx, &fixture.runs, "mine").await?;
                if let Some(answer) = end.answer(run) {
                    return answer;
                }
                wrote.notify_one();
                std::future::pending().await
            });
            let told = tokio::select! {
                told = book => Some(told),
                () = wrote.notified() => None,
            };
            assert_eq!(told, end.answer(1), "{case}");
            let ended = if commits {
                D::commit(tx).await
            } else {
                D::rollback(tx).await
            };
            ended.done();
            FAILS
        });
        assert_eq!(order.await, FAILS, "{case}");
        let next = fixture.order().run(|_| books(&fixture, Ok(0))).await;
        if end == End::Dropped {
            // The rows of the part are there, and no other part may add its own.
            fixture.age(LEASE_OVER).await;
            drop(fixture.order().run(|_| books(&fixture, FAILS)).await);
            assert_eq!(fixture.orders("mine").await, 1, "{next:?}");
            continue;
        }
        let expected = if is_kept { end.answer(1) } else { Some(Ok(2)) };
        assert_eq!(Some(&next), expected.as_ref(), "{case}");
        let found = (fixture.orders("mine").await, fixture.runs.count());
        let runs = if is_kept { 1 } else { 2 };
        assert_eq!(found, (i64::from(next.is_ok()), runs), "{case}");
    }
}

async fn a_reset_and_a_later_call_forget_the_step<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let attempt = async |ends| fixture.order().run(|_| books(&fixture, ends)).await;
    assert_eq!(attempt(FAILS).await, FAILS);
    let entry = fixture.order().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    assert_eq!(attempt(FAILS).await, FAILS);
    assert_eq!(fixture.orders("mine").await, 1);
    let entry = fixture.order().entry().await.unwrap().unwrap();
    entry.reset_with_steps().await.unwrap();
    assert_eq!(attempt(Ok(0)).await, Ok(2));
    // The answer has expired, and a step of that time counts no longer.
    fixture.age(Duration::from_hours(25)).await;
    assert_eq!(attempt(Ok(0)).await, Ok(3));
    assert_eq!(fixture.orders("mine").await, 3);
}

/// Also by an engine that is disabled; a system error undoes the rows.
async fn a_connection_is_committed_for_the_step<D: Database>() {
    let enabled = Fixture::<D>::new().await;
    let disabled = Fixture::<D>::with(EngineBuilder::disabled).await;
    for (fixture, step, call, orders) in [
        (&enabled, FAILS, FAILS, 0),
        (&enabled, Ok(2), FAILS, 1),
        (&enabled, Ok(2), Ok(2), 1),
        (&disabled, FAILS, FAILS, 0),
    ] {
        let order = fixture.order().run(|_| async {
            let mut conn = fixture.connection().await;
            let book = step_in_tx("book", &mut *conn, async |conn: &mut D::Conn, _| {
                let run = make::<D>(conn, &fixture.runs, "mine").await;
                step.and(run)
            });
            let run = book.await?;
            call.clone().map(|_| run)
        });
        assert_eq!(order.await, call);
        assert_eq!(fixture.orders("mine").await, orders);
    }
}

async fn a_step_is_refused_where_it_cannot_be_kept<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let outside = refusal(booked(&fixture, &mut tx, "mine").await);
    assert_eq!(*outside.kind(), ErrorKind::InvalidStep, "{outside}");
    let inside = fixture
        .order()
        .in_tx(&mut tx)
        .run(async |tx: &mut D::Tx, _| {
            let told = refusal(booked(&fixture, tx, "mine").await);
            assert!(
                told.to_string().contains("a body in a transaction"),
                "{told}"
            );
            Ok::<_, OrderError>(1)
        });
    assert_eq!(inside.await, Ok(1));
    let elsewhere = Engine::new(MemoryStore::new());
    let order = elsewhere
        .operation("orders.create")
        .key("order-7")
        .run(|_| async {
            let told = refusal(booked(&fixture, &mut tx, "mine").await);
            assert_eq!(*told.kind(), ErrorKind::InvalidPolicy, "{told}");
            FAILS
        });
    assert_eq!(order.await, FAILS);
    D::rollback(tx).await.done();
    assert_eq!(fixture.runs.count(), 0);
}

async fn no_step_begins_after_the_lease_is_lost<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let zombie = fixture.order().on_lease_lost(OnLeaseLost::Continue);
    let order = zombie.run(|_| async {
        fixture.age(LEASE_OVER).await;
        let next = elsewhere(&fixture).run(|_| books(&fixture, FAILS));
        assert_eq!(next.await, FAILS);
        let mut tx = fixture.begin().await;
        let told = refusal(booked(&fixture, &mut tx, "mine").await);
        assert_running(&told);
        drop(tx);
        FAILS
    });
    assert_eq!(order.await, FAILS);
    assert_eq!((fixture.orders("mine").await, fixture.runs.count()), (1, 1));
}

/// Lets the call's lease lapse while a transaction locks its step's record.
async fn lapses<D: Database>(fixture: &Fixture<D>) {
    let mut conn = fixture.connection().await;
    // MariaDB would wait for the locks of rows that it only looks at.
    let reads = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
    D::execute(&mut conn, reads).await.done();
    let micros = LEASE_OVER.as_micros();
    let ages = format!(
        "UPDATE idem_records SET expires_us = expires_us - {micros} WHERE op = 'orders.create'"
    );
    assert_eq!(D::execute(&mut conn, &ages).await.done(), 1);
}

async fn attempts_that_overlap_book_once<D: Server>() {
    let fixture = Fixture::<D>::new().await;
    let zombie = fixture.order().on_lease_lost(OnLeaseLost::Continue);
    let order = zombie.run(|_| async {
        let mut tx = fixture.begin().await;
        assert_eq!(booked(&fixture, &mut tx, "mine").await, Ok(1));
        // The step has ended, and its transaction is open.
        lapses(&fixture).await;
        let next = elsewhere(&fixture).run(|_| books(&fixture, Ok(0)));
        let commits = async {
            fixture.until_waiting(1).await;
            D::commit(tx).await.done();
        };
        let (next, ()) = tokio::join!(next, commits);
        assert_eq!(next, Ok(1), "the result of the one that was first");
        FAILS
    });
    // What counts is the answer of the next attempt.
    assert_eq!(patiently("both have ended", order).await, FAILS);
    assert_eq!((fixture.orders("mine").await, fixture.runs.count()), (1, 1));
}

async fn a_body_in_a_transaction_does_not_repeat_steps<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let order = fixture.order().run(|_| async {
        step("charge", async |_| Ok(fixture.runs.start()) as Answer).await?;
        FAILS
    });
    assert_eq!(order.await, FAILS);
    let mut tx = fixture.begin().await;
    let told = refusal(answered(fixture.order(), &mut tx).await);
    assert_eq!(*told.kind(), ErrorKind::InvalidStep, "{told}");
    assert!(told.to_string().contains("has recorded steps"), "{told}");
    // The transaction goes on.
    assert_eq!(fixture.ordered_as("other", &mut tx).await, Ok(2));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("other").await, 1);
    let order = fixture
        .order()
        .run(|_| async { step("charge", async |_| unreachable!("it has run")).await as Answer });
    assert_eq!(order.await, Ok(1));
}

async fn a_step_of_class_unknown_can_be_freed_without_the_other_steps<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let charge = Runs::default();
    let attempt = async |book: Answer| {
        let order = fixture.order().run(|_| async {
            step("charge", async |_| Ok::<_, OrderError>(charge.start())).await?;
            let mut tx = fixture.begin().await;
            let run = step_in_tx("book", &mut tx, async |tx: &mut D::Tx, _| {
                make::<D>(tx, &fixture.runs, "mine").await?;
                book
            })
            .await;
            // As the documentation says: whatever it is.
            D::commit(tx).await.done();
            run
        });
        let answer: Answer = order.await;
        answer
    };
    assert_eq!(
        attempt(Err(OrderError::TimedOut)).await,
        Err(OrderError::TimedOut)
    );
    // The operator knows that nothing happened beside the undone work.
    let entry = fixture.order().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    let mut book = fixture.engine.entries().operation("orders.create/book");
    let page = book.next_page().await.unwrap().unwrap();
    for entry in page.into_entries() {
        assert_eq!(entry.state(), EntryState::Unknown);
        entry.reset().await.unwrap();
    }
    let told = attempt(Ok(2)).await;
    assert_eq!((told, charge.count()), (Ok(2), 1));
}
