//! Connections of sqlx to SQLite.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteError, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{Executor as _, Sqlite, SqliteConnection};
use sqlx_core::transaction::TransactionManager as _;

use super::transaction_depth;
use super::{ClientOptions, SqlxDatabase, SqlxRow, bound, row, session, session_error};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlFuture, SqlReply, SqlRow, SqlSession, sends};
use crate::store::sql::statement::MAX_CALLS;

const DIALECT: &Dialect = Dialect::SQLITE;

/// How long a statement waits for a writer in another process.
const BUSY: Duration = Duration::from_secs(1);

/// The rows buffered between the driver's thread and the writer's.
const ROWS: usize = 1_024;

/// The cause of `SQLITE_CANTOPEN`, if there are too many open files.
///
/// SQLite has one code for all causes, and sqlx does not pass on the error of the system.
pub(super) fn lacks_files(error: &dyn DatabaseError) -> Option<io::Error> {
    const CANTOPEN: i32 = 14;
    const LACKS: [Option<i32>; 2] = [Some(23), Some(24)];
    let code = error.try_downcast_ref::<SqliteError>()?.code()?.parse();
    if code.is_ok_and(|code: i32| code & 0xff == CANTOPEN) {
        let opened = File::open("/").err();
        return opened.filter(|error| LACKS.contains(&error.raw_os_error()));
    }
    None
}

// SQLite rolls back by itself, and sqlx does not notice: see `transaction_depth`.
impl SqlSession for SqliteConnection {
    session!(Sqlite);

    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(async move {
            let undone = transaction_depth::roll_back(self).await;
            undone.map_err(|error| session_error(DIALECT, error))
        })
    }

    fn start_rollback(&mut self) {
        transaction_depth::start_rollback(self);
    }

    fn start_script(&mut self, script: String) {
        transaction_depth::start(self, script);
    }

    fn in_step(&mut self, most: usize) -> SqlFuture<'_, bool> {
        Box::pin(async move { Ok(transaction_depth::in_step(self, most).await) })
    }

    fn close(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(async move {
            transaction_depth::close(self).await;
            Ok(())
        })
    }
}

impl SqlxDatabase for Sqlite {}

impl SqlRow for SqlxRow<'_, SqliteRow> {
    row!(&[u8]);
}

impl ClientOptions for SqliteConnectOptions {
    const DIALECT: &'static Dialect = DIALECT;

    fn of_store(self) -> Self {
        self.create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged answer survives a power cut too.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
    }

    fn of_writer(&self) -> Option<Self> {
        let options = self.clone().row_buffer_size(ROWS);
        Some(options.statement_cache_capacity(6 * MAX_CALLS))
    }
}
