//! Savepoints of the caller, foreign connections, transactions that must not stay open.

use idem_consumers::TxPool as _;
use idem_runtime::store::memory::MemoryStore;

use super::ended::pool_of_one;
use super::prelude::*;

on_each_database!(
    savepoints_around_a_call,
    savepoints_of_sqlx_in_a_body,
    an_engine_of_another_store_is_refused,
);
on_each_server!(savepoints_of_sqlx_around_a_call);
on!(postgres_only Postgres:
    a_call_that_is_dropped_at_any_poll_leaves_no_transaction_in_a_pool);

async fn savepoints_around_a_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let sql = async |tx: &mut D::Tx, sql: &str| D::execute(tx, sql).await.done();
    sql(&mut tx, "SAVEPOINT mine").await;
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    sql(&mut tx, "ROLLBACK TO SAVEPOINT mine").await;
    // The claim was rolled back with it.
    assert_eq!(fixture.ordered(&mut tx).await, Ok(2));
    sql(&mut tx, "RELEASE SAVEPOINT mine").await;
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("mine").await, (1, 1));
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

/// In a transaction of the caller's and in one of idem's.
async fn savepoints_of_sqlx_in_a_body<D: Database>() {
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

async fn savepoints_of_sqlx_around_a_call<D: Server>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let mut tx = conn.begin().await.done();
    for commits in [false, true] {
        let mut inner = tx.begin().await.done();
        with_savepoints(&fixture, "order-7", &mut inner).await;
        if commits {
            inner.commit().await.done();
        } else {
            inner.rollback().await.done();
        }
    }
    tx.commit().await.done();
    assert_eq!(fixture.orders_of(["undone", "kept"]).await, [0, 1]);
    assert_eq!(fixture.records().await, 1);
    assert_eq!(answered(fixture.order(), &mut conn).await, Ok(2));
}

async fn an_engine_of_another_store_is_refused<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let engine = Engine::new(MemoryStore::new());
    let call = engine.operation("orders.create").key("order-7");
    let error = refusal(answered(call, &mut tx).await);
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
    assert!(!error.is_retryable(), "{error}");
    // The transaction is unchanged.
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("before").await, 1);
}

async fn a_call_that_is_dropped_at_any_poll_leaves_no_transaction_in_a_pool<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let pool = pool_of_one(&fixture);
    let acquire = async || D::acquire(&pool).await.done();
    let returned = async |conn: D::Pooled| {
        drop(conn);
        acquire().await
    };
    let conn = acquire().await;
    assert_no_transaction_is_left(&fixture, conn, |conn| &mut **conn, returned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_at_any_poll_leaves_no_transaction_in_a_pool_of_another_client() {
    let fixture = Fixture::<DeadpoolPostgres>::new().await;
    let pool = DeadpoolPostgres::pool_of_one(&fixture.place.url);
    let acquire = async || pool.acquire().await.expect("the server is up");
    let returned = async |conn| {
        drop(conn);
        acquire().await
    };
    assert_no_transaction_is_left(&fixture, acquire().await, |conn| conn, returned).await;
}

/// A call that is dropped must not leave its beginning transaction open: the next writes on that connection would never
/// be committed. `reused` is the connection as its next user gets it.
async fn assert_no_transaction_is_left<C: Client, T: SqlTransaction, S: Sql>(
    fixture: &Fixture<C>,
    mut conn: T,
    beneath: fn(&mut T) -> &mut S,
    reused: impl AsyncFn(T) -> T,
) {
    // A server may reply within a poll, and then there is no pending call to drop.
    let mut dropped = 0;
    for polls in 1..1_000 {
        let call = fixture.call(&polls.to_string()).in_tx(&mut conn);
        let mut call = Box::pin(call.run(async |_: &mut T, _| Answer::Ok(1)));
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
        conn = reused(conn).await;
        let written = insert_by(beneath(&mut conn), "theirs").await;
        written.expect("the connection is usable");
        conn = reused(conn).await;
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
