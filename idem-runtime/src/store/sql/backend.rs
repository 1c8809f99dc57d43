//! The interface of a database: its dialect, and the sending of statements.

#![allow(unnameable_types, reason = "sealed")]

use std::fmt::Debug;
use std::future::{Future, ready};
use std::time::Duration;

use sqlx::error::DatabaseError;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Database};
use sqlx_core::transaction::TransactionManager as _;

use super::argument::Argument;
use super::error_kind::SqlErrorKind;
use super::reply::StatementReply;
use super::statement::{Statement, StatementTemplate};
use super::transaction::SqlConnection;
use crate::env::credentials::Credentials;
use crate::store::Finding;

/// A connection to the database.
pub(crate) type Conn<B> = <<B as SqlDriver>::Db as Database>::Connection;

/// The options of a connection to the database.
pub(crate) type Options<B> = <Conn<B> as Connection>::Options;

/// The transaction manager of a database.
pub(crate) type Manager<D> = <D as Database>::TransactionManager;

/// A database that sqlx supports.
///
/// Sealed: [`Postgres`](super::Postgres), [`MySql`](super::MySql) and [`Sqlite`](super::Sqlite) are all.
pub trait Backend: SqlDriver {}

impl<B: SqlDriver> Backend for B {}

/// The private part of a backend.
pub trait SqlDriver: Debug + Send + Sync + 'static {
    /// The database type of sqlx.
    #[doc(hidden)]
    type Db: Database<Connection: Connection<Options: Debug> + Send>;

    /// Its name, for messages.
    #[doc(hidden)]
    const NAME: &'static str;

    /// Microseconds since 1970, by the database's clock.
    #[doc(hidden)]
    const NOW: &'static str;

    /// The hit rate from which claims read first.
    ///
    /// If this share of recent claims, of [`HitRate::SCALE`](super::hit_rate::HitRate::SCALE), found a record, a claim
    /// reads before it sends [`CLAIM`](Self::CLAIM).
    #[doc(hidden)]
    const READS_FIRST: u32;

    /// Whether a column has a type, and not each of its values.
    #[doc(hidden)]
    const TYPED: bool = true;

    /// Whether [`CLAIM`](Self::CLAIM) waits for any other writer of the database.
    #[doc(hidden)]
    const WAITS: bool = false;

    /// Whether the server shows commits before they are in its log.
    ///
    /// It can then lose an answer that it has shown.
    #[doc(hidden)]
    const SHOWS_EARLY: bool;

    /// The length of an answer in bytes, as the integer type that rows are read with.
    #[doc(hidden)]
    const BODY_BYTES: &'static str = "length(body)";

    /// The first statement of a claim.
    #[doc(hidden)]
    const CLAIM: StatementTemplate;

    /// Reads several records.
    ///
    /// The primary key follows the columns; `{places}` stands for the primary keys.
    #[doc(hidden)]
    const SEVERAL: &'static str =
        "SELECT {columns}, record_key FROM {t} WHERE record_key IN ({places})";

    /// Whether the primary keys are one array parameter.
    #[doc(hidden)]
    const ARRAYS: bool = false;

    /// The claim and the completion for several calls; `None`: each call sends a statement.
    ///
    /// They wait for a row for a moment only: calls that the row is not about wait as well.
    #[doc(hidden)]
    const BATCHES: Option<(&'static str, &'static str)> = None;

    /// Whether the server knows [`BATCHES`](Self::BATCHES).
    #[doc(hidden)]
    fn batches(
        _: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send + '_ {
        ready(Ok(true))
    }

    /// Inserts a record if there is none; an existing one stays unchanged.
    #[doc(hidden)]
    const INSERT: &'static str;

    /// A condition that always holds, and bounds a wait for a row.
    ///
    /// The bound is `{patience}`, in milliseconds, as long as a caller waits for the reply.
    #[doc(hidden)]
    const BOUNDED: &'static str;

    /// Deletes expired records: `?1` at most.
    #[doc(hidden)]
    const PURGE: &'static str;

    /// The plain SQL of the table, for `idem_records`.
    #[doc(hidden)]
    const SCHEMA: &'static str;

    /// The schema of the table, as it is written in a statement: the one that it is in, or would be created in.
    ///
    /// `None` where it is not known by the connection's settings.
    #[doc(hidden)]
    fn schema_of<'c>(
        _: &'c mut <Self::Db as Database>::Connection,
        _table: &'c str,
    ) -> impl Future<Output = Result<Option<String>, sqlx::Error>> + Send + 'c {
        ready(Ok(None))
    }

    /// A statement that fails if a connection would find another table by the `{name}` alone than `{t}`.
    #[doc(hidden)]
    const ONE_TABLE: &'static str = "";

    /// Creates the table, safely beside concurrent migrations.
    #[doc(hidden)]
    fn migrate<'c>(
        conn: &'c mut <Self::Db as Database>::Connection,
        schema: &'c str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + 'c;

    /// Converts the parameters of a template to the dialect's.
    ///
    /// Returns the text, and the argument of each parameter.
    #[doc(hidden)]
    fn parameters(template: &str) -> (String, Vec<usize>);

    /// Classifies an error of the server.
    #[doc(hidden)]
    fn error_kind(error: &dyn DatabaseError) -> SqlErrorKind;

    /// Whether statements on these connections have no names.
    ///
    /// The store then sends each in a transaction of its own: sqlx prepares and executes a statement in two messages,
    /// between which a proxy gives the session, and with it the unnamed statement, to another client.
    #[doc(hidden)]
    fn is_unnamed(options: &<<Self::Db as Database>::Connection as Connection>::Options) -> bool {
        let _ = options;
        false
    }

    /// Whether a connection keeps statements that it has prepared.
    #[doc(hidden)]
    fn keeps_statements(conn: &<Self::Db as Database>::Connection) -> bool {
        let _ = conn;
        false
    }

    /// Sends a statement; `named`: by a name that the connection keeps.
    #[doc(hidden)]
    fn run<'c>(
        conn: &'c mut <Self::Db as Database>::Connection,
        statement: &'c Statement,
        arguments: &'c [Argument<'c>],
        named: bool,
    ) -> impl Future<Output = Result<StatementReply, sqlx::Error>> + Send + 'c;

    /// Inserts a record if there is none, inside a transaction.
    ///
    /// `{values}` is the part common to all dialects.
    #[doc(hidden)]
    const INSERT_WITHIN: &'static str;

    /// The texts before and after a statement that bound its wait for a row.
    ///
    /// Either it waits no longer than `?11`,
    /// which is [`lock_wait`](Self::lock_wait), or it does not wait, and `?11` is
    /// [`own_lock_wait`](Self::own_lock_wait).
    #[doc(hidden)]
    const WAIT: (&'static str, &'static str);

    /// A suffix that makes a query read the committed record.
    ///
    /// It does so whatever the transaction has read before.
    #[doc(hidden)]
    const SHARED: &'static str;

    /// Restores the settings of the session after such a statement failed.
    ///
    /// `?11` as in [`WAIT`](Self::WAIT).
    #[doc(hidden)]
    const RESTORE: &'static str;

    /// The connection's setting for lock waits, if the client must restore it.
    #[doc(hidden)]
    fn own_lock_wait(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send + '_ {
        let _ = conn;
        ready(Ok(None))
    }

    /// Starts to restore that setting, without waiting for the reply.
    #[doc(hidden)]
    fn start_restore(conn: &mut <Self::Db as Database>::Connection, own_lock_wait: i64) {
        let _ = (conn, own_lock_wait);
    }

    /// Whether another connection holds the lock for writing.
    ///
    /// The transaction can go on.
    #[doc(hidden)]
    fn is_busy(error: &dyn DatabaseError) -> bool {
        let _ = error;
        false
    }

    /// Whether a call's savepoints are released before its answer is stored.
    ///
    /// That is a separate message, which fails outside of the transaction. Elsewhere they stay until the transaction
    /// ends, and cost nothing.
    #[doc(hidden)]
    const RELEASES: bool;

    /// The literal syntax around the hexadecimal digits of bytes.
    #[doc(hidden)]
    const BYTES: (&'static str, &'static str);

    /// The literal syntax around the hexadecimal digits of a text in UTF-8.
    #[doc(hidden)]
    const TEXT: (&'static str, &'static str);

    /// How long a statement may wait for a row, in the unit of the setting.
    #[doc(hidden)]
    fn lock_wait(wait: Duration) -> i64;

    /// The connection, if it is one to this database.
    #[doc(hidden)]
    fn connection(conn: SqlConnection<'_>) -> Option<&mut <Self::Db as Database>::Connection>;

    /// Sends a script, and reads the row of the table that it returns.
    #[doc(hidden)]
    fn fetch_script(
        conn: &mut <Self::Db as Database>::Connection,
        script: String,
    ) -> impl Future<Output = Result<StatementReply, sqlx::Error>> + Send + '_;

    /// Sends a script, and returns the number of changed rows.
    #[doc(hidden)]
    fn execute_script(
        conn: &mut <Self::Db as Database>::Connection,
        script: String,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send + '_;

    /// How a statement that changes a row returns the time.
    ///
    /// A pair: the expression of the time in it, and its suffix.
    #[doc(hidden)]
    const DATED: (&'static str, &'static str) = ("{now}", " RETURNING {now}");

    /// The number that a statement left for its client.
    ///
    /// Only a statement that changed rows does so, if the database supports that.
    #[doc(hidden)]
    fn returned_number(done: &<Self::Db as Database>::QueryResult) -> Option<i64> {
        let _ = done;
        None
    }

    /// A statement after the savepoint of a claim. It fails if the claim is in no transaction.
    #[doc(hidden)]
    const IN_TRANSACTION: &'static str = "";

    /// A condition that holds inside the transaction of a claim, and not outside of one.
    #[doc(hidden)]
    const DURING: &'static str = "";

    /// Rolls back the transaction that idem began.
    #[doc(hidden)]
    fn roll_back(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + '_ {
        Manager::<Self::Db>::rollback(conn)
    }

    /// As [`roll_back`](Self::roll_back), without waiting for it.
    #[doc(hidden)]
    fn start_rollback(conn: &mut <Self::Db as Database>::Connection) {
        Manager::<Self::Db>::start_rollback(conn);
    }

    /// Whether the transaction that sqlx counts exists, with at most `most` counted before the call. `true` where a
    /// claim finds that out.
    #[doc(hidden)]
    fn in_step(
        _: &mut <Self::Db as Database>::Connection,
        _most: usize,
    ) -> impl Future<Output = bool> + Send + '_ {
        ready(true)
    }

    /// Closes a connection whose transaction does not exist.
    ///
    /// A no-op for databases on which a rollback by the caller makes the connection usable again.
    #[doc(hidden)]
    fn close(_: &mut <Self::Db as Database>::Connection) -> impl Future<Output = ()> + Send + '_ {
        ready(())
    }

    /// The warnings for an operator about this server, or the error that makes it unusable.
    #[doc(hidden)]
    fn probe_server(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Vec<String>, sqlx::Error>> + Send + '_;

    /// The findings for an operator about this server.
    #[doc(hidden)]
    fn findings(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Vec<Finding>, sqlx::Error>> + Send + '_;

    /// The longest statement that the server accepts, with its values.
    ///
    /// In bytes; `None`: longer than any record.
    #[doc(hidden)]
    fn longest_statement(
        _: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Option<usize>, sqlx::Error>> + Send + '_ {
        ready(Ok(None))
    }

    /// Whether the store itself writes the statements of several calls at a time.
    #[cfg(feature = "sqlite")]
    #[doc(hidden)]
    const GROUPS: bool = false;

    /// The options of the connection that writes for several calls at a time, if the store does so.
    #[cfg(feature = "sqlite")]
    #[doc(hidden)]
    fn group_commit(
        options: &<<Self::Db as Database>::Connection as Connection>::Options,
    ) -> Option<SqliteConnectOptions> {
        let _ = options;
        None
    }

    /// The options with other credentials, if the database has users.
    #[doc(hidden)]
    fn with_credentials(
        options: <<Self::Db as Database>::Connection as Connection>::Options,
        credentials: Credentials,
    ) -> <<Self::Db as Database>::Connection as Connection>::Options {
        let _ = credentials;
        options
    }

    /// The warning for an operator about the transport to the server.
    #[doc(hidden)]
    fn transport(
        options: &<<Self::Db as Database>::Connection as Connection>::Options,
    ) -> Option<String> {
        let _ = options;
        None
    }

    /// The first script on a connection of the store; empty for none.
    #[doc(hidden)]
    const SESSION: &'static str;

    /// Adds the settings of the store's own connections.
    #[doc(hidden)]
    fn store_options(
        options: <<Self::Db as Database>::Connection as Connection>::Options,
    ) -> <<Self::Db as Database>::Connection as Connection>::Options;
}
