//! Both database servers as one, and a client that programs use too.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use idem_harness::{
    DatabaseServer, DatabaseServerBuilder, HANG_LIMIT, MariaDbServer, PostgresServer,
};
use sqlx::Connection as _;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

pub(crate) trait Server:
    Deref<Target = DatabaseServer> + Send + Sync + Sized + 'static
{
    type Connection: Connection;

    const SCHEME: &'static str;
    /// Log message after an unclean stop.
    const RECOVERS: &'static str;
    const IS_DURABLE: &'static str;
    const DURABLE: &'static str;
    const MAX_CONNECTIONS: &'static str;
    const DATABASE: &'static str;

    fn builder() -> DatabaseServerBuilder<Self>;
}

impl Server for PostgresServer {
    type Connection = sqlx::PgConnection;

    const SCHEME: &'static str = "postgres";
    const RECOVERS: &'static str = "not properly shut down";
    const IS_DURABLE: &'static str = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings \
         WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')";
    const DURABLE: &'static str = "fsync=on full_page_writes=on synchronous_commit=on";
    const MAX_CONNECTIONS: &'static str = "SHOW max_connections";
    const DATABASE: &'static str = "SELECT current_database()::text";

    fn builder() -> DatabaseServerBuilder<Self> {
        Self::builder()
    }
}

impl Server for MariaDbServer {
    type Connection = sqlx::MySqlConnection;

    const SCHEME: &'static str = "mysql";
    const RECOVERS: &'static str = "Starting crash recovery";
    const IS_DURABLE: &'static str = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, \
         @@innodb_flush_method <> 'nosync'";
    const DURABLE: &'static str = "1\t1\t1";
    const MAX_CONNECTIONS: &'static str = "SELECT @@max_connections";
    const DATABASE: &'static str = "SELECT database()";

    fn builder() -> DatabaseServerBuilder<Self> {
        Self::builder()
    }
}

/// A connection of sqlx, with values as text only.
pub(crate) trait Connection: Sized + Send {
    async fn open(url: &str) -> sqlx::Result<Self>;
    async fn ask(&mut self, sql: &str) -> sqlx::Result<String>;
    /// Runs a statement in one request, while `ask` prepares its statement in a separate one.
    async fn run(&mut self, sql: &str) -> sqlx::Result<()>;
}

macro_rules! connection {
    ($connection:ty) => {
        impl Connection for $connection {
            async fn open(url: &str) -> sqlx::Result<Self> {
                Self::connect(url).await
            }

            async fn ask(&mut self, sql: &str) -> sqlx::Result<String> {
                let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql));
                let value: Option<String> = query.fetch_optional(self).await?;
                Ok(value.unwrap_or_default())
            }

            async fn run(&mut self, sql: &str) -> sqlx::Result<()> {
                let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
                query.execute(self).await.map(drop)
            }
        }
    };
}
connection!(sqlx::PgConnection);
connection!(sqlx::MySqlConnection);

/// A blocking connection. Every operation ends within the [limit](HANG_LIMIT).
pub(crate) struct Client<S: Server> {
    runtime: Runtime,
    connection: Mutex<S::Connection>,
    server: PhantomData<S>,
}

impl<S: Server> Client<S> {
    pub(crate) fn new(url: &str) -> Self {
        Self::try_new(url, HANG_LIMIT).unwrap()
    }

    pub(crate) fn try_new(url: &str, patience: Duration) -> sqlx::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let opened = runtime.block_on(async { timeout(patience, S::Connection::open(url)).await });
        Ok(Self {
            connection: Mutex::new(opened.unwrap_or_else(|_| Err(too_late()))?),
            runtime,
            server: PhantomData,
        })
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        self.try_ask(sql).unwrap()
    }

    pub(crate) fn try_ask(&self, sql: &str) -> sqlx::Result<String> {
        let mut connection = self.lock();
        let asked = async { timeout(HANG_LIMIT, connection.ask(sql)).await };
        let asked = self.runtime.block_on(asked);
        asked.unwrap_or_else(|_| Err(too_late()))
    }

    pub(crate) fn try_run(&self, sql: &str) -> sqlx::Result<()> {
        let mut connection = self.lock();
        let ran = async { timeout(HANG_LIMIT, connection.run(sql)).await };
        let ran = self.runtime.block_on(ran);
        ran.unwrap_or_else(|_| Err(too_late()))
    }

    /// Queries the word `late`, which must not arrive within `silence`, but after `then`.
    pub(crate) fn ask_late(&self, sql: &str, silence: Duration, then: impl FnOnce()) {
        let mut connection = self.lock();
        let mut asked = Box::pin(connection.ask(sql));
        let early = self
            .runtime
            .block_on(async { timeout(silence, &mut asked).await });
        assert!(early.is_err(), "answered at once: {early:?}");
        then();
        let late = self
            .runtime
            .block_on(async { timeout(HANG_LIMIT, asked).await });
        assert_eq!(late.expect("an answer in the end").unwrap(), "late");
    }

    fn lock(&self) -> MutexGuard<'_, S::Connection> {
        self.connection.lock().unwrap()
    }
}

fn too_late() -> sqlx::Error {
    sqlx::Error::Io(io::ErrorKind::TimedOut.into())
}
