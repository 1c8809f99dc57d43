//! Cases from a code review of the SQL stores.

#![allow(
    clippy::unwrap_used,
    reason = "a case ends where something is not as it says"
)]

use std::fmt::Write as _;
use std::future::Future;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TestDir};
use idem_runtime::store::sql::{
    Backend, MySql, MySqlStore, Postgres, PostgresStore, Purge, SqlSource, SqlStore, SqliteStore,
};
use idem_runtime::{Engine, Error, ErrorKind};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};

/// Deadline of required events, so that a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

fn postgres(database: &str) -> String {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    let server: &DatabaseServer = SERVER.get_or_init(PostgresServer::start);
    server.create_database(database)
}

fn mariadb(database: &str) -> String {
    static SERVER: OnceLock<MariaDbServer> = OnceLock::new();
    let server: &DatabaseServer = SERVER.get_or_init(MariaDbServer::start);
    server.create_database(database)
}

async fn store<B: Backend>(url: &str, patience: Duration) -> SqlStore<B> {
    let store = SqlStore::<B>::builder(SqlSource::from(url)).response_timeout(patience);
    let store = store.connect().await.expect("the database is up");
    store.migrate().await.expect("the table is made");
    store
}

async fn run<'c, C: Executor<'c>>(conn: C, sql: &str) -> u64
where
    u64: Rows<C::Database>,
{
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    let done = conn.execute(sql).await;
    u64::rows(done.unwrap_or_else(|error| panic!("the database refused: {error}")))
}

/// Number of rows that a statement changed, for any database.
trait Rows<D: sqlx::Database> {
    fn rows(done: D::QueryResult) -> u64;
}

macro_rules! rows {
    ($($db:ident)*) => { $(
        impl Rows<sqlx::$db> for u64 {
            fn rows(done: <sqlx::$db as sqlx::Database>::QueryResult) -> u64 {
                done.rows_affected()
            }
        }
    )* };
}
rows!(MySql Postgres Sqlite);

async fn pg_number(conn: &mut PgConnection, sql: &'static str) -> i64 {
    let number = sqlx::query_scalar(sql).fetch_one(conn).await;
    number.unwrap_or_else(|error| panic!("the database refused: {error}"))
}

/// Polls until the condition holds.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn kind(answer: Result<u32, Error>) -> ErrorKind {
    answer.expect_err("the call fails").kind().clone()
}

/// The complete text of an error, with its causes.
fn said(error: &Error) -> String {
    let mut said = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let _ = write!(said, " {error} {error:?}");
        source = error.source();
    }
    said
}

/// An abandoned claim must not wait in the server: there it blocks a backend for as long as the
/// transaction lasts that holds the key, and each retry blocks another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_were_given_up_leave_no_backend_that_waits() {
    let url = postgres("given_up");
    let calm = Engine::new(store::<Postgres>(&url, PATIENCE).await);
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let mut tx = holder.begin().await.unwrap();
    let held = calm.operation("orders.create").key("order-7");
    let held: Result<u32, Error> = held.in_tx(&mut tx).run(async |_, _| Ok(1)).await;
    assert_eq!(held.unwrap(), 1);
    // Claims more than once.
    let store: PostgresStore = store::<Postgres>(&url, Duration::from_secs(2)).await;
    let engine = Engine::builder(store).claim_deadline(Duration::from_secs(5));
    let engine = engine.build().expect("the settings are right");
    let duplicate = engine.operation("orders.create").key("order-7");
    let duplicate: Result<u32, Error> = duplicate.run(|_| async { Ok(2) }).await;
    assert_eq!(kind(duplicate), ErrorKind::StoreUnavailable);
    let mut other = PgConnection::connect(&url).await.unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waiting = pg_number(&mut other, waiting).await;
        if waiting == 0 {
            break;
        }
        assert!(
            Instant::now() < end,
            "{waiting} backends wait for what nobody waits for"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tx.rollback().await.unwrap();
}

/// A transaction that was begun for a call ends with it, not when the connection is next used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_leaves_no_transaction_open_on_a_connection_of_its_callers() {
    let url = postgres("left_open");
    let engine = Engine::new(store::<Postgres>(&url, PATIENCE).await);
    let mut conn = PgConnection::connect(&url).await.unwrap();
    let mut other = PgConnection::connect(&url).await.unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity \
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    for (what, key) in [("first", "a"), ("replay", "a"), ("failed", "b")] {
        let call = engine.operation("orders.create").key(key).release_errors();
        let fails = what == "failed";
        let body = async |_: &mut PgConnection, _| {
            if fails {
                Err(std::fmt::Error.into())
            } else {
                Ok(1)
            }
        };
        let answer: Result<u32, Failure> = call.in_tx(&mut conn).run(body).await;
        assert_eq!(answer.is_err(), fails, "{answer:?}");
        assert_eq!(pg_number(&mut other, open).await, 0, "{what}");
    }
}

#[derive(Debug)]
#[allow(dead_code, reason = "it is printed")]
enum Failure {
    Body(std::fmt::Error),
    Idem(Error),
}

impl From<std::fmt::Error> for Failure {
    fn from(error: std::fmt::Error) -> Self {
        Self::Body(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// Defines a trigger in PL/pgSQL that runs at the commit of the transaction.
async fn at_commit(url: &str, trigger: &str) -> PgConnection {
    let mut conn = PgConnection::connect(url).await.unwrap();
    let sql = format!(
        "CREATE TABLE orders (name text); \
         CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN {trigger}; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON orders \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()"
    );
    run(&mut conn, &sql).await;
    conn
}

async fn order(engine: &Engine, conn: &mut PgConnection) -> Result<u32, Error> {
    let call = engine.operation("orders.create").key("order-7");
    let body = async |conn: &mut PgConnection, _| {
        run(conn, "INSERT INTO orders VALUES ('mine')").await;
        Ok(1)
    };
    tokio::time::timeout(PATIENCE, call.in_tx(conn).run(body))
        .await
        .expect("a call ends, whatever the commit does")
}

/// A commit without a reply has a deadline, like every other request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_a_reply_is_unknown_in_time() {
    let url = postgres("silent_commit");
    let engine = Engine::new(store::<Postgres>(&url, PATIENCE).await);
    let mut conn = at_commit(&url, "PERFORM pg_sleep(60)").await;
    let answer = order(&engine, &mut conn).await;
    assert_eq!(kind(answer), ErrorKind::CommitUnknown);
}

/// A proxy answers for a lost server; the result of its commit is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_server_was_lost_behind_a_proxy_is_unknown() {
    let url = postgres("lost_commit");
    let engine = Engine::new(store::<Postgres>(&url, PATIENCE).await);
    let lost = "RAISE EXCEPTION 'server conn crashed?' USING ERRCODE = '08006'";
    let mut conn = at_commit(&url, lost).await;
    let answer = order(&engine, &mut conn).await;
    assert_eq!(kind(answer), ErrorKind::CommitUnknown);
}

/// A session ended by the server is handled like any other lost session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_ended_for_being_idle_costs_no_call() {
    let url = postgres("idle_session");
    let mut conn = PgConnection::connect(&url).await.unwrap();
    // Longer than the pause between two statements on a busy machine.
    let setting = "ALTER DATABASE idle_session SET idle_session_timeout = '2s'";
    run(&mut conn, setting).await;
    drop(conn);
    let store = store::<Postgres>(&url, PATIENCE).await;
    let engine = Engine::new(store);
    let mut other = PgConnection::connect(&url).await.unwrap();
    run(&mut other, "SET idle_session_timeout = 0").await;
    for key in ["a", "b"] {
        let call = engine.operation("orders.create").key(key);
        let answer: Result<u32, Error> = call.run(|_| async { Ok(1) }).await;
        assert_eq!(answer.map_err(|error| said(&error)), Ok(1));
        let other = tokio::sync::Mutex::new(&mut other);
        until("the server ends the sessions", || async {
            let sessions = "SELECT count(*) FROM pg_stat_activity \
                            WHERE datname = current_database() AND pid <> pg_backend_pid()";
            pg_number(&mut **other.lock().await, sessions).await == 0
        })
        .await;
    }
}

/// A purge meets a record that a transaction has locked. It must not wait for that lock while it holds
/// the locks of the other records that it is about to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_on_mysql_holds_up_nobody_when_it_meets_a_transaction() {
    let url = mariadb("purge");
    let store: MySqlStore = store::<MySql>(&url, Duration::from_secs(2)).await;
    let engine = Engine::new(store.clone());
    let mut conn = MySqlConnection::connect(&url).await.unwrap();
    for key in ["a", "b", "c"] {
        let call = engine.operation("orders.create").key(key);
        let answer: Result<u32, Error> = call.run(|_| async { Ok(1) }).await;
        assert_eq!(answer.unwrap(), 1);
        // They are deleted in this order.
        let expired = "UPDATE idem_records SET expires_us = \
            (SELECT n FROM (SELECT coalesce(max(expires_us) + 1, 1) AS n FROM idem_records \
             WHERE expires_us < 1000) AS x) WHERE expires_us > 1000";
        assert_eq!(run(&mut conn, expired).await, 1);
    }
    let mut tx = conn.begin().await.unwrap();
    let call = engine.operation("orders.create").key("c");
    let answer: Result<u32, Error> = call.in_tx(&mut tx).run(async |_, _| Ok(2)).await;
    assert_eq!(answer.unwrap(), 2);
    let purged = store.purge(Purge::default()).await;
    assert_eq!(purged.map_err(|error| error.to_string()), Ok(2));
    let call = engine.operation("orders.create").key("a");
    let answer: Result<u32, Error> = call.run(|_| async { Ok(2) }).await;
    assert_eq!(answer.map_err(|error| said(&error)), Ok(2));
    tx.commit().await.unwrap();
}

/// SQLite's error about a missing savepoint must not be taken for a missing table.
#[tokio::test]
async fn a_body_that_ends_the_transaction_is_not_told_to_make_a_table() {
    let dir = TestDir::new("review").expect("there is room for a file");
    let url = format!("sqlite:{}", dir.path().join("shop.db").display());
    let store = SqliteStore::connect(&url).await.expect("the file is made");
    store.migrate().await.expect("the table is made");
    let engine = Engine::new(store);
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let call = engine.operation("orders.create").key("order-7");
    let body = async |tx: &mut sqlx::SqliteTransaction<'_>, _: idem_runtime::Context| {
        run(&mut **tx, "COMMIT").await;
        Ok(1)
    };
    let answer: Result<u32, Error> = call.in_tx(&mut tx).run(body).await;
    let error = answer.expect_err("its record is out of reach");
    assert_eq!(*error.kind(), ErrorKind::TransactionAborted);
    let said = said(&error);
    assert!(!said.contains("migrate"), "{said}");
    assert!(said.contains("ended the transaction"), "{said}");
}

/// sqlx logs the text of statements, at warning level if one was slow. It must not contain
/// an answer.
#[tokio::test]
async fn no_answer_is_in_the_text_of_a_statement() {
    let server = PostgresServer::builder().setting("log_statement", "all");
    let server = tokio::task::spawn_blocking(|| server.start());
    let server = server.await.unwrap();
    let engine = Engine::new(store::<Postgres>(&server.url(), PATIENCE).await);
    let mut conn = PgConnection::connect(&server.url()).await.unwrap();
    let secret = "4111-1111-1111-1111";
    let call = engine.operation("orders.create").key("order-7");
    let answer: Result<String, Error> = call
        .in_tx(&mut conn)
        .run(async |_, _| Ok(secret.to_owned()))
        .await;
    assert_eq!(answer.unwrap(), secret);
    let mut digits = String::new();
    for byte in secret.bytes() {
        let _ = write!(digits, "{byte:02x}");
    }
    // The server logs parameters in lines of their own.
    let log = server.log();
    let (parameters, texts): (Vec<_>, Vec<_>) =
        log.lines().partition(|line| line.contains("DETAIL:"));
    let has = |lines: &[&str], what: &str| lines.iter().any(|line| line.contains(what));
    assert!(has(&texts, "UPDATE idem_records"), "{texts:#?}");
    assert!(has(&parameters, &digits), "{parameters:#?}");
    assert!(!has(&texts, &digits), "{texts:#?}");
}

/// A call that is dropped while its transaction begins must not leave that transaction open in the pool: the
/// next writes on that connection would never be committed.
#[tokio::test]
async fn a_call_that_is_dropped_at_any_poll_leaves_no_unknown_transaction_in_a_pool() {
    let url = postgres("dropped");
    let engine = Engine::new(store::<Postgres>(&url, PATIENCE).await);
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&url).await.unwrap();
    run(&pool, "CREATE TABLE others (name text)").await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    // A server may reply within a poll, and then there is no pending call to drop.
    let mut dropped = 0;
    for polls in 1..1_000 {
        let mut conn = pool.acquire().await.unwrap();
        let call = engine.operation("orders.create").key(&polls.to_string());
        let body = async |_: &mut PoolConnection<sqlx::Postgres>, _| Ok::<u32, Error>(1);
        let mut call = Box::pin(call.in_tx(&mut conn).run(body));
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
        run(&pool, "INSERT INTO others VALUES ('theirs')").await;
        let seen = pg_number(&mut other, "SELECT count(*) FROM others").await;
        assert_eq!(seen, polls, "dropped at poll {polls}");
        if let Some(answer) = done {
            assert_eq!(answer.map_err(|error| said(&error)), Ok(1));
            if dropped > 0 {
                return;
            }
        } else {
            dropped += 1;
        }
    }
    panic!("no call was dropped, or none ends");
}
