//! SQLite: a file, shared by the processes of a machine.

mod findings;
pub(super) mod group_commit;

use super::backend::{Backend, Probed, Sqlite};
use super::dialect::{Dialect, StatementKind};
use super::error::SqlError;
use super::error_kind::SqlErrorKind;
use super::hit_rate::HitRate;
use super::session::{SqlFuture, SqlSession, row};
#[cfg(feature = "sqlite")]
use super::sqlx_client::{self, ClientOfUrl};
use crate::store::Finding;

/// The kind of an error: its primary code is the low byte; <https://sqlite.org/rescode.html>
fn kind_of(code: i32, message: &str) -> SqlErrorKind {
    const SNAPSHOT: i32 = 517;
    let has = |signs: &[&str]| signs.iter().any(|sign| message.contains(sign));
    match code & 0xff {
        // Not `SQLITE_BUSY_SNAPSHOT`, because the reads of that transaction are outdated, and stay so.
        5 => SqlErrorKind::Collision {
            goes_on: code != SNAPSHOT,
        },
        6 => SqlErrorKind::Collision { goes_on: false },
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
        7 | 9 | 10 | 15 => SqlErrorKind::Busy,
        // By the message, because the code is that of any other error in a statement.
        1 if has(&["no such table", "no such column", "has no column"]) => SqlErrorKind::NoTable,
        1 if has(&["no such savepoint", "no transaction is active"]) => SqlErrorKind::Ended,
        _ => SqlErrorKind::Other,
    }
}

impl Dialect {
    /// SQLite.
    pub const SQLITE: &'static Self = &DIALECT;
}

const DIALECT: Dialect = Dialect {
    name: "SQLite",
    // The machine's clock, which all processes with the file share. Whole milliseconds, because a floating point number
    // holds no more exactly.
    now: "(CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)",
    // A statement that may write takes the file's only lock for writing, and a replay must not.
    reads_first: HitRate::SCALE / 256,
    typed: false,
    has_one_writer: true,
    shows_early: false,
    // Numbered parameters would begin again with every statement of a script: see `group_commit`.
    numbered: false,
    answer_column: "body",
    body_bytes: "length(body)",
    claim: (
        StatementKind::Grant,
        "INSERT INTO {record} VALUES (?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1) \
         ON CONFLICT (record_key) DO NOTHING RETURNING fence",
    ),
    several: "SELECT {columns}, record_key FROM {t} WHERE record_key IN ({places})",
    // SQLite has no group commit of its own. The time follows the arguments of a call.
    batches: Some((
        "INSERT INTO {record} VALUES [,|(?1, ?2, ?3, ?4, ?5, ?11, ?6, ?7, ?8, ?9, NULL, ?11 + ?10, 1)] \
         ON CONFLICT (record_key) DO NOTHING",
        "WITH v (k, s, d, r, b, life, o, f, a, p, now) AS (VALUES \
         [,|(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)]) \
         UPDATE {t} SET layout = 50, state = v.s, detail = v.d, retain_ms = v.r, body = v.b, \
         expires_us = v.now + v.life, version = version + 1 FROM v \
         WHERE record_key = v.k AND owner = v.o AND fence = v.f AND attempts = v.a \
         AND fingerprint = v.p AND layout IN (50, 51, 52) AND state IN ('P', 'Q') AND expires_us > v.now",
    )),
    insert: "INSERT INTO {record} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, {now} + ?12, 1) \
        ON CONFLICT (record_key) DO NOTHING",
    // `busy_timeout` bounds the wait.
    bounded: "",
    purge: "DELETE FROM {t} WHERE record_key IN \
        (SELECT record_key FROM {t} WHERE expires_us <= {now} ORDER BY expires_us LIMIT ?1)",
    schema: include_str!("../../../migrations/sqlite/0001_idem_records.sql"),
    migration: ("BEGIN IMMEDIATE; ", "; COMMIT"),
    one_table: "",
    dated: ("{now}", " RETURNING {now}"),
    session: "",
    bytes: ("x'", "'"),
    text: ("CAST(x'", "' AS TEXT)"),
    insert_within: "INSERT INTO {values} ON CONFLICT (record_key) DO NOTHING",
    in_transaction: "",
    during: "",
    // The engine waits, not the connection's thread, because a wait there ends neither with its call nor at a deadline.
    wait: ("PRAGMA busy_timeout = 0; ", "PRAGMA busy_timeout = ?11; "),
    restore: "PRAGMA busy_timeout = ?11; ",
    shared: "",
    releases: true,
    lock_wait: |_| 0,
    own_lock_wait: "PRAGMA busy_timeout",
    error_kind: |code, text| {
        code.parse()
            .map_or(SqlErrorKind::Busy, |code| kind_of(code, text))
    },
};

impl Backend for Sqlite {
    const DIALECT: &'static Dialect = Dialect::SQLITE;

    #[cfg(feature = "sqlite")]
    fn client(url: &str) -> ClientOfUrl {
        sqlx_client::of_url::<sqlx::SqliteConnection>(url)
    }

    fn probe<'a>(session: &'a mut dyn SqlSession, _: &'a str) -> SqlFuture<'a, Probed> {
        Box::pin(probe(session))
    }

    fn findings(session: &mut dyn SqlSession) -> SqlFuture<'_, Vec<Finding>> {
        Box::pin(findings::findings(session))
    }
}

async fn probe(session: &mut dyn SqlSession) -> Result<Probed, SqlError> {
    let file = "SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'";
    let file = row(session, file, |row| row.string(0)).await?;
    if file.is_empty() {
        return Err(SqlError::unfit(
            "a database in memory is gone with its connections, and with it what has run; name a file, or use a \
             `MemoryStore`",
        ));
    }
    let mode = row(session, "PRAGMA journal_mode", |row| row.string(0)).await?;
    let mut probed = Probed {
        batches: true,
        ..Probed::default()
    };
    if mode != "wal" {
        probed.warnings.push(format!(
            "SQLite: the journal mode is {mode}, not wal: readers and writers wait for each other, \
             and an answer may be late (is the file on a network drive?)"
        ));
    }
    Ok(probed)
}

#[cfg(test)]
mod tests {
    use idem_harness::in_own_process;
    use std::fs::File;
    use tokio::runtime::Builder;

    use super::*;
    use crate::store::sql::SqliteStore;
    use crate::store::{Reach, StoreErrorKind};

    #[test]
    fn a_process_with_too_many_open_files_waits_for_one() {
        let body = || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let file = std::env::temp_dir().join(format!("idem-{}.db", std::process::id()));
                let open: Vec<_> = std::iter::from_fn(|| File::open("/").ok()).collect();
                let url = format!("sqlite:{}", file.display());
                let error = SqliteStore::connect(&*url).await.unwrap_err();
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                assert_eq!(error.reach(), Reach::Here);
                drop(open);
                let error = SqliteStore::connect("sqlite:/no/such/folder/idem.db").await;
                assert_eq!(error.unwrap_err().kind(), StoreErrorKind::Refused);
            });
        };
        in_own_process(|process| process.after("ulimit -n 64"), body);
    }

    #[test]
    fn the_kind_of_an_error_is_that_of_its_primary_code() {
        let collision = |goes_on| SqlErrorKind::Collision { goes_on };
        for (code, message, kind) in [
            (5, "database is locked", collision(true)),
            (517, "database is locked", collision(false)),
            (6, "database table is locked", collision(false)),
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
