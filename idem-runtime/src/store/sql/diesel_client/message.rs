//! A message on a connection, and its reply: a statement, or a script, whose rows diesel-async does not return.

use std::pin::pin;

use diesel::connection::TransactionManagerStatus;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use futures_util::StreamExt as _;

use super::connection::{DieselConnection, broken, status};
use super::query::DieselQuery;
use super::row::{DieselRow, DieselValues};
use crate::store::sql::error::SqlError;
use crate::store::sql::script::{Returns, split_last};
use crate::store::sql::session::{SqlReceiver, SqlReply, SqlStatement};

/// A message, until its reply is received.
pub(super) struct DieselMessage<'c, C: DieselConnection> {
    pub(super) conn: &'c mut C,
    has_reply: bool,
}

impl<'c, C: DieselConnection> DieselMessage<'c, C> {
    pub(super) fn on(conn: &'c mut C) -> Result<Self, SqlError> {
        if matches!(status(conn), TransactionManagerStatus::InError) {
            return Err(broken());
        }
        let has_reply = false;
        Ok(Self { conn, has_reply })
    }

    /// The reply is received.
    pub(super) async fn replied<T>(mut self, reply: QueryResult<T>) -> Result<T, SqlError> {
        let reply = match reply {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.conn.error(error).await),
        };
        self.has_reply = true;
        reply
    }
}

impl<C: DieselConnection> Drop for DieselMessage<'_, C> {
    fn drop(&mut self) {
        if !self.has_reply {
            self.conn.abandon();
        }
    }
}

/// Sends a statement with its arguments.
pub(super) async fn send<C>(
    conn: &mut C,
    statement: SqlStatement<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection<Backend: DieselValues>,
    for<'a> DieselQuery<'a>: QueryFragment<C::Backend>,
{
    let query = DieselQuery::new(&statement);
    if statement.returns_rows() {
        rows(conn, query, receive).await
    } else {
        count(conn, query, receive).await
    }
}

/// Sends a script: only its last statement may return something, and that is sent alone.
pub(super) async fn script<C>(
    conn: &mut C,
    script: String,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection<Backend: DieselValues>,
    for<'a> DieselQuery<'a>: QueryFragment<C::Backend>,
{
    let (others, last) = split_last(&script);
    let returns = Returns::of(last);
    if returns == Returns::Nothing {
        batch(conn, &script).await?;
        return receive(SqlReply::done(0));
    }
    if !others.is_empty() {
        batch(conn, others).await?;
    }
    let last = DieselQuery::of_text(last);
    if returns == Returns::Rows {
        rows(conn, last, receive).await
    } else {
        count(conn, last, receive).await
    }
}

/// Sends a query that returns rows.
async fn rows<C>(
    conn: &mut C,
    query: DieselQuery<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection<Backend: DieselValues>,
    for<'a> DieselQuery<'a>: QueryFragment<C::Backend>,
{
    let message = DieselMessage::on(conn)?;
    let reply = forward(message.conn, query, receive).await;
    message.replied(reply).await??;
    receive(SqlReply::done(0))
}

/// Forwards all rows of a query, also after the receiver's error.
pub(super) async fn forward<C, Q>(
    conn: &mut C,
    query: Q,
    receive: &mut SqlReceiver<'_>,
) -> QueryResult<Result<(), SqlError>>
where
    C: DieselConnection<Backend: DieselValues>,
    Q: Query + QueryFragment<C::Backend> + QueryId,
{
    let mut rows = pin!(conn.load(query).await?);
    let mut received = Ok(());
    while let Some(row) = rows.next().await {
        let row = row?;
        if received.is_ok() {
            received = receive(SqlReply::Row(&DieselRow::new(&row)));
        }
    }
    Ok(received)
}

/// Sends a query that changes rows.
async fn count<C>(
    conn: &mut C,
    query: DieselQuery<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection,
    for<'a> DieselQuery<'a>: QueryFragment<C::Backend>,
{
    let message = DieselMessage::on(conn)?;
    let reply = message.conn.execute_returning_count(query).await;
    let affected = message.replied(reply).await?;
    receive(SqlReply::done(affected as u64))
}

/// Sends statements without parameters, and drops their rows.
pub(super) async fn batch<C: DieselConnection>(conn: &mut C, script: &str) -> Result<(), SqlError> {
    let message = DieselMessage::on(conn)?;
    let reply = message.conn.batch_execute(script).await;
    message.replied(reply).await
}
