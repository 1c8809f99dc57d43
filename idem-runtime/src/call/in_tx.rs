//! A call inside a transaction, without the attribute.

use std::fmt;
use std::ops::AsyncFnOnce;
use std::pin::pin;

use super::description::Call;
use super::within::{InTx, begin_in_tx};
use crate::call::context::Context;
use crate::outcome::chosen_life::{LifeOf, OpenLife};
use crate::outcome::{Outcome, Output};
use crate::store::sql::{SqlSession, SqlTransaction};

/// A call claimed and completed in the caller's transaction. Made by [`CallBuilder::in_tx`](crate::CallBuilder::in_tx).
///
/// The body's writes through the transaction are committed together with its record, or not at all. There is no lease:
/// a call with the same key waits (as [`on_running`](crate::CallBuilder::on_running) says) until this transaction is
/// committed or rolled back, and then gets its answer or runs.
///
/// - **Success**: commit, and the answer counts.
/// - **Business error**: the body's writes are undone, and the kept error is committed with the transaction.
/// - **System error, panic**: the body's writes are undone, and so is the claim. A commit commits nothing of this call.
/// - **Dropped half-way**: roll back, as a dropped transaction of sqlx does. If it is committed nevertheless, later
///   calls get [`ErrorKind::Unknown`](crate::ErrorKind::Unknown), and nothing runs twice.
///
/// A body must not continue after a database error that ends the transaction: a deadlock on MySQL, a full disk on
/// SQLite. Its writes after that are committed at once, without a record, and again by the next call. Nor may it end
/// the transaction itself, as `CREATE TABLE` does on MySQL. A body that does so is never answered with success: the
/// call returns [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted), and so does every other call
/// in the rest of the transaction. (MySQL itself, unlike MariaDB, does not show that `CREATE TABLE` has committed: that
/// body is answered with success, and a rollback undoes nothing.)
///
/// On SQLite the call is refused, and its connection closed, if sqlx counts a transaction that may not exist: SQLite
/// rolls back by itself after some errors, such as a commit that fails, and sqlx does not notice. A transaction of sqlx
/// within another looks the same: use the outer one, and `SAVEPOINT`.
///
/// On a pool connection without a transaction idem begins one for the call, and commits it or rolls it back by these
/// rules, so that the caller has nothing to end.
///
/// A caller with a transaction of its own **commits whatever this returns**, except after
/// [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted), after which it drops the transaction.
/// Attempts that are not committed are not counted: `max_attempts` does not apply, nor do leases and their settings.
///
/// It costs two round trips, the claim and the answer.
///
/// In a spawned task or a handler, give the transaction's connection, as here: with `&mut PgTransaction<'_>` as the
/// type of the closure's argument the compiler does not infer that the future is `Send`.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, Error, store::sql::SqliteStore};
/// use sqlx::{Connection, SqliteConnection};
///
/// # let dir = std::env::temp_dir().join(format!("idem-in-tx-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let url = format!("sqlite:{}", dir.join("shop.db").display());
/// let store = SqliteStore::connect(&url).await?;
/// store.migrate().await?;
/// let engine = Engine::new(store);
///
/// #[derive(Debug)]
/// enum OrderError {
///     Database(sqlx::Error),
///     Idem(Error),
/// }
/// # impl From<sqlx::Error> for OrderError { fn from(e: sqlx::Error) -> Self { Self::Database(e) } }
/// # impl From<Error> for OrderError { fn from(e: Error) -> Self { Self::Idem(e) } }
///
/// let mut shop = SqliteConnection::connect(&url).await.unwrap();
/// sqlx::query("CREATE TABLE orders (number INTEGER)").execute(&mut shop).await.unwrap();
/// for _ in 0..2 {
///     let mut tx = shop.begin().await.unwrap();
///     let order: Result<u64, OrderError> = engine
///         .operation("orders.create")
///         .key("order-7")
///         .on_error(idem_runtime::on_error::Release)
///         .in_tx(&mut *tx)
///         .run(async |conn: &mut SqliteConnection, _| {
///             sqlx::query("INSERT INTO orders VALUES (7)").execute(conn).await?;
///             Ok(7)
///         })
///         .await;
///     assert_eq!(order.unwrap(), 7);
///     tx.commit().await.unwrap();
/// }
/// let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&mut shop).await.unwrap();
/// assert_eq!(orders, 1);
/// # drop(shop);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "a call does nothing until it is run"]
pub struct CallInTx<'t, T: ?Sized, P, L = OpenLife> {
    call: Call,
    on_error: P,
    life: L,
    tx: &'t mut T,
}

debug_fields!([T: ?Sized, P: fmt::Debug, L] CallInTx<'_, T, P, L> { call, on_error });

impl<'t, T: SqlTransaction + ?Sized, P, L> CallInTx<'t, T, P, L> {
    pub(super) fn new(call: Call, (on_error, life): (P, L), tx: &'t mut T) -> Self {
        Self {
            call,
            on_error,
            life,
            tx,
        }
    }

    /// Replays the stored answer, or runs the body in the transaction.
    ///
    /// The result is stored in the transaction. `T` and `E` are as in [`CallBuilder::run`](crate::CallBuilder::run).
    ///
    /// # Errors
    ///
    /// The body's, and idem's own: [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted) after which
    /// the transaction can only be rolled back, [`ErrorKind::Running`](crate::ErrorKind::Running) where another
    /// transaction holds the record for longer than this call waits,
    /// [`ErrorKind::StoreUnavailable`](crate::ErrorKind::StoreUnavailable) where the transaction that holds the lock of
    /// an SQLite file may be of any key, and as in [`CallBuilder::run`](crate::CallBuilder::run). The last two leave
    /// the transaction as it was.
    ///
    /// # Panics
    ///
    /// With the body.
    ///
    /// # Cancel safety
    ///
    /// If dropped half-way, the transaction must be rolled back. A transaction that was begun for the call is rolled
    /// back, except on a connection outside a pool whose call is dropped while the `BEGIN` is in progress: close that
    /// connection, since sqlx does not know that it is in a transaction.
    pub async fn run<V, E, B>(self, body: B) -> Result<V, E>
    where
        Result<V, E>: Outcome<P>,
        L: LifeOf<Result<V, E>>,
        B: AsyncFnOnce(&mut T, Context) -> Result<V, E>,
    {
        let output = Output::new(self.on_error, self.life);
        match begin_in_tx(self.call, output, self.tx).await {
            InTx::Answered(answer) => answer,
            InTx::Run(mut run) => {
                let context = run.context().clone();
                let end = {
                    let (scope, tx) = run.split();
                    scope.run(pin!(Some(body(tx, context)))).await
                };
                run.finish(end).await
            }
        }
    }
}

/// A transaction of any type, with access to its session.
pub struct BorrowedTx<'t, T: ?Sized> {
    tx: &'t mut T,
    session: fn(&mut T) -> &mut (dyn SqlSession + '_),
    give_up: fn(&mut T),
    most: fn(&T) -> usize,
}

/// Wraps a transaction. An expansion requires the trait only here, so that an unsuitable type produces a single
/// compiler error.
pub fn borrow_tx<T: SqlTransaction + ?Sized>(tx: &mut T) -> BorrowedTx<'_, T> {
    BorrowedTx {
        tx,
        session: T::session,
        give_up: T::give_up,
        most: T::most,
    }
}

impl<T: ?Sized> BorrowedTx<'_, T> {
    /// The transaction, for the body.
    pub fn tx(&mut self) -> &mut T {
        self.tx
    }
}

impl<T: ?Sized + Send> SqlTransaction for BorrowedTx<'_, T> {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        (self.session)(self.tx)
    }

    fn give_up(&mut self) {
        (self.give_up)(self.tx);
    }

    fn most(&self) -> usize {
        (self.most)(self.tx)
    }
}

debug_fields!([T: ?Sized] BorrowedTx<'_, T> {});
