//! A database for each test, of each kind.

use std::future::Future;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TestDir};
use idem_runtime::credentials::CredentialsProvider;
use idem_runtime::store::sql::{Backend, MySql, Postgres, SqlStore, SqlStoreBuilder, Sqlite};
use idem_tests::shop::{PATIENCE, patiently};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};

/// An empty database; a SQLite file is deleted with the value.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    server: Option<(&'static DatabaseServer, String)>,
    _dir: Option<TestDir>,
}

impl TestDatabase {
    /// A database in the server that the tests of this process share.
    fn on(server: &'static DatabaseServer) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_database{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let url = server.create_database(&name);
        Self {
            url,
            server: Some((server, name)),
            _dir: None,
        }
    }

    /// Runs SQL without a store, and returns the first value of the first row.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        if let Some((server, name)) = &self.server {
            return server.execute_in(name, sql);
        }
        let mut conn = SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe("PRAGMA busy_timeout = 20000"))
            .execute(&mut conn)
            .await
            .unwrap();
        let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let row = rows.fetch_optional(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        row.map_or_else(String::new, |row| {
            use sqlx::Row as _;
            row.try_get::<i64, _>(0).map_or_else(
                |_| row.try_get::<String, _>(0).unwrap_or_default(),
                |number| number.to_string(),
            )
        })
    }
}

/// A lock or connection that is held until it is dropped.
pub(crate) type Held = Box<dyn Send>;

/// A kind of database.
pub(crate) trait Kind: Backend {
    fn test_database() -> TestDatabase;

    /// Inserts records that expire so many microseconds from now.
    fn filled(records: u32, expires_in_us: i64) -> String;

    /// A connection that blocks all other writers.
    async fn hold(url: &str) -> Held;
}

/// A kind of database that is a server.
pub(crate) trait Server: Kind + Sized {
    const POSTGRES: bool;

    /// A server for one test.
    fn serve(settings: &[(&str, &str)]) -> Served;

    /// A connection, if the server has one left.
    async fn connect(url: &str) -> Option<Held>;

    /// A connection that has executed this.
    async fn hold_by(url: &str, sql: &'static str) -> Held;

    /// The settings of a store with this provider.
    fn provided(
        store: SqlStoreBuilder<Self>,
        provider: CredentialsProvider,
    ) -> SqlStoreBuilder<Self>;
}

#[derive(Debug)]
pub(crate) enum Served {
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

impl Deref for Served {
    type Target = DatabaseServer;

    fn deref(&self) -> &DatabaseServer {
        match self {
            Self::Postgres(server) => server,
            Self::MariaDb(server) => server,
        }
    }
}

async fn holding<C: Connection + Send + 'static>(url: &str, sql: &'static str) -> Held
where
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
{
    let mut conn = C::connect(url).await.unwrap();
    conn.execute(sqlx::raw_sql(sql)).await.unwrap();
    Box::new(conn)
}

impl Kind for Sqlite {
    fn test_database() -> TestDatabase {
        let dir = TestDir::new("sqlite").unwrap();
        TestDatabase {
            url: format!("sqlite:{}", dir.path().join("records.db").display()),
            server: None,
            _dir: Some(dir),
        }
    }

    fn filled(records: u32, expires_in_us: i64) -> String {
        let expires = format!("unixepoch() * 1000000 + {expires_in_us}");
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {records}) \
             INSERT INTO idem_records SELECT randomblob(32), 'filled', 50, 'D', zeroblob(16), 1, 1, 0, \
             1000, zeroblob(20), x'01', {expires}, 1 FROM n"
        )
    }

    async fn hold(url: &str) -> Held {
        holding::<SqliteConnection>(url, "BEGIN IMMEDIATE").await
    }
}

impl Kind for Postgres {
    fn test_database() -> TestDatabase {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        TestDatabase::on(SERVER.get_or_init(PostgresServer::start))
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

    async fn hold(url: &str) -> Held {
        holding::<PgConnection>(url, "BEGIN; LOCK TABLE idem_records").await
    }
}

impl Server for Postgres {
    const POSTGRES: bool = true;

    fn serve(settings: &[(&str, &str)]) -> Served {
        let server = settings
            .iter()
            .fold(PostgresServer::builder(), |server, (name, value)| {
                server.setting(*name, *value)
            });
        Served::Postgres(server.start())
    }

    async fn connect(url: &str) -> Option<Held> {
        Some(Box::new(PgConnection::connect(url).await.ok()?))
    }

    async fn hold_by(url: &str, sql: &'static str) -> Held {
        holding::<PgConnection>(url, sql).await
    }

    fn provided(
        store: SqlStoreBuilder<Self>,
        provider: CredentialsProvider,
    ) -> SqlStoreBuilder<Self> {
        store.credentials(provider)
    }
}

impl Kind for MySql {
    fn test_database() -> TestDatabase {
        static SERVER: OnceLock<MariaDbServer> = OnceLock::new();
        TestDatabase::on(SERVER.get_or_init(MariaDbServer::start))
    }

    fn filled(records: u32, expires_in_us: i64) -> String {
        let expires = format!("unix_timestamp() * 1000000 + {expires_in_us}");
        format!(
            "INSERT INTO idem_records SELECT unhex(sha2(concat(uuid(), seq), 256)), 'filled', 50, 'D', \
             repeat('\\0', 16), 1, 1, 0, 1000, repeat('\\0', 20), 'a', {expires}, 1 \
             FROM seq_1_to_{records}"
        )
    }

    async fn hold(url: &str) -> Held {
        holding::<MySqlConnection>(url, "LOCK TABLES idem_records WRITE").await
    }
}

impl Server for MySql {
    const POSTGRES: bool = false;

    fn serve(settings: &[(&str, &str)]) -> Served {
        let server = settings
            .iter()
            .fold(MariaDbServer::builder(), |server, (name, value)| {
                server.setting(*name, *value)
            });
        Served::MariaDb(server.start())
    }

    async fn connect(url: &str) -> Option<Held> {
        Some(Box::new(MySqlConnection::connect(url).await.ok()?))
    }

    async fn hold_by(url: &str, sql: &'static str) -> Held {
        holding::<MySqlConnection>(url, sql).await
    }

    fn provided(
        store: SqlStoreBuilder<Self>,
        provider: CredentialsProvider,
    ) -> SqlStoreBuilder<Self> {
        store.credentials(provider)
    }
}

/// A store with its table. Its deadlines suit a busy machine.
pub(crate) async fn open<B: Kind>(url: &str) -> SqlStore<B> {
    open_with(url, |builder| builder).await
}

/// A database, and a store with its table.
pub(crate) async fn opened<B: Kind>() -> (TestDatabase, SqlStore<B>) {
    let test_database = B::test_database();
    let store = open(&test_database.url).await;
    (test_database, store)
}

/// A server, and a store with its table.
pub(crate) async fn served<B: Server>() -> (Served, SqlStore<B>) {
    let server = B::serve(&[]);
    let store = open(&server.url()).await;
    (server, store)
}

/// A store with its table, and with settings.
pub(crate) fn open_with<B: Kind>(
    url: &str,
    settings: impl FnOnce(SqlStoreBuilder<B>) -> SqlStoreBuilder<B>,
) -> impl Future<Output = SqlStore<B>> {
    let builder = settings(SqlStore::builder(url).response_timeout(PATIENCE));
    async move {
        let store = builder.connect().await.unwrap();
        store.migrate().await.unwrap();
        store
    }
}

/// A store with the response time-out `soon`, on an existing table. A busy machine may delay its first connection.
pub(crate) async fn open_hasty<B: Kind>(
    url: &str,
    soon: Duration,
    settings: impl Fn(SqlStoreBuilder<B>) -> SqlStoreBuilder<B>,
) -> SqlStore<B> {
    open::<B>(url).await;
    let connecting = async {
        loop {
            let builder = settings(SqlStore::builder(url).response_timeout(soon));
            match builder.connect().await {
                Ok(store) => return store,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    patiently("the store connects", connecting).await
}

/// Runs each named test on every database, and those after the semicolon on every server:
/// `sqlite::name`, `postgres::name` and `mariadb::name`.
macro_rules! on_each_database {
    ($($name:ident),* $(; $($server:ident),+)? $(,)?) => {
        $crate::test_database::on!(sqlite, Sqlite: $($name)*);
        $crate::test_database::on!(postgres, Postgres: $($name)* $($($server)+)?);
        $crate::test_database::on!(mariadb, MySql: $($name)* $($($server)+)?);
    };
}

/// Runs each named test on every server.
macro_rules! on_each_server {
    ($($name:ident),* $(,)?) => {
        $crate::test_database::on!(postgres, Postgres: $($name)*);
        $crate::test_database::on!(mariadb, MySql: $($name)*);
    };
}

macro_rules! on {
    ($module:ident, $kind:ident: $($name:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<idem_runtime::store::sql::$kind>().await;
                }
            )*
        }
    };
}

pub(crate) use {on, on_each_database, on_each_server};
