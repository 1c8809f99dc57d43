//! Records in a SQL database: [`SqliteStore`], [`PostgresStore`], [`MySqlStore`].
//!
//! The database's clock is the only one that counts, every record is one row of a table of its own, and every statement
//! that changes a row states the owner that it expects. The transitions of a record are decided by the same functions
//! as in every store; without contention, a claim, a replay, a completion, a renewal and a release are one round trip
//! each.
//!
//! # The table
//!
//! [`migrate`](SqlStore::migrate) creates it; the same SQL is in the folder `migrations` of this crate, for
//! applications that keep the schema elsewhere. Both may be run again, and by ten processes at once. The table is
//! called `idem_records` unless [`table`](SqlStoreBuilder::table) names another.
//!
//! Expired records have no effect, but stay in the table until they are deleted: see [`purge`](SqlStore::purge). No
//! answer depends on it.
//!
//! A very large table is partitioned by hash of `record_key`, never by time: a unique index of a
//! partitioned table must contain the partition column, so that the same key could exist once a day.
//!
//! # Rights
//!
//! At run time the user needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the table, and nothing else.
//! `migrate` creates table and index, unless it can read the table already.
//!
//! # Connections
//!
//! Each store has up to [`connections`](SqlStoreBuilder::connections) (8) of its own, two for renewals and reads (in
//! SQLite another, which writes for many at once), and one for [listings](crate::Engine::entries), made by the first of
//! them; count them against the server's limit, for each process. Bodies hold none of them. Calls
//! [inside a transaction](crate::CallBuilder::in_tx) use the transaction's own connection, and hold it while they wait
//! for another transaction: there your pool is what may run dry.
//!
//! - **TLS** is sqlx's: enable `tls-rustls-ring` (or another `tls-…` feature) of sqlx in your own `Cargo.toml`, and set
//!   `sslmode=verify-full` (PostgreSQL) or `ssl-mode=VERIFY_IDENTITY` (MySQL) in the URL.
//! - **PgBouncer** may pool transactions, because no operation leaves anything in a session. Before its version 1.21 it
//!   does not know prepared statements: set `statement_cache_capacity(0)` on sqlx's options.
//! - **A server that is read-only**, full, or that fails over refuses claims with an error that states so.
//!
//! # Overload
//!
//! Statements wait for a connection in two queues. Statements that end or keep a claim (completions, renewals,
//! releases) go first, are never refused, and have one connection in eight, at least one, to themselves where there are
//! several. A claim that cannot be sent within three quarters of the engine's
//! [`claim_deadline`](crate::EngineBuilder::claim_deadline), judged by the pace at which claims left the queue so far,
//! is refused before it is sent: [`ErrorKind::StoreUnavailable`](crate::ErrorKind::StoreUnavailable) with a
//! [`retry_after`](crate::Error::retry_after). Where the queue has not been empty for as long as the deadline, a
//! quarter of it is the bound: a standing queue adds delay and no throughput. So the answers of admitted calls are
//! stored, however many others come.
//!
//! # What they do not do
//!
//! - Waiting calls are not notified, unless `notify` is on (PostgreSQL): a call that waits for another process polls
//!   after 10 ms, then less often, up to every 500 ms.
//! - A replica without synchronous replication may lack acknowledged writes when it is promoted, as with every
//!   database. A read from a replica may be stale: give the store the primary.
//! - SQLite is for the processes of one machine. On a network drive its locks do not hold. It writes one transaction at
//!   a time, in any process: see [`SqliteStore`].
//!
//! # Speed
//!
//! A first call is two commits, the claim and the answer, and the main cost of a commit is the disk's confirmation of
//! the write. Servers write several commits at a time by themselves. PostgreSQL can be configured to wait for more of
//! them (`commit_delay`, `commit_siblings`), MariaDB to (`binlog_commit_wait_count`, where there is a binary log); it
//! pays with many concurrent calls and a slow disk, and costs each of them that wait. Without the wait for the disk
//! (`synchronous_commit = off`, `innodb_flush_log_at_trx_commit = 2`) the store is fast, and a crash of the server
//! loses acknowledged claims and answers, so that a body may run again: the store
//! [warns](crate::store::Store::warnings) of it.
//!
//! If nearly all recent claims met a record, claims read first, which writes nothing and waits for no lock, and costs a
//! first call one more round trip.
//!
//! A store has at most four reads in flight. Further reads wait until one of them has its reply, and are then sent
//! together as one statement.

mod backend;
#[cfg(feature = "sqlite")]
mod batch;
mod builder;
mod claim;
mod crowd;
mod dialect;
mod failure;
#[cfg(feature = "sqlite")]
mod group;
#[cfg(feature = "sqlite")]
mod job;
mod lane;
mod listing;
#[cfg(feature = "sqlite")]
mod lull;
#[cfg(feature = "sqlite")]
mod many;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod notices;
mod operations;
#[cfg(feature = "sqlite")]
mod part;
#[cfg(any(test, feature = "testing"))]
mod plant;
#[cfg(feature = "postgres")]
mod postgres;
mod purge;
mod read;
mod row;
mod script;
mod seats;
mod site;
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
#[cfg(feature = "sqlite")]
mod step;
mod transaction;
mod within;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use self::backend::Backend;
use self::backend::Sealed;
pub use self::builder::SqlStoreBuilder;
use self::lane::Lane;
#[cfg(feature = "mysql")]
pub use self::mysql::MySql;
#[cfg(feature = "postgres")]
pub use self::postgres::Postgres;
pub use self::purge::{Purge, PurgeTask};
use self::seats::Rank;
pub use self::source::SqlSource;
#[cfg(feature = "sqlite")]
pub use self::sqlite::Sqlite;
use self::statement::Statements;
pub use self::transaction::{SqlConnection, SqlTransaction};
pub(crate) use self::within::{Failed, Within};
#[cfg(feature = "postgres")]
use super::Watch;
use super::{
    Admission, ClaimReply, ClaimRequest, CompleteReply, Header, ListReply, ListRequest, Owner,
    ReadReply, RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply, Store, StoreError,
    StoreFuture, observers::Observers,
};
use crate::env::observer::Observer;

/// A store that can work inside a transaction of the caller.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Sql<'a>(pub(crate) &'a dyn Within);

impl fmt::Debug for Sql<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

/// A store in PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresStore = SqlStore<Postgres>;
/// A store in MySQL or MariaDB.
///
/// `InnoDB` shows a commit to others a moment before it is in its log, and a server that is killed then loses that
/// commit. So a replay of an answer younger than 3 seconds writes first, which takes another round trip; inside a
/// transaction of the caller's it does not.
#[cfg(feature = "mysql")]
pub type MySqlStore = SqlStore<MySql>;
/// A store in a file, for one machine: the embedded, durable default.
///
/// Its connections sync the log at every commit (`synchronous = FULL`), so that an acknowledged answer survives a power
/// cut too. SQLite has one writer at a time; the statements that calls of a process send while another commit is in
/// progress go into one transaction (group commit), with one write of the disk for all of them. A lone call is as quick
/// as without, and concurrent calls share the disk's time: between two such transactions the store waits for further
/// statements of the callers that have just received their replies, for half of the duration of the last transaction
/// and 2 ms at most, as long as such statements arrive. No caller receives a reply before the commit of its statement;
/// if the commit fails, each statement is tried by itself, and its caller receives that result. A thread of the store,
/// started when it is first needed, does that.
///
/// Other processes wait for such a transaction as for any other writer. Calls
/// [inside a transaction](crate::CallBuilder::in_tx) are in that transaction, and part of no group.
#[cfg(feature = "sqlite")]
pub type SqliteStore = SqlStore<Sqlite>;

/// A store in a SQL database. Clones share its connections.
///
/// It has connections of its own, up to [`connections`](SqlStoreBuilder::connections) of them, and two more on the
/// engine's thread for renewals and reads. A pool shared with bodies could run dry while each of them waits for its
/// claim to be completed.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, store::sql::SqliteStore};
///
/// let file = std::env::temp_dir().join("idem-example.db");
/// let store = SqliteStore::connect(format!("sqlite:{}", file.display())).await?;
/// store.migrate().await?;
/// let engine = Engine::new(store);
/// # drop(engine);
/// # Ok::<_, idem_runtime::store::StoreError>(()) }).unwrap();
/// ```
pub struct SqlStore<B: Backend>(Arc<Inner<B>>);

pub(crate) struct Inner<B: Sealed> {
    lane: Lane<B>,
    /// For renewals and reads. Its connections are made on the engine's own thread.
    own: Lane<B>,
    /// For listings. Its one connection is made there as well, and delays no other statement.
    listing: Lane<B>,
    statements: Statements,
    met: claim::Met,
    /// Notified of steps of the database's clock.
    observers: Arc<Observers>,
    table: String,
    #[cfg(feature = "postgres")]
    notices: Option<notices::Notices>,
    warnings: Vec<String>,
    /// The longest record that is read.
    reads_bytes: usize,
    /// The longest record that is written.
    ///
    /// The server would refuse each completion of a longer one, and its body would run again.
    max_record_bytes: usize,
}

impl<B: Backend> Clone for SqlStore<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> fmt::Debug for SqlStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("database", &B::NAME)
            .field("table", &self.0.table)
            .field("lane", &self.0.lane)
            .finish_non_exhaustive()
    }
}

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
    pub async fn connect(source: impl Into<SqlSource<B>>) -> Result<Self, StoreError> {
        Self::builder(source).connect().await
    }

    /// Configures a store.
    pub fn builder(source: impl Into<SqlSource<B>>) -> SqlStoreBuilder<B> {
        SqlStoreBuilder::new(source.into())
    }

    /// Creates the table, unless it exists.
    ///
    /// Any number of processes may do so at once, also one that may not create tables, if another has.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Refused`](crate::store::StoreErrorKind::Refused) if this user may not create a table: then a
    /// user with that right runs the file in `migrations`. `Unavailable` if the server is.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves open whether the table was created. Call it again.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.0.migrate().await
    }

    /// The plain SQL of the table, with the configured name.
    #[must_use]
    pub fn schema(&self) -> String {
        builder::schema::<B>(&self.0.table)
    }
}

impl<B: Sealed> Inner<B> {
    async fn migrate(&self) -> Result<(), StoreError> {
        const WHAT: &str = "creating the table";
        let nowhere = [backend::Argument::Bytes(&[0; row::PLACE])];
        let probe = statement::probe::<B>(&self.table);
        let schema = builder::schema::<B>(&self.table);
        for collisions in 1.. {
            if self
                .lane
                .run((WHAT, Rank::Ending), &probe, &nowhere)
                .await
                .is_ok()
            {
                return Ok(());
            }
            let mut conn = self.lane.open(WHAT).await?;
            match B::migrate(&mut conn, &schema).await {
                Err(error) if lane::collided::<B>(&error, collisions) => {
                    lane::pause(collisions).await;
                    continue;
                }
                created => created.map_err(|error| failure::not_created::<B>(WHAT, error))?,
            }
            // The table may have existed with other columns.
            let probe = B::run(&mut conn, &probe, &nowhere).await;
            probe.map_err(|error| failure::not_usable::<B>(WHAT, error))?;
            break;
        }
        Ok(())
    }
}

impl<B: Backend> Store for SqlStore<B> {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::pending(async move {
            let admission = Admission::new(self.0.lane.patience());
            self.0.claim(key, request, &admission).await
        })
    }

    fn admit<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::pending(self.0.claim(key, request, admission))
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(self.0.complete(key, record))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(self.0.release(key, owner, remains))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::pending(self.0.renew_on(&self.0.own, key, claim))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::pending(self.0.resolve(key, seen, record))
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.read(key))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::pending(self.0.list(request))
    }

    #[cfg(feature = "postgres")]
    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        match &self.0.notices {
            Some(notices) => notices.watch(key),
            None => StoreFuture::ready(Ok(None)),
        }
    }

    fn observed_by(&self, observer: &Arc<dyn Observer>) {
        self.0.observers.add(observer);
    }

    fn max_record_bytes(&self) -> Option<usize> {
        Some(self.0.max_record_bytes)
    }

    fn keeps_forever(&self) -> bool {
        true
    }

    fn sql(&self) -> Option<Sql<'_>> {
        Some(Sql(self))
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }
}
