//! Steps that are committed with the rows of the caller.

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::SqlTransaction;
use idem_runtime::{CallBuilder, EngineBuilder, OnLeaseLost, OnRunning, step, step_in_tx};
use idem_tests::fixture::Classified;

use crate::prelude::*;

/// Longer than a lease.
const LEASE_OVER: Duration = Duration::from_secs(31);

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

const FAILS: Answer = Err(OrderError::Down);

pub(crate) async fn a_step_and_its_rows_are_committed_together<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for (ends, answer) in [(FAILS, FAILS), (FAILS, FAILS), (Ok(0), Ok(1))] {
        let order = fixture.order().run(|_| books(&fixture, ends));
        assert_eq!(order.await, answer);
        assert_eq!(fixture.orders("mine").await, 1);
    }
    assert_eq!(fixture.runs.count(), 1);
    let again = fixture.order().run(|_| books(&fixture, FAILS));
    assert_eq!(again.await, Ok(1), "it is replayed");
}

pub(crate) async fn a_step_that_is_rolled_back_runs_again<D: Database>() {
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
}

pub(crate) async fn the_errors_of_a_step_undo_its_rows<D: Database>() {
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

pub(crate) async fn a_reset_and_a_later_call_forget_the_step<D: Database>() {
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

pub(crate) async fn a_connection_is_committed_for_the_step<D: Database>() {
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

pub(crate) async fn steps_in_one_transaction_and_steps_without_one<D: Database>() {
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

pub(crate) async fn a_step_is_refused_where_it_cannot_be_kept<D: Database>() {
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

pub(crate) async fn no_step_begins_after_the_lease_is_lost<D: Database>() {
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

pub(crate) async fn a_step_that_loses_its_lease_half_way_writes_nothing<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let zombie = fixture.order().on_lease_lost(OnLeaseLost::Continue);
    let order = zombie.run(|_| async {
        let mut tx = fixture.begin().await;
        let book = step_in_tx("book", &mut tx, async |tx: &mut D::Tx, _| {
            make::<D>(tx, &fixture.runs, "mine").await?;
            lapses(&fixture).await;
            // The next attempt takes the key, and does not come to the step yet.
            let next = elsewhere(&fixture).run(|_| async { FAILS });
            assert_eq!(next.await, FAILS);
            Ok::<_, OrderError>(1)
        });
        let told = refusal(book.await);
        assert_running(&told);
        // Even if it is committed.
        D::commit(tx).await.done();
        FAILS
    });
    assert_eq!(order.await, FAILS);
    assert_eq!(fixture.orders("mine").await, 0);
    let order = fixture.order().run(|_| books(&fixture, Ok(0)));
    assert_eq!(order.await, Ok(2));
    assert_eq!(fixture.orders("mine").await, 1);
}

pub(crate) async fn attempts_that_overlap_book_once<D: Database>() {
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

pub(crate) async fn a_body_in_a_transaction_does_not_repeat_steps<D: Database>() {
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

/// A function of an application, generic over what writes.
async fn book_with<T: SqlTransaction>(tx: &mut T) -> Answer {
    step_in_tx("book", tx, async |_: &mut T, _| Ok::<_, OrderError>(5)).await
}

pub(crate) async fn a_step_of_a_function_that_is_generic<D: Database>() {
    let fixture = Arc::new(Fixture::<D>::new().await);
    let inner = Arc::clone(&fixture);
    let order = fixture.order().run(move |_| async move {
        let mut tx = inner.begin().await;
        let run = book_with(&mut tx).await?;
        D::commit(tx).await.done();
        Ok::<_, OrderError>(run)
    });
    assert_eq!(order.await, Ok(5));
}

/// Compiles only if the futures can be sent to another thread, where they are written as in the docs.
#[allow(dead_code, reason = "it is compiled, and needs no database")]
fn calls_and_steps_may_be_spawned(pool: &'static sqlx::SqlitePool, engine: &'static Engine) {
    use sqlx::SqliteConnection;
    drop(tokio::spawn(async move {
        let mut tx = pool.begin().await?;
        let call = engine.operation("a").key("b").in_tx(&mut *tx);
        let answer = call
            .run(async |_: &mut SqliteConnection, _| Ok::<_, OrderError>(1))
            .await;
        tx.commit().await?;
        answer
    }));
    drop(tokio::spawn(async move {
        let mut tx = pool.begin().await?;
        let answer = step_in_tx("book", &mut *tx, async |_: &mut SqliteConnection, _| {
            Ok::<_, OrderError>(1)
        })
        .await;
        tx.commit().await?;
        answer
    }));
}

/// The call is retried for longer than its record is retained, and each attempt retains it anew.
pub(crate) async fn a_step_lives_as_long_as_its_call_is_retried<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for _ in 0..3 {
        let order = fixture.order().run(|_| books(&fixture, FAILS));
        assert_eq!(order.await, FAILS);
        fixture.age(Duration::from_hours(20)).await;
    }
    let order = fixture.order().run(|_| books(&fixture, Ok(0)));
    assert_eq!(order.await, Ok(1));
    assert_eq!(fixture.orders("mine").await, 1);
}

pub(crate) async fn a_journal_lives_as_long_as_its_call_is_retried<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let charge = idem_tests::payment::Runs::default();
    for _ in 0..3 {
        let order = fixture.order().run(|_| async {
            step("charge", async |_| Ok::<_, OrderError>(charge.start())).await?;
            FAILS
        });
        assert_eq!(order.await, FAILS);
        fixture.age(Duration::from_hours(20)).await;
    }
    assert_eq!(charge.count(), 1);
}

/// The body drops the step half-way, as a time-out around it does, and commits what else it wrote.
pub(crate) async fn a_step_that_is_dropped_half_way_and_committed<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let order = fixture.order().run(|_| async {
        let mut tx = fixture.begin().await;
        let book = step_in_tx("book", &mut tx, async |tx: &mut D::Tx, _| {
            make::<D>(tx, &fixture.runs, "mine").await?;
            std::future::pending::<Answer>().await
        });
        let _ = tokio::time::timeout(Duration::from_millis(500), book).await;
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

pub(crate) async fn a_step_of_a_long_name<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let long = format!("größe \u{1F600}/{}", "x".repeat(700));
    for ends in [FAILS, Ok(9)] {
        let order = fixture.order().run(|_| async {
            let mut tx = fixture.begin().await;
            let book = step_in_tx(&*long, &mut tx, async |tx: &mut D::Tx, _| {
                make::<D>(tx, &fixture.runs, "mine").await
            });
            assert_eq!(book.await, Ok(1));
            D::commit(tx).await.done();
            ends.clone()
        });
        assert_eq!(order.await, ends);
    }
}

pub(crate) async fn a_step_of_a_call_that_is_kept_for_ever<D: Database>() {
    let fixture = Fixture::<D>::with(|engine| engine.on_running(OnRunning::Reject)).await;
    for answer in [FAILS, Ok(1)] {
        let order = fixture.order().ttl(Duration::MAX);
        assert_eq!(order.run(|_| books(&fixture, answer.clone())).await, answer);
        fixture.age(Duration::from_hours(24 * 400)).await;
    }
    assert_eq!(fixture.orders("mine").await, 1);
}

/// As is recommended for files: with the lock for writing from the beginning.
pub(crate) async fn a_step_in_a_transaction_that_began_with_the_lock<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let order = fixture.order().run(|_| async {
        let mut tx = D::begin(&fixture.pool, "BEGIN IMMEDIATE").await.done();
        let run = booked(&fixture, &mut tx, "mine").await?;
        D::commit(tx).await.done();
        Ok::<_, OrderError>(run)
    });
    assert_eq!(order.await, Ok(1));
}

pub(crate) async fn a_disabled_engine_begins_a_transaction_for_the_step<D: Database>() {
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

pub(crate) async fn a_cool_down_of_the_engine_is_not_one_of_its_steps<D: Database>() {
    use idem_runtime::OnDuplicate;
    let fixture = Fixture::<D>::with(|engine| engine.on_duplicate(OnDuplicate::Reject)).await;
    for (ends, answer) in [(FAILS, FAILS), (Ok(0), Ok(1))] {
        let order = fixture.order().run(|_| books(&fixture, ends));
        assert_eq!(order.await, answer);
    }
    assert_eq!(fixture.orders("mine").await, 1);
}

pub(crate) async fn a_step_of_class_unknown_can_be_freed_without_the_other_steps<D: Database>() {
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

/// Compiles only if handlers of axum may call it.
#[allow(dead_code, reason = "it is compiled, and needs no database")]
mod in_a_handler {
    use std::time::Duration;

    use idem_runtime::{Engine, Error, HasEngine, Reconciled, idempotent, step, step_in_tx};
    use sqlx::{PgConnection, PgPool};

    use super::OrderError;

    struct Shop {
        engine: Engine,
        pool: PgPool,
    }

    impl HasEngine for Shop {
        fn engine(&self) -> Engine {
            self.engine.clone()
        }
    }

    struct NewOrder {
        no: String,
        items: Vec<u32>,
    }

    #[allow(clippy::unused_async, reason = "it stands for a request")]
    async fn pay(_: &str, _: &str) -> Result<String, OrderError> {
        Ok("ch-1".into())
    }

    #[idempotent(engine = shop, op = "orders.place", key = req.no, fingerprint = none)]
    async fn place(shop: &Shop, req: &NewOrder) -> Result<i64, OrderError> {
        let charge = step("charge", async |s| pay(&s.key(), &req.no).await);
        let charge = tokio::time::timeout(Duration::from_secs(1), charge.once())
            .await
            .map_err(|_| OrderError::Down)??;
        for item in &req.items {
            step(("ship", item), async |s| pay(&s.key(), &charge).await).await?;
        }
        // Without these blocks the call cannot be spawned: "one type is more general than the other".
        let (one, two) = tokio::join!(
            async { step("one", async |_| pay("", &charge).await).await },
            async {
                step("two", async |_| pay("", &charge).await)
                    .reconcile(async |s| {
                        let _ = s.key();
                        Ok::<_, Error>(Reconciled::<String>::Unknown)
                    })
                    .await
            },
        );
        one?;
        two?;
        let late = tokio::select! {
            late = step("late", async |_| pay("", &charge).await) => late?,
            () = tokio::time::sleep(Duration::from_secs(1)) => String::new(),
        };
        let mut tx = shop.pool.begin().await?;
        let row = step_in_tx("book", &mut *tx, async |conn: &mut PgConnection, _| {
            let insert =
                sqlx::query_scalar("INSERT INTO bookings (charge) VALUES ($1) RETURNING id");
            Ok::<i64, OrderError>(insert.bind(&late).fetch_one(conn).await?)
        })
        .await?;
        tx.commit().await?;
        Ok(row)
    }

    fn spawned(shop: &'static Shop) {
        drop(tokio::spawn(async move {
            let req = NewOrder {
                no: "7".into(),
                items: vec![1],
            };
            place(shop, &req).await
        }));
    }
}
