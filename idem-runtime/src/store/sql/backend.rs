//! What a database is to the store: how its dialect says a few things, and how a statement is sent.

#![allow(
    unnameable_types,
    reason = "nobody else implements it, and so nobody needs the names"
)]

use std::fmt::Debug;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::{Connection, Database};
use sqlx_core::transaction::TransactionManager as _;

#[cfg(feature = "sqlite")]
use super::group::Group;
#[cfg(feature = "postgres")]
use super::notices::Notices;
use super::row::{Place, Row};
use super::statement::{Statement, Template};
use super::transaction::SqlConnection;

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

    /// The share of the latest claims that met a record, of [`Met::ALL`], from which on a claim reads before
    /// it sends [`CLAIM`](Self::CLAIM).
    #[doc(hidden)]
    const READS_FIRST: u32;

    /// Whether a column has a type, and not each of its values.
    #[doc(hidden)]
    const TYPED: bool = true;

    /// Whether [`CLAIM`](Self::CLAIM) waits for whoever writes, whatever that is.
    #[doc(hidden)]
    const WAITS: bool = false;

    /// Whether the server shows what is committed to others before it is in its log, so that it can
    /// forget an answer that it has shown.
    #[doc(hidden)]
    const SHOWS_EARLY: bool;

    /// How many bytes an answer has, as the number that rows are read with.
    #[doc(hidden)]
    const BODY_BYTES: &'static str = "length(body)";

    /// What a claim sends first.
    #[doc(hidden)]
    const CLAIM: Template;

    /// Reads the records at some places, with the place behind the columns; `{places}` are those.
    #[doc(hidden)]
    const SEVERAL: &'static str =
        "SELECT {columns}, record_key FROM {t} WHERE record_key IN ({places})";

    /// Whether these are one parameter, or each of them is.
    #[doc(hidden)]
    const ARRAYS: bool = false;

    /// Puts a record where none is; nothing happens where one is.
    #[doc(hidden)]
    const INSERT: &'static str;

    /// A condition that always holds, and ends a statement that waits for a row longer than anybody waits
    /// for its reply: `{patience}`, in milliseconds.
    #[doc(hidden)]
    const BOUNDED: &'static str;

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

    /// Puts a record where none is, inside a transaction. `{values}` is what all dialects say alike.
    #[doc(hidden)]
    const INSERT_WITHIN: &'static str;

    /// What stands before and after a statement that waits for a row no longer than `?11`, which is
    /// [`lock_wait`](Self::lock_wait), or does not wait, and `?11` is [`own_lock_wait`](Self::own_lock_wait).
    #[doc(hidden)]
    const WAIT: (&'static str, &'static str);

    /// What makes a query read what is committed, whatever the transaction has seen before.
    #[doc(hidden)]
    const SHARED: &'static str;

    /// What gives the session its settings back when that stopped half-way; `?11` as there.
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

    /// Sends what restores that setting, without waiting for the reply.
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

    /// Whether the savepoints of a call are released before its answer is stored, in a message of their own,
    /// which fails outside of the transaction. Elsewhere they stay until the transaction ends, and cost
    /// nothing.
    #[doc(hidden)]
    const RELEASES: bool;

    /// What stands around the hexadecimal digits of bytes.
    #[doc(hidden)]
    const BYTES: (&'static str, &'static str);

    /// What stands around the hexadecimal digits of a text in UTF-8.
    #[doc(hidden)]
    const TEXT: (&'static str, &'static str);

    /// How long a statement may wait for a row, in the unit of the setting.
    #[doc(hidden)]
    fn lock_wait(wait: Duration) -> i64;

    /// The connection, if it is one to this database.
    #[doc(hidden)]
    fn connection(conn: SqlConnection<'_>) -> Option<&mut <Self::Db as Database>::Connection>;

    /// Sends a script, and reads the row that it gives of the table.
    #[doc(hidden)]
    fn fetch_script(
        conn: &mut <Self::Db as Database>::Connection,
        script: String,
    ) -> impl Future<Output = Result<Answer, sqlx::Error>> + Send + '_;

    /// Sends a script, and counts the rows that it changed.
    #[doc(hidden)]
    fn execute_script(
        conn: &mut <Self::Db as Database>::Connection,
        script: String,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send + '_;

    /// How a statement that changes a row tells the time: what stands for `{now}` in it, and what at its
    /// end.
    #[doc(hidden)]
    const DATED: (&'static str, &'static str) = ("{now}", " RETURNING {now}");

    /// The number that a statement that changed rows left for its client, where there is such a thing.
    #[doc(hidden)]
    fn left(done: &<Self::Db as Database>::QueryResult) -> Option<i64> {
        let _ = done;
        None
    }

    /// Fails behind the savepoint of a claim that is in no transaction.
    #[doc(hidden)]
    const IN_TRANSACTION: &'static str = "";

    /// A condition that holds in the transaction of a claim, and not outside of one.
    #[doc(hidden)]
    const DURING: &'static str = "";

    /// Rolls back the transaction that idem began.
    #[doc(hidden)]
    fn roll_back(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + '_ {
        Manager::<Self::Db>::rollback(conn)
    }

    /// As that, without waiting for it.
    #[doc(hidden)]
    fn start_rollback(conn: &mut <Self::Db as Database>::Connection) {
        Manager::<Self::Db>::start_rollback(conn);
    }

    /// Whether the transaction is there that sqlx counts, with at most `most` before the call. Where a
    /// claim finds that out, this is `true`.
    #[doc(hidden)]
    fn in_step(
        _: &mut <Self::Db as Database>::Connection,
        _most: usize,
    ) -> impl Future<Output = bool> + Send + '_ {
        ready(true)
    }

    /// Ends a connection whose transaction is not there, unless a rollback of its caller makes it usable.
    #[doc(hidden)]
    fn close(_: &mut <Self::Db as Database>::Connection) -> impl Future<Output = ()> + Send + '_ {
        ready(())
    }

    /// What an operator should know about this server, or why it is of no use.
    #[doc(hidden)]
    fn look(
        conn: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Vec<String>, sqlx::Error>> + Send + '_;

    /// The longest statement that the server takes, with its values, in bytes; `None`: longer than any record.
    #[doc(hidden)]
    fn longest_statement(
        _: &mut <Self::Db as Database>::Connection,
    ) -> impl Future<Output = Result<Option<usize>, sqlx::Error>> + Send + '_ {
        ready(Ok(None))
    }

    /// What writes the statements of several calls at a time, where that is the store's to do.
    #[cfg(feature = "sqlite")]
    #[doc(hidden)]
    const GROUPS: bool = false;

    /// That, if it is.
    #[cfg(feature = "sqlite")]
    #[doc(hidden)]
    fn group(
        options: &<<Self::Db as Database>::Connection as Connection>::Options,
    ) -> Option<Group> {
        let _ = options;
        None
    }

    /// What hears of changes, where the database tells of them.
    #[cfg(feature = "postgres")]
    #[doc(hidden)]
    fn notices(
        options: <<Self::Db as Database>::Connection as Connection>::Options,
        table: &str,
        patience: Duration,
    ) -> Option<Notices> {
        let _ = (options, table, patience);
        None
    }

    /// What an operator should know of the way to the server.
    #[doc(hidden)]
    fn transport(
        options: &<<Self::Db as Database>::Connection as Connection>::Options,
    ) -> Option<String> {
        let _ = options;
        None
    }

    /// What a connection of the store's own is told first; empty for nothing.
    #[doc(hidden)]
    const SESSION: &'static str;

    /// How the store's own connections are set up.
    #[doc(hidden)]
    fn own(
        options: <<Self::Db as Database>::Connection as Connection>::Options,
    ) -> <<Self::Db as Database>::Connection as Connection>::Options;
}

pub(crate) type Manager<D> = <D as Database>::TransactionManager;

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Argument<'a> {
    Bytes(&'a [u8]),
    Body(Option<&'a [u8]>),
    Int(i64),
    Text(&'a str),
    /// At least one, and the only argument.
    Places(&'a [Place]),
}

/// What came back.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Answer {
    pub(crate) affected: u64,
    pub(crate) row: Option<Row>,
    /// The time at which a row was changed, which is the fence of a record that was put there.
    pub(crate) granted: Option<i64>,
    /// Of several that were asked for, those that are there.
    pub(crate) rows: Vec<(Place, Row)>,
    /// A block of a listing, with what the table calls the operation of each.
    pub(crate) block: Vec<(Place, String, Row)>,
}

impl Answer {
    /// The database's time, in microseconds, if it came along.
    pub(crate) fn now_us(&self) -> Option<u64> {
        let row = self.row.as_ref().or(self.rows.first().map(|(_, row)| row));
        let granted = self.granted.and_then(|micros| u64::try_from(micros).ok());
        row.map(|row| row.now_us).or(granted)
    }
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
    /// The database or the schema is not there.
    NoDatabase,
    /// Wrong user or password.
    Login,
    /// A right is missing.
    Refused,
    /// A file that is of no use, and what to do about it.
    #[cfg(feature = "sqlite")]
    File(&'static str),
    /// It starts, stops, or fails over.
    Unavailable,
    /// It has no connection left, or has ended the statement for a limit of its own.
    Busy,
    /// It only reads.
    ReadOnly,
    /// Its transaction is over, or failed, or a savepoint in it is gone.
    Ended,
    /// Anything else.
    Other,
}

impl Trouble {
    /// Whether it leaves open what became of the statement, on a connection that is of no more use.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::Unavailable | Self::Busy)
    }
}

/// A cheap clone of the text of a statement.
pub(crate) type Text = Arc<str>;
