//! Settings of a SQL store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::backend::Backend;
use super::failure::unfit;
use super::hit_rate::HitRate;
use super::login::Login;
use super::pool::ConnectionPool;
use super::source::{IntoSqlSource, SqlSource};
#[cfg(feature = "sqlite")]
use super::sqlite::group_commit::GroupCommit;
use super::state::{SqlStore, SqlStoreState};
use super::statement_texts::Statements;
use crate::env::credentials::CredentialsProvider;
use crate::record::HEADER;
use crate::store::server_clock::ServerClock;
use crate::store::{StoreError, StoreErrorKind};

/// Bytes of a completion besides the record: its text, its names, the protocol's overhead.
const BESIDE: usize = 8 << 10;

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
        SqlStoreBuilder::new(source.into_source())
    }
}

impl<B: Backend> SqlStoreBuilder<B> {
    pub(super) fn new(source: SqlSource<B>) -> Self {
        Self {
            source,
            table: TABLE.to_owned(),
            connections: 8,
            response_timeout: Duration::from_secs(2),
            credentials: None,
            max_record_bytes: 64 << 20,
        }
    }

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
    /// firewall may have dropped the idle ones.
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
        let options = B::store_options(self.source.into_options()?);
        #[cfg(feature = "sqlite")]
        let group_commit =
            B::group_commit(&options).map(|options| Arc::new(GroupCommit::new(options)));
        let transport = B::transport(&options);
        let login = Login::<B>::new(options, self.credentials, self.response_timeout);
        let login = Arc::new(login);
        let observers = Arc::default();
        let clock = ServerClock::new(&observers);
        let pool = |most: (usize, usize)| {
            let pool = ConnectionPool::<B>::new(
                Arc::clone(&login),
                most,
                self.response_timeout,
                Arc::clone(&clock),
            );
            #[cfg(feature = "sqlite")]
            let pool = pool.grouped(group_commit.clone());
            Arc::new(pool)
        };
        let store_pool = pool((self.connections, self.connections.div_ceil(8)));
        let mut conn = store_pool.open(WHAT).await?;
        let looking = async {
            let warnings = B::probe_server(&mut conn).await?;
            let longest = B::longest_statement(&mut conn).await?;
            let batches = B::batches(&mut conn).await?;
            let schema = if self.table.contains('.') {
                None
            } else {
                B::schema_of(&mut conn, &self.table).await?
            };
            Ok((warnings, longest, batches, schema))
        };
        let (warnings, longest, batches, schema) =
            match timeout(self.response_timeout, looking).await {
                Ok(looked) => looked.map_err(|error| unfit::<B>(WHAT, error))?,
                Err(_) => return Err(store_pool.silence(WHAT)),
            };
        store_pool.keep(conn);
        let table = qualified(&self.table, schema.as_deref())?;
        let mut statements = Statements::new::<B>(
            &table,
            self.response_timeout,
            self.max_record_bytes - HEADER,
        );
        if batches {
            // Half of a statement, where bytes take two digits.
            let most = longest.map_or(BATCH_BYTES, |longest| BATCH_BYTES.min(longest / 4));
            statements.add_batches::<B>(&table, most);
        }
        let written = longest.map_or(usize::MAX, |longest| longest.saturating_sub(BESIDE));
        Ok(SqlStore(Arc::new(SqlStoreState {
            pool: store_pool,
            engine_pool: pool((2, 0)),
            listing_pool: pool((1, 0)),
            statements,
            hit_rate: HitRate::new(),
            observers,
            one_table: match schema {
                Some(_) => B::ONE_TABLE.replace("{name}", &self.table),
                None => String::new(),
            },
            table,
            name: self.table,
            warnings: warnings.into_iter().chain(transport).collect(),
            reads_bytes: self.max_record_bytes,
            max_record_bytes: self.max_record_bytes.min(written),
        })))
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
macro_rules! credentials {
    () => {
        /// The provider of the credentials of each connection, in place of those of the URL or the options.
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

#[cfg(feature = "mysql")]
impl SqlStoreBuilder<super::mysql::MySql> {
    credentials!();
}

#[cfg(feature = "postgres")]
impl SqlStoreBuilder<super::postgres::Postgres> {
    credentials!();
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
