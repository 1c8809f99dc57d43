//! tokio-postgres as a client: its transactions are those of callers, and its connections those of a store.

mod connections;
mod prepared;
mod values;

use std::pin::pin;

use futures_util::StreamExt as _;
use tokio_postgres::{Client, Error, RowStream, SimpleQueryMessage, Transaction};

use self::values::{Parameter, TextRow, TypedRow};
use super::dialect::Dialect;
use super::error::SqlError;
use super::session::{SqlReceiver, SqlReply, SqlSession, SqlStatement, sends};
use super::transaction::SqlTransaction;

const DIALECT: &Dialect = Dialect::POSTGRES;

/// Maps an error of a message or of a new connection.
///
/// The client does not tell the kinds of its own errors apart, except in their texts. An unknown one is that of a lost
/// connection.
fn session_error(error: Error) -> SqlError {
    if let Some(server) = error.as_db_error() {
        return SqlError::server(DIALECT, server.code().code(), server.message());
    }
    let text = error.to_string();
    if text.starts_with("error performing TLS handshake") {
        SqlError::tls(error)
    } else if text.starts_with("invalid configuration") {
        SqlError::configuration(error)
    } else {
        SqlError::lost(error)
    }
}

/// Sends an unnamed statement with its parameters' types, in one message.
async fn send(
    client: &Client,
    statement: SqlStatement<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    let parameters = statement.arguments().map(Parameter::typed);
    let rows = client.query_typed_raw(statement.text(), parameters).await;
    forward(rows.map_err(session_error)?, receive).await
}

/// Forwards the rows and the end of a statement.
async fn forward(rows: RowStream, receive: &mut SqlReceiver<'_>) -> Result<(), SqlError> {
    let mut rows = pin!(rows);
    while let Some(row) = rows.next().await {
        let row = row.map_err(session_error)?;
        receive(SqlReply::Row(&TypedRow(&row)))?;
    }
    receive(SqlReply::done(rows.rows_affected().unwrap_or(0)))
}

async fn script(
    client: &Client,
    script: String,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    let replies = client.simple_query(&script).await.map_err(session_error)?;
    for reply in replies {
        match reply {
            SimpleQueryMessage::Row(row) => receive(SqlReply::Row(&TextRow(&row)))?,
            SimpleQueryMessage::CommandComplete(affected) => receive(SqlReply::done(affected))?,
            _ => {}
        }
    }
    Ok(())
}

/// The methods of a session, by its client.
///
/// Each request of the client has a channel of its own for the reply, so that a later one never gets the reply to an
/// abandoned one. A lost connection closes all of them.
macro_rules! session {
    (|$session:ident| $client:expr) => {
        fn dialect(&self) -> &'static Dialect {
            DIALECT
        }

        sends! {|$session, message, receive|
            send: send($client, message, receive),
            script: script($client, message, receive),
        }
    };
}

// Its depth is always 1: while a transaction within it exists, which is a savepoint, that borrows it.
impl SqlSession for Transaction<'_> {
    session!(|transaction| transaction.client());
}

/// The statements of a connection of a pool.
///
/// It is no [`SqlTransaction`]: its own transactions are of another type, and it counts none that a SQL text begins.
impl SqlSession for Client {
    session!(|client| client);

    fn depth(&mut self) -> usize {
        0
    }
}

#[cfg(feature = "deadpool-postgres")]
impl SqlSession for deadpool_postgres::ClientWrapper {
    session!(|client| client);

    fn depth(&mut self) -> usize {
        0
    }
}

#[diagnostic::do_not_recommend]
impl SqlTransaction for Transaction<'_> {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        self
    }
}

#[cfg(feature = "deadpool-postgres")]
#[diagnostic::do_not_recommend]
impl SqlTransaction for deadpool_postgres::Transaction<'_> {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        &mut **self
    }
}
