//! A consumer whose claim, rows and answer are committed in one transaction.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use idem_runtime::codec::Replay;
use idem_runtime::on_error::Release;
use idem_runtime::{CallError, Context, OnRunning, Policy};

use crate::consume::{ConsumerError, Decided, Summary, consume};
use crate::delivery::{Delivery, Message, Source};
use crate::handler_error::HandlerError;
use crate::run::{Consumer, DeliveryId, MessageId, extend};
use crate::tx_pool::{TxPool, TxPoolError};
use crate::verdict::Verdict;

/// The future of a handler that borrows its connection.
pub type TxFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// Runs a handler inside a transaction, once for each message. Made by [`Consumer::in_tx`].
///
/// This is an inbox: a record of the message, the handler's rows and its answer are committed together, and then the
/// message is acknowledged. A consumer that is killed at any moment has either committed all of it, and no later delivery
/// runs the handler again, or nothing of it. A process that is stalled for longer than its lease commits nothing that
/// another one commits as well: the database makes the second transaction wait for the first.
///
/// Around it stands the call of a plain [`Consumer`], with its lease, its counted attempts and its answer, so that all
/// of its verdicts apply:
///
/// - **Business error**: the rows are undone; the error is the answer.
/// - **System error, panic, a handler longer than `max_run`**: the rows are undone, and the attempt counts.
/// - **A pool that gives no connection**: the message is given back, and no attempt counts. A pool that is closed stops
///   the consumer.
/// - An operator's [`reset`](idem_runtime::admin::Entry::reset) of the message's record lets the handler run again only if its
///   rows were not committed.
///
/// The engine's store is in the same database as the pool, by
/// [`PostgresStore`](idem_runtime::store::sql::PostgresStore) or another SQL store. The store has connections of its own. A
/// message holds one of the pool while it is handled, so the pool has at least as many as
/// [`concurrency`](Consumer::concurrency). On SQLite, whose transactions are one after the other, a transaction also
/// delays the renewals of leases: a handler takes less than a third of the lease.
///
/// A message costs two round trips more than its transaction, and the transaction two more than its statements.
///
/// [Here](crate#rows-and-message-in-one-transaction) is an example.
#[must_use = "a consumer does nothing until it is run"]
pub struct ConsumerInTx<P: TxPool, I = DeliveryId> {
    consumer: Consumer<I>,
    pool: P,
}

impl<P: TxPool, I: fmt::Debug> fmt::Debug for ConsumerInTx<P, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ConsumerInTx");
        debug.field("consumer", &self.consumer);
        debug.finish_non_exhaustive()
    }
}

impl<I> Consumer<I> {
    /// Commits record, rows and answer in one transaction of this pool.
    ///
    /// The handler is given to `run` as a closure that pins its future:
    /// `|order, db, cx| Box::pin(place(order, db, cx))`.
    pub fn in_tx<P: TxPool>(self, pool: P) -> ConsumerInTx<P, I> {
        ConsumerInTx {
            consumer: self,
            pool,
        }
    }
}

impl<P: TxPool, I> ConsumerInTx<P, I> {
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
        E: HandlerError + Send + 'static,
        H: for<'c> Fn(M, &'c mut P::Handle, Context) -> TxFuture<'c, Result<V, E>>,
        H: Send + Sync + 'static,
    {
        self.run_until(source, handler, std::future::pending())
            .await
    }

    /// Consumes until the source ends or `shutdown` is ready. Then waits for running handlers.
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
        mut self,
        mut source: S,
        handler: H,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, ConsumerError>
    where
        S: Source,
        I: MessageId<S::Delivery>,
        M: Message + Send + 'static,
        V: Replay + Send + 'static,
        E: HandlerError + Send + 'static,
        H: for<'c> Fn(M, &'c mut P::Handle, Context) -> TxFuture<'c, Result<V, E>>,
        H: Send + Sync + 'static,
    {
        let events = self.consumer.begin(&mut source);
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
        consume((source, events), handle, concurrency, drain, shutdown).await
    }

    /// Runs the handler in a transaction, within a plain consumer's call.
    async fn handle<D, M, V, E, H>(&self, delivery: &D, handler: &H) -> Decided
    where
        D: Delivery,
        I: MessageId<D>,
        M: Message + Send,
        V: Replay + Send,
        E: HandlerError + Send,
        H: for<'c> Fn(M, &'c mut P::Handle, Context) -> TxFuture<'c, Result<V, E>> + Sync,
    {
        // Before the call: a message that meets a busy pool has used up no attempt.
        let (acquired, no_context) = (pin!(self.pool.acquire()), OnceLock::new());
        let acquired = tokio::select! {
            biased;
            acquired = acquired => acquired,
            never = extend(delivery, self.consumer.lease(), &no_context) => match never {},
        };
        let mut connection = match acquired {
            Ok(connection) => connection,
            Err(error) => return self.unavailable(error, delivery.attempt()),
        };
        let body = async |message: M, cx: Context| {
            let inbox = self
                .consumer
                .engine
                .operation(self.consumer.operation.clone());
            let inbox = inbox.policy(self.policy_of_inbox(&cx));
            let inbox = inbox.key(&cx.derive_key("in_tx")).on_error(Release);
            let rows = inbox.in_tx(&mut connection);
            rows.run(async |connection: &mut P::Tx, _: Context| {
                let end = handler(message, P::handle(connection), cx);
                end.await.map_err(CallError::Body)
            })
            .await
        };
        self.consumer.handle(delivery, body).await
    }

    /// Waits as long as the handler may take for a stalled process: to give up sooner would use up attempts.
    fn policy_of_inbox(&self, cx: &Context) -> Policy {
        let policy = self.consumer.policy_of_calls(self.consumer.lease());
        let left = cx.deadline().saturating_duration_since(Instant::now());
        Policy::new().on_running(OnRunning::Wait(left)).or(policy)
    }

    fn unavailable(&self, error: TxPoolError, attempt: Option<u32>) -> Decided {
        match error {
            TxPoolError::Closed(cause) => Decided::stop(ConsumerError::Pool(cause)),
            TxPoolError::Busy => Decided::of(Verdict::Retry(Some(self.consumer.pause(attempt)))),
        }
    }
}
