//! The three databases, and the differences between them that the cases depend on.

use std::fmt::Debug;
use std::future::Future;
use std::ops::DerefMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TestDir};
use idem_runtime::store::sql::{Backend, MySql, Postgres, SqlTransaction, Sqlite};
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row};
use sqlx::{Pool, SqliteConnection, Transaction};

/// A database that the cases run on. The SQL is the same on all of them except for these items.
pub(crate) trait Database: Debug + Clone + Copy + Send + Sync + Sized + 'static {
    type Backend: Backend + Debug;
    type Db: sqlx::Database<Connection = Self::Conn>;
    type Conn: SqlTransaction + Connection<Database = Self::Db> + Send;
    type Pooled: SqlTransaction + DerefMut<Target = Self::Conn> + Send;
    type Tx: SqlTransaction + DerefMut<Target = Self::Conn> + Send;

    /// Number of sessions that wait for a lock; `None` for a file.
    const WAITING: Option<&'static str>;
    /// The session's setting for lock waits, as a text.
    const SETTING: Option<&'static str>;
    /// Changes that setting for the session.
    const SET_SESSION: Option<&'static str>;
    /// Changes that setting for the transaction alone.
    const SET_LOCAL: Option<&'static str>;
    /// The id of the connection's session.
    const SESSION: &'static str;
    /// The codes of errors after a collision.
    const COLLISIONS: &'static [&'static str];
    /// The statements that begin a transaction of each level.
    const LEVELS: &'static [&'static str];

    /// The server of this process. None for files.
    fn server() -> Option<&'static DatabaseServer>;
    /// Lets another transaction be the victim of a deadlock.
    const SURVIVE_DEADLOCKS: Option<&'static str>;
    /// Settings of a session that change the meaning of a text.
    const DIALECTS: &'static [&'static str];
    /// Number of sessions with the id `{}`.
    const SESSIONS: Option<&'static str>;

    /// Whether making a table commits.
    const TABLES_COMMIT: bool;
    /// Whether only a rollback can follow a failed statement.
    const ERRORS_ABORT: bool;
    /// Makes the server end a session that is idle in its transaction.
    const END_WHEN_IDLE: Option<&'static str>;

    /// The statement that ends a session.
    fn end_session(id: i64) -> String;
    /// Whether this is the error of a transaction that collided with another.
    fn collides(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(DatabaseError::code);
        Self::COLLISIONS.contains(&&*code.unwrap_or_default())
    }
    fn options(url: &str) -> <Self::Conn as Connection>::Options;

    fn begin(
        pool: &Pool<Self::Db>,
        level: &'static str,
    ) -> impl Future<Output = Result<Self::Tx, sqlx::Error>> + Send;
    /// Like `begin`, with the statement of sqlx: a savepoint where it counts a transaction.
    fn begin_plain(
        pool: &Pool<Self::Db>,
    ) -> impl Future<Output = Result<Self::Tx, sqlx::Error>> + Send;
    fn acquire(
        pool: &Pool<Self::Db>,
    ) -> impl Future<Output = Result<Self::Pooled, sqlx::Error>> + Send;
    fn commit(tx: Self::Tx) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    fn rollback(tx: Self::Tx) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Runs statements. Returns the number of rows that the last one changed, and other results.
    fn execute<'c>(
        conn: &'c mut Self::Conn,
        sql: &str,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send + 'c;
    /// The number in the first column of the only row.
    fn number<'c>(
        conn: &'c mut Self::Conn,
        sql: &str,
    ) -> impl Future<Output = Result<i64, sqlx::Error>> + Send + 'c;
    /// The text in the first column of the only row.
    fn text<'c>(
        conn: &'c mut Self::Conn,
        sql: &str,
    ) -> impl Future<Output = Result<String, sqlx::Error>> + Send + 'c;
}

macro_rules! database {
    ($name:ident, $db:ident, $conn:ident { $($own:tt)* }) => {
        impl Database for $name {
            type Backend = Self;
            type Db = sqlx::$db;
            type Conn = $conn;
            type Pooled = PoolConnection<sqlx::$db>;
            type Tx = Transaction<'static, sqlx::$db>;

            $($own)*

            fn options(url: &str) -> <Self::Conn as Connection>::Options {
                url.parse().expect("the URL is ours")
            }

            async fn begin(pool: &Pool<Self::Db>, level: &'static str) -> Result<Self::Tx, sqlx::Error> {
                pool.begin_with(level).await
            }

            async fn begin_plain(pool: &Pool<Self::Db>) -> Result<Self::Tx, sqlx::Error> {
                pool.begin().await
            }

            async fn acquire(pool: &Pool<Self::Db>) -> Result<Self::Pooled, sqlx::Error> {
                pool.acquire().await
            }

            async fn commit(tx: Self::Tx) -> Result<(), sqlx::Error> {
                tx.commit().await
            }

            async fn rollback(tx: Self::Tx) -> Result<(), sqlx::Error> {
                tx.rollback().await
            }

            fn execute<'c>(
                conn: &'c mut $conn,
                sql: &str,
            ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send + 'c {
                let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
                async move { Ok(conn.execute(sql).await?.rows_affected()) }
            }

            fn number<'c>(
                conn: &'c mut $conn,
                sql: &str,
            ) -> impl Future<Output = Result<i64, sqlx::Error>> + Send + 'c {
                let sql = sqlx::query(AssertSqlSafe(sql.to_owned()));
                async move { conn.fetch_one(sql).await?.try_get(0) }
            }

            fn text<'c>(
                conn: &'c mut $conn,
                sql: &str,
            ) -> impl Future<Output = Result<String, sqlx::Error>> + Send + 'c {
                let sql = sqlx::query(AssertSqlSafe(sql.to_owned()));
                async move { conn.fetch_one(sql).await?.try_get(0) }
            }
        }
    };
}

database!(Sqlite, Sqlite, SqliteConnection {
    const WAITING: Option<&'static str> = None;
    const SETTING: Option<&'static str> =
        Some("SELECT CAST(timeout AS TEXT) FROM pragma_busy_timeout");
    const SET_SESSION: Option<&'static str> = Some("PRAGMA busy_timeout = 7700");
    const SET_LOCAL: Option<&'static str> = None;
    const SURVIVE_DEADLOCKS: Option<&'static str> = None;
    const SESSIONS: Option<&'static str> = None;
    const DIALECTS: &'static [&'static str] = &["PRAGMA case_sensitive_like = on"];
    const TABLES_COMMIT: bool = false;
    const ERRORS_ABORT: bool = false;
    const END_WHEN_IDLE: Option<&'static str> = None;
    const SESSION: &'static str = "SELECT 0";
    const COLLISIONS: &'static [&'static str] = &["5", "261", "517"];
    const LEVELS: &'static [&'static str] = &["BEGIN", "BEGIN IMMEDIATE"];

    fn server() -> Option<&'static DatabaseServer> {
        None
    }

    fn end_session(_: i64) -> String {
        unreachable!("SQLite has no sessions")
    }
});

database!(Postgres, Postgres, PgConnection {
    const WAITING: Option<&'static str> = Some(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    const SETTING: Option<&'static str> = Some("SELECT current_setting('lock_timeout')");
    const SET_SESSION: Option<&'static str> = Some("SET lock_timeout = '77s'");
    const SET_LOCAL: Option<&'static str> = Some("SET LOCAL lock_timeout = '88s'");
    const SURVIVE_DEADLOCKS: Option<&'static str> = Some("SET LOCAL deadlock_timeout = '1h'");
    const SESSIONS: Option<&'static str> =
        Some("SELECT count(*) FROM pg_stat_activity WHERE pid = {}");
    const DIALECTS: &'static [&'static str] = &[
        "SET standard_conforming_strings = off",
        "SET bytea_output = 'escape'",
        "SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'iso_8601'",
        "SET default_transaction_isolation = 'serializable'",
    ];
    const TABLES_COMMIT: bool = false;
    const ERRORS_ABORT: bool = true;
    const END_WHEN_IDLE: Option<&'static str> = Some("SET idle_in_transaction_session_timeout = 1");
    const SESSION: &'static str = "SELECT pg_backend_pid()::bigint";
    const COLLISIONS: &'static [&'static str] = &["40001", "40P01"];
    const LEVELS: &'static [&'static str] = &[
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
    ];

    fn server() -> Option<&'static DatabaseServer> {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        Some(SERVER.get_or_init(PostgresServer::start))
    }

    fn end_session(id: i64) -> String {
        format!("SELECT pg_terminate_backend({id})")
    }
});

database!(MySql, MySql, MySqlConnection {
    const WAITING: Option<&'static str> = Some(
        "SELECT count(*) FROM information_schema.innodb_trx t \
         JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
         WHERE t.trx_state = 'LOCK WAIT' AND p.db = database()",
    );
    const SETTING: Option<&'static str> =
        Some("SELECT CAST(@@innodb_lock_wait_timeout AS CHAR)");
    const SET_SESSION: Option<&'static str> = Some("SET innodb_lock_wait_timeout = 77");
    const SET_LOCAL: Option<&'static str> = None;
    // The victim is the transaction that has written less.
    const SURVIVE_DEADLOCKS: Option<&'static str> = None;
    const SESSIONS: Option<&'static str> =
        Some("SELECT count(*) FROM information_schema.processlist WHERE id = {}");
    const DIALECTS: &'static [&'static str] = &[
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET sql_mode = 'ANSI_QUOTES'",
        "SET sql_mode = 'ANSI'",
        "SET sql_mode = 'TRADITIONAL'",
        "SET sql_mode = ''",
        "SET NAMES latin1",
        "SET time_zone = '+09:00'",
        "SET collation_connection = 'utf8mb4_bin'",
        "SET autocommit = 0",
    ];
    const TABLES_COMMIT: bool = true;
    const ERRORS_ABORT: bool = false;
    const END_WHEN_IDLE: Option<&'static str> = Some("SET idle_transaction_timeout = 1");
    const SESSION: &'static str = "SELECT CAST(connection_id() AS SIGNED)";
    const COLLISIONS: &'static [&'static str] = &["40001"];
    const LEVELS: &'static [&'static str] = &[
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN",
    ];

    fn server() -> Option<&'static DatabaseServer> {
        static SERVER: OnceLock<MariaDbServer> = OnceLock::new();
        Some(SERVER.get_or_init(MariaDbServer::start))
    }

    fn end_session(id: i64) -> String {
        format!("KILL CONNECTION {id}")
    }
});

/// An empty database, which lives as long as the value.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    _dir: Option<TestDir>,
}

impl Place {
    pub(crate) fn new<D: Database>() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        if let Some(server) = D::server() {
            return Self {
                url: server.create_database(&format!("case_{number}")),
                _dir: None,
            };
        }
        let dir = TestDir::new("transactions").expect("there is room for a file");
        let file = dir.path().join("shop.db");
        Self {
            url: format!("sqlite:{}", file.display()),
            _dir: Some(dir),
        }
    }
}
