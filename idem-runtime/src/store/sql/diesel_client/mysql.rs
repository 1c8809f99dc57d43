//! Connections of diesel-async to MySQL and MariaDB.

use std::io;

use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{Error, QueryResult};
use diesel::sql_types::{BigInt, Untyped};
use diesel_async::{AsyncConnectionCore as _, AsyncMysqlConnection, SimpleAsyncConnection as _};
use futures_util::FutureExt as _;

use super::connection::{DieselConnection, client_error, status};
use super::message::{self, DieselMessage, forward};
use super::query::{Array, DieselArrays, DieselQuery};
use super::session::session;
use super::transaction;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlFuture, SqlReply, SqlSession, sends};
use crate::store::sql::transaction::SqlTransaction;

session!(AsyncMysqlConnection);

impl DieselConnection for AsyncMysqlConnection {
    const DIALECT: &'static Dialect = Dialect::MYSQL;
    const COMMIT: &'static str = "COMMIT";

    /// Refuses a connection that returns the reply to an abandoned message.
    async fn prepare(&mut self) -> Result<(), SqlError> {
        let message = DieselMessage::on(self)?;
        let reply = number_of(message.conn, ReplyProbe::default()).await;
        let reply = message.replied(reply).await;
        if matches!(reply, Ok(Ok(Some(PROBED)))) {
            return Ok(());
        }
        self.abandon();
        reply??;
        Err(SqlError::lost("its replies are those of earlier messages"))
    }

    /// Closes the connection: the next message would be given the reply to the abandoned one.
    fn abandon(&mut self) {
        status(self).set_in_error();
        // The first may be held up by statements that diesel-async forgets before another message.
        for _ in 0..2 {
            let surplus = ReplyProbe { surplus: Some(0) };
            let _ = self.execute_returning_count(surplus).now_or_never();
        }
    }

    fn undo(&mut self) {
        self.abandon();
    }

    /// Asks the server for the number of the error.
    async fn error(&mut self, error: Error) -> SqlError {
        let text = match client_error(error) {
            Ok((_, text)) => text,
            Err(error) => return error,
        };
        if let Some(error) = error_of_driver(&text) {
            return error;
        }
        match number(self).await {
            Ok(Some(number)) => SqlError::server(Self::DIALECT, number.to_string(), &text),
            Ok(None) => SqlError::server(Self::DIALECT, "", &text),
            Err(_) => SqlError::lost("no reply behind an error"),
        }
    }

    /// Before a session exists, the server's text in English has to do.
    fn error_of_text(text: &str) -> SqlError {
        if let Some(error) = error_of_driver(text) {
            return error;
        }
        let mut numbers = LOGINS.iter();
        let number = numbers.find(|(_, part)| text.contains(part));
        SqlError::server(Self::DIALECT, number.map_or("", |(number, _)| number), text)
    }
}

/// The number that a [`ReplyProbe`] returns.
const PROBED: i64 = 4242;

/// A statement without effect, which a connection keeps.
///
/// It is kept by its type: with a surplus argument, the client notices that before it writes anything, and closes the
/// connection.
#[derive(Default)]
struct ReplyProbe {
    surplus: Option<i64>,
}

impl QueryFragment<Mysql> for ReplyProbe {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.push_sql(&format!("SELECT {PROBED}"));
        match &self.surplus {
            Some(surplus) => out.push_bind_param_value_only::<BigInt, _>(surplus),
            None => Ok(()),
        }
    }
}

impl Query for ReplyProbe {
    type SqlType = Untyped;
}

impl QueryId for ReplyProbe {
    type QueryId = Self;

    const HAS_STATIC_QUERY_ID: bool = true;
}

/// The login errors that a store distinguishes, each with its text.
const LOGINS: &[(&str, &str)] = &[
    ("1040", "Too many connections"),
    ("1045", "Access denied for user"),
    ("1049", "Unknown database"),
    ("1129", "is blocked because of many connection errors"),
    ("1130", "is not allowed to connect"),
    ("1820", "password has expired"),
    ("1820", "You must SET PASSWORD"),
    ("4151", "this account is locked"),
];

/// The error of `mysql_async`, which closes the connection then; `None`: it is the server's.
fn error_of_driver(text: &str) -> Option<SqlError> {
    let of_driver = ["Driver error: ", "Input/output error: ", "Other error: "];
    if !of_driver.iter().any(|start| text.starts_with(start)) {
        return None;
    }
    let (_, code) = text.rsplit_once("(os error ").unwrap_or_default();
    let code = code.trim_end_matches(')').parse();
    Some(match code {
        Ok(code) => SqlError::lost(io::Error::from_raw_os_error(code)),
        Err(_) => SqlError::lost(text),
    })
}

/// The number of the session's last error, if the server knows it.
async fn number(conn: &mut AsyncMysqlConnection) -> Result<Option<i64>, SqlError> {
    // The next statement that is prepared forgets it.
    let copy = "GET DIAGNOSTICS CONDITION 1 @idem_error = MYSQL_ERRNO";
    if let Err(error) = conn.batch_execute(copy).await {
        let (_, text) = client_error(error)?;
        return error_of_driver(&text).map_or(Ok(None), Err);
    }
    let select = DieselQuery::of_text("SELECT CAST(@idem_error AS SIGNED)");
    let number = number_of(conn, select).await;
    number.map_err(|error| match client_error(error) {
        Ok(_) => SqlError::lost("no reply behind an error"),
        Err(error) => error,
    })?
}

/// The number that a query returns.
async fn number_of(
    conn: &mut AsyncMysqlConnection,
    query: impl Query + QueryFragment<Mysql> + QueryId + Send,
) -> QueryResult<Result<Option<i64>, SqlError>> {
    let mut number = None;
    let mut read = |reply: SqlReply<'_>| {
        if let SqlReply::Row(row) = reply {
            number = row.int(0)?;
        }
        Ok(())
    };
    let read = forward(conn, query, &mut read).await?;
    Ok(read.map(|()| number))
}

impl DieselArrays for Mysql {
    fn push_array<'b>(_: &mut AstPass<'_, 'b, Self>, _: &'b Array<'_>) -> QueryResult<()> {
        Err(Error::QueryBuilderError("MySQL has no arrays".into()))
    }
}
