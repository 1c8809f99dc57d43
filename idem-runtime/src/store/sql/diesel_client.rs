//! diesel-async as a client: its connections are sessions, in transactions of callers or of idem.

mod message;
#[cfg(feature = "diesel-async-mysql")]
mod mysql;
#[cfg(any(feature = "diesel-async-bb8", feature = "diesel-async-deadpool"))]
mod pools;
#[cfg(feature = "diesel-async-postgres")]
mod postgres;

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::mem;
use std::pin::pin;
use std::task::{Context, Waker};

use diesel::backend::Backend;
use diesel::connection::{CacheSize, TransactionDepthChange, TransactionManagerStatus};
use diesel::deserialize::{self, FromSql};
use diesel::query_builder::QueryFragment;
use diesel::result::{ConnectionError, DatabaseErrorKind, Error, QueryResult};
use diesel::row::{Field, Row};
use diesel::sql_types::{BigInt, Binary, Text};
use diesel_async::{AnsiTransactionManager, AsyncConnection, TransactionManager};
use futures_core::Stream;

use self::message::{Arrays, Message};
use super::dialect::Dialect;
use super::error::SqlError;
use super::session::{SqlReceiver, SqlReply, SqlRow};

/// A connection of diesel-async.
trait DieselConnection: AsyncConnection<TransactionManager = AnsiTransactionManager> {
    const DIALECT: &'static Dialect;
    /// Commits, and fails in a transaction that an error has aborted.
    const COMMIT: &'static str;
    /// Whether it discards the reply to a message whose future was dropped.
    ///
    /// Another one writes its next message, and takes the reply to the dropped one for its own.
    const DISCARDS_REPLIES: bool;

    /// Maps an error of a statement, whose code diesel-async drops.
    fn error(&mut self, error: Error) -> impl Future<Output = SqlError> + Send;

    /// Maps an error of the server, by its text alone.
    fn error_of_text(text: &str) -> SqlError;
}

/// Maps an error that is none of the database; that is returned.
fn client_error(error: Error) -> Result<(DatabaseErrorKind, String), SqlError> {
    match error {
        Error::DatabaseError(
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection,
            text,
        ) => Err(SqlError::lost(text.message())),
        Error::DatabaseError(kind, text) => Ok((kind, text.message().to_owned())),
        // The texts of others may quote a value.
        Error::QueryBuilderError(_)
        | Error::SerializationError(_)
        | Error::DeserializationError(_) => {
            Err(SqlError::client("diesel-async cannot send or read a value"))
        }
        _ => Err(SqlError::lost("diesel-async has broken the connection")),
    }
}

/// Maps the error of a new connection.
fn connection_error<C: DieselConnection>(error: ConnectionError) -> SqlError {
    match error {
        ConnectionError::CouldntSetupConfiguration(error) => match client_error(error) {
            Ok((_, text)) => C::error_of_text(&text),
            Err(error) => error,
        },
        ConnectionError::BadConnection(text) => SqlError::lost(text),
        // Its text may quote a password.
        _ => SqlError::configuration("the URL of the pool cannot be read"),
    }
}

fn status<C: DieselConnection>(conn: &mut C) -> &mut TransactionManagerStatus {
    AnsiTransactionManager::transaction_manager_status_mut(conn)
}

/// Whether a function of diesel-async was dropped while it began or ended a transaction, or has failed to.
fn is_broken<C: DieselConnection>(conn: &mut C) -> bool {
    // The other part of what it checks is an open transaction.
    let before = mem::take(status(conn));
    let is_flagged = AnsiTransactionManager::is_broken_transaction_manager(conn);
    let status = status(conn);
    *status = before;
    is_flagged || matches!(status, TransactionManagerStatus::InError)
}

/// The number of transactions and savepoints of diesel; 1 on a broken connection.
fn depth<C: DieselConnection>(conn: &mut C) -> usize {
    match status(conn).transaction_depth() {
        Ok(depth) => depth.map_or(0, |depth| depth.get() as usize),
        Err(_) => 1,
    }
}

/// Marks a message that is on its way: its future may be dropped, which breaks a connection that discards no reply.
fn sent<C: DieselConnection>(conn: &mut C) -> Result<Option<TransactionManagerStatus>, SqlError> {
    let status = status(conn);
    if matches!(status, TransactionManagerStatus::InError) {
        return Err(SqlError::lost(
            "diesel-async counts the connection as broken",
        ));
    }
    let breaks = !C::DISCARDS_REPLIES;
    Ok(breaks.then(|| mem::replace(status, TransactionManagerStatus::InError)))
}

/// The reply to it is received.
fn replied<C: DieselConnection>(conn: &mut C, before: Option<TransactionManagerStatus>) {
    if let Some(before) = before {
        *status(conn) = before;
    }
}

/// Sends statements without parameters, and drops their rows.
async fn batch<C: DieselConnection>(conn: &mut C, script: &str) -> Result<(), SqlError> {
    let before = sent(conn)?;
    let done = conn.batch_execute(script).await;
    replied(conn, before);
    match done {
        Ok(()) => Ok(()),
        Err(error) => Err(conn.error(error).await),
    }
}

/// Sends a statement that returns rows.
async fn rows<C>(
    conn: &mut C,
    message: Message<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection<Backend: Values>,
    for<'a> Message<'a>: QueryFragment<C::Backend>,
{
    let before = sent(conn)?;
    let done = forward(conn, message, receive).await;
    replied(conn, before);
    match done {
        Ok(received) => received?,
        Err(error) => return Err(conn.error(error).await),
    }
    receive(SqlReply::done(0))
}

/// Forwards the rows of a statement up to its end, also after an error of the receiver.
async fn forward<C>(
    conn: &mut C,
    message: Message<'_>,
    receive: &mut SqlReceiver<'_>,
) -> QueryResult<Result<(), SqlError>>
where
    C: DieselConnection<Backend: Values>,
    for<'a> Message<'a>: QueryFragment<C::Backend>,
{
    let mut rows = pin!(conn.load(message).await?);
    let mut received = Ok(());
    while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
        let row = row?;
        if received.is_ok() {
            received = receive(SqlReply::Row(&Columns(&row, PhantomData)));
        }
    }
    Ok(received)
}

/// Sends a statement that changes rows.
async fn count<C>(
    conn: &mut C,
    message: Message<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection,
    for<'a> Message<'a>: QueryFragment<C::Backend>,
{
    let before = sent(conn)?;
    let done = conn.execute_returning_count(message).await;
    replied(conn, before);
    match done {
        Ok(affected) => receive(SqlReply::done(affected as u64)),
        Err(error) => Err(conn.error(error).await),
    }
}

/// Sends a script: only its last statement may return something, and that goes alone.
async fn script<C>(
    conn: &mut C,
    script: &str,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection<Backend: Values>,
    for<'a> Message<'a>: QueryFragment<C::Backend>,
{
    let (others, last) = split_last(script);
    let returns = Returns::of(last);
    if returns == Returns::Nothing {
        batch(conn, script).await?;
        return receive(SqlReply::done(0));
    }
    if !others.is_empty() {
        batch(conn, others).await?;
    }
    let last = Message::of_text(last);
    if returns == Returns::Rows {
        rows(conn, last, receive).await
    } else {
        count(conn, last, receive).await
    }
}

/// What a statement of a script returns.
#[derive(PartialEq)]
enum Returns {
    Rows,
    Count,
    Nothing,
}

impl Returns {
    /// By its first word. No text in a script is written but in hexadecimal digits.
    fn of(statement: &str) -> Self {
        let word = statement
            .split_ascii_whitespace()
            .next()
            .unwrap_or_default();
        match word.to_ascii_uppercase().as_str() {
            "SELECT" | "SHOW" | "WITH" => Self::Rows,
            "DELETE" | "INSERT" | "SET" | "UPDATE" if statement.contains(" RETURNING ") => {
                Self::Rows
            }
            "DELETE" | "INSERT" | "UPDATE" => Self::Count,
            // MariaDB's `SET STATEMENT … FOR UPDATE …`.
            "SET" if statement.contains(" FOR UPDATE ") => Self::Count,
            _ => Self::Nothing,
        }
    }
}

/// Splits a script before its last statement.
fn split_last(script: &str) -> (&str, &str) {
    let script = script.trim_end().trim_end_matches(';');
    let (mut begins, mut quote) = (0, None);
    for (at, character) in script.char_indices() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if matches!(character, '\'' | '"' | '`') => quote = Some(character),
            None if character == ';' => begins = at + 1,
            None => {}
        }
    }
    (&script[..begins], script[begins..].trim_start())
}

/// Begins or ends the only transaction.
async fn control<C: DieselConnection>(
    conn: &mut C,
    text: &'static str,
    change: Option<TransactionDepthChange>,
) -> Result<(), SqlError> {
    batch(conn, text).await?;
    *status(conn) = TransactionManagerStatus::default();
    if let (Some(change), TransactionManagerStatus::Valid(status)) = (change, status(conn)) {
        let _ = status.change_transaction_depth(change);
    }
    Ok(())
}

/// Sends a rollback behind any message that is on its way, without waiting for its reply.
fn start_rollback<C: DieselConnection>(conn: &mut C) {
    // The first poll sends it.
    let _ = pin!(conn.batch_execute("ROLLBACK")).poll(&mut Context::from_waker(Waker::noop()));
    let status = status(conn);
    if !C::DISCARDS_REPLIES {
        status.set_in_error();
        // A statement that is prepared anew fails by the reply to the rollback, where a kept one would take it for its
        // own.
        conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    } else if !matches!(status, TransactionManagerStatus::InError) {
        *status = TransactionManagerStatus::default();
    }
}

/// The values of a database.
trait Values: Arrays {
    fn int(value: Self::RawValue<'_>) -> deserialize::Result<i64>;
    fn text(value: Self::RawValue<'_>) -> deserialize::Result<String>;
    fn bytes(value: Self::RawValue<'_>) -> deserialize::Result<Vec<u8>>;
}

impl<DB: Arrays> Values for DB
where
    i64: FromSql<BigInt, DB>,
    String: FromSql<Text, DB>,
    Vec<u8>: FromSql<Binary, DB>,
{
    fn int(value: Self::RawValue<'_>) -> deserialize::Result<i64> {
        FromSql::from_sql(value)
    }

    fn text(value: Self::RawValue<'_>) -> deserialize::Result<String> {
        FromSql::from_sql(value)
    }

    fn bytes(value: Self::RawValue<'_>) -> deserialize::Result<Vec<u8>> {
        FromSql::from_sql(value)
    }
}

/// A row.
struct Columns<'r, 'c, R, DB>(&'r R, PhantomData<&'c DB>);

impl<'c, R: Row<'c, DB>, DB: Backend> Columns<'_, 'c, R, DB> {
    fn value<T>(
        &self,
        column: usize,
        read: impl Fn(DB::RawValue<'_>) -> deserialize::Result<T>,
    ) -> Result<Option<T>, SqlError> {
        let field = self.0.get(column);
        let field = field.ok_or_else(|| SqlError::client("a column is missing"))?;
        // The text of the error may quote the value.
        let of_another_type = |_| SqlError::client("a value is of another type");
        field.value().map(read).transpose().map_err(of_another_type)
    }
}

impl<'c, R: Row<'c, DB>, DB: Values> SqlRow for Columns<'_, 'c, R, DB> {
    fn columns(&self) -> usize {
        self.0.field_count()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        self.value(column, DB::int)
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        Ok(self.value(column, DB::text)?.map(Cow::Owned))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        Ok(self.value(column, DB::bytes)?.map(Cow::Owned))
    }
}

/// The methods of a session. A macro, because no type has all connections of diesel-async.
macro_rules! session {
    ($Connection:ty) => {
        impl SqlSession for $Connection {
            fn dialect(&self) -> &'static Dialect {
                Self::DIALECT
            }

            fn send<'a>(
                &'a mut self,
                statement: SqlStatement<'a>,
                receive: &'a mut SqlReceiver<'a>,
            ) -> SqlFuture<'a, ()> {
                let message = Message::new(&statement);
                if statement.returns_rows() {
                    Box::pin(rows(self, message, receive))
                } else {
                    Box::pin(count(self, message, receive))
                }
            }

            fn script<'a>(
                &'a mut self,
                text: String,
                receive: &'a mut SqlReceiver<'a>,
            ) -> SqlFuture<'a, ()> {
                Box::pin(async move { script(self, &text, receive).await })
            }

            fn depth(&mut self) -> usize {
                depth(self)
            }

            fn begin(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(control(
                    self,
                    "BEGIN",
                    Some(TransactionDepthChange::IncreaseDepth),
                ))
            }

            fn commit(&mut self) -> SqlFuture<'_, ()> {
                if depth(self) == 1 {
                    return Box::pin(control(self, Self::COMMIT, None));
                }
                let error = SqlError::client("a transaction that the body has begun is open");
                Box::pin(std::future::ready(Err(error)))
            }

            /// And those that the body has left open in it.
            fn rollback(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(control(self, "ROLLBACK", None))
            }

            fn start_rollback(&mut self) {
                start_rollback(self);
            }

            fn in_step(&mut self, _: usize) -> SqlFuture<'_, bool> {
                let in_step = if is_broken(self) {
                    Err(SqlError::lost(
                        "diesel-async counts the connection as broken",
                    ))
                } else {
                    Ok(true)
                };
                Box::pin(std::future::ready(in_step))
            }
        }

        #[diagnostic::do_not_recommend]
        impl SqlTransaction for $Connection {
            fn session(&mut self) -> &mut dyn SqlSession {
                self
            }

            fn give_up(&mut self) {
                start_rollback(self);
            }
        }
    };
}

#[allow(unused_imports, reason = "for the modules of the databases")]
use session;
