//! Connections of diesel-async to MySQL and MariaDB.

use std::io;

use diesel::connection::TransactionDepthChange;
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::result::{Error, QueryResult};
use diesel_async::{AsyncMysqlConnection, SimpleAsyncConnection as _};

use super::message::{Array, Arrays, Message};
use super::{
    DieselConnection, client_error, control, count, depth, forward, is_broken, replied, rows,
    script, sent, session, start_rollback,
};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlFuture, SqlReceiver, SqlReply, SqlSession, SqlStatement};
use crate::store::sql::transaction::SqlTransaction;

session!(AsyncMysqlConnection);

impl DieselConnection for AsyncMysqlConnection {
    const DIALECT: &'static Dialect = Dialect::MYSQL;
    const COMMIT: &'static str = "COMMIT";
    const DISCARDS_REPLIES: bool = false;

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

/// The errors of a login that a store tells apart, with a part of the text of each.
const LOGINS: &[(&str, &str)] = &[
    ("1040", "Too many connections"),
    ("1045", "Access denied for user"),
    ("1049", "Unknown database"),
    ("1129", "is blocked because of many connection errors"),
    ("1130", "is not allowed to connect"),
    ("1820", "password has expired"),
];

/// The error of mysql_async, which closes the connection then, unless the text is that of the server.
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

/// The number of the last error of the session, if the server knows it.
async fn number(conn: &mut AsyncMysqlConnection) -> Result<Option<i64>, SqlError> {
    let mut number = None;
    let mut read = |reply: SqlReply<'_>| {
        if let SqlReply::Row(row) = reply {
            number = row.int(0)?;
        }
        Ok(())
    };
    let before = sent(conn)?;
    let asked = async {
        // The next statement that is prepared forgets it.
        conn.batch_execute("GET DIAGNOSTICS CONDITION 1 @idem_error = MYSQL_ERRNO")
            .await?;
        let select = Message::of_text("SELECT CAST(@idem_error AS SIGNED)");
        forward(conn, select, &mut read).await
    };
    let asked = asked.await;
    replied(conn, before);
    match asked {
        Ok(read) => read?,
        Err(error) => {
            let (_, text) = client_error(error)?;
            return error_of_driver(&text).map_or(Ok(None), Err);
        }
    }
    Ok(number)
}

impl Arrays for Mysql {
    fn push_array<'b>(_: &mut AstPass<'_, 'b, Self>, _: &'b Array<'_>) -> QueryResult<()> {
        Err(Error::QueryBuilderError("MySQL has no arrays".into()))
    }
}
