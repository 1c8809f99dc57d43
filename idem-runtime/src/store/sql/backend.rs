//! What a database is to the store: how its dialect says a few things, and how a statement is sent.

#![allow(
    unnameable_types,
    reason = "nobody else implements it, and so nobody needs the names"
)]

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use sqlx::error::DatabaseError;
use sqlx::{Connection, Database};

use super::row::Row;
use super::statement::{Statement, Template};

/// A database that sqlx speaks to. Sealed: [`Postgres`](super::Postgres), [`MySql`](super::MySql) and
/// [`Sqlite`](super::Sqlite) are all.
pub trait Backend: Sealed {}

impl<B: Sealed> Backend for B {}

/// The part of a backend that nobody outside needs.
pub trait Sealed: Debug + Send + Sync + 'static {
    /// What sqlx calls it.
    #[doc(hidden)]
    type Db: Database<Connection: Connection<Options: Debug> + Send>;

    /// Its name, for messages.
    #[doc(hidden)]
    const NAME: &'static str;

    /// Microseconds since 1970, by the database's clock.
    #[doc(hidden)]
    const NOW: &'static str;

    /// Whether a claim reads before it sends [`CLAIM`](Self::CLAIM).
    #[doc(hidden)]
    const READS_FIRST: bool;

    /// What a claim sends first.
    #[doc(hidden)]
    const CLAIM: Template;

    /// Puts a record where none is; nothing happens where one is.
    #[doc(hidden)]
    const INSERT: &'static str;

    /// Deletes some expired records: `?1` at most.
    #[doc(hidden)]
    const PURGE: &'static str;

    /// The plain SQL of the table, for `idem_records`.
    #[doc(hidden)]
    const SCHEMA: &'static str;

    /// What makes the table, safe beside others that do so.
    #[doc(hidden)]
    fn migrate<'c>(
        conn: &'c mut <Self::Db as Database>::Connection,
        schema: &'c str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + 'c;

    /// How the dialect writes its parameters: the text with its own, and which argument each is.
    #[doc(hidden)]
    fn parameters(template: &str) -> (String, Vec<usize>);

    /// What an error of the server means.
    #[doc(hidden)]
    fn trouble(error: &dyn DatabaseError) -> Trouble;

    /// Sends a statement.
    #[doc(hidden)]
    fn run<'c>(
        conn: &'c mut <Self::Db as Database>::Connection,
        statement: &'c Statement,
        arguments: &'c [Argument<'c>],
    ) -> impl Future<Output = Result<Answer, sqlx::Error>> + Send + 'c;

    /// What an operator should know about this server, or why it is of no use.
    #[doc(hidden)]
    fn look(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Vec<String>, sqlx::Error>> + Send + '_;

    /// How the store's own connections are set up.
    #[doc(hidden)]
    fn own(
        options: <<Self::Db as Database>::Connection as Connection>::Options,
    ) -> <<Self::Db as Database>::Connection as Connection>::Options;
}

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Argument<'a> {
    Bytes(&'a [u8]),
    Body(Option<&'a [u8]>),
    Int(i64),
    Text(&'a str),
}

/// What came back.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Answer {
    pub(crate) affected: u64,
    pub(crate) row: Option<Row>,
}

/// What an error of the server means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Trouble {
    /// It collided with another transaction: a serialization failure, a deadlock, a busy file.
    Collision,
    /// It waited for another's lock for as long as it was told to.
    Locked,
    /// No room.
    Full,
    /// The table is not there.
    NoTable,
    /// Wrong password, missing right.
    Refused,
    /// It starts, stops, fails over, is read-only, or has no connection left.
    Unavailable,
    /// Anything else.
    Other,
}

/// A cheap clone of the text of a statement.
pub(crate) type Text = Arc<str>;
