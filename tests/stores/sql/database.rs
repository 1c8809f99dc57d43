//! The three databases, their relevant differences, and an empty one per test.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TestDir};
use idem_runtime::credentials::CredentialsProvider;
use idem_runtime::store::sql::{Backend, MySql, Postgres, SqlStoreBuilder, SqlTransaction, Sqlite};
use idem_tests::orders::{
    self,
    database::{Database as _, InMariaDb, InPostgres, InSqlite},
};
use idem_tests::shop::patiently;
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};
use sqlx::{Pool, SqliteConnection, Transaction};

/// The way in which a case runs SQL.
pub(crate) trait Sql {
    /// Runs a statement without a result.
    async fn run(&mut self, sql: &str) -> Result<(), String>;

    /// The number that a query returns.
    async fn count(&mut self, sql: &str) -> i64;
}

/// A kind of database.
pub(crate) trait Database: Backend + Copy {
    /// Its statements and rows.
    type Plain: orders::database::Database<Driver = Self::Driver, Connection = Self::Conn>;
    type Driver: sqlx::Database<Connection = Self::Conn>;
    type Conn: Sql + SqlTransaction + Connection<Database = Self::Driver>;
    type Pooled: SqlTransaction + DerefMut<Target = Self::Conn> + From<PoolConnection<Self::Driver>>;
    type Tx: SqlTransaction
        + DerefMut<Target = Self::Conn>
        + From<Transaction<'static, Self::Driver>>
        + Into<Transaction<'static, Self::Driver>>;

    /// Number of sessions that wait for a lock; `None` for a file.
    const WAITING: Option<&'static str>;
    /// The session's setting for lock waits.
    const SETTING: &'static str;
    /// The codes of errors after a collision.
    const COLLISIONS: &'static [&'static str];
    /// The statements that begin a transaction of each level.
    const LEVELS: &'static [&'static str];
    /// Settings of a session that change the meaning of a text.
    const DIALECTS: &'static [&'static str];
    /// Texts that end a transaction, some by failing, with their effects.
    const ENDS: &'static [(&'static str, bool)];
    /// A body of 15 MB, which no server refuses by default.
    const LARGE: &'static str;

    /// The server that the tests of this process share; `None` for files.
    fn shared() -> Option<&'static DatabaseServer>;
    /// Inserts records that expire so many microseconds from now.
    fn filled(records: u32, expires_in_us: i64) -> String;
    /// Whether this is the error of a transaction that collided with another.
    fn collides(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(DatabaseError::code);
        Self::COLLISIONS.contains(&&*code.unwrap_or_default())
    }

    fn begin(
        pool: &Pool<Self::Driver>,
        level: &'static str,
    ) -> impl Future<Output = sqlx::Result<Self::Tx>> + Send {
        async move { pool.begin_with(level).await.map(Self::Tx::from) }
    }

    /// Like `begin`, with the statement of sqlx: a savepoint where it counts a transaction.
    fn begin_plain(
        pool: &Pool<Self::Driver>,
    ) -> impl Future<Output = sqlx::Result<Self::Tx>> + Send {
        async move { pool.begin().await.map(Self::Tx::from) }
    }

    fn acquire(
        pool: &Pool<Self::Driver>,
    ) -> impl Future<Output = sqlx::Result<Self::Pooled>> + Send {
        async move { pool.acquire().await.map(Self::Pooled::from) }
    }

    fn commit(tx: Self::Tx) -> impl Future<Output = sqlx::Result<()>> + Send {
        async move { tx.into().commit().await }
    }

    fn rollback(tx: Self::Tx) -> impl Future<Output = sqlx::Result<()>> + Send {
        async move { tx.into().rollback().await }
    }

    /// Runs statements. Returns the number of rows that the last one changed, and other results.
    fn execute<'c>(
        conn: &'c mut Self::Conn,
        sql: &str,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send + 'c {
        Self::Plain::change(conn, sql.to_owned())
    }

    /// The number in the first column of the only row.
    fn number<'c>(
        conn: &'c mut Self::Conn,
        sql: &str,
    ) -> impl Future<Output = sqlx::Result<i64>> + Send + 'c {
        let rows = Self::Plain::rows(conn, sql.to_owned());
        async move { rows.await.map(|rows| rows[0][0]) }
    }

    /// A connection that has executed this, if the database has one left.
    async fn connection_after(url: &str, sql: &str) -> Option<Self::Conn> {
        let mut conn = Self::Conn::connect(url).await.ok()?;
        Self::execute(&mut conn, sql).await.unwrap();
        Some(conn)
    }

    /// A connection that blocks all other writers of a file.
    async fn hold(url: &str) -> Self::Conn {
        let begins = Self::connection_after(url, "BEGIN IMMEDIATE");
        begins.await.unwrap()
    }
}

/// A kind of database that is a server.
pub(crate) trait Server: Database {
    const POSTGRES: bool;
    /// The id of the connection's session.
    const SESSION_ID: &'static str;
    /// Number of sessions with the id `{}`.
    const SESSIONS: &'static str;
    /// Makes the server end a session that is idle in its transaction.
    const END_WHEN_IDLE: &'static str;
    /// Makes the server log every statement; see [`Server::statements`].
    const LOGS: &'static [(&'static str, &'static str)];

    /// The statement that ends a session.
    fn end_session(id: i64) -> String;
    /// A server for one test.
    fn serve(settings: &[(&str, &str)]) -> Served;
    /// The statements that stores have sent to a server with [`Server::LOGS`].
    fn statements(server: &DatabaseServer) -> Vec<String>;
    /// The settings of a store with this provider.
    fn provided(
        store: SqlStoreBuilder<Self>,
        provider: CredentialsProvider,
    ) -> SqlStoreBuilder<Self>;
}

/// A server of one test.
pub(crate) type Served = Box<dyn Deref<Target = DatabaseServer> + Send + Sync>;

macro_rules! types {
    ($plain:ident $driver:ident $conn:ident) => {
        type Plain = $plain;
        type Driver = sqlx::$driver;
        type Conn = $conn;
        type Pooled = PoolConnection<sqlx::$driver>;
        type Tx = Transaction<'static, sqlx::$driver>;
    };
}

macro_rules! server {
    ($name:ident, $server:ident { $($own:tt)* }) => {
        impl Server for $name {
            $($own)*

            fn serve(settings: &[(&str, &str)]) -> Served {
                let server = settings.iter();
                let server = server.fold($server::builder(), |server, (name, value)| {
                    server.setting(*name, *value)
                });
                Box::new(server.start())
            }

            fn provided(store: SqlStoreBuilder<Self>, provider: CredentialsProvider) -> SqlStoreBuilder<Self> {
                store.credentials(provider)
            }
        }
    };
}

impl Database for Sqlite {
    types!(InSqlite Sqlite SqliteConnection);

    const WAITING: Option<&'static str> = None;
    const SETTING: &'static str = "SELECT timeout FROM pragma_busy_timeout";
    const COLLISIONS: &'static [&'static str] = &["5", "261", "517"];
    const LEVELS: &'static [&'static str] = &["BEGIN", "BEGIN IMMEDIATE"];
    const DIALECTS: &'static [&'static str] = &["PRAGMA case_sensitive_like = on"];
    const ENDS: &'static [(&'static str, bool)] = &[
        ("ROLLBACK", false),
        ("COMMIT", true),
        (
            "INSERT OR ROLLBACK INTO shelves VALUES ('one', 1), ('one', 1)",
            false,
        ),
        (
            "CREATE TEMP TRIGGER rules BEFORE INSERT ON shelves \
             BEGIN SELECT RAISE(ROLLBACK, 'forbidden'); END; INSERT INTO shelves VALUES ('one', 1)",
            false,
        ),
        // One row, because a statement that may write several is undone alone when the file is full.
        (
            "PRAGMA max_page_count = 1; INSERT INTO orders VALUES (hex(randomblob(1000000)))",
            false,
        ),
    ];
    const LARGE: &'static str = "zeroblob(15000000)";

    fn shared() -> Option<&'static DatabaseServer> {
        None
    }

    fn filled(records: u32, expires_in_us: i64) -> String {
        let expires = format!("unixepoch() * 1000000 + {expires_in_us}");
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {records}) \
             INSERT INTO idem_records SELECT randomblob(32), 'filled', 50, 'D', zeroblob(16), 1, 1, 0, \
             1000, zeroblob(20), x'01', {expires}, 1 FROM n"
        )
    }
}

impl Database for Postgres {
    types!(InPostgres Postgres PgConnection);

    const WAITING: Option<&'static str> = Some(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    const SETTING: &'static str =
        "SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout'";
    const COLLISIONS: &'static [&'static str] = &["40001", "40P01"];
    const LEVELS: &'static [&'static str] = &[
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
    ];
    const DIALECTS: &'static [&'static str] = &[
        "SET standard_conforming_strings = off",
        "SET bytea_output = 'escape'",
        "SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'iso_8601'",
        "SET default_transaction_isolation = 'serializable'",
    ];
    const ENDS: &'static [(&'static str, bool)] = &[("ROLLBACK", false), ("COMMIT", true)];
    const LARGE: &'static str = "decode(repeat('5a', 15000000), 'hex')";

    fn shared() -> Option<&'static DatabaseServer> {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        Some(SERVER.get_or_init(PostgresServer::start))
    }

    fn filled(records: u32, expires_in_us: i64) -> String {
        let expires = format!("extract(epoch FROM now())::bigint * 1000000 + {expires_in_us}");
        format!(
            "INSERT INTO idem_records SELECT sha256(gen_random_uuid()::text::bytea), 'filled', 50, 'D', \
             '\\x00000000000000000000000000000000', 1, 1, 0, 1000, \
             '\\x0000000000000000000000000000000000000000', '\\x01', {expires}, 1 \
             FROM generate_series(1, {records})"
        )
    }
}

server!(Postgres, PostgresServer {
    const POSTGRES: bool = true;
    const SESSION_ID: &'static str = "SELECT pg_backend_pid()::bigint";
    const SESSIONS: &'static str = "SELECT count(*) FROM pg_stat_activity WHERE pid = {}";
    const END_WHEN_IDLE: &'static str = "SET idle_in_transaction_session_timeout = 1";
    const LOGS: &'static [(&'static str, &'static str)] = &[("log_statement", "all")];

    fn end_session(id: i64) -> String {
        format!("SELECT pg_terminate_backend({id})")
    }

    fn statements(server: &DatabaseServer) -> Vec<String> {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("LOG:  "));
        let sent = [" execute ", " statement: "];
        let lines = lines.filter(|line| sent.iter().any(|how| line.contains(how)));
        lines.map(str::to_owned).collect()
    }
});

impl Database for MySql {
    types!(InMariaDb MySql MySqlConnection);

    const WAITING: Option<&'static str> = Some(
        "SELECT count(*) FROM information_schema.innodb_trx t \
         JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
         WHERE t.trx_state = 'LOCK WAIT' AND p.db = database()",
    );
    const SETTING: &'static str = "SELECT CAST(@@innodb_lock_wait_timeout AS SIGNED)";
    const COLLISIONS: &'static [&'static str] = &["40001"];
    const LEVELS: &'static [&'static str] = &[
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN",
    ];
    const DIALECTS: &'static [&'static str] = &[
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET sql_mode = 'ANSI_QUOTES'",
        "SET sql_mode = 'ANSI'",
        "SET sql_mode = 'TRADITIONAL'",
        "SET sql_mode = ''",
        "SET sql_mode = 'EMPTY_STRING_IS_NULL,PIPES_AS_CONCAT'",
        "SET sql_mode = 'IGNORE_SPACE,HIGH_NOT_PRECEDENCE,SIMULTANEOUS_ASSIGNMENT,PAD_CHAR_TO_FULL_LENGTH'",
        "SET sql_safe_updates = 1, sql_auto_is_null = 1, div_precision_increment = 0",
        "SET NAMES latin1",
        "SET time_zone = '+09:00'",
        "SET collation_connection = 'utf8mb4_bin'",
        "SET autocommit = 0",
    ];
    const ENDS: &'static [(&'static str, bool)] = &[
        ("ROLLBACK", false),
        ("COMMIT", true),
        ("CREATE TABLE extra (number BIGINT)", true),
    ];
    const LARGE: &'static str = "REPEAT('Z', 15000000)";

    fn shared() -> Option<&'static DatabaseServer> {
        static SERVER: OnceLock<MariaDbServer> = OnceLock::new();
        Some(SERVER.get_or_init(MariaDbServer::start))
    }

    fn filled(records: u32, expires_in_us: i64) -> String {
        let expires = format!("unix_timestamp() * 1000000 + {expires_in_us}");
        format!(
            "INSERT INTO idem_records SELECT unhex(sha2(concat(uuid(), seq), 256)), 'filled', 50, 'D', \
             repeat('\\0', 16), 1, 1, 0, 1000, repeat('\\0', 20), 'a', {expires}, 1 \
             FROM seq_1_to_{records}"
        )
    }
}

server!(MySql, MariaDbServer {
    const POSTGRES: bool = false;
    const SESSION_ID: &'static str = "SELECT CAST(connection_id() AS SIGNED)";
    const SESSIONS: &'static str =
        "SELECT count(*) FROM information_schema.processlist WHERE id = {}";
    const END_WHEN_IDLE: &'static str = "SET idle_transaction_timeout = 1";
    const LOGS: &'static [(&'static str, &'static str)] =
        &[("general-log", "1"), ("log-output", "TABLE")];

    fn end_session(id: i64) -> String {
        format!("KILL CONNECTION {id}")
    }

    fn statements(server: &DatabaseServer) -> Vec<String> {
        let log = server.execute(
            "SELECT concat(thread_id, ' ', command_type, ' ', argument) FROM mysql.general_log \
             WHERE argument LIKE '%idem_records%' AND argument NOT LIKE '%general_log%' \
             AND command_type IN ('Query', 'Execute')",
        );
        log.lines().map(str::to_owned).collect()
    }
});

macro_rules! sqlx_connections {
    ($($Db:ident $Connection:ident),*) => {
        $(
            impl Sql for $Connection {
                async fn run(&mut self, sql: &str) -> Result<(), String> {
                    let done = $Db::execute(self, sql).await;
                    done.map(drop).map_err(|error| error.to_string())
                }

                async fn count(&mut self, sql: &str) -> i64 {
                    $Db::number(self, sql).await.expect("the database is up")
                }
            }
        )*
    };
}

sqlx_connections!(MySql MySqlConnection, Postgres PgConnection, Sqlite SqliteConnection);

/// An empty database; a file is deleted with the value.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    server: Option<(&'static DatabaseServer, String)>,
    _dir: Option<TestDir>,
}

impl TestDatabase {
    pub(crate) fn new<D: Database>() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if let Some(server) = D::shared() {
            let name = format!("test_database{}", NEXT.fetch_add(1, Ordering::Relaxed));
            let url = server.create_database(&name);
            return Self {
                url,
                server: Some((server, name)),
                _dir: None,
            };
        }
        let dir = TestDir::new("sqlite").unwrap();
        Self {
            url: format!("sqlite:{}", dir.path().join("records.db").display()),
            server: None,
            _dir: Some(dir),
        }
    }

    /// The path of a file.
    pub(crate) fn path(&self) -> &str {
        self.url.strip_prefix("sqlite:").unwrap()
    }

    /// Waits until a query returns this.
    pub(crate) async fn until(&self, value: &str, sql: &str) {
        let polling = async {
            while self.sql(sql).await != value {
                tokio::task::yield_now().await;
            }
        };
        patiently(sql, polling).await;
    }

    /// Runs SQL beside the store, and returns the first row's first value.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        if let Some((server, name)) = &self.server {
            return server.execute_in(name, sql);
        }
        let waits = "PRAGMA busy_timeout = 20000";
        let mut conn = Sqlite::connection_after(&self.url, waits).await.unwrap();
        let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let row = rows.fetch_optional(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        row.map_or_else(String::new, |row| {
            row.try_get::<i64, _>(0).map_or_else(
                |_| row.try_get::<String, _>(0).unwrap_or_default(),
                |number| number.to_string(),
            )
        })
    }
}

/// Runs each named test on every database: `sqlite::name`, `postgres::name` and `mariadb::name`.
macro_rules! on_each_database {
    ($($name:ident),+ $(,)?) => {
        on!(sqlite Sqlite: $($name)+);
        on!(postgres Postgres: $($name)+);
        on!(mariadb MySql: $($name)+);
    };
}

/// Runs each named test by every other client than sqlx: `tokio_postgres::name`.
macro_rules! on_each_other_client {
    ($($name:ident),+ $(,)?) => {
        on_each_other_client_of_a_server!($($name),+);
        by!(sea_orm_sqlite SeaSqlite: $($name)+);
    };
}

/// Runs each named test by every other client of a server.
macro_rules! on_each_other_client_of_a_server {
    ($($name:ident),+ $(,)?) => {
        by!(bb8_postgres Bb8Postgres: $($name)+);
        by!(deadpool_postgres DeadpoolPostgres: $($name)+);
        by!(tokio_postgres TokioPostgres: $($name)+);
        by!(mysql_async MySqlAsyncClient: $($name)+);
        by!(diesel_mysql DieselMySqlClient: $($name)+);
        by!(diesel_postgres DieselPostgresClient: $($name)+);
        by!(sea_orm_postgres SeaPostgres: $($name)+);
        by!(sea_orm_mariadb SeaMySql: $($name)+);
    };
}

/// As `on_each_other_client_of_a_server`, by clients that count transactions, so that idem begins one.
macro_rules! on_each_counting_client {
    ($($name:ident),+ $(,)?) => {
        by!(bb8_postgres Bb8Postgres: $($name)+);
        by!(diesel_mysql DieselMySqlClient: $($name)+);
        by!(diesel_postgres DieselPostgresClient: $($name)+);
    };
}

/// Runs each named test by one client.
macro_rules! by {
    ($module:ident $client:ident: $($name:ident)+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<crate::transactions::clients::$client>().await;
                }
            )+
        }
    };
}

/// Runs each named test on every server: `servers::postgres::name` and `servers::mariadb::name`.
macro_rules! on_each_server {
    ($($name:ident),+ $(,)?) => {
        mod servers {
            use super::*;
            on!(postgres Postgres: $($name)+);
            on!(mariadb MySql: $($name)+);
        }
    };
}

/// Runs each named test on one database.
macro_rules! on {
    ($module:ident $kind:ident: $($name:ident)+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<idem_runtime::store::sql::$kind>().await;
                }
            )+
        }
    };
}
