//! Connections without a transaction, for which idem begins and commits, and connections to another database than the
//! store's.

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::{Postgres, SqliteStore};
use sqlx::PgConnection;
use sqlx::pool::PoolConnection;
use tokio::sync::Notify;

use crate::prelude::*;

/// A call on a connection, which makes an order and ends like this.
async fn call<D: Database>(fixture: &Fixture<D>, conn: &mut D::Conn, end: Answer) -> Answer {
    let call = fixture.order().in_tx(conn);
    call.run(async |conn: &mut D::Conn, _| {
        make::<D>(conn, &fixture.runs, "mine").await?;
        end
    })
    .await
}

pub(crate) async fn a_plain_connection_is_committed_for_the_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    assert_eq!(call(&fixture, &mut conn, Ok(7)).await, Ok(7));
    assert_eq!(fixture.kept("mine").await, (1, 1));
    assert_eq!(call(&fixture, &mut conn, Ok(8)).await, Ok(7));
    // No transaction is open on it: a write is visible at once.
    insert::<D>(&mut conn, "after").await.done();
    assert_eq!(fixture.orders("after").await, 1);
    assert_eq!(fixture.runs.count(), 1);
}

pub(crate) async fn a_pool_connection_is_committed_for_the_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for _ in 0..2 {
        let mut conn = fixture.connection().await;
        let call = fixture.order().in_tx(&mut conn);
        let answer =
            call.run(async |conn: &mut D::Pooled, _| make::<D>(conn, &fixture.runs, "mine").await);
        assert_eq!(answer.await, Ok(1));
        assert_eq!(fixture.kept("mine").await, (1, 1));
        insert::<D>(&mut conn, "after").await.done();
    }
    assert_eq!(fixture.orders("after").await, 2);
}

/// What the guide recommends: a connection of the pool, of which each end of a body is what a transaction of the caller
/// would need a rule for.
pub(crate) async fn every_end_on_a_pool_connection<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let call = async |end: Answer| {
        let mut conn = fixture.connection().await;
        let call = fixture.order().in_tx(&mut conn);
        let answer = call.run(async |conn: &mut D::Pooled, _| {
            make::<D>(conn, &fixture.runs, "mine").await?;
            end
        });
        let answer = answer.await;
        // No transaction stays open on it.
        insert::<D>(&mut conn, "after").await.done();
        answer
    };
    let down = Err(OrderError::Down);
    assert_eq!(call(down.clone()).await, down);
    assert_eq!(fixture.kept("mine").await, (0, 0));
    let timed_out = Err(OrderError::TimedOut);
    assert_eq!(call(timed_out.clone()).await, timed_out);
    assert_eq!(fixture.kept("mine").await, (0, 1));
    let unknown = refusal(call(Ok(3)).await);
    assert!(
        matches!(unknown.kind(), ErrorKind::Unknown { .. }),
        "{unknown}"
    );
    assert_eq!(fixture.stands().await, Some(EntryState::Unknown));
    assert_eq!(
        (fixture.orders("after").await, fixture.runs.count()),
        (3, 2)
    );
}

pub(crate) async fn errors_on_a_connection_without_a_transaction<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let answer = call(&fixture, &mut conn, Err(OrderError::Down)).await;
    assert_eq!(answer, Err(OrderError::Down));
    insert::<D>(&mut conn, "after").await.done();
    assert_eq!(fixture.kept("mine").await, (0, 0));
    let sold_out = Err(OrderError::SoldOut { run: 2 });
    assert_eq!(call(&fixture, &mut conn, sold_out.clone()).await, sold_out);
    assert_eq!(fixture.kept("mine").await, (0, 1));
    assert_eq!(call(&fixture, &mut conn, Ok(3)).await, sold_out);
    insert::<D>(&mut conn, "after").await.done();
    assert_eq!(
        (fixture.orders("after").await, fixture.runs.count()),
        (2, 2)
    );
}

pub(crate) async fn dropped_half_way_nothing_stays_open<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    {
        let wrote = Notify::new();
        let call = fixture.order().in_tx(&mut conn);
        let call = call.run(async |conn: &mut D::Conn, _| {
            make::<D>(conn, &fixture.runs, "mine").await?;
            wrote.notify_one();
            std::future::pending::<Answer>().await
        });
        tokio::select! {
            answer = call => panic!("the body never ends: {answer:?}"),
            () = wrote.notified() => {}
        }
    }
    insert::<D>(&mut conn, "after").await.done();
    assert_eq!(fixture.orders_of(["mine", "after"]).await, [0, 1]);
    assert_eq!(call(&fixture, &mut conn, Ok(2)).await, Ok(2));
    assert_eq!((fixture.orders("mine").await, fixture.runs.count()), (1, 2));
}

/// A `&mut PgConnection` that a transaction derefs to: the transaction remains the caller's.
pub(crate) async fn the_connection_of_a_transaction<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    assert_eq!(call(&fixture, &mut *tx, Ok(1)).await, Ok(1));
    assert_eq!(fixture.kept("mine").await, (0, 0));
    assert_eq!(orders::<D>(&mut tx, "mine").await, 1);
    D::rollback(tx).await.done();
    assert_eq!(fixture.kept("mine").await, (0, 0));
}

/// Savepoints of sqlx within a body, in a transaction of the caller's and in one of idem's.
pub(crate) async fn savepoints_of_sqlx_in_a_body<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let mut tx = conn.begin().await.done();
    with_savepoints(&fixture, "mine", &mut tx).await;
    tx.commit().await.done();
    assert_eq!(fixture.records().await, 1);
    with_savepoints(&fixture, "own", &mut conn).await;
    assert_eq!(fixture.kept("kept").await, (2, 2));
    assert_eq!(fixture.orders("undone").await, 0);
}

async fn with_savepoints<D: Database>(fixture: &Fixture<D>, key: &str, conn: &mut D::Conn) {
    let call = fixture.call(key).in_tx(conn);
    let answer = call.run(async |conn: &mut D::Conn, _| {
        let mut undone = conn.begin().await?;
        insert::<D>(&mut undone, "undone").await?;
        undone.rollback().await?;
        let mut kept = conn.begin().await?;
        insert::<D>(&mut kept, "kept").await?;
        kept.commit().await?;
        // Dropped, it is rolled back before the next statement.
        let mut dropped = conn.begin().await?;
        insert::<D>(&mut dropped, "undone").await?;
        drop(dropped);
        Answer::Ok(2)
    });
    assert_eq!(answer.await, Ok(2));
}

/// Savepoints of sqlx around a call.
pub(crate) async fn savepoints_of_sqlx<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let mut tx = conn.begin().await.done();
    {
        let mut inner = tx.begin().await.done();
        let conn: &mut D::Conn = &mut inner;
        assert_eq!(call(&fixture, conn, Ok(1)).await, Ok(1));
        inner.rollback().await.done();
    }
    {
        let mut inner = tx.begin().await.done();
        with_savepoints(&fixture, "order-7", &mut inner).await;
        inner.commit().await.done();
    }
    tx.commit().await.done();
    for (name, there) in [("mine", 0), ("undone", 0), ("kept", 1)] {
        assert_eq!(fixture.orders(name).await, there, "{name}");
    }
    assert_eq!(fixture.records().await, 1);
    assert_eq!(call(&fixture, &mut conn, Ok(3)).await, Ok(2));
}

/// A body that ends the transaction under its call.
pub(crate) async fn a_body_that_rolls_back_is_refused<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let call = fixture.order().in_tx(&mut tx);
    let answer = call.run(async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, "mine").await?;
        D::execute(tx, "ROLLBACK").await?;
        Answer::Ok(1)
    });
    assert_aborted(&refusal(answer.await));
    drop(tx);
    assert_eq!(fixture.kept("mine").await, (0, 0));
}

/// The engine's store must be in the same database.
pub(crate) async fn an_engine_of_another_store_is_refused<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let mut engines = vec![Engine::new(MemoryStore::new())];
    let place = Place::new::<crate::Sqlite>();
    if D::server().is_some() {
        let other = SqliteStore::connect(&place.url).await.unwrap();
        engines.push(Engine::new(other));
    }
    for engine in engines {
        let call = engine.operation("orders.create").key("order-7");
        let call = call.in_tx(&mut tx);
        let answer: Answer = call.run(async |_: &mut D::Tx, _| unreachable!()).await;
        let error = refusal(answer);
        assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
        assert!(!error.is_retryable());
        let told = error.to_string();
        assert!(told.contains("database"), "{told}");
    }
    // The transaction is unchanged.
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("before").await, 1);
}

/// On a connection that idem begins itself, a refusal leaves nothing open.
pub(crate) async fn a_refusal_leaves_nothing_open<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let ask = |text: &'static str| fixture.order().fingerprint(text);
    let run = async |conn: &mut D::Conn, text| -> Answer {
        let call = ask(text).in_tx(conn);
        call.run(async |conn: &mut D::Conn, _| make::<D>(conn, &fixture.runs, "mine").await)
            .await
    };
    assert_eq!(run(&mut conn, "a book").await, Ok(1));
    let error = refusal(run(&mut conn, "a pen").await);
    assert_eq!(*error.kind(), ErrorKind::Mismatch);
    insert::<D>(&mut conn, "after").await.done();
    assert_eq!(fixture.orders_of(["mine", "after"]).await, [1, 1]);
}

/// Calls whose futures move to other threads.
pub(crate) async fn calls_are_spawned<D: Database>() {
    let fixture = Arc::new(Fixture::<D>::new().await);
    let spawned = Arc::clone(&fixture);
    let task = tokio::spawn(async move {
        let mut tx = spawned.begin().await;
        let answer = ordered(&spawned, spawned.order(), &mut tx, "mine").await;
        D::commit(tx).await.done();
        answer
    });
    let answer = patiently("the task ends", task).await;
    assert_eq!(answer.unwrap(), Ok(1));
    assert_eq!(fixture.orders("mine").await, 1);
}

/// A shutdown waits for a body in a transaction.
pub(crate) async fn a_shutdown_waits_for_bodies<D: Database>() {
    let fixture = Arc::new(Fixture::<D>::new().await);
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let task = {
        let (fixture, begun, end) = (Arc::clone(&fixture), Arc::clone(&begun), Arc::clone(&end));
        tokio::spawn(async move {
            let mut tx = fixture.begin().await;
            let call = fixture.order().in_tx(&mut tx);
            let answer = call.run(async |tx: &mut D::Tx, _| {
                begun.notify_one();
                end.notified().await;
                make::<D>(tx, &fixture.runs, "mine").await
            });
            let answer = answer.await;
            D::commit(tx).await.done();
            answer
        })
    };
    patiently("the body begins", begun.notified()).await;
    let none = fixture.engine.shutdown(Duration::ZERO).await;
    none.expect_err("the body runs");
    let mut tx = fixture.begin().await;
    let error = refusal(answered(fixture.call("other"), &mut tx).await);
    assert_eq!(*error.kind(), ErrorKind::ShuttingDown);
    D::rollback(tx).await.done();
    let patience = PATIENCE;
    let (ended, ()) = tokio::join!(fixture.engine.shutdown(patience), async {
        end.notify_one();
    });
    ended.expect("the body has ended");
    assert_eq!(patiently("the task ends", task).await.unwrap(), Ok(1));
    assert_eq!(fixture.orders("mine").await, 1);
}

/// A transaction that was begun for a call ends with it, not when the connection is next used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_leaves_no_transaction_open_on_a_callers_connection() {
    let fixture = Fixture::<Postgres>::new().await;
    let (mut conn, mut other) = (fixture.alone().await, fixture.alone().await);
    let open = "SELECT count(*) FROM pg_stat_activity \
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let down = Err(OrderError::Down);
    for (what, key, end) in [
        ("first", "a", Ok(1)),
        ("replay", "a", Ok(1)),
        ("failed", "b", down),
    ] {
        let call = fixture.call(key).in_tx(&mut conn);
        let answer = call.run(async |_: &mut PgConnection, _| end.clone()).await;
        assert_eq!(answer, end, "{what}");
        let open = Postgres::number(&mut other, open).await.done();
        assert_eq!(open, 0, "{what}");
    }
}

/// A call that is dropped while its transaction begins must not leave that transaction open in the pool: the
/// next writes on that connection would never be committed.
#[tokio::test]
async fn a_call_that_is_dropped_at_any_poll_leaves_no_transaction_in_a_pool() {
    let fixture = Fixture::<Postgres>::new().await;
    let pool = crate::ended::pool_of_one(&fixture).await;
    // A server may reply within a poll, and then there is no pending call to drop.
    let mut dropped = 0;
    for polls in 1..1_000 {
        let mut conn = Postgres::acquire(&pool).await.done();
        let call = fixture.call(&polls.to_string()).in_tx(&mut conn);
        let body = async |_: &mut PoolConnection<sqlx::Postgres>, _| Answer::Ok(1);
        let mut call = Box::pin(call.run(body));
        let mut polled = 0;
        let done = std::future::poll_fn(|cx| {
            polled += 1;
            match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if polled > dropped => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let done = done.await;
        drop(call);
        drop(conn);
        let mut next = Postgres::acquire(&pool).await.done();
        insert::<Postgres>(&mut next, "theirs").await.done();
        drop(next);
        let seen = fixture.orders("theirs").await;
        assert_eq!(seen, polls, "dropped at poll {polls}");
        if let Some(answer) = done {
            assert_eq!(answer, Ok(1));
            if dropped > 0 {
                return;
            }
        } else {
            dropped += 1;
        }
    }
    panic!("no call was dropped, or none ends");
}
