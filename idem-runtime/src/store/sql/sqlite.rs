//! SQLite: a file, shared by the processes of a machine.

mod findings;
pub(super) mod group_commit;
mod transaction_depth;

use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Executor as _, SqliteConnection};

use super::argument::Argument;
use super::backend::SqlDriver;
use super::error_kind::SqlErrorKind;
use super::hit_rate::HitRate;
use super::macros::{prepared, scripts};
use super::parameters::positional;
use super::reply::StatementReply;
use super::statement::{Statement, StatementKind, StatementTemplate};
use super::transaction::SqlConnection;
use crate::store::Finding;

/// SQLite 3.42 or newer; the bundled one is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Sqlite;

/// How long a statement waits for a writer in another process.
const BUSY: Duration = Duration::from_secs(1);

/// By the message, because the code is that of any other error in a statement.
fn lacks_table(message: &str) -> bool {
    let signs = ["no such table", "no such column", "has no column"];
    signs.iter().any(|sign| message.contains(sign))
}

fn lacks_transaction(message: &str) -> bool {
    let signs = ["no such savepoint", "no transaction is active"];
    signs.iter().any(|sign| message.contains(sign))
}

/// The kind of an error: its primary code is the low byte; <https://sqlite.org/rescode.html>
fn kind_of(code: i32, message: &str) -> SqlErrorKind {
    match code & 0xff {
        5 | 6 => SqlErrorKind::Collision,
        13 => SqlErrorKind::Full,
        3 | 23 => SqlErrorKind::Refused,
        8 => SqlErrorKind::Setting(
            "the file may only be read; this process needs to write to it and in its directory",
        ),
        11 => SqlErrorKind::Setting(
            "the file is damaged; put a copy back, or make a new one, which knows of no past call",
        ),
        14 => SqlErrorKind::Setting(
            "the file cannot be opened; see that its directory is there, and that this process may \
             write in it",
        ),
        26 => SqlErrorKind::Setting("the file is no SQLite database, or an encrypted one"),
        9 | 10 | 15 => SqlErrorKind::Busy,
        1 if lacks_table(message) => SqlErrorKind::NoTable,
        1 if lacks_transaction(message) => SqlErrorKind::Ended,
        _ => SqlErrorKind::Other,
    }
}

impl SqlDriver for Sqlite {
    type Db = sqlx::Sqlite;

    const NAME: &'static str = "SQLite";

    // SQLite has no group commit of its own.
    const GROUPS: bool = true;

    // The machine's clock, which all processes with the file share. Whole milliseconds, because a floating point number
    // holds no more exactly.
    const NOW: &'static str = "(CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)";

    // A statement that may write takes the file's only lock for writing, and a replay must not.
    const READS_FIRST: u32 = HitRate::SCALE / 256;

    const WAITS: bool = true;

    const TYPED: bool = false;

    const SHOWS_EARLY: bool = false;

    const CLAIM: StatementTemplate = StatementTemplate {
        text: "INSERT INTO {t} (record_key, op, layout, state, owner, fence, attempts, detail, \
               retain_ms, fingerprint, body, expires_us, version) \
               VALUES (?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1) \
               ON CONFLICT (record_key) DO NOTHING \
               RETURNING fence",
        kind: StatementKind::Grant,
    };

    const INSERT: &'static str = "INSERT INTO {t} (record_key, op, layout, state, owner, fence, \
        attempts, detail, retain_ms, fingerprint, body, expires_us, version) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, {now} + ?12, 1) \
        ON CONFLICT (record_key) DO NOTHING";

    // `busy_timeout` bounds the wait.
    const BOUNDED: &'static str = "";

    const PURGE: &'static str = "DELETE FROM {t} WHERE record_key IN \
        (SELECT record_key FROM {t} WHERE expires_us <= {now} ORDER BY expires_us LIMIT ?1)";

    const SCHEMA: &'static str = include_str!("../../../migrations/sqlite/0001_idem_records.sql");

    async fn migrate(conn: &mut SqliteConnection, schema: &str) -> Result<(), sqlx::Error> {
        let script = format!("BEGIN IMMEDIATE; {schema}; COMMIT");
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(script)))
            .await?;
        Ok(())
    }

    // Numbered parameters would begin again with every statement of a script; see `batch`.
    fn parameters(template: &str) -> (String, Vec<usize>) {
        positional(template)
    }

    fn error_kind(error: &dyn DatabaseError) -> SqlErrorKind {
        let code = error.code().unwrap_or_default().parse();
        code.map_or(SqlErrorKind::Other, |code| kind_of(code, error.message()))
    }

    async fn run<'c>(
        conn: &'c mut SqliteConnection,
        statement: &'c Statement,
        arguments: &'c [Argument<'c>],
        named: bool,
    ) -> Result<StatementReply, sqlx::Error> {
        prepared!(sqlx::Sqlite, conn, statement, arguments, named)
    }

    const INSERT_WITHIN: &'static str =
        "INSERT INTO {t} {values} ON CONFLICT (record_key) DO NOTHING";

    // The engine waits, not the connection's thread, because a wait there ends neither with its call nor at a deadline.
    const WAIT: (&'static str, &'static str) =
        ("PRAGMA busy_timeout = 0; ", "PRAGMA busy_timeout = ?11; ");

    const SHARED: &'static str = "";
    const RESTORE: &'static str = "PRAGMA busy_timeout = ?11; ";
    const SESSION: &'static str = "";
    const RELEASES: bool = true;
    const BYTES: (&'static str, &'static str) = ("x'", "'");
    const TEXT: (&'static str, &'static str) = ("CAST(x'", "' AS TEXT)");

    fn lock_wait(_: Duration) -> i64 {
        0
    }

    async fn own_lock_wait(conn: &mut SqliteConnection) -> Result<Option<i64>, sqlx::Error> {
        use sqlx::Row as _;
        let row = conn.fetch_one(sqlx::raw_sql("PRAGMA busy_timeout")).await?;
        row.try_get(0).map(Some)
    }

    fn start_restore(conn: &mut SqliteConnection, own_lock_wait: i64) {
        transaction_depth::start(conn, format!("PRAGMA busy_timeout = {own_lock_wait}"));
    }

    // Not `SQLITE_BUSY_SNAPSHOT`, because the reads of that transaction are outdated, and stay so.
    fn is_busy(error: &dyn DatabaseError) -> bool {
        const BUSY: i32 = 5;
        const SNAPSHOT: i32 = 517;
        let code = error.code().unwrap_or_default().parse::<i32>();
        code.is_ok_and(|code| code & 0xff == BUSY && code != SNAPSHOT)
    }

    fn connection(conn: SqlConnection<'_>) -> Option<&mut SqliteConnection> {
        match conn {
            SqlConnection::Sqlite(conn) => Some(conn),
            #[allow(unreachable_patterns, reason = "other databases are features")]
            _ => None,
        }
    }

    scripts!(SqliteConnection, &[u8]);

    async fn roll_back(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        transaction_depth::roll_back(conn).await
    }

    fn start_rollback(conn: &mut SqliteConnection) {
        transaction_depth::start_rollback(conn);
    }

    async fn in_step(conn: &mut SqliteConnection, most: usize) -> bool {
        transaction_depth::in_step(conn, most).await
    }

    async fn close(conn: &mut SqliteConnection) {
        transaction_depth::close(conn).await;
    }

    async fn findings(conn: &mut SqliteConnection) -> Result<Vec<Finding>, sqlx::Error> {
        findings::findings(conn).await
    }

    async fn probe_server(conn: &mut SqliteConnection) -> Result<Vec<String>, sqlx::Error> {
        let file = "SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'";
        let file: String = sqlx::query_scalar(file).fetch_one(&mut *conn).await?;
        if file.is_empty() {
            let problem = "a database in memory is gone with its connections, and with it what has run; \
                           name a file, or use a `MemoryStore`";
            return Err(sqlx::Error::Configuration(problem.into()));
        }
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&mut *conn)
            .await?;
        let mut warnings = Vec::new();
        if mode != "wal" {
            warnings.push(format!(
                "SQLite: the journal mode is {mode}, not wal: readers and writers wait for each other, \
                 and an answer may be late (is the file on a network drive?)"
            ));
        }
        Ok(warnings)
    }

    fn group_commit(options: &SqliteConnectOptions) -> Option<SqliteConnectOptions> {
        Some(options.clone())
    }

    fn store_options(options: SqliteConnectOptions) -> SqliteConnectOptions {
        options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged answer survives a power cut too.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_is_that_of_its_primary_code() {
        for (code, message, kind) in [
            (5, "database is locked", SqlErrorKind::Collision),
            (6, "database table is locked", SqlErrorKind::Collision),
            (5 | 2 << 8, "database is locked", SqlErrorKind::Collision),
            (3, "access permission denied", SqlErrorKind::Refused),
            (23, "authorization denied", SqlErrorKind::Refused),
            (9, "interrupted", SqlErrorKind::Busy),
            (10, "disk I/O error", SqlErrorKind::Busy),
            (15, "locking protocol", SqlErrorKind::Busy),
            (13, "database or disk is full", SqlErrorKind::Full),
            (1, "no such table: idem_records", SqlErrorKind::NoTable),
            (1, "no such savepoint: idem", SqlErrorKind::Ended),
            (1, "syntax error", SqlErrorKind::Other),
            (19, "UNIQUE constraint failed", SqlErrorKind::Other),
        ] {
            assert_eq!(kind_of(code, message), kind, "{code} {message}");
        }
        for code in [8, 11, 14, 26] {
            let kind = kind_of(code, "");
            assert!(matches!(kind, SqlErrorKind::Setting(_)), "{code}: {kind:?}");
        }
    }
}
