//! The interface of a database: its dialect, and the sending of statements.

#![allow(unnameable_types, reason = "sealed")]

use std::fmt::Debug;
use std::future::{Future, ready};

use sqlx::error::DatabaseError;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Database, Error};

use super::argument::Argument;
use super::dialect::Dialect;
use super::error_kind::SqlErrorKind;
use super::statement::Statement;
use super::statement::StatementReply;
use super::transaction::SqlConnection;
use crate::env::credentials::Credentials;
use crate::store::Finding;

/// A connection to the database.
pub(crate) type Conn<B> = <<B as SqlDriver>::Db as Database>::Connection;

/// The options of a connection to the database.
pub(crate) type Options<B> = <Conn<B> as Connection>::Options;

/// A database that sqlx supports.
///
/// Sealed: [`Postgres`](super::Postgres), [`MySql`](super::MySql) and [`Sqlite`](super::Sqlite) are all.
pub trait Backend: SqlDriver {}

impl<B: SqlDriver> Backend for B {}

/// The server and the table, as a store finds them when it connects.
#[derive(Debug, Default)]
pub struct Probed {
    /// The warnings for an operator about this server.
    pub(crate) warnings: Vec<String>,
    /// The longest statement that the server accepts, in bytes with its values; `None`: longer than any record.
    pub(crate) longest: Option<usize>,
    /// Whether the server knows [`Dialect::batches`].
    pub(crate) batches: bool,
    /// The schema that the table is in, or would be created in, as it is written in a statement.
    pub(crate) schema: Option<String>,
}

/// The private part of a backend.
pub trait SqlDriver: Debug + Send + Sync + 'static {
    /// The database type of sqlx.
    type Db: Database<Connection: Connection<Options: Debug> + Send>;

    /// Its dialect.
    const DIALECT: &'static Dialect;

    /// Classifies an error of the server.
    fn error_kind(error: &dyn DatabaseError) -> SqlErrorKind;

    /// Whether another connection holds the lock for writing, and the transaction can go on.
    fn is_busy(_: &dyn DatabaseError) -> bool {
        false
    }

    /// Adds the settings of the store's own connections.
    fn store_options(options: Options<Self>) -> Options<Self> {
        options
    }

    /// The options with other credentials, if the database has users.
    fn with_credentials(options: Options<Self>, _: Credentials) -> Options<Self> {
        options
    }

    /// The warning for an operator about the transport to the server.
    fn transport(_: &Options<Self>) -> Option<String> {
        None
    }

    /// The options of the connection that writes for several calls at a time, if the store does so.
    #[cfg(feature = "sqlite")]
    fn group_commit(_: &Options<Self>) -> Option<SqliteConnectOptions> {
        None
    }

    /// Whether statements on these connections have no names.
    ///
    /// The store then sends each in a transaction of its own: sqlx prepares and executes a statement in two messages,
    /// between which a proxy gives the session, and with it the unnamed statement, to another client.
    fn is_unnamed(_: &Options<Self>) -> bool {
        false
    }

    /// Whether a connection keeps statements that it has prepared.
    fn keeps_statements(_: &Conn<Self>) -> bool {
        false
    }

    /// The connection, if it is one to this database.
    fn connection(conn: SqlConnection<'_>) -> Option<&mut Conn<Self>>;

    /// Probes the server. An error makes it unusable.
    fn probe<'c>(
        conn: &'c mut Conn<Self>,
        table: &'c str,
    ) -> impl Future<Output = Result<Probed, Error>> + Send + 'c;

    /// The findings for an operator about this server.
    fn findings(
        conn: &mut Conn<Self>,
    ) -> impl Future<Output = Result<Vec<Finding>, Error>> + Send + '_;

    /// Sends a statement; `named`: by a name that the connection keeps.
    fn run<'c>(
        conn: &'c mut Conn<Self>,
        statement: &'c Statement,
        arguments: &'c [Argument<'c>],
        named: bool,
    ) -> impl Future<Output = Result<StatementReply, Error>> + Send + 'c;

    /// Sends a script, and reads the row of the table that it returns.
    fn fetch_script(
        conn: &mut Conn<Self>,
        script: String,
    ) -> impl Future<Output = Result<StatementReply, Error>> + Send + '_;

    /// Sends a script, and returns the number of changed rows.
    fn execute_script(
        conn: &mut Conn<Self>,
        script: String,
    ) -> impl Future<Output = Result<u64, Error>> + Send + '_;

    /// The number that a statement which changed rows left for its client, if the database supports that.
    fn returned_number(_: &<Self::Db as Database>::QueryResult) -> Option<i64> {
        None
    }

    /// The connection's setting for lock waits, if the client must restore it.
    fn own_lock_wait(
        _: &mut Conn<Self>,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send + '_ {
        ready(Ok(None))
    }

    /// Starts to restore that setting, without waiting for the reply.
    fn start_restore(_: &mut Conn<Self>, _own_lock_wait: i64) {}
}
