//! diesel-async as a client: its connections are sessions, in transactions of callers or of idem.

mod message;
#[cfg(feature = "diesel-async-mysql")]
mod mysql;
#[cfg(any(feature = "diesel-async-bb8", feature = "diesel-async-deadpool"))]
mod pools;
#[cfg(feature = "diesel-async-postgres")]
mod postgres;
mod row;
mod script;

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;

use diesel::connection::{
    TransactionDepthChange, TransactionManagerStatus, ValidTransactionManagerStatus,
};
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error, QueryResult};
use diesel_async::{AnsiTransactionManager, AsyncConnection, TransactionManager};
use futures_core::Stream;

use self::message::Message;
use self::row::{Columns, Values};
use self::script::{Returns, split_last};
use super::dialect::Dialect;
use super::error::SqlError;
use super::session::{SqlReceiver, SqlReply};

/// A connection of diesel-async.
trait DieselConnection: AsyncConnection<TransactionManager = AnsiTransactionManager> {
    const DIALECT: &'static Dialect;
    /// Commits, and fails in a transaction that an error has aborted.
    const COMMIT: &'static str;

    /// Prepares it for the messages of a call, of which each may be abandoned.
    fn prepare(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Handles a message whose future was dropped before its reply was received.
    fn abandon(&mut self);

    /// Rolls back before any later message, or closes the connection.
    fn undo(&mut self);

    /// Maps an error of a statement, whose code diesel-async drops.
    fn error(&mut self, error: Error) -> impl Future<Output = SqlError> + Send;

    /// Maps an error of the server, by its text alone.
    #[cfg_attr(
        not(any(feature = "diesel-async-bb8", feature = "diesel-async-deadpool")),
        allow(dead_code, reason = "for the connections that a pool makes")
    )]
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

/// A message, until its reply is received.
struct Sent<'c, C: DieselConnection> {
    conn: &'c mut C,
    has_reply: bool,
}

impl<'c, C: DieselConnection> Sent<'c, C> {
    fn on(conn: &'c mut C) -> Result<Self, SqlError> {
        if matches!(status(conn), TransactionManagerStatus::InError) {
            return Err(broken());
        }
        let has_reply = false;
        Ok(Self { conn, has_reply })
    }

    /// The reply is received.
    async fn replied<T>(mut self, reply: QueryResult<T>) -> Result<T, SqlError> {
        let reply = match reply {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.conn.error(error).await),
        };
        self.has_reply = true;
        reply
    }
}

impl<C: DieselConnection> Drop for Sent<'_, C> {
    fn drop(&mut self) {
        if !self.has_reply {
            self.conn.abandon();
        }
    }
}

fn broken() -> SqlError {
    SqlError::lost("diesel-async counts the connection as broken")
}

/// Sends statements without parameters, and drops their rows.
async fn batch<C: DieselConnection>(conn: &mut C, script: &str) -> Result<(), SqlError> {
    let sent = Sent::on(conn)?;
    let reply = sent.conn.batch_execute(script).await;
    sent.replied(reply).await
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
    let sent = Sent::on(conn)?;
    let reply = forward(sent.conn, message, receive).await;
    sent.replied(reply).await??;
    receive(SqlReply::done(0))
}

/// Forwards the rows of a statement up to its end, also after an error of the receiver.
async fn forward<C, Q>(
    conn: &mut C,
    query: Q,
    receive: &mut SqlReceiver<'_>,
) -> QueryResult<Result<(), SqlError>>
where
    C: DieselConnection<Backend: Values>,
    Q: Query + QueryFragment<C::Backend> + QueryId,
{
    let mut rows = pin!(conn.load(query).await?);
    let mut received = Ok(());
    while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
        let row = row?;
        if received.is_ok() {
            received = receive(SqlReply::Row(&Columns::new(&row)));
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
    let sent = Sent::on(conn)?;
    let reply = sent.conn.execute_returning_count(message).await;
    let affected = sent.replied(reply).await?;
    receive(SqlReply::done(affected as u64))
}

/// Sends a script: only its last statement may return something, and that goes alone.
async fn send_script<C>(
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

/// Whether a call may use the connection; its count of transactions is right then.
async fn in_step<C: DieselConnection>(conn: &mut C) -> Result<bool, SqlError> {
    if is_broken(conn) {
        return Err(broken());
    }
    conn.prepare().await?;
    Ok(true)
}

/// Begins or ends the only transaction.
async fn control<C: DieselConnection>(
    conn: &mut C,
    text: &'static str,
    begins: bool,
) -> Result<(), SqlError> {
    batch(conn, text).await?;
    let mut counted = ValidTransactionManagerStatus::default();
    if begins {
        let begun = counted.change_transaction_depth(TransactionDepthChange::IncreaseDepth);
        begun.map_err(|_| broken())?;
    }
    *status(conn) = TransactionManagerStatus::Valid(counted);
    Ok(())
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
                Box::pin(async move { send_script(self, &text, receive).await })
            }

            fn depth(&mut self) -> usize {
                depth(self)
            }

            fn begin(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(control(self, "BEGIN", true))
            }

            fn commit(&mut self) -> SqlFuture<'_, ()> {
                if depth(self) == 1 {
                    return Box::pin(async move {
                        // The body may have abandoned a message, whose reply is not that to the commit.
                        self.prepare().await?;
                        control(self, Self::COMMIT, false).await
                    });
                }
                let error = SqlError::client("a transaction that the body has begun is open");
                Box::pin(std::future::ready(Err(error)))
            }

            /// Ends nested transactions that the body has left open as well.
            fn rollback(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(control(self, "ROLLBACK", false))
            }

            fn start_rollback(&mut self) {
                self.undo();
            }

            fn in_step(&mut self, _: usize) -> SqlFuture<'_, bool> {
                Box::pin(in_step(self))
            }
        }

        #[diagnostic::do_not_recommend]
        impl SqlTransaction for $Connection {
            fn session(&mut self) -> &mut dyn SqlSession {
                self
            }

            fn give_up(&mut self) {
                self.undo();
            }
        }
    };
}

#[allow(unused_imports, reason = "for the modules of the databases")]
use session;
