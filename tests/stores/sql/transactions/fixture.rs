//! A shop in a database: a pool, a table of orders, and an engine whose store is in the same database.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use idem_runtime::life::LifeOf;
use idem_runtime::store::sql::{SqlStore, SqlTransaction};
use idem_runtime::{
    CallBuilder, Classify, Engine, EngineBuilder, Error, ErrorKind, admin::EntryState,
};
use idem_tests::events::Events;
use idem_tests::fixture::Classified;
use idem_tests::orders::database::Database as _;
use idem_tests::payment::Runs;
use idem_tests::shop::{PATIENCE, patiently};
use serde::{Deserialize, Serialize};
use sqlx::Pool;
use tokio::sync::{Barrier, Mutex, Notify};

use super::clients::Client;
use crate::database::{Database, Server, Sql, TestDatabase};

/// The error of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Classify)]
pub(crate) enum OrderError {
    #[class(business)]
    SoldOut { run: u32 },
    #[class(system)]
    Down,
    #[class(system)]
    Database(String),
    #[class(unknown)]
    TimedOut,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl From<sqlx::Error> for OrderError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.to_string())
    }
}

pub(crate) type Answer = Result<u32, OrderError>;

/// The error with which idem refused a call.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, OrderError>) -> Error {
    match answer {
        Err(OrderError::Idem(error)) => error,
        other => panic!("idem did not refuse: {other:?}"),
    }
}

/// Panics unless the transaction can only be rolled back and retried.
pub(crate) fn assert_aborted(error: &Error) {
    assert_eq!(*error.kind(), ErrorKind::TransactionAborted, "{error}");
    assert!(error.is_retryable(), "{error}");
}

pub(crate) fn assert_running(error: &Error) {
    let running = matches!(error.kind(), ErrorKind::Running { .. });
    assert!(running && error.is_retryable(), "{error}");
}

pub(crate) fn assert_unknown(error: &Error) {
    let unknown = matches!(error.kind(), ErrorKind::Unknown { .. });
    assert!(unknown, "{error}");
}

/// A result that a case must not ignore.
pub(crate) trait Done<T> {
    /// The value; panics on an error.
    fn done(self) -> T;
}

impl<T> Done<T> for Result<T, sqlx::Error> {
    fn done(self) -> T {
        self.unwrap_or_else(|error| panic!("the database refused: {error}"))
    }
}

/// How a body ends after its row is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Value,
    Business,
    /// After an error of the database, which aborts a transaction of PostgreSQL.
    BusinessAfterAnError,
    System,
    Unknown,
    Panic,
    /// Its call is dropped.
    Dropped,
}

impl End {
    /// The answer of the body; `None` if it has none.
    pub(crate) fn answer(self, run: u32) -> Option<Answer> {
        match self {
            Self::Value => Some(Ok(run)),
            Self::Business | Self::BusinessAfterAnError => Some(Err(OrderError::SoldOut { run })),
            Self::System => Some(Err(OrderError::Down)),
            Self::Unknown => Some(Err(OrderError::TimedOut)),
            Self::Panic | Self::Dropped => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Fixture<C: Client> {
    pub(crate) pool: Pool<<C::Database as Database>::Driver>,
    pub(crate) store: SqlStore<C::Database>,
    pub(crate) engine: Engine,
    pub(crate) events: Events,
    pub(crate) runs: Runs,
    pub(crate) place: TestDatabase,
}

impl<C: Client> Fixture<C> {
    pub(crate) async fn new() -> Self {
        Self::with(|engine| engine).await
    }

    pub(crate) async fn with(settings: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        let place = TestDatabase::new::<C::Database>();
        let store = SqlStore::builder(&place.url).connections(4);
        let store = store.response_timeout(PATIENCE).connect().await;
        let store = store.expect("the database is up");
        store.migrate().await.expect("the table is made");
        let pool = <C::Database as Database>::Plain::pool(&place.url, 60);
        let mut conn = <C::Database as Database>::acquire(&pool).await.done();
        let tables = "CREATE TABLE orders (name VARCHAR(100) NOT NULL); \
                      CREATE TABLE shelves (name VARCHAR(100) PRIMARY KEY, pieces BIGINT NOT NULL)";
        <C::Database as Database>::execute(&mut conn, tables)
            .await
            .done();
        drop(conn);
        let events = Events::default();
        let engine = Engine::builder(store.clone()).observer(events.clone());
        let engine = settings(engine).build().expect("the settings are right");
        Self {
            pool,
            store,
            engine,
            events,
            runs: Runs::default(),
            place,
        }
    }

    /// The call of the key `order-7`.
    pub(crate) fn order(&self) -> CallBuilder<Classified> {
        self.call("order-7")
    }

    pub(crate) fn call(&self, key: &str) -> CallBuilder<Classified> {
        self.engine.operation("orders.create").key(key)
    }

    /// Number of orders of that name that another connection sees.
    pub(crate) async fn orders(&self, name: &str) -> i64 {
        let mut conn = <C::Database as Database>::acquire(&self.pool).await.done();
        orders::<C::Database>(&mut conn, name).await
    }

    /// Number of records that another connection sees.
    pub(crate) async fn records(&self) -> i64 {
        let mut conn = <C::Database as Database>::acquire(&self.pool).await.done();
        let sql = "SELECT count(*) FROM idem_records";
        <C::Database as Database>::number(&mut conn, sql)
            .await
            .done()
    }

    /// Number of orders of that name, and number of records.
    pub(crate) async fn kept(&self, name: &str) -> (i64, i64) {
        (self.orders(name).await, self.records().await)
    }

    /// Number of orders of each name.
    pub(crate) async fn orders_of<const N: usize>(&self, names: [&str; N]) -> [i64; N] {
        let mut numbers = [0; N];
        for (number, name) in numbers.iter_mut().zip(names) {
            *number = self.orders(name).await;
        }
        numbers
    }

    /// A call whose body makes the key's order, and its end. `None` after a panic or a drop.
    pub(crate) async fn call_that_ends<T: SqlTransaction, S: Sql>(
        &self,
        tx: &mut T,
        beneath: fn(&mut T) -> &mut S,
        key: &str,
        end: End,
    ) -> Option<Answer> {
        let nothing = async |_: &mut S| {};
        self.call_that_ends_after(tx, beneath, key, nothing, end)
            .await
    }

    /// The same, with work between the order and the body's end.
    pub(crate) async fn call_that_ends_after<T: SqlTransaction, S: Sql>(
        &self,
        tx: &mut T,
        beneath: fn(&mut T) -> &mut S,
        key: &str,
        work: impl AsyncFn(&mut S),
        end: End,
    ) -> Option<Answer> {
        let wrote = Notify::new();
        let call = self.call(key).in_tx(tx).run(async |tx: &mut T, _| {
            let conn = beneath(tx);
            let run = self.runs.start();
            insert_by(conn, key).await?;
            work(conn).await;
            match end {
                End::BusinessAfterAnError => {
                    let refused = conn.run("INSERT INTO orders (name) VALUES (NULL)").await;
                    refused.expect_err("a name is needed");
                }
                End::Panic => panic_any("out of paper"),
                End::Dropped => wrote.notify_one(),
                _ => {}
            }
            match end.answer(run) {
                Some(answer) => answer,
                None => pending().await,
            }
        });
        let mut call = pin!(call);
        let ended = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            polled.map_or(Poll::Ready(None), |poll| poll.map(Some))
        });
        tokio::select! {
            answer = ended => answer,
            () = wrote.notified() => None,
        }
    }

    /// Lets time pass for the records.
    pub(crate) async fn age(&self, by: Duration) {
        self.store.age(by).await.expect("the database is up");
    }
}

impl<D: Database> Fixture<D> {
    /// A transaction on a connection of its own, as sqlx begins one.
    pub(crate) async fn begin(&self) -> D::Tx {
        D::begin(&self.pool, "BEGIN").await.done()
    }

    pub(crate) async fn connection(&self) -> D::Pooled {
        D::acquire(&self.pool).await.done()
    }

    /// The call of the key `order-7`, which makes the order `mine`.
    pub(crate) async fn ordered(&self, tx: &mut D::Tx) -> Answer {
        ordered(self, self.order(), tx, "mine").await
    }

    /// A call of another key, which makes that key's order.
    pub(crate) async fn ordered_as(&self, key: &str, tx: &mut D::Tx) -> Answer {
        ordered(self, self.call(key), tx, key).await
    }

    /// The call in a transaction of its own, with the order `mine`.
    pub(crate) async fn committed<L>(&self, call: CallBuilder<Classified, L>) -> Answer
    where
        L: LifeOf<Answer>,
    {
        let mut tx = self.begin().await;
        let answer = ordered(self, call, &mut tx, "mine").await;
        D::commit(tx).await.done();
        answer
    }

    /// The call of this key in its own transaction, with its order.
    pub(crate) async fn committed_as(&self, key: &str) -> Answer {
        let mut tx = self.begin().await;
        let answer = self.ordered_as(key, &mut tx).await;
        D::commit(tx).await.done();
        answer
    }

    /// The call in a transaction of its own, which commits; its body must not run.
    pub(crate) async fn replayed(&self, call: CallBuilder<Classified>) -> Answer {
        let mut tx = self.begin().await;
        let answer = answered(call, &mut tx).await;
        D::commit(tx).await.done();
        answer
    }

    /// Waits until so many sessions wait for a lock. Files do not report this.
    pub(crate) async fn until_waiting(&self, sessions: i64) {
        self.until(|waiting| waiting >= sessions).await;
    }

    pub(crate) async fn until_none_waits(&self) {
        self.until(|waiting| waiting == 0).await;
    }

    async fn until(&self, wanted: impl Fn(i64) -> bool) {
        /// `InnoDB` refreshes its lock statistics only 0.1 s after their last query.
        static ASKING: Mutex<()> = Mutex::const_new(());
        const PAUSE: Duration = Duration::from_millis(110);
        let Some(sql) = D::WAITING else { return };
        let mut conn = self.connection().await;
        let waits = async {
            loop {
                let _asking = ASKING.lock().await;
                tokio::time::sleep(PAUSE).await;
                if wanted(D::number(&mut conn, sql).await.done()) {
                    return;
                }
            }
        };
        patiently("so many wait for a lock", waits).await;
    }

    /// Two shelves, for transactions that lock them in opposite order.
    pub(crate) async fn shelves(&self) {
        let mut conn = self.connection().await;
        let shelves = "INSERT INTO shelves VALUES ('one', 1), ('two', 1)";
        D::execute(&mut conn, shelves).await.done();
    }

    /// A connection whose lock-wait setting is known.
    pub(crate) async fn alone(&self) -> D::Conn {
        D::connection_after(&self.place.url, "SELECT 1")
            .await
            .unwrap()
    }
}

pub(crate) async fn insert<D: Database>(
    conn: &mut D::Conn,
    name: &str,
) -> Result<u64, sqlx::Error> {
    D::execute(
        conn,
        &format!("INSERT INTO orders (name) VALUES ('{name}')"),
    )
    .await
}

/// The same by any client.
pub(crate) async fn insert_by(conn: &mut impl Sql, name: &str) -> Result<(), OrderError> {
    let insert = format!("INSERT INTO orders (name) VALUES ('{name}')");
    conn.run(&insert).await.map_err(OrderError::Database)
}

pub(crate) async fn orders<D: Database>(conn: &mut D::Conn, name: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM orders WHERE name = '{name}'");
    D::number(conn, &sql).await.done()
}

/// A body that makes an order of this name. It answers with the number of its run.
pub(crate) async fn make<D: Database>(conn: &mut D::Conn, runs: &Runs, name: &str) -> Answer {
    let run = runs.start();
    insert::<D>(conn, name).await?;
    Ok(run)
}

/// A call that makes an order of this name.
pub(crate) async fn ordered<D: Database, L: LifeOf<Answer>>(
    fixture: &Fixture<D>,
    call: CallBuilder<Classified, L>,
    tx: &mut D::Tx,
    name: &str,
) -> Answer {
    call.in_tx(tx)
        .run(async |tx: &mut D::Tx, _| make::<D>(tx, &fixture.runs, name).await)
        .await
}

/// The committed state of the call.
pub(crate) async fn state(call: CallBuilder<Classified>) -> Option<EntryState> {
    let entry = call.entry().await;
    entry.expect("the store answers").map(|entry| entry.state())
}

/// A call that must be answered without its body.
pub(crate) async fn answered<T: SqlTransaction>(
    call: CallBuilder<Classified>,
    tx: &mut T,
) -> Answer {
    call.in_tx(tx)
        .run(async |_: &mut T, _| unreachable!("this body must not run"))
        .await
}

/// A transaction that makes another one the victim of a deadlock: it has written more, or has a longer time-out.
pub(crate) async fn strong<D: Server>(fixture: Arc<Fixture<D>>, both: Arc<Barrier>) {
    let mut tx = fixture.begin().await;
    if D::POSTGRES {
        let survive = "SET LOCAL deadlock_timeout = '1h'";
        D::execute(&mut tx, survive).await.done();
    }
    for number in 0..100 {
        let name = format!("strong-{number}");
        insert::<D>(&mut tx, &name).await.done();
    }
    D::execute(&mut tx, &update("two")).await.done();
    both.wait().await;
    D::execute(&mut tx, &update("one")).await.done();
    D::commit(tx).await.done();
}

/// Locks one of the two shelves.
pub(crate) fn update(shelf: &str) -> String {
    format!("UPDATE shelves SET pieces = pieces + 1 WHERE name = '{shelf}'")
}

/// The victim of a deadlock with [`strong`].
pub(crate) async fn is_victim<D: Database>(
    tx: &mut D::Conn,
    both: &Barrier,
) -> sqlx::Result<sqlx::Error> {
    D::execute(tx, &update("one")).await?;
    both.wait().await;
    let deadlock = D::execute(tx, &update("two")).await;
    let error = deadlock.expect_err("it is the victim");
    assert!(D::collides(&error), "{error}");
    Ok(error)
}

/// The settings of a session that a call must restore.
pub(crate) async fn settings<D: Database>(conn: &mut D::Conn) -> i64 {
    D::number(conn, D::SETTING).await.done()
}

/// Waits until the session with this id is gone.
pub(crate) async fn session_ends<C: Client<Database: Server>>(fixture: &Fixture<C>, session: i64) {
    let mut conn = C::connect(&fixture.place.url).await;
    let sql = C::Database::SESSIONS.replace("{}", &session.to_string());
    let gone = async {
        while conn.count(&sql).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    patiently("the session is gone", gone).await;
}

/// Ends the session of the connection, and waits until it is gone.
pub(crate) async fn end_session<C: Client<Database: Server>>(
    fixture: &Fixture<C>,
    conn: &mut impl Sql,
) {
    let session = conn.count(C::Database::SESSION_ID).await;
    let mut other = C::connect(&fixture.place.url).await;
    let end = C::Database::end_session(session);
    other.run(&end).await.unwrap();
    session_ends(fixture, session).await;
}

/// A body that writes and ends with an error.
pub(crate) async fn failed<D: Database>(
    fixture: &Fixture<D>,
    call: CallBuilder<Classified>,
    tx: &mut D::Tx,
    error: OrderError,
) -> Answer {
    call.in_tx(tx)
        .run(async |tx: &mut D::Tx, _| {
            make::<D>(tx, &fixture.runs, "undone").await?;
            Err(error)
        })
        .await
}
