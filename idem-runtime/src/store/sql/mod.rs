//! Records in a SQL database: [`SqliteStore`], [`PostgresStore`], [`MySqlStore`].
//!
//! Only the database's clock counts, every record is one row of a table of its own, and every statement
//! that changes a row states the owner that it expects. The transitions of a record are decided by the same functions
//! as in every store; without contention, a claim, a replay, a completion, a renewal and a release are one round trip
//! each.
//!
//! The guide's page [`sql`](crate::guide::sql) has the table, the rights of the user, the connections and their
//! poolers, and the properties of each database.
//!
//! - A read from a replica may be stale: give the store the primary. A replica without synchronous replication may lack
//!   acknowledged writes when it is promoted.
//! - A server that is read-only, full, or that fails over refuses claims with an error that states so.
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
//! A store has at most four reads in flight. Further reads wait until one of them has its reply, or for a connection,
//! and are then sent together as one statement. The read of a claim that was sent already goes first, as a completion.
//!
//! Claims and completions that wait for a connection are sent together as well, on PostgreSQL and MariaDB: up to 64
//! claims, or 64 completions of up to 16 KiB each, are one statement and one commit. A call that finds a free
//! connection is sent immediately and alone. If such a statement fails, or would wait for a record that a transaction
//! holds (for 50 ms on PostgreSQL, not at all on MariaDB), each of its calls is sent alone. MySQL sends a statement for
//! each call. SQLite writes many calls in one transaction: see [`SqliteStore`].

mod argument;
mod backend;
mod batch;
mod builder;
#[cfg(feature = "_postgres")]
mod bytea;
mod claim;
mod collision;
mod columns;
mod compare_and_write;
mod dialect;
#[cfg(any(feature = "diesel-async-mysql", feature = "diesel-async-postgres"))]
mod diesel_client;
mod error;
mod error_kind;
mod failure;
mod findings;
mod hit_rate;
mod in_transaction;
mod listing;
mod login;
mod migrate;
#[cfg(feature = "_mysql")]
mod mysql;
#[cfg(feature = "mysql-async")]
mod mysql_async_client;
mod operations;
mod pool;
#[cfg(feature = "_postgres")]
mod postgres;
mod primary_key;
mod purge;
mod queue;
mod queued_call;
mod row;
#[cfg(any(
    feature = "diesel-async-mysql",
    feature = "diesel-async-postgres",
    feature = "sea-orm"
))]
mod script;
#[cfg(feature = "sea-orm")]
mod sea_orm_client;
mod session;
mod source;
#[cfg(feature = "_sqlite")]
mod sqlite;
#[cfg(feature = "_sqlx")]
mod sqlx_client;
mod state;
mod statement;
mod statement_texts;
mod template;
#[cfg(any(test, feature = "testing"))]
mod test_support;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres_client;
mod transaction;

use std::sync::Arc;

use bytes::Bytes;

pub use self::argument::{SqlArgument, SqlArray};
pub use self::backend::Backend;
#[cfg(feature = "_mysql")]
pub use self::backend::MySql;
#[cfg(feature = "_postgres")]
pub use self::backend::Postgres;
#[cfg(feature = "_sqlite")]
pub use self::backend::Sqlite;
pub use self::builder::SqlStoreBuilder;
#[cfg(feature = "_postgres")]
pub use self::bytea::bytea;
pub use self::dialect::Dialect;
pub use self::error::SqlError;
pub use self::in_transaction::Sql;
pub(crate) use self::in_transaction::TxError;
pub use self::purge::{Purge, PurgeTask};
pub use self::session::{
    SqlClient, SqlFuture, SqlReceiver, SqlReply, SqlRow, SqlSession, SqlStatement,
};
pub use self::source::{IntoSqlSource, SqlSource};
pub use self::state::SqlStore;
pub(crate) use self::state::SqlStoreState;
pub use self::transaction::SqlTransaction;
use super::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, ListReply,
    ListRequest, Owner, ReadReply, RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply,
    Store, StoreFuture,
};
use crate::env::observer::Observer;

/// A store in PostgreSQL.
#[cfg(feature = "_postgres")]
pub type PostgresStore = SqlStore<Postgres>;
/// A store in MySQL or MariaDB.
///
/// `InnoDB` shows a commit to others a moment before it is in its log, and a server that is killed then loses that
/// commit. So a replay of an answer younger than 3 seconds writes first, which takes another round trip; inside a
/// transaction of the caller's it does not.
#[cfg(feature = "_mysql")]
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
#[cfg(feature = "_sqlite")]
pub type SqliteStore = SqlStore<Sqlite>;

impl<B: Backend> Store for SqlStore<B> {
    fn claim<'a>(
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
        _: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(self.0.complete(key, record))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(self.0.release(key, owner, remains, journals))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::pending(self.0.renew_on(&self.0.engine_pool, key, claim))
    }

    fn keeps_journals(&self) -> bool {
        true
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        StoreFuture::pending(self.0.append(key, claim, journal, known))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::pending(self.0.resolve(key, (seen, journal), record))
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.read(key))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::pending(self.0.list(request))
    }

    fn observed_by(&self, observer: &Arc<dyn Observer>) {
        self.0.observers.add(observer);
    }

    fn max_record_bytes(&self) -> Option<usize> {
        Some(self.0.max_record_bytes())
    }

    fn keeps_forever(&self) -> bool {
        true
    }

    fn sql(&self) -> Option<Sql<'_>> {
        Some(Sql(&self.0))
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }
}
