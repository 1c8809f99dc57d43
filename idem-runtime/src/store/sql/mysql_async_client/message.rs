//! A message on a connection, and its reply.
//!
//! A connection that has an abandoned message would give the reply to the next one. So a [`MySqlAsyncMessage`] that is dropped
//! before its whole reply closes the connection, for all later users of it.

use std::sync::OnceLock;

use futures_util::{FutureExt as _, StreamExt as _};
use mysql_async::prelude::{Protocol, Queryable as _};
use mysql_async::{Connection, Params, QueryResult, Row, Statement, Value};

use super::error::session_error;
use super::row::MySqlAsyncRow;
use crate::store::sql::argument::SqlArgument;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlReceiver, SqlReply, SqlStatement};

/// A statement without parameters, of any connection.
static NOTHING: OnceLock<Statement> = OnceLock::new();

/// A message, whose connection is closed unless it has the whole reply.
pub(super) struct MySqlAsyncMessage<'c, 't> {
    conn: Connection<'c, 't>,
    is_answered: bool,
}

impl<'c, 't: 'c> MySqlAsyncMessage<'c, 't> {
    pub(super) fn on(conn: impl Into<Connection<'c, 't>>) -> Self {
        Self {
            conn: conn.into(),
            is_answered: false,
        }
    }

    /// Refuses a connection with an abandoned message, also the body's.
    async fn check(&mut self) -> Result<(), SqlError> {
        if self.conn.is_disconnected() {
            return Err(SqlError::lost("an earlier message was abandoned"));
        }
        if NOTHING.get().is_none() {
            let nothing = self.conn.prep("DO 0").await.map_err(session_error)?;
            let closed = self.conn.close(nothing.clone()).await;
            closed.map_err(session_error)?;
            NOTHING.get_or_init(|| nothing);
        }
        Ok(())
    }

    pub(super) async fn send(
        mut self,
        statement: SqlStatement<'_>,
        receive: &mut SqlReceiver<'_>,
    ) -> Result<(), SqlError> {
        let sent = async {
            self.check().await?;
            let values: Result<Vec<_>, _> = statement.arguments().map(value).collect();
            let values = Params::Positional(values?);
            let prepared = self.conn.prep(&**statement.text()).await;
            let prepared = prepared.map_err(session_error)?;
            let sent = match self.conn.exec_iter(&prepared, values).await {
                Ok(result) => forward(result, receive).await,
                Err(error) => Err(session_error(error)),
            };
            // Without a cache the client closes none, and the server has a limit.
            let is_kept = statement.is_named() && self.conn.opts().stmt_cache_size() > 0;
            if !is_kept && !sent.as_ref().is_err_and(SqlError::is_lost) {
                // If it fails, so does the next message.
                let _ = self.conn.close(prepared).await;
            }
            sent
        };
        let sent = sent.await;
        self.end(sent)
    }

    pub(super) async fn script(
        mut self,
        script: String,
        receive: &mut SqlReceiver<'_>,
    ) -> Result<(), SqlError> {
        let sent = async {
            self.check().await?;
            let result = self.conn.query_iter(script).await;
            forward(result.map_err(session_error)?, receive).await
        };
        let sent = sent.await;
        self.end(sent)
    }

    fn end(mut self, sent: Result<(), SqlError>) -> Result<(), SqlError> {
        self.is_answered = !sent.as_ref().is_err_and(SqlError::is_lost);
        sent
    }
}

impl Drop for MySqlAsyncMessage<'_, '_> {
    /// Closes the connection by an error of the client: a surplus argument. It is noticed before anything is sent.
    fn drop(&mut self) {
        if !self.is_answered
            && let Some(nothing) = NOTHING.get()
        {
            let _ = self.conn.exec_iter(nothing, (0,)).now_or_never();
        }
    }
}

fn value(argument: SqlArgument<'_>) -> Result<Value, SqlError> {
    Ok(match argument {
        SqlArgument::Null => Value::NULL,
        SqlArgument::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        SqlArgument::Int(number) => Value::Int(number),
        SqlArgument::Text(text) => Value::Bytes(text.as_bytes().to_vec()),
        SqlArgument::Array(_) => return Err(SqlError::client("it has no arrays")),
    })
}

/// Forwards the rows and the end of each statement. After an error of the receiver the rest is discarded.
async fn forward<P: Protocol + Unpin>(
    mut result: QueryResult<'_, '_, P>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    let mut received = Ok(());
    loop {
        let mut rows = match result.stream::<Row>().await {
            Ok(Some(rows)) => rows,
            Ok(None) => return received,
            Err(error) => return received.and(Err(session_error(error))),
        };
        while let Some(row) = rows.next().await {
            match row {
                Ok(row) if received.is_ok() => {
                    received = receive(SqlReply::Row(&MySqlAsyncRow(&row)));
                }
                Ok(_) => {}
                Err(error) => return received.and(Err(session_error(error))),
            }
        }
        // Of rows the client has the numbers of an earlier statement.
        let (affected, last_insert_id) = if rows.columns_ref().is_empty() {
            (rows.affected_rows(), rows.last_insert_id().unwrap_or(0))
        } else {
            (0, 0)
        };
        if received.is_ok() {
            received = receive(SqlReply::done_with_id(affected, last_insert_id));
        }
    }
}

/// The methods of a session, whose connection `$conn` is.
macro_rules! session {
    ($Session:ty, |$session:ident| $conn:expr) => {
        impl SqlSession for $Session {
            fn dialect(&self) -> &'static Dialect {
                Dialect::MYSQL
            }

            sends! {|$session, message, receive|
                send: MySqlAsyncMessage::on($conn).send(message, receive),
                script: MySqlAsyncMessage::on($conn).script(message, receive),
            }
        }
    };
}

pub(super) use session;
