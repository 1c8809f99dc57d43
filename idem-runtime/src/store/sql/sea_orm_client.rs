//! sea-orm as a client: its transactions are those of callers.

mod error;
mod query;
mod sqlite;

use std::borrow::Cow;

use futures_util::FutureExt as _;
use sea_orm::{
    ConnectionTrait as _, DatabaseBackend, DatabaseTransaction, DbErr, QueryResult, Statement,
    TryGetable, Value,
};

use self::error::session_error;
use self::query::parametrized;
use super::argument::SqlArgument;
use super::dialect::Dialect;
use super::error::SqlError;
use super::script::{Returns, split_last};
use super::session::{SqlFuture, SqlReceiver, SqlReply, SqlRow, SqlSession, SqlStatement, sends};
use super::transaction::SqlTransaction;

fn value(argument: SqlArgument<'_>) -> Result<Value, SqlError> {
    Ok(match argument {
        SqlArgument::Null => Value::Bytes(None),
        SqlArgument::Bytes(bytes) => Value::Bytes(Some(bytes.to_vec())),
        SqlArgument::Int(number) => Value::BigInt(Some(number)),
        SqlArgument::Text(text) => Value::String(Some(text.to_owned())),
        SqlArgument::Array(_) => return Err(SqlError::client("a transaction sends no arrays")),
    })
}

impl SqlSession for DatabaseTransaction {
    fn dialect(&self) -> &'static Dialect {
        match self.get_database_backend() {
            DatabaseBackend::MySql => Dialect::MYSQL,
            DatabaseBackend::Sqlite => Dialect::SQLITE,
            // A later database of sea-orm refuses the statements.
            _ => Dialect::POSTGRES,
        }
    }

    sends! {|tx, message, receive|
        send: send(tx, message, receive),
        script: script(tx, message, receive),
    }

    /// Polls it once, which sends it.
    fn start_script(&mut self, script: String) {
        let _ = self.execute_unprepared(&script).now_or_never();
    }

    fn in_step(&mut self, _: usize) -> SqlFuture<'_, bool> {
        Box::pin(async move {
            let is_sqlite = self.get_database_backend() == DatabaseBackend::Sqlite;
            Ok(!is_sqlite || sqlite::is_begun(self).await)
        })
    }

    fn close(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(async move {
            if self.get_database_backend() == DatabaseBackend::Sqlite {
                sqlite::end(self).await;
            }
            Ok(())
        })
    }
}

async fn send(
    tx: &DatabaseTransaction,
    statement: SqlStatement<'_>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    let (backend, dialect) = (tx.get_database_backend(), tx.dialect());
    let values: Result<Vec<_>, _> = statement.arguments().map(value).collect();
    let sent = Statement::from_sql_and_values(backend, &**statement.text(), values?);
    if statement.returns_rows() {
        return forward(dialect, tx.query_all_raw(sent).await, receive);
    }
    let done = tx.execute_raw(sent).await;
    let done = done.map_err(|error| session_error(dialect, error))?;
    receive(SqlReply::done(done.rows_affected()))
}

async fn script(
    tx: &DatabaseTransaction,
    script: String,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    let dialect = tx.dialect();
    // Rows come from a query alone.
    let (before, query) = match split_last(&script) {
        (before, last) if Returns::of(last) == Returns::Rows => (before, Some(last)),
        _ => (&*script, None),
    };
    if !before.is_empty() {
        let done = tx.execute_unprepared(before).await;
        done.map_err(|error| session_error(dialect, error))?;
    }
    let Some(query) = query else {
        return receive(SqlReply::done(0));
    };
    let query = parametrized(tx.get_database_backend(), dialect, query);
    forward(dialect, tx.query_all_raw(query).await, receive)
}

/// Forwards the rows of a query, and its end.
fn forward(
    dialect: &Dialect,
    rows: Result<Vec<QueryResult>, DbErr>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    for row in &rows.map_err(|error| session_error(dialect, error))? {
        receive(SqlReply::Row(&SeaOrmRow(row)))?;
    }
    receive(SqlReply::done(0))
}

#[diagnostic::do_not_recommend]
impl SqlTransaction for DatabaseTransaction {
    fn session(&mut self) -> &mut dyn SqlSession {
        self
    }
}

/// A row.
struct SeaOrmRow<'r>(&'r QueryResult);

impl SeaOrmRow<'_> {
    fn value<T: TryGetable>(&self, column: usize) -> Result<Option<T>, SqlError> {
        self.0.try_get_by_index(column).map_err(SqlError::client)
    }
}

impl SqlRow for SeaOrmRow<'_> {
    fn columns(&self) -> usize {
        self.0.column_names().len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        self.value(column)
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        Ok(self.value::<String>(column)?.map(Cow::Owned))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        Ok(self.value::<Vec<u8>>(column)?.map(Cow::Owned))
    }
}
