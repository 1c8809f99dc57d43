//! The dialect of a database: its statements, its literals, and the traits that the store depends on.

use std::time::Duration;

use super::error_kind::SqlErrorKind;

/// The texts before and after a part of a statement.
pub(crate) type Around = (&'static str, &'static str);

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "a database has some of them")]
pub(crate) enum StatementKind {
    /// Prepared once a connection; returns at most one row.
    Fetch,
    /// As `Fetch`, and inserts the record if there is none.
    Claim,
    /// Prepared once a connection; returns a row for each existing record of its keys.
    Several,
    /// Planned anew each time, by its arguments; returns a block of a listing.
    Block,
    /// Prepared once a connection; returns the number of changed rows.
    Execute,
    /// As `Execute`, and returns the time of the change, if any.
    Grant,
    /// Inserts a record for each of several calls; returns the keys and the fences of the inserted records.
    Grants,
    /// Several statements in one message, with the arguments written into the text.
    Script,
}

/// The dialect of a database, for a [session](super::SqlSession).
// Pure text. The placeholders of a statement are those of `statement_texts`.
#[allow(clippy::struct_excessive_bools, reason = "each is a trait of its own")]
pub struct Dialect {
    /// The name of the database, for messages.
    pub(crate) name: &'static str,
    /// Microseconds since 1970, by the database's clock.
    pub(crate) now: &'static str,
    /// The hit rate from which claims read first, of [`HitRate::SCALE`](super::hit_rate::HitRate::SCALE).
    pub(crate) reads_first: u32,
    /// Whether a column has a type, and not each of its values.
    #[cfg_attr(not(feature = "_sqlx"), allow(dead_code, reason = "for sqlx"))]
    pub(crate) typed: bool,
    /// Whether a claim waits for any other writer of the database.
    pub(crate) has_one_writer: bool,
    /// Whether commits are shown before they are logged, and can be lost.
    pub(crate) shows_early: bool,
    /// Whether parameters are numbered (`$1`), and take lists. Otherwise they are `?`.
    pub(crate) numbered: bool,
    /// The column of answers, as written in a statement.
    pub(crate) answer_column: &'static str,
    /// The length of an answer in bytes, as the rows' integer type.
    pub(crate) body_bytes: &'static str,
    /// The first statement of a claim.
    pub(crate) claim: (StatementKind, &'static str),
    /// Reads several records. The primary key follows the columns; `{places}` stands for the primary keys.
    pub(crate) several: &'static str,
    /// The claim and the completion for several calls. Without them each call sends a statement.
    ///
    /// They wait for a row for a moment only: calls that the row is not about wait as well. SQLite's are parts of a
    /// transaction of its group commit.
    pub(crate) batches: Option<(&'static str, &'static str)>,
    /// Inserts a record if there is none; an existing one stays unchanged.
    pub(crate) insert: &'static str,
    /// A true condition that bounds waits for rows to `{patience}` milliseconds.
    pub(crate) bounded: &'static str,
    /// Deletes expired records: `?1` at most.
    pub(crate) purge: &'static str,
    /// The plain SQL of the table, for `idem_records`.
    pub(crate) schema: &'static str,
    /// The texts around it that make it safe beside concurrent migrations.
    pub(crate) migration: Around,
    /// A statement that fails if `{name}` alone leads to another table.
    pub(crate) one_table: &'static str,
    /// How a statement that changes a row returns the time: its expression, and the end of the statement.
    pub(crate) dated: Around,
    /// The first script on a connection of the store; empty for none.
    ///
    /// It may return a number: the longest statement that the server accepts, in bytes with its values.
    pub(crate) session: &'static str,
    /// The literal syntax around the hexadecimal digits of bytes.
    pub(crate) bytes: Around,
    /// The same of a text in UTF-8.
    pub(crate) text: Around,

    /// Inserts `{values}` if there is no record, inside a transaction.
    pub(crate) insert_within: &'static str,
    /// A statement after the savepoint of a claim. It fails if the claim is in no transaction.
    pub(crate) in_transaction: &'static str,
    /// A condition that holds only inside the transaction of a claim.
    pub(crate) during: &'static str,
    /// The texts around a statement that bound its wait for a row.
    ///
    /// `?11` is [`lock_wait`](Self::lock_wait), or the connection's own setting, if the client must restore it.
    pub(crate) wait: Around,
    /// Restores the settings of the session after such a statement failed.
    pub(crate) restore: &'static str,
    /// A suffix by which a query reads the committed record.
    pub(crate) shared: &'static str,
    /// Whether a call's savepoints are released before its answer is stored.
    ///
    /// That is a separate message, which fails outside of the transaction. Elsewhere they stay until the transaction
    /// ends, and cost nothing.
    pub(crate) releases: bool,
    /// The longest wait for a row, in the unit of the setting.
    pub(crate) lock_wait: fn(Duration) -> i64,
    /// Reads the connection's own setting, if the client must restore it; empty otherwise.
    pub(crate) own_lock_wait: &'static str,

    /// Classifies an error of the server by its code and its text: see [`SqlError::server`](super::SqlError::server).
    pub(crate) error_kind: fn(&str, &str) -> SqlErrorKind,
}

debug_fields!(Dialect { name });
