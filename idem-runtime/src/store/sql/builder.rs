//! Settings of a SQL store.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::backend::Backend;
use super::failure::store_error;
use super::hit_rate::HitRate;
use super::login::Login;
use super::pool::{ConnectionPool, Sending};
use super::source::{IntoSqlSource, SqlSource};
#[cfg(feature = "_sqlite")]
use super::sqlite::group_commit::GroupCommit;
use super::state::{SqlStore, SqlStoreState};
use super::statement_texts::Statements;
use crate::env::credentials::CredentialsProvider;
use crate::record::HEADER;
use crate::store::server_clock::ServerClock;
use crate::store::{StoreError, StoreErrorKind};

/// The longest arguments of a batch of claims or completions, in bytes.
///
/// No call of it has a value of 64 KiB, which MariaDB takes for an empty one where it stands in a `UNION`.
const BATCH_BYTES: usize = 1 << 20;

/// The name of the table in the files of `migrations`.
const TABLE: &str = "idem_records";

/// Configures a SQL store.
#[must_use = "a builder does nothing until it connects"]
pub struct SqlStoreBuilder<B: Backend> {
    source: SqlSource<B>,
    table: String,
    connections: usize,
    response_timeout: Duration,
    credentials: Option<CredentialsProvider>,
    /// `None`: as the client does.
    named_statements: Option<bool>,
    max_record_bytes: usize,
}

debug_fields!([B: Backend] SqlStoreBuilder<B> { table, connections, response_timeout });

impl<B: Backend> SqlStore<B> {
    /// Connects with the default settings.
    ///
    /// The source is a URL, or the options of a pool of the application. See [`SqlSource`].
    ///
    /// # Errors
    ///
    /// As [`SqlStoreBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(source: impl IntoSqlSource<B>) -> Result<Self, StoreError> {
        Self::builder(source).connect().await
    }

    /// Configures a store.
    pub fn builder(source: impl IntoSqlSource<B>) -> SqlStoreBuilder<B> {
        SqlStoreBuilder {
            source: source.into_source(),
            table: TABLE.to_owned(),
            connections: 8,
            response_timeout: Duration::from_secs(2),
            credentials: None,
            named_statements: None,
            max_record_bytes: 64 << 20,
        }
    }
}

impl<B: Backend> SqlStoreBuilder<B> {
    /// The table of the records. Default: `idem_records`.
    ///
    /// A name of ASCII letters, digits and `_` that begins with a letter, at most 48 characters; on PostgreSQL and
    /// MySQL with a schema in front, as in `app.idem_records`. Without one it is in the schema that the store's own
    /// connection finds it in, or would create it in, when it [connects](Self::connect): a `search_path` that another
    /// connection sets has no effect, and a transaction that would find another table is refused (PostgreSQL).
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The maximum number of connections, which are made when needed.
    ///
    /// Calls beyond that wait for one. Default: 8; at least 1.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.clamp(1, 10_000);
        self
    }

    /// The time-out of a statement, from its sending on.
    ///
    /// Making a connection has as long again. Waiting for one does not count: see [overload](super#overload). After the
    /// time-out the statement counts as failed, its connection is closed, and the engine sends it again on another.
    /// Where no connection has had a reply for a quarter of it, the statement is sent again on a new one, because a
    /// firewall may have dropped the idle ones. A statement that was sent together with others, and has failed or has no
    /// reply for a quarter of it (a read: half), is sent alone with the whole time-out; the deadlines of the engine count
    /// from the beginning of its call.
    /// Default: 2 seconds.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// The largest record that is read, in bytes; default 64 MiB.
    ///
    /// At least 1 KiB. A larger one is refused with [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) and left alone:
    /// the server checks its length, and sends nothing of its answer. Larger answers are not stored either: the engine
    /// keeps a tombstone of them.
    pub fn max_record_bytes(mut self, max_record_bytes: usize) -> Self {
        self.max_record_bytes = max_record_bytes.max(1 << 10);
        self
    }

    /// Connects, and checks the server's settings.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Refused`] if the URL, the name of the table, the user or the password is wrong; `Unavailable`
    /// if the server is. The table need not exist yet.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(self) -> Result<SqlStore<B>, StoreError> {
        const WHAT: &str = "connecting";
        if !is_name(&self.table) {
            let message = "connecting: the name of the table is not one of ASCII letters, digits and \
                           `_` that begins with a letter (with a schema in front: `app.idem_records`)";
            return Err(StoreError::new(StoreErrorKind::Refused, message));
        }
        let client = self.source.into_client()?;
        #[cfg(feature = "_sqlite")]
        let group_commit = client.writer();
        #[cfg(feature = "_sqlite")]
        let group_commit = group_commit.map(|client| Arc::new(GroupCommit::new(client)));
        let sending = Sending::of(&*client, self.named_statements);
        let login = Login::new(Arc::clone(&client), self.credentials, self.response_timeout);
        let login = Arc::new(login);
        let observers = Arc::default();
        let clock = ServerClock::new(&observers);
        let pool = |most: (usize, usize)| {
            let pool = ConnectionPool::new(
                (B::DIALECT, sending, Arc::clone(&login)),
                most,
                self.response_timeout,
                Arc::clone(&clock),
            );
            #[cfg(feature = "_sqlite")]
            let pool = pool.grouped(group_commit.clone());
            Arc::new(pool)
        };
        let store_pool = pool((self.connections, self.connections.div_ceil(8)));
        let mut conn = store_pool.open(WHAT).await?;
        let probed = timeout(self.response_timeout, B::probe(&mut *conn, &self.table)).await;
        let probed = probed.map_err(|_| store_pool.silence(WHAT))?;
        let probed = probed.map_err(|error| store_error(B::DIALECT, WHAT, error))?;
        store_pool.keep(conn);
        // A configured schema stays.
        let schema = probed.schema.filter(|_| !self.table.contains('.'));
        let table = qualified(&self.table, schema.as_deref())?;
        let most = self.max_record_bytes - HEADER;
        let mut statements = Statements::new(B::DIALECT, &table, self.response_timeout, most);
        if probed.batches {
            // Half of a statement, where bytes take two digits.
            statements.add_batches(
                B::DIALECT,
                &table,
                BATCH_BYTES.min(store_pool.longest() / 4),
            );
        }
        let state = SqlStoreState {
            dialect: B::DIALECT,
            pool: store_pool,
            engine_pool: pool((2, 0)),
            listing_pool: pool((1, 0)),
            statements,
            hit_rate: HitRate::new(),
            observers,
            one_table: match schema {
                Some(_) => B::DIALECT.one_table.replace("{name}", &self.table),
                None => String::new(),
            },
            table,
            name: self.table,
            warnings: probed
                .warnings
                .into_iter()
                .chain(client.warning())
                .collect(),
            reads_bytes: self.max_record_bytes,
        };
        Ok(SqlStore(Arc::new(state), PhantomData))
    }
}

#[cfg(any(feature = "_mysql", feature = "_postgres"))]
macro_rules! credentials {
    () => {
        /// The provider of each connection's credentials, in place of those configured.
        ///
        /// For passwords that change, and tokens that expire: see [`credentials`](crate::credentials). It may take half
        /// of the [`response_timeout`](Self::response_timeout). A pool of the application needs its own:
        /// `Pool::set_connect_options`.
        pub fn credentials(mut self, provider: impl Into<CredentialsProvider>) -> Self {
            self.credentials = Some(provider.into());
            self
        }
    };
}

#[cfg(feature = "_mysql")]
impl SqlStoreBuilder<super::backend::MySql> {
    credentials!();
}

#[cfg(feature = "_postgres")]
impl SqlStoreBuilder<super::backend::Postgres> {
    credentials!();

    /// Whether the store's statements are prepared under names.
    ///
    /// A connection prepares a named statement once; the server parses and plans an unnamed one at each call. `false` is
    /// for a pooler that gives a session of the server to another client after each transaction, and does not know names:
    /// PgBouncer in transaction mode before its version 1.21, or without `max_prepared_statements`. There a name is
    /// unknown in the next session, or is **another statement**, of another process.
    ///
    /// | client | default | a statement without a name |
    /// |---|---|---|
    /// | tokio-postgres, deadpool-postgres, bb8-postgres | `false` | one message |
    /// | sqlx, others | `true` | a transaction of its own: four round trips |
    /// | diesel-async | `true` | the same, but the client names its own set-up statements of a connection |
    ///
    /// `true` does not undo sqlx's `statement_cache_capacity(0)`. A statement in a transaction of the caller has a name
    /// if those of the store have one, or if sqlx keeps others on that connection; by tokio-postgres it never has one.
    pub fn named_statements(mut self, named: bool) -> Self {
        self.named_statements = Some(named);
        self
    }
}

/// The table with its schema in front.
fn qualified(table: &str, schema: Option<&str>) -> Result<String, StoreError> {
    match schema {
        // They would be read as parts of a template.
        Some(schema) if schema.contains(['?', '{', '[', ']', '|', '\'', '\\']) => {
            let message = "connecting: the name of the schema that the table is in has one of the characters \
                           ? { [ ] | ' \\, which idem cannot write into a statement";
            Err(StoreError::new(StoreErrorKind::Refused, message))
        }
        Some(schema) => Ok(format!("{schema}.{table}")),
        None => Ok(table.to_owned()),
    }
}

/// Whether this can be part of a statement without quoting.
fn is_name(table: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && part.len() <= 48
    };
    let parts: Vec<_> = table.split('.').collect();
    parts.len() <= 2 && parts.into_iter().all(part)
}

#[cfg(all(test, feature = "_mysql", feature = "_postgres"))]
mod tests {
    use crate::store::sql::backend::Backend;
    use crate::store::sql::backend::MySql;
    use crate::store::sql::backend::Postgres;

    fn warns<B: Backend>(url: &str) -> bool {
        let client = B::client(url).expect("a URL");
        let warning = client.warning().unwrap_or_default();
        let is_discreet = !warning.contains("secret") && !warning.contains("db.example");
        assert!(is_discreet, "{warning}");
        !warning.is_empty()
    }

    #[test]
    fn a_connection_that_may_be_open_is_reported_unless_it_stays_on_the_machine() {
        for (postgres, mysql, expected) in [
            ("", "", true),
            ("?sslmode=disable", "?ssl-mode=DISABLED", true),
            ("?sslmode=allow", "?ssl-mode=PREFERRED", true),
            ("?sslmode=prefer", "?ssl-mode=PREFERRED", true),
            ("?sslmode=require", "?ssl-mode=REQUIRED", false),
            ("?sslmode=verify-ca", "?ssl-mode=VERIFY_CA", false),
            ("?sslmode=verify-full", "?ssl-mode=VERIFY_IDENTITY", false),
        ] {
            for (host, is_far) in [
                ("db.example:5432", true),
                ("10.0.0.7", true),
                ("localhost", false),
                ("127.0.0.1:5432", false),
            ] {
                let warns = [
                    warns::<Postgres>(&format!("postgres://app:secret@{host}/shop{postgres}")),
                    warns::<MySql>(&format!("mysql://app:secret@{host}/shop{mysql}")),
                ];
                assert_eq!(warns, [expected && is_far; 2], "{host} {postgres}");
            }
        }
        let socket = "postgres://app:secret@localhost/shop?host=/var/run/postgresql";
        assert!(!warns::<Postgres>(socket));
        let socket = "mysql://app:secret@db.example/shop?socket=/run/mysqld.sock";
        assert!(!warns::<MySql>(socket));
    }
}
