//! What holds for connections and pools of diesel-async alone.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;

use diesel::connection::InstrumentationEvent;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncMysqlConnection, AsyncPgConnection,
    SimpleAsyncConnection as _, TransactionManager as _,
};
use idem_consumers::{Consumer, MemoryQueue, Raw, TxFuture, TxPool};
use idem_harness::DatabaseServer;
use idem_runtime::store::sql::{Backend, IntoSqlSource, MySql, Postgres, SqlSession};
use idem_tests::shop::engine;
use idem_tests::sql::connect;

use super::prelude::*;
use crate::database::TestDatabase;

/// A client whose connections are those of diesel-async.
trait Diesel: Client<Conn = Self::Connection> {
    type Connection: AsyncConnection<TransactionManager = AnsiTransactionManager>
        + SqlSession
        + SqlTransaction
        + Sql;
    /// The number of statements that the session keeps prepared.
    const KEPT: &'static str;
}

impl Diesel for DieselPostgresClient {
    type Connection = AsyncPgConnection;
    const KEPT: &'static str = "SELECT count(*) FROM pg_prepared_statements";
}

impl Diesel for DieselMySqlClient {
    type Connection = AsyncMysqlConnection;
    const KEPT: &'static str = "SELECT CAST(SUM(IF(variable_name = 'COM_STMT_PREPARE', 1, -1) * variable_value) AS SIGNED) \
         FROM information_schema.session_status \
         WHERE variable_name IN ('COM_STMT_PREPARE', 'COM_STMT_CLOSE')";
}

macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        by!(mysql DieselMySqlClient: $($name)+);
        by!(postgres DieselPostgresClient: $($name)+);
    };
}

on_both!(
    a_body_that_leaves_a_transaction_open_is_refused,
    a_call_in_a_nested_transaction_is_kept_with_it,
    a_call_beside_an_open_one_is_running,
    a_connection_with_a_dropped_begin_is_refused,
    an_instrumentation_sees_no_answer,
    calls_keep_no_statement_of_their_own,
);

/// A call on this connection that makes the key's order.
async fn ordered_on<C: Diesel>(
    fixture: &Fixture<C>,
    conn: &mut C::Connection,
    key: &str,
) -> Answer {
    let call = fixture.call_that_ends(conn, |conn| conn, key, End::Value);
    call.await.expect("it ends")
}

async fn a_body_that_leaves_a_transaction_open_is_refused<C: Diesel>() {
    let fixture = Fixture::<C>::new().await;
    let mut conn = C::connect(&fixture.place.url).await;
    let begins = async |conn: &mut C::Connection| {
        let begun = AnsiTransactionManager::begin_transaction(conn).await;
        begun.expect("the server is up");
    };
    let call = fixture.call_that_ends_after(&mut conn, |conn| conn, "own", begins, End::Value);
    assert_aborted(&refusal(call.await.expect("it ends")));
    assert_eq!(conn.depth(), 0);
    assert_eq!(fixture.kept("own").await, (0, 0));
    assert_eq!(ordered_on(&fixture, &mut conn, "own").await, Ok(2));

    begins(&mut conn).await;
    let call = fixture.call_that_ends_after(&mut conn, |conn| conn, "callers", begins, End::Value);
    assert_aborted(&refusal(call.await.expect("it ends")));
}

async fn a_call_in_a_nested_transaction_is_kept_with_it<C: Diesel>() {
    let fixture = Fixture::<C>::new().await;
    let mut conn = C::connect(&fixture.place.url).await;
    for (key, kept) in [("undone", 0), ("kept", 1)] {
        for _ in 0..2 {
            let begun = AnsiTransactionManager::begin_transaction(&mut conn).await;
            begun.expect("the server is up");
        }
        let answer = ordered_on(&fixture, &mut conn, key).await;
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(conn.depth(), 2);
        let ended = if kept == 0 {
            AnsiTransactionManager::rollback_transaction(&mut conn).await
        } else {
            AnsiTransactionManager::commit_transaction(&mut conn).await
        };
        ended.expect("its savepoint is there");
        let ended = AnsiTransactionManager::commit_transaction(&mut conn).await;
        ended.expect("the server is up");
        assert_eq!(fixture.kept(key).await, (kept, kept), "{key}");
    }
}

/// diesel-async shows no code of an error: the wait for a lock has one of its own.
async fn a_call_beside_an_open_one_is_running<C: Diesel>() {
    let fixture = Fixture::<C>::new().await;
    let (mut one, mut other) = (
        C::connect(&fixture.place.url).await,
        C::connect(&fixture.place.url).await,
    );
    for conn in [&mut one, &mut other] {
        let begun = AnsiTransactionManager::begin_transaction(conn).await;
        begun.expect("the server is up");
    }
    assert!(ordered_on(&fixture, &mut one, "order").await.is_ok());
    let call = fixture
        .call("order")
        .on_running(OnRunning::Wait(Duration::ZERO));
    assert_running(&refusal(answered(call, &mut other).await));
    // The second transaction goes on.
    assert!(ordered_on(&fixture, &mut other, "another").await.is_ok());
    for conn in [&mut one, &mut other] {
        let ended = AnsiTransactionManager::commit_transaction(conn).await;
        ended.expect("the server is up");
    }
    assert_eq!(fixture.orders_of(["order", "another"]).await, [1, 1]);
}

/// diesel-async does not know whether it is in a transaction then.
async fn a_connection_with_a_dropped_begin_is_refused<C: Diesel>() {
    let fixture = Fixture::<C>::new().await;
    let mut conn = loop {
        let mut conn = C::connect(&fixture.place.url).await;
        let mut begun = Box::pin(AnsiTransactionManager::begin_transaction(&mut conn));
        let polled = std::future::poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx).is_pending()));
        // A server may reply within a poll.
        if polled.await {
            drop(begun);
            break conn;
        }
    };
    assert_aborted(&refusal(ordered_on(&fixture, &mut conn, "order").await));
    assert_eq!(fixture.runs.count(), 0);
}

async fn an_instrumentation_sees_no_answer<C: Diesel>() {
    const SECRET: u32 = 1_234_567_891;
    let fixture = Fixture::<C>::new().await;
    let mut conn = C::connect(&fixture.place.url).await;
    let events = Arc::new(Mutex::new(String::new()));
    let log = Arc::clone(&events);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        let mut log = log.lock().unwrap();
        writeln!(log, "{event:?}").expect("there is room");
    });
    let call = fixture.call("order").in_tx(&mut conn);
    let answer: Answer = call.run(async |_: &mut C::Connection, _| Ok(SECRET)).await;
    assert_eq!(answer, Ok(SECRET));
    let events = events.lock().unwrap();
    assert!(events.contains("idem_records SET"), "{events}");
    let digits = SECRET.to_string();
    let bytes: Vec<_> = digits.bytes().map(|byte| byte.to_string()).collect();
    // A digit is 3 and itself.
    let hex: String = digits.chars().flat_map(|digit| ['3', digit]).collect();
    for shown in [digits, bytes.join(", "), hex] {
        assert!(!events.contains(&shown), "{shown} in {events}");
    }
}

async fn calls_keep_no_statement_of_their_own<C: Diesel>() {
    let fixture = Fixture::<C>::new().await;
    let mut conn = C::connect(&fixture.place.url).await;
    let mut kept = Vec::new();
    for round in 0..3 {
        for call in 0..4 {
            let key = format!("order {round}-{call}");
            assert!(ordered_on(&fixture, &mut conn, &key).await.is_ok());
        }
        kept.push(conn.count(C::KEPT).await);
    }
    assert_eq!(kept[1], kept[2], "{kept:?}");
}

/// The client gives the reply of a dropped message to the next.
#[tokio::test]
async fn a_connection_out_of_step_is_refused() {
    let fixture = Fixture::<DieselMySqlClient>::new().await;
    loop {
        let mut conn = DieselMySqlClient::connect(&fixture.place.url).await;
        let before = ordered_on(&fixture, &mut conn, "before").await;
        assert_eq!(before, Ok(1));
        let mut message = Box::pin(conn.batch_execute("DO 1"));
        let polled = std::future::poll_fn(|cx| Poll::Ready(message.as_mut().poll(cx).is_pending()));
        if polled.await {
            drop(message);
            assert_aborted(&refusal(ordered_on(&fixture, &mut conn, "order").await));
            assert_eq!(fixture.runs.count(), 1);
            let used = conn.run("DO 1").await;
            used.expect_err("it is closed");
            return;
        }
    }
}

/// An already prepared completion reads the reply to the body's statement: a changed row.
#[tokio::test]
async fn a_commit_is_not_acknowledged_by_the_reply_to_another_message() {
    const UPDATE: &str = "UPDATE shelves SET pieces = pieces + 1";
    let fixture = Fixture::<DieselMySqlClient>::new().await;
    let mut conn = DieselMySqlClient::connect(&fixture.place.url).await;
    conn.run("INSERT INTO shelves VALUES ('one', 1)")
        .await
        .unwrap();
    for key in 0.. {
        let key = &format!("order {key}");
        let mut conn = DieselMySqlClient::connect(&fixture.place.url).await;
        assert!(
            ordered_on(&fixture, &mut conn, &format!("{key}, before"))
                .await
                .is_ok()
        );
        let is_dropped = AtomicBool::new(false);
        let drops = async |conn: &mut AsyncMysqlConnection| {
            let mut message = Box::pin(conn.batch_execute(UPDATE));
            let polled = |cx: &mut Context<'_>| Poll::Ready(message.as_mut().poll(cx).is_pending());
            is_dropped.store(std::future::poll_fn(polled).await, Ordering::Relaxed);
        };
        let call = fixture.call_that_ends_after(&mut conn, |conn| conn, key, drops, End::Value);
        let answer = call.await.expect("it ends");
        // A server may reply within a poll.
        if is_dropped.load(Ordering::Relaxed) {
            assert_eq!(*refusal(answer).kind(), ErrorKind::CommitUnknown);
            drop(conn);
            let mut conn = DieselMySqlClient::connect(&fixture.place.url).await;
            assert!(ordered_on(&fixture, &mut conn, key).await.is_ok());
            assert_eq!(fixture.orders(key).await, 1);
            return;
        }
    }
}

/// The server answers an aborted transaction's commit with a rollback, without error.
#[tokio::test]
async fn a_commit_in_an_aborted_transaction_fails() {
    let fixture = Fixture::<DieselPostgresClient>::new().await;
    let mut conn = DieselPostgresClient::connect(&fixture.place.url).await;
    conn.begin().await.unwrap();
    conn.run("SELECT 1 / 0").await.expect_err("it is aborted");
    let error = conn.commit().await.expect_err("nothing is committed");
    assert!(error.is_of_server(), "{error}");
    conn.rollback().await.unwrap();
    assert_eq!(conn.depth(), 0);
}

/// Its idle connections are those of a server that was killed.
async fn outlives<D: Server, P>(server: &DatabaseServer, pool: P)
where
    for<'p> &'p P: IntoSqlSource<D>,
{
    let store = connect::<D>(&pool).await;
    store.migrate().await.expect("the table is made");
    let engine = engine(store);
    let call = async |key: u32| {
        let call = engine.operation("orders.create").key(&key);
        call.run(async |_| Ok::<_, idem_runtime::Error>(key)).await
    };
    assert_eq!(call(1).await.unwrap(), 1);
    server.kill();
    server.restart();
    assert_eq!(call(2).await.unwrap(), 2);
    assert_eq!(call(1).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_outlives_its_server_on_mysql() {
    let server = MySql::serve(&[]);
    let manager = AsyncDieselConnectionManager::<AsyncMysqlConnection>::new(server.url());
    let pool = deadpool::Pool::builder(manager).build().unwrap();
    outlives::<MySql, _>(&server, pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_outlives_its_server_on_postgres() {
    let server = Postgres::serve(&[]);
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(server.url());
    let pool = deadpool::Pool::builder(manager).build().unwrap();
    outlives::<Postgres, _>(&server, pool).await;
}

macro_rules! pools {
    ($($name:ident $Database:ident $Connection:ident $pool:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let place = TestDatabase::new::<$Database>();
                let manager = AsyncDieselConnectionManager::<$Connection>::new(&place.url);
                consumed::<$Database, _>(&place, $pool(manager), |conn| {
                    Box::pin(async {
                        let inserted = conn.batch_execute("INSERT INTO orders VALUES ('mine')");
                        inserted.await.map_err(|error| OrderError::Database(error.to_string()))
                    })
                })
                .await;
            }
        )*
    };
}

pools! {
    bb8_on_mysql MySql AsyncMysqlConnection
        (|manager| bb8::Pool::builder().build_unchecked(manager));
    bb8_on_postgres Postgres AsyncPgConnection
        (|manager| bb8::Pool::builder().build_unchecked(manager));
    deadpool_on_mysql MySql AsyncMysqlConnection
        (|manager| deadpool::Pool::builder(manager).build().unwrap());
    deadpool_on_postgres Postgres AsyncPgConnection
        (|manager| deadpool::Pool::builder(manager).build().unwrap());
}

type Insert<C> = for<'c> fn(&'c mut C) -> TxFuture<'c, Result<(), OrderError>>;

/// A failure and two deliveries of a message, on one pool.
async fn consumed<D: Backend, P>(place: &TestDatabase, pool: P, insert: Insert<P::Handle>)
where
    P: TxPool + Clone,
    for<'p> &'p P: IntoSqlSource<D>,
{
    let store = connect::<D>(&pool).await;
    store.migrate().await.expect("the table is made");
    place
        .sql("CREATE TABLE orders (name VARCHAR(100) NOT NULL)")
        .await;
    let engine = engine(store);
    for (message, fails) in [("m-0", true), ("m-1", false), ("m-1", false)] {
        let queue = MemoryQueue::new();
        queue.send(message, message);
        queue.close();
        let consumer = Consumer::new(engine.clone(), "orders.take").dead_letter_after(1);
        let consumer = consumer.in_tx(pool.clone());
        let handled = consumer.run(queue, move |_: Raw, conn: &mut P::Handle, _| {
            Box::pin(async move {
                insert(conn).await?;
                if fails { Err(OrderError::Down) } else { Ok(()) }
            })
        });
        let summary = handled.await.expect("the pool is open");
        let ended = (summary.acknowledged, summary.dead_letters);
        assert_eq!(ended, if fails { (0, 1) } else { (1, 0) }, "{message}");
    }
    assert_eq!(place.sql("SELECT count(*) FROM orders").await, "1");
}
