//! Steps that are committed with the rows of the caller.

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{EngineBuilder, OnDuplicate, OnLeaseLost, step, step_in_tx};
use tokio::sync::Notify;

use super::prelude::*;

on_each_database!(
    a_step_and_its_rows_are_committed_together,
    a_step_that_is_rolled_back_or_dropped_runs_again,
    the_errors_of_a_step_undo_its_rows,
    a_reset_and_a_later_call_forget_the_step,
    a_connection_is_committed_for_the_step,
    steps_in_one_transaction_and_steps_without_one,
    a_step_is_refused_where_it_cannot_be_kept,
    no_step_begins_after_the_lease_is_lost,
    a_body_in_a_transaction_does_not_repeat_steps,
    a_disabled_engine_begins_a_transaction_for_the_step,
    a_step_of_class_unknown_can_be_freed_without_the_other_steps,
);
on_each_server!(attempts_that_overlap_book_once);
on!(sqlite_only Sqlite: a_step_in_a_transaction_that_began_with_the_lock);

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
        let charge = idem_tests::payment::Runs::default();
        for (ends, answer) in [(FAILS, FAILS), (FAILS, FAILS), (Ok(0), Ok(1))] {
            let order = fixture.order().ttl(ttl).run(|_| async {
                step("charge", async |_| Ok::<_, OrderError>(charge.start())).await?;
                let mut tx = fixture.begin().await;
                let book = step_in_tx(name, &mut tx, async |tx: &mut D::Tx, _| {
                    make::<D>(tx, &fixture.runs, "mine").await
                });
                let run = book.await?;
                D::commit(tx).await.done();
                ends.map(|_| run)
            });
            assert_eq!(order.await, answer, "{case}");
            assert_eq!(fixture.orders("mine").await, 1, "{case}");
            fixture.age(age).await;
        }
        assert_eq!((charge.count(), fixture.runs.count()), (1, 1), "{case}");
    }
}

/// A step that is dropped half-way, as a time-out around it does, is not committed with the rest.
async fn a_step_that_is_rolled_back_or_dropped_runs_again<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let order = fixture.order().run(|_| async {
        let mut tx = fixture.begin().await;
        booked(&fixture, &mut tx, "mine").await?;
        D::rollback(tx).await.done();
        FAILS
    });
    assert_eq!(order.await, FAILS);
    let order = fixture.order().run(|_| books(&fixture, Ok(0)));
    assert_eq!(order.await, Ok(2));
    assert_eq!(fixture.orders("mine").await, 1);

    let fixture = Fixture::<D>::new().await;
    let order = fixture.order().run(|_| async {
        let mut tx = fixture.begin().await;
        let wrote = Notify::new();
        let book = step_in_tx("book", &mut tx, async |tx: &mut D::Tx, _| {
            make::<D>(tx, &fixture.runs, "mine").await?;
            wrote.notify_one();
            std::future::pending::<Answer>().await
        });
        tokio::select! {
            ended = book => panic!("it never ends: {ended:?}"),
            () = wrote.notified() => {}
        }
        D::commit(tx).await.done();
        FAILS
    });
    assert_eq!(order.await, FAILS);
    let first = fixture.order().run(|_| books(&fixture, FAILS)).await;
    fixture.age(LEASE_OVER).await;
    let second = fixture.order().run(|_| books(&fixture, FAILS)).await;
    fixture.age(LEASE_OVER).await;
    assert_eq!(fixture.orders("mine").await, 1, "{first:?} then {second:?}");
}

async fn the_errors_of_a_step_undo_its_rows<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let errors = [
        OrderError::Down,
        OrderError::SoldOut { run: 2 },
        OrderError::Down,
    ];
    for (error, shown) in errors.into_iter().zip([
        OrderError::Down,
        OrderError::SoldOut { run: 2 },
        // A business error is kept, and the step does not run again.
        OrderError::SoldOut { run: 2 },
    ]) {
        let order = fixture.order().run(|_| async {
            let mut tx = fixture.begin().await;
            let told = step_in_tx("book", &mut tx, async |tx: &mut D::Tx, _| {
                make::<D>(tx, &fixture.runs, "mine").await?;
                Err(error) as Answer
            });
            assert_eq!(told.await, Err(shown));
            D::commit(tx).await.done();
            FAILS
        });
        assert_eq!(order.await, FAILS);
    }
    assert_eq!((fixture.orders("mine").await, fixture.runs.count()), (0, 2));
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

async fn a_connection_is_committed_for_the_step<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for answer in [FAILS, Ok(1)] {
        let order = fixture.order().run(|_| async {
            let mut conn = fixture.connection().await;
            let book = step_in_tx("book", &mut *conn, async |conn: &mut D::Conn, _| {
                make::<D>(conn, &fixture.runs, "mine").await
            });
            let run = book.await?;
            answer.clone().map(|_| run)
        });
        assert_eq!(order.await, answer);
        assert_eq!(fixture.orders("mine").await, 1);
    }
}

async fn steps_in_one_transaction_and_steps_without_one<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let charged = idem_tests::payment::Runs::default();
    for ends in [FAILS, Ok(9)] {
        let order = fixture.order().run(|_| async {
            let charge = step("charge", async |_| Ok::<_, OrderError>(charged.start()));
            assert_eq!(charge.await, Ok(1));
            let mut tx = fixture.begin().await;
            assert_eq!(booked(&fixture, &mut tx, "one").await, Ok(1));
            let ship = step_in_tx(("ship", 7), &mut tx, async |tx: &mut D::Tx, step| {
                assert_eq!((step.name(), step.key().len()), ("ship", 43));
                make::<D>(tx, &fixture.runs, "two").await
            });
            assert_eq!(ship.await, Ok(2));
            let twice = refusal(booked(&fixture, &mut tx, "three").await);
            assert_eq!(*twice.kind(), ErrorKind::InvalidStep, "{twice}");
            D::commit(tx).await.done();
            ends.clone()
        });
        assert_eq!(order.await, ends);
    }
    assert_eq!(fixture.orders_of(["one", "two", "three"]).await, [1, 1, 0]);
    assert_eq!((charged.count(), fixture.runs.count()), (1, 2));
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

/// Lets the lease of the call lapse while a transaction has locked the record of its step.
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

/// As is recommended for files: with the lock for writing from the beginning.
async fn a_step_in_a_transaction_that_began_with_the_lock<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let order = fixture.order().run(|_| async {
        let mut tx = D::begin(&fixture.pool, "BEGIN IMMEDIATE").await.done();
        let run = booked(&fixture, &mut tx, "mine").await?;
        D::commit(tx).await.done();
        Ok::<_, OrderError>(run)
    });
    assert_eq!(order.await, Ok(1));
}

async fn a_disabled_engine_begins_a_transaction_for_the_step<D: Database>() {
    let fixture = Fixture::<D>::with(EngineBuilder::disabled).await;
    let order = fixture.order().run(|_| async {
        let mut conn = fixture.connection().await;
        let book = step_in_tx("book", &mut *conn, async |conn: &mut D::Conn, _| {
            make::<D>(conn, &fixture.runs, "mine").await?;
            FAILS
        });
        book.await
    });
    assert_eq!(order.await, FAILS);
    assert_eq!(
        fixture.orders("mine").await,
        0,
        "a system error undoes the rows"
    );
}

async fn a_step_of_class_unknown_can_be_freed_without_the_other_steps<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let charge = idem_tests::payment::Runs::default();
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
    // The operator knows that nothing else happened than what was undone.
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

/// Compiles only if the futures can be sent to another thread, where they are written as in the docs.
#[allow(dead_code, reason = "it is compiled, and needs no database")]
mod spawned {
    use std::time::Duration;

    use idem_runtime::store::sql::SqlTransaction;
    use idem_runtime::{Engine, Error, HasEngine, Reconciled, idempotent, step, step_in_tx};
    use sqlx::{PgConnection, PgPool};

    use super::{Answer, OrderError};

    struct Shop {
        engine: Engine,
        pool: PgPool,
    }

    impl HasEngine for Shop {
        fn engine(&self) -> Engine {
            self.engine.clone()
        }
    }

    #[allow(clippy::unused_async, reason = "it stands for a request")]
    async fn pay(_: &str) -> Result<String, OrderError> {
        Ok("ch-1".into())
    }

    async fn generic<T: SqlTransaction>(tx: &mut T) -> Answer {
        step_in_tx("book", tx, async |_: &mut T, _| Ok::<_, OrderError>(5)).await
    }

    #[idempotent(engine = shop, op = "orders.place", key = no, fingerprint = none)]
    async fn place(shop: &Shop, no: &str, items: &[u32]) -> Result<i64, OrderError> {
        let charge = step("charge", async |s| pay(&s.key()).await);
        let charge = tokio::time::timeout(Duration::from_secs(1), charge.once())
            .await
            .map_err(|_| OrderError::Down)??;
        for item in items {
            step(("ship", item), async |s| pay(&s.key()).await).await?;
        }
        // Without these blocks the call cannot be spawned: "one type is more general than the other".
        let (one, two) = tokio::join!(
            async { step("one", async |_| pay(&charge).await).await },
            async {
                step("two", async |_| pay(&charge).await)
                    .reconcile(async |s| {
                        let _ = s.key();
                        Ok::<_, Error>(Reconciled::<String>::Unknown)
                    })
                    .await
            },
        );
        let late = tokio::select! {
            late = step("late", async |_| pay(&one?).await) => late?,
            () = tokio::time::sleep(Duration::from_secs(1)) => two?,
        };
        let mut tx = shop.pool.begin().await?;
        generic(&mut tx).await?;
        let row = step_in_tx("row", &mut *tx, async |conn: &mut PgConnection, _| {
            let insert = sqlx::query_scalar("INSERT INTO bookings VALUES ($1) RETURNING id");
            Ok::<i64, OrderError>(insert.bind(&late).fetch_one(conn).await?)
        });
        let row = row.await?;
        tx.commit().await?;
        Ok(row)
    }

    fn spawned(shop: &'static Shop) {
        drop(tokio::spawn(async move { place(shop, "7", &[1]).await }));
        drop(tokio::spawn(async move {
            let mut tx = shop.pool.begin().await?;
            let call = shop.engine.operation("a").key("b").in_tx(&mut *tx);
            let body = async |_: &mut PgConnection, _| Ok::<_, OrderError>(1);
            let answer = call.run(body).await;
            tx.commit().await?;
            answer
        }));
    }
}
