//! A consumer whose claim, rows and answer are committed in one transaction.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};
use tokio::time::timeout;

use super::consume::{ConsumerError, Decided, Summary, consume};
use super::delivery::{Delivery, Message, Source};
use super::handled::Handled;
use super::run::{Consumer, DeliveryId, MessageId, extend};
use super::verdict::DeadLetterReason;
use crate::env::catch_unwind;
use crate::error::{Error, ErrorKind};
use crate::lifecycle::context::Context;
use crate::outcome::class::{Class, Classify};
use crate::outcome::codec::Replay;
use crate::store::sql::SqlTransaction;

/// The future of a handler that borrows its connection.
pub type TxFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// Runs a handler inside a transaction, once for each message. Made by [`Consumer::in_tx`].
///
/// This is an inbox: the message's record, the handler's rows and its answer are committed together, and then the
/// message is acknowledged. A consumer that is killed at any moment has either committed all of it, and the next
/// delivery is acknowledged without the handler, or nothing of it. There is no lease: a second delivery waits for the
/// first one's transaction.
///
/// - **Business error**: the handler's rows are undone, and the error is committed as the answer.
/// - **System error, panic, a handler longer than `max_run`**: all is undone. The attempt is counted in a record of
///   its own, outside of the transaction, so that [`dead_letter_after`](Consumer::dead_letter_after) holds here too. A
///   process that is killed during the first delivery of a message counts no attempt.
///
/// The engine's store is in the same database as the pool, by
/// [`PostgresStore`](crate::store::sql::PostgresStore) or another SQL store. Give the store a pool of its own (its
/// default): a handler holds its connection while it runs, so the pool has at least as many as
/// [`concurrency`](Consumer::concurrency).
///
/// A message costs `BEGIN`, the claim, the handler's statements, the answer and `COMMIT`; one that was delivered before,
/// or whose broker does not count deliveries, two more for the count.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use idem_runtime::consumer::{Consumer, MemoryQueue};
/// use idem_runtime::{Classify, Context, Engine, store::sql::SqliteStore};
/// use serde::{Deserialize, Serialize};
/// use sqlx::{SqliteConnection, SqlitePool};
///
/// #[derive(Deserialize)]
/// struct Order { number: i64 }
///
/// #[derive(Debug, Serialize, Deserialize, Classify)]
/// enum OrderError { #[class(system)] Database }
///
/// # impl From<sqlx::Error> for OrderError { fn from(_: sqlx::Error) -> Self { Self::Database } }
/// async fn place(order: Order, db: &mut SqliteConnection, _: Context) -> Result<(), OrderError> {
///     sqlx::query("INSERT INTO orders VALUES (?)").bind(order.number).execute(db).await?;
///     Ok(())
/// }
///
/// # let dir = std::env::temp_dir().join(format!("idem-consumer-in-tx-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let url = format!("sqlite:{}", dir.join("shop.db").display());
/// let store = SqliteStore::connect(&url).await?;
/// store.migrate().await?;
/// let shop = SqlitePool::connect(&url).await?;
/// sqlx::query("CREATE TABLE orders (number INTEGER)").execute(&shop).await?;
///
/// let queue = MemoryQueue::new();
/// queue.send("order-7", br#"{"number": 7}"#);
/// queue.send("order-7", br#"{"number": 7}"#); // sent again after a lost reply
/// queue.close();
/// let summary = Consumer::new(Engine::new(store), "orders.place")
///     .in_tx(shop.clone())
///     .run(queue, |order, db, cx| Box::pin(place(order, db, cx)))
///     .await?;
/// assert_eq!(summary.acknowledged, 2);
/// let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&shop).await?;
/// assert_eq!(orders, 1);
/// # drop(shop);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "a consumer does nothing until it is run"]
pub struct ConsumerInTx<DB: Database, I = DeliveryId> {
    consumer: Consumer<I>,
    pool: Pool<DB>,
}

impl<DB: Database, I: fmt::Debug> fmt::Debug for ConsumerInTx<DB, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ConsumerInTx");
        debug.field("consumer", &self.consumer);
        debug.finish_non_exhaustive()
    }
}

impl<I> Consumer<I> {
    /// Commits each message's record, the handler's rows and its answer in one transaction of this pool.
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite")))
    )]
    pub fn in_tx<DB: Database>(self, pool: Pool<DB>) -> ConsumerInTx<DB, I>
    where
        PoolConnection<DB>: SqlTransaction,
    {
        ConsumerInTx {
            consumer: self,
            pool,
        }
    }
}

impl<DB: Database, I> ConsumerInTx<DB, I>
where
    PoolConnection<DB>: SqlTransaction,
{
    /// Consumes until the source ends.
    ///
    /// # Errors
    ///
    /// As [`Consumer::run_until`].
    ///
    /// # Cancel safety
    ///
    /// As [`Consumer::run_until`]; transactions are rolled back.
    pub async fn run<S, M, V, E, H>(self, source: S, handler: H) -> Result<Summary, ConsumerError>
    where
        S: Source,
        I: MessageId<S::Delivery>,
        M: Message + Send + 'static,
        V: Replay + Send + 'static,
        E: Classify + Replay + Send + 'static,
        H: for<'c> Fn(M, &'c mut DB::Connection, Context) -> TxFuture<'c, Result<V, E>>,
        H: Send + Sync + 'static,
    {
        self.run_until(source, handler, std::future::pending())
            .await
    }

    /// Consumes until the source ends or `shutdown` is ready, then waits for running handlers.
    ///
    /// # Errors
    ///
    /// As [`Consumer::run_until`]. A database that cannot be reached is none: its messages are given back, and
    /// delivered again after a pause.
    ///
    /// # Cancel safety
    ///
    /// As [`Consumer::run_until`]; transactions are rolled back.
    pub async fn run_until<S, M, V, E, H>(
        self,
        source: S,
        handler: H,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, ConsumerError>
    where
        S: Source,
        I: MessageId<S::Delivery>,
        M: Message + Send + 'static,
        V: Replay + Send + 'static,
        E: Classify + Replay + Send + 'static,
        H: for<'c> Fn(M, &'c mut DB::Connection, Context) -> TxFuture<'c, Result<V, E>>,
        H: Send + Sync + 'static,
    {
        let (concurrency, drain) = (self.consumer.concurrency, self.consumer.drain);
        let this = Arc::new((self, handler));
        let handle = move |delivery| {
            let this = Arc::clone(&this);
            async move {
                let (consumer, handler) = &*this;
                let decided = consumer.handle(&delivery, handler).await;
                let (end, consumer) = (decided.settle(delivery).await, &consumer.consumer);
                end.observed_by(&consumer.engine, &consumer.operation)
            }
        };
        consume(source, handle, concurrency, drain, shutdown).await
    }

    /// Runs the handler as one call in a transaction.
    async fn handle<D, M, V, E, H>(&self, delivery: &D, handler: &H) -> Decided
    where
        D: Delivery,
        I: MessageId<D>,
        M: Message + Send,
        V: Replay + Send,
        E: Classify + Replay + Send,
        H: for<'c> Fn(M, &'c mut DB::Connection, Context) -> TxFuture<'c, Result<V, E>> + Sync,
    {
        let lease = match self.consumer.call::<_, M>(delivery) {
            Ok((_, _, settings)) => settings.lease(),
            Err(decided) => return decided,
        };
        let no_lease = OnceLock::new();
        let ended = pin!(self.attempt(delivery, handler));
        tokio::select! {
            biased;
            Ok(decided) | Err(decided) = ended => decided,
            never = extend(delivery, lease, &no_lease) => match never {},
        }
    }

    async fn attempt<D, M, V, E, H>(&self, delivery: &D, handler: &H) -> Result<Decided, Decided>
    where
        D: Delivery,
        I: MessageId<D>,
        M: Message + Send,
        V: Replay + Send,
        E: Classify + Replay + Send,
        H: for<'c> Fn(M, &'c mut DB::Connection, Context) -> TxFuture<'c, Result<V, E>> + Sync,
    {
        let first = delivery.attempt() == Some(1);
        let mut attempt = 1;
        if !first {
            // What an earlier delivery has committed is found without the handler, and uses up no attempt.
            match self.call::<_, _, V, E, H>(delivery, None).await? {
                Called::Begun => attempt = self.count(delivery).await?,
                Called::Ended(end) => return Ok(self.consumer.decide(end, || attempt)),
            }
        }
        let Called::Ended(end) = self.call(delivery, Some(handler)).await? else {
            unreachable!("there is a handler");
        };
        let failed = match &end {
            Some(Ok(_) | Err(Handled::Refused(_))) => false,
            Some(Err(Handled::Handler(error))) => error.class() == Class::System,
            None => true,
        };
        if first && failed {
            attempt = self.count(delivery).await?;
        }
        Ok(self.consumer.decide(end, || attempt))
    }

    /// One call in a transaction. Without a handler, it is rolled back where its body would begin.
    async fn call<D, M, V, E, H>(
        &self,
        delivery: &D,
        handler: Option<&H>,
    ) -> Result<Called<V, E>, Decided>
    where
        D: Delivery,
        I: MessageId<D>,
        M: Message + Send,
        V: Replay + Send,
        E: Classify + Replay + Send,
        H: for<'c> Fn(M, &'c mut DB::Connection, Context) -> TxFuture<'c, Result<V, E>> + Sync,
    {
        let (call, message, settings) = self.consumer.call::<_, M>(delivery)?;
        let Ok(mut connection) = self.pool.acquire().await else {
            // The database is down, or all of its connections are in use: no attempt was made.
            return Err(self.consumer.failed(Class::System, 1));
        };
        let begun = AtomicBool::new(false);
        let body = async |connection: &mut PoolConnection<DB>, cx: Context| {
            let Some(handler) = handler else {
                begun.store(true, Ordering::Relaxed);
                let operation = self.consumer.operation.clone();
                return Err(Handled::Refused(Error::new(ErrorKind::Changed, operation)));
            };
            let end = handler(message, &mut **connection, cx);
            end.await.map_err(Handled::Handler)
        };
        let run = pin!(call.in_tx(&mut connection).run(body));
        let end = timeout(settings.max_run(), catch_unwind::unwind(run)).await;
        if begun.load(Ordering::Relaxed) {
            return Ok(Called::Begun);
        }
        Ok(Called::Ended(end.ok().and_then(Result::ok)))
    }

    /// Counts an attempt outside of the transaction, and refuses one too many.
    async fn count<D: Delivery>(&self, delivery: &D) -> Result<u16, Decided>
    where
        I: MessageId<D>,
    {
        let Some(id) = self.consumer.id.of(delivery) else {
            return Err(Decided::dead(DeadLetterReason::InvalidId));
        };
        let call = self
            .consumer
            .engine
            .operation(self.consumer.operation.clone());
        let call = call.policy(self.consumer.policy).key(&("attempts", &*id));
        let attempt = AtomicU16::new(1);
        let counted = call.run(|cx: Context| {
            attempt.store(cx.attempt(), Ordering::Relaxed);
            async { Err::<(), _>(Handled::Handler(Counted)) }
        });
        match counted.await {
            Err(Handled::Refused(error)) => Err(self.consumer.refused(error)),
            _ => Ok(attempt.into_inner()),
        }
    }
}

/// A call that ended, with no result after a panic; or one whose body would have begun.
enum Called<V, E> {
    Ended(Option<Result<V, Handled<E>>>),
    Begun,
}

/// The system error of a call that does nothing but count.
#[derive(Debug, Deserialize, Serialize)]
struct Counted;

impl Classify for Counted {
    fn class(&self) -> Class {
        Class::System
    }
}
