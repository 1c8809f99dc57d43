//! A session: what the store and calls in a transaction need of a connection to a database.
//!
//! Its messages are texts of a [`Dialect`], so that any client can bring one: the one of sqlx implements
//! nothing else.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
/// A future that is dropped may leave its message in progress: the next one is sent behind it, or the session fails
/// from then on.
pub trait SqlSession: Send {
    /// The dialect of its database.
    fn dialect(&self) -> &'static Dialect;

    /// Sends a statement with its arguments, and receives the reply to its end.
    ///
    /// The server confirms a change after the row that it returns, so that the future ends with the last message.
    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()>;

    /// Sends a script, which has one or more statements without parameters, and receives the reply.
    ///
    /// Rows that another statement than the last one returns may be left out, and so may the end of each but the last.
    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()>;

    /// The number of transactions and savepoints that the client counts on this connection; 0: there is none.
    ///
    /// idem begins a transaction for a call where there is none.
    fn depth(&self) -> usize;

    /// Begins a transaction.
    fn begin(&mut self) -> SqlFuture<'_, ()>;

    /// Commits the innermost transaction that the client counts.
    fn commit(&mut self) -> SqlFuture<'_, ()>;

    /// Rolls back the innermost transaction that the client counts.
    fn rollback(&mut self) -> SqlFuture<'_, ()>;

    /// Starts a rollback, which is sent before any later message on the connection.
    fn start_rollback(&mut self);

    /// Starts a script whose reply is not awaited. Called on SQLite only, to restore a setting.
    fn start_script(&mut self, script: String) {
        drop(script);
    }

    /// Whether the transaction that the client counts exists, with at most `most` counted before the call.
    ///
    /// A database may roll back by itself. A client that does not notice asks the database here; by default its count
    /// is right.
    fn in_step(&mut self, most: usize) -> SqlFuture<'_, bool> {
        let _ = most;
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Makes every later use of a connection fail whose transaction does not exist. By default nothing happens.
    fn close(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the connection keeps statements that it has prepared, under names.
    fn keeps_statements(&self) -> bool {
        false
    }
}

/// The client that makes the store's own connections.
///
/// Given to [`SqlSource::new`](super::SqlSource::new).
pub trait SqlClient: Send + Sync {
    /// Makes a connection, with these credentials in place of its own.
    fn connect(&self, credentials: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>>;

    /// Whether its statements have no names.
    ///
    /// The store then sends each in a transaction of its own: a statement may be prepared and executed in two
    /// messages, between which a proxy gives the session, and with it the unnamed statement, to another client.
    fn is_unnamed(&self) -> bool {
        false
    }

    /// The warning for an operator about the transport to the server.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The client of the connection that writes for several calls at a time. Used on SQLite only.
    fn writer(&self) -> Option<Arc<dyn SqlClient>> {
        None
    }
}

/// A statement with its arguments.
#[derive(Clone, Copy)]
pub struct SqlStatement<'a> {
    text: &'a Arc<str>,
    is_named: bool,
    /// The argument of each parameter; empty: each has its own.
    order: &'a [usize],
    arguments: &'a [SqlArgument<'a>],
    /// Whether its columns are known to have the expected types.
    is_known: &'a AtomicBool,
}

// The arguments have the answer.
debug_fields!(SqlStatement<'_> { text, is_named });

impl<'a> SqlStatement<'a> {
    pub(super) fn new(
        text: &'a Arc<str>,
        is_named: bool,
        (order, arguments): (&'a [usize], &'a [SqlArgument<'a>]),
        is_known: &'a AtomicBool,
    ) -> Self {
        Self {
            text,
            is_named,
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

    /// The argument of each parameter.
    pub fn arguments(&self) -> impl Iterator<Item = SqlArgument<'a>> + use<'a> {
        let (order, arguments) = (self.order, self.arguments);
        let parameters = if order.is_empty() {
            arguments.len()
        } else {
            order.len()
        };
        (0..parameters).map(move |at| arguments[order.get(at).copied().unwrap_or(at)])
    }

    /// Whether its columns had the expected types before. The check is expensive.
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

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
    /// The end of a statement.
    Done {
        /// The number of rows that it changed.
        affected: u64,
        /// The number that it left for its client (MySQL's `LAST_INSERT_ID`); 0: none.
        last_insert_id: u64,
    },
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

/// Sends a script, and returns the number of rows that its last statement changed.
pub(super) async fn execute(session: &mut dyn SqlSession, script: String) -> Result<u64, SqlError> {
    let mut changed = 0;
    let mut receive = |reply: SqlReply<'_>| {
        if let SqlReply::Done { affected, .. } = reply {
            changed = affected;
        }
        Ok(())
    };
    session.script(script, &mut receive).await?;
    Ok(changed)
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
