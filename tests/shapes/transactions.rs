//! A parameter that is the caller's transaction.

use super::{Answer, Failure};
use async_trait::async_trait;
use idem_harness::TestDir;
use idem_runtime::store::sql::{SqlTransaction, SqliteStore};
use idem_runtime::{Engine, ErrorKind, idempotent};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqliteConnection, SqlitePool, SqliteTransaction, Transaction};
use std::future::Future;
use std::pin::Pin;

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A database with a table to write to, also the engine's store.
struct Shop {
    engine: Engine,
    pool: SqlitePool,
    _dir: TestDir,
}

impl Shop {
    async fn open() -> Self {
        let dir = TestDir::new("shapes").expect("there is room for a file");
        let url = format!("sqlite:{}", dir.path().join("shop.db").display());
        let store = SqliteStore::connect(&url).await.expect("a file");
        store.migrate().await.expect("a table for records");
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect(&url).await.expect("the same file");
        let table = sqlx::query("CREATE TABLE orders (number INTEGER)");
        table.execute(&pool).await.expect("a table for orders");
        Self {
            engine: Engine::new(store),
            pool,
            _dir: dir,
        }
    }

    /// Makes the call in two transactions, and returns the number of orders.
    async fn twice(
        &self,
        mut call: impl AsyncFnMut(&mut SqliteTransaction<'_>) -> Answer,
    ) -> Answer<i64> {
        let mut answers = Vec::new();
        for _ in 0..2 {
            let mut tx = self.pool.begin().await?;
            answers.push(self.engine.scope(call(&mut tx)).await?);
            tx.commit().await?;
        }
        assert_eq!(answers[0], answers[1]);
        self.orders().await
    }

    async fn orders(&self) -> Answer<i64> {
        let orders = sqlx::query_scalar("SELECT count(*) FROM orders");
        Ok(orders.fetch_one(&self.pool).await?)
    }
}

async fn insert(conn: &mut SqliteConnection, order: u32) -> Answer {
    let insert = sqlx::query("INSERT INTO orders VALUES (?)").bind(order);
    insert.execute(&mut *conn).await?;
    // A second run would give another answer.
    let orders: u32 = sqlx::query_scalar("SELECT count(*) FROM orders")
        .fetch_one(&mut *conn)
        .await?;
    Ok(orders as usize)
}

#[idempotent(key = order, tx = tx, ttl = forever)]
async fn plain(order: u32, tx: &mut SqliteTransaction<'_>) -> Answer {
    insert(tx, order).await
}

#[idempotent(op = "shapes.in_tx", key = order, tx = tx, ttl = forever, entry = in_tx_entry)]
async fn in_tx(order: u32, tx: &mut SqliteTransaction<'_>) -> Answer {
    insert(tx, order).await
}

#[tokio::test]
async fn a_record_is_found_without_a_transaction() -> Answer<()> {
    let shop = Shop::open().await;
    let entry = || shop.engine.scope(in_tx_entry(7));
    assert!(entry().await?.is_none());
    assert_eq!(shop.twice(async |tx| in_tx(7, tx).await).await?, 1);
    let found = entry().await?.expect("there is a record");
    // Kept until an operator deletes it, and reported so.
    assert_eq!(found.left(), idem_runtime::FOREVER);
    Ok(())
}

#[idempotent(op = "shapes.once", key = order, tx = tx, ttl = forever, on_duplicate = reject, on_error = release)]
async fn once(order: u32, tx: &mut SqliteTransaction<'_>) -> Result<usize, idem_runtime::Error> {
    Ok(1)
}

#[tokio::test]
async fn a_duplicate_of_an_eternal_answer_has_no_retry_after() {
    let shop = Shop::open().await;
    let mut tx = shop.pool.begin().await.expect("a transaction");
    assert_eq!(shop.engine.scope(once(7, &mut tx)).await, Ok(1));
    tx.commit().await.expect("it is kept");
    let mut tx = shop.pool.begin().await.expect("a transaction");
    let refused = shop.engine.scope(once(7, &mut tx)).await;
    let refused = refused.expect_err("it is done");
    let retry_after = idem_runtime::FOREVER;
    assert_eq!(*refused.kind(), ErrorKind::Duplicate { retry_after });
    assert_eq!(refused.retry_after(), None);
}

#[idempotent(tx = tx)]
async fn compared(tx: &mut SqliteTransaction<'_>, order: u32) -> Answer {
    insert(tx, order).await
}

#[idempotent(key = order, tx = tx)]
async fn named<'c>(order: u32, tx: &mut Transaction<'c, Sqlite>) -> Answer {
    let tx: &mut Transaction<'c, Sqlite> = tx;
    insert(tx, order).await
}

#[idempotent(key = order, tx = conn)]
async fn connection(order: u32, conn: &mut SqliteConnection) -> Answer {
    insert(conn, order).await
}

#[idempotent(key = order, tx = _conn)]
async fn pooled(order: u32, #[idem(skip)] _conn: &mut PoolConnection<Sqlite>) -> Answer {
    Ok(order as usize)
}

/// Written by hand, not by `#[async_trait]`.
#[idempotent(key = order, tx = tx)]
fn by_hand<'a>(
    order: u32,
    mut tx: &'a mut SqliteTransaction<'_>,
) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
    Box::pin(async move {
        // It needs the `mut` of the parameter.
        #[allow(clippy::mut_mut)]
        let tx = &mut tx;
        insert(tx, order).await
    })
}

trait Orders: SqlTransaction {
    fn beneath(&mut self) -> &mut SqliteConnection;
}

impl Orders for SqliteTransaction<'_> {
    fn beneath(&mut self) -> &mut SqliteConnection {
        self
    }
}

#[idempotent(op = "shapes.generic", key = order, tx = tx)]
async fn generic<T>(order: u32, tx: &mut T) -> Answer
where
    T: Orders + ?Sized,
{
    insert(tx.beneath(), order).await
}

#[idempotent(key = order, tx = tx)]
async fn dynamic(order: u32, tx: &mut dyn Orders) -> Answer {
    insert(tx.beneath(), order).await
}

// Shadowed by a name that the expansion uses, and back.
#[idempotent(key = call, tx = turn)]
async fn hygienic(call: u32, end: &str, turn: &mut SqliteConnection, scope: u8) -> Answer {
    let (tx, out) = (turn, call);
    insert(tx, out).await
}

struct Till(u32);

impl Till {
    #[idempotent(key = self.0, tx = tx)]
    async fn method(&mut self, tx: &mut SqliteConnection) -> Answer {
        self.0 += 1;
        insert(tx, self.0).await
    }
}

trait Desugared {
    fn send(&self, tx: &mut SqliteConnection) -> impl Future<Output = Answer> + Send;
}

impl Desugared for Till {
    #[idempotent(key = self.0, tx = tx)]
    async fn send(&self, tx: &mut SqliteConnection) -> Answer {
        tokio::task::yield_now().await;
        insert(tx, self.0).await
    }
}

#[async_trait]
trait Boxed: Sync {
    async fn boxed(&self, tx: &mut SqliteTransaction<'_>) -> Answer;
}

#[async_trait]
impl Boxed for Till {
    #[idempotent(op = "shapes.boxed", key = self.0, tx = tx)]
    async fn boxed(&self, tx: &mut SqliteTransaction<'_>) -> Answer {
        if self.0 > 1 {
            return Ok(0);
        }
        tokio::task::yield_now().await;
        insert(tx, self.0).await
    }
}

#[idempotent(key = order, tx = tx)]
#[tracing::instrument(skip(tx))]
async fn traced(order: u32, tx: &mut SqliteConnection) -> Answer {
    insert(tx, order).await
}

macro_rules! of_a_macro {
    ($name:ident, $tx:ident, $value:expr, $ty:ty, $ttl:expr) => {
        #[idempotent(key = order, tx = $value, ttl = $ttl)]
        async fn $name(order: u32, $tx: $ty) -> Answer {
            insert($tx, order).await
        }
    };
}

of_a_macro!(generated, tx, tx, &mut SqliteConnection, forever);

#[tokio::test]
async fn it_is_of_any_type_that_is_a_transaction_and_has_any_name() {
    let shop = Shop::open().await;
    assert_eq!(shop.twice(async |tx| plain(1, tx).await).await, Ok(1));
    // It takes no part in the fingerprint.
    assert_eq!(shop.twice(async |tx| compared(tx, 1).await).await, Ok(2));
    assert_eq!(shop.twice(async |tx| named(1, tx).await).await, Ok(3));
    assert_eq!(shop.twice(async |tx| dynamic(1, tx).await).await, Ok(4));
    assert_eq!(shop.twice(async |tx| generic(1, tx).await).await, Ok(5));
    let call = async |tx: &mut SqliteTransaction<'_>| generic::<dyn Orders>(2, tx).await;
    assert_eq!(shop.twice(call).await, Ok(6));
    let call = async |tx: &mut SqliteTransaction<'_>| hygienic(1, "", tx, 1).await;
    assert_eq!(shop.twice(call).await, Ok(7));
    assert_eq!(shop.twice(async |tx| traced(1, tx).await).await, Ok(8));
    assert_eq!(shop.twice(async |tx| generated(1, tx).await).await, Ok(9));
    for _ in 0..2 {
        // A connection without a transaction gets one.
        let mut conn = shop.pool.acquire().await.expect("a connection");
        let answer = shop.engine.scope(connection(1, &mut conn)).await;
        assert_eq!(answer, Ok(10));
        let answer = shop.engine.scope(pooled(2, &mut conn)).await;
        assert_eq!(answer, Ok(2));
    }
    assert_eq!(shop.twice(async |tx| by_hand(1, tx).await).await, Ok(11));
}

#[tokio::test]
async fn methods_take_one_too() {
    let shop = Shop::open().await;
    let till: &dyn Boxed = &Till(1);
    assert_eq!(shop.twice(async |tx| Till(1).method(tx).await).await, Ok(1));
    assert_eq!(shop.twice(async |tx| Till(1).send(tx).await).await, Ok(2));
    assert_eq!(shop.twice(async |tx| till.boxed(tx).await).await, Ok(3));
}
