//! A session: a connection that sends the statements of a [`Dialect`].
//!
//! Any client can bring one, by the list of functions in the guide's page `sql`; sqlx's connections are the sessions of
//! `sqlx_client`.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "_sqlx")]
use std::sync::atomic::Ordering;

use super::argument::SqlArgument;
use super::dialect::Dialect;
use super::error::SqlError;
use crate::credentials::Credentials;

/// The future of an operation of a session.
pub type SqlFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SqlError>> + Send + 'a>>;

/// Receives the reply to a message: each row, and the end of each of its statements.
pub type SqlReceiver<'a> = dyn FnMut(SqlReply<'_>) -> Result<(), SqlError> + Send + 'a;

/// A connection of a SQL client to a database.
///
/// It is one physical connection, and the very connection of a body's writes. Once it is lost, every later message
/// fails: after a silent reconnection the next writes of the body would be committed without its record.
///
/// # Futures
///
/// They never block the thread, because each has a deadline. A dropped one may leave its message in progress. The reply
/// to that never reaches a later receiver: the session discards it before the next message, or fails from then on. A
/// dropped [`begin`](Self::begin) leaves no open transaction: see [`SqlTransaction::give_up`](super::SqlTransaction::give_up).
///
/// # Confidentiality
///
/// Arguments hold answers. No session logs them.
pub trait SqlSession: Send {
    /// The dialect of its database.
    fn dialect(&self) -> &'static Dialect;

    /// Sends a statement, and forwards each row and the statement's end.
    ///
    /// It ends when the server has confirmed the end of the statement and, outside of a transaction, its commit
    /// (PostgreSQL: `ReadyForQuery`; MySQL: the last OK or EOF; SQLite: `SQLITE_DONE`), which follows the rows. An error
    /// behind a row is the result, and so is an error of the receiver, which is not called again. The session stays usable
    /// after the latter.
    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()>;

    /// Sends a script: statements without parameters, separated by `;`.
    ///
    /// They run in order up to the first error, which is the result. The rows of the last one and its end are forwarded;
    /// those of others may be. A client that sends one statement at a time splits a script of a call in a transaction at
    /// each `;`: none of its literals contains one.
    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()>;

    /// The number of transactions and savepoints that the client counts.
    ///
    /// A transaction that [`begin`](Self::begin) or a function of the client began counts; one in a script does not.
    /// `begin` adds one; `commit` and `rollback` remove one. At 0 each statement is committed alone, and idem begins a
    /// transaction for a call: a client whose count is 0 within a transaction would let idem commit that.
    ///
    /// By default 1: a transaction of the client, which its caller has begun and ends. Then the next four functions are
    /// never called. A connection has all five.
    fn depth(&mut self) -> usize {
        1
    }

    /// Begins a transaction.
    fn begin(&mut self) -> SqlFuture<'_, ()> {
        of_caller()
    }

    /// Commits the innermost transaction that the client counts.
    fn commit(&mut self) -> SqlFuture<'_, ()> {
        of_caller()
    }

    /// Rolls back the innermost transaction that the client counts.
    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        of_caller()
    }

    /// Starts a rollback that precedes any later message. Called from destructors.
    fn start_rollback(&mut self) {}

    /// Starts a script without waiting for its reply. Required on SQLite, whose setting it restores.
    fn start_script(&mut self, script: String) {
        drop(script);
    }

    /// Whether the counted transaction exists, with at most `most` counted.
    ///
    /// A database may roll back by itself, as SQLite does. A client that does not notice asks the database; by default its
    /// count is right.
    fn in_step(&mut self, most: usize) -> SqlFuture<'_, bool> {
        let _ = most;
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Makes every later use of a connection without its transaction fail. Required on SQLite.
    fn close(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the connection keeps prepared statements under names.
    fn keeps_statements(&self) -> bool {
        false
    }
}

/// The sending methods of a session, each by an expression.
///
/// A macro, because the connections of a client have no type in common.
#[allow(unused_macros, reason = "each client has its feature")]
macro_rules! sends {
    (
        |$session:ident, $message:ident, $receive:ident|
        send: $send:expr, script: $script:expr $(,)?
    ) => {
        fn send<'a>(
            &'a mut self,
            $message: $crate::store::sql::session::SqlStatement<'a>,
            $receive: &'a mut $crate::store::sql::session::SqlReceiver<'a>,
        ) -> $crate::store::sql::session::SqlFuture<'a, ()> {
            let $session = self;
            Box::pin($send)
        }

        fn script<'a>(
            &'a mut self,
            $message: String,
            $receive: &'a mut $crate::store::sql::session::SqlReceiver<'a>,
        ) -> $crate::store::sql::session::SqlFuture<'a, ()> {
            let $session = self;
            Box::pin($script)
        }
    };
}

#[allow(unused_imports, reason = "each client has its feature")]
pub(super) use sends;

/// The error of a session that neither begins nor ends transactions.
fn of_caller<'a>() -> SqlFuture<'a, ()> {
    let error = SqlError::client("its caller begins and ends this transaction");
    Box::pin(std::future::ready(Err(error)))
}

/// The client that makes the store's own connections.
///
/// Given to [`SqlSource::new`](super::SqlSource::new).
pub trait SqlClient: Send + Sync {
    /// Makes a connection, with these credentials in place of its own.
    ///
    /// It is a new one, in autocommit, that the store owns and that is closed when it is dropped: the store drops one in
    /// the middle of a transaction, and changes settings of its session. A connection that returns to a pool would take
    /// both along.
    fn connect(&self, credentials: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>>;

    /// Whether its own options leave no statement a name.
    ///
    /// The store then sends each in a transaction of its own: a statement may be prepared and executed in two
    /// messages, between which a proxy gives the session, and with it the unnamed statement, to another client.
    fn is_unnamed(&self) -> bool {
        false
    }

    /// Whether a statement without a name is one message.
    ///
    /// Such a statement needs no transaction, and by default none of the store's has a name.
    fn is_one_message(&self) -> bool {
        false
    }

    /// The warning for an operator about the transport to the server.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The client of the connection that writes for several calls.
    ///
    /// Of SQLite, whose statements then have several parts with parameters, each with an end of its own.
    #[doc(hidden)]
    fn writer(&self) -> Option<Arc<dyn SqlClient>> {
        None
    }
}

/// A statement with its arguments.
#[derive(Clone, Copy)]
pub struct SqlStatement<'a> {
    text: &'a Arc<str>,
    is_named: bool,
    returns_rows: bool,
    /// The argument of each parameter; empty: each has its own.
    order: &'a [usize],
    arguments: &'a [SqlArgument<'a>],
    /// Whether its columns are known to have the expected types.
    #[cfg_attr(not(feature = "_sqlx"), allow(dead_code, reason = "for sqlx"))]
    is_known: &'a AtomicBool,
}

// The arguments have the answer.
debug_fields!(SqlStatement<'_> { text, is_named });

impl<'a> SqlStatement<'a> {
    pub(super) fn new(
        text: &'a Arc<str>,
        (is_named, returns_rows): (bool, bool),
        (order, arguments): (&'a [usize], &'a [SqlArgument<'a>]),
        is_known: &'a AtomicBool,
    ) -> Self {
        Self {
            text,
            is_named,
            returns_rows,
            order,
            arguments,
            is_known,
        }
    }

    /// Its text, with parameters as the dialect has them: `$1`, or `?`.
    #[must_use]
    pub fn text(&self) -> &'a Arc<str> {
        self.text
    }

    /// Whether the connection may keep it, prepared under a name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether its result is its rows; otherwise it is the number of rows that it has changed.
    ///
    /// For a client with a function for each. Other clients forward what they get.
    #[must_use]
    pub fn returns_rows(&self) -> bool {
        self.returns_rows
    }

    /// The number of its parameters.
    #[must_use]
    pub fn parameters(&self) -> usize {
        if self.order.is_empty() {
            self.arguments.len()
        } else {
            self.order.len()
        }
    }

    /// The argument of each parameter.
    pub fn arguments(&self) -> impl Iterator<Item = SqlArgument<'a>> + use<'a> {
        let (order, arguments) = (self.order, self.arguments);
        (0..self.parameters()).map(move |at| arguments[order.get(at).copied().unwrap_or(at)])
    }

    /// Whether its columns had the expected types before. The check is expensive.
    #[cfg(feature = "_sqlx")]
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    #[cfg(feature = "_sqlx")]
    pub(super) fn known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }
}

/// A part of the reply to a message.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "rows have the answer")]
#[non_exhaustive]
pub enum SqlReply<'r> {
    /// A row.
    Row(&'r dyn SqlRow),
    /// The end of a statement, once for each: see [`done`](Self::done).
    #[non_exhaustive]
    Done {
        /// The number of rows that it changed.
        affected: u64,
        /// The number that it left for its client (MySQL's `LAST_INSERT_ID`); 0: none.
        last_insert_id: u64,
    },
}

impl SqlReply<'_> {
    /// The end of a statement, with the number of rows it changed.
    ///
    /// Not with rows of statements before it: a number that is too high would acknowledge an answer that is not stored.
    #[must_use]
    pub fn done(affected: u64) -> Self {
        Self::Done {
            affected,
            last_insert_id: 0,
        }
    }

    /// The same on MySQL, with the number of `LAST_INSERT_ID`; 0: none.
    #[must_use]
    pub fn done_with_id(affected: u64, last_insert_id: u64) -> Self {
        Self::Done {
            affected,
            last_insert_id,
        }
    }
}

/// A row, whose columns are counted from zero.
#[allow(
    clippy::missing_errors_doc,
    reason = "an error is that of a value of another type"
)]
pub trait SqlRow {
    /// The number of columns.
    fn columns(&self) -> usize;

    /// A whole number; `None` for NULL.
    fn int(&self, column: usize) -> Result<Option<i64>, SqlError>;

    /// A text; `None` for NULL.
    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError>;

    /// Bytes; `None` for NULL.
    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError>;
}

impl dyn SqlRow + '_ {
    /// A number that is never NULL.
    pub(super) fn number(&self, column: usize) -> Result<i64, SqlError> {
        self.int(column)?.ok_or_else(SqlError::null)
    }

    /// A text that is never NULL.
    pub(super) fn string(&self, column: usize) -> Result<String, SqlError> {
        let text = self.text(column)?.ok_or_else(SqlError::null)?;
        Ok(text.into_owned())
    }
}

/// Sends a script whose rows do not matter.
pub(super) async fn execute(session: &mut dyn SqlSession, script: String) -> Result<(), SqlError> {
    session.script(script, &mut |_| Ok(())).await
}

/// Sends a script, and reads each row that it returns.
pub(super) async fn rows<T: Send>(
    session: &mut dyn SqlSession,
    script: impl Into<String>,
    read: impl Fn(&dyn SqlRow) -> Result<T, SqlError> + Send + Sync,
) -> Result<Vec<T>, SqlError> {
    let mut rows = Vec::new();
    let mut receive = |reply: SqlReply<'_>| {
        if let SqlReply::Row(row) = reply {
            rows.push(read(row)?);
        }
        Ok(())
    };
    session.script(script.into(), &mut receive).await?;
    Ok(rows)
}

/// The same of a script that returns one row.
pub(super) async fn row<T: Send>(
    session: &mut dyn SqlSession,
    script: impl Into<String>,
    read: impl Fn(&dyn SqlRow) -> Result<T, SqlError> + Send + Sync,
) -> Result<T, SqlError> {
    let mut rows = rows(session, script, read).await?;
    rows.pop().ok_or_else(SqlError::null)
}
