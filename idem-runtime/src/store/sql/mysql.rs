//! MySQL and MariaDB.

mod findings;

use std::borrow::Cow;

use super::backend::{Backend, MySql, Probed};
use super::dialect::{Dialect, StatementKind};
use super::error::SqlError;
use super::error_kind::SqlErrorKind;
use super::hit_rate::HitRate;
use super::session::{SqlFuture, SqlSession, row};
#[cfg(feature = "mysql")]
use super::sqlx_client::{self, ClientOfUrl};
use crate::store::Finding;

impl Dialect {
    /// MySQL and MariaDB.
    pub const MYSQL: &'static Self = &DIALECT;
}

const DIALECT: Dialect = Dialect {
    name: "MySQL",
    // UTC, so that the time zone of the session has no effect.
    now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    // A round trip more for a first call, and half the work for a replay.
    reads_first: HitRate::SCALE / 16 * 15,
    typed: true,
    has_one_writer: false,
    // InnoDB does, for the time that a write to its log takes: observed with killed servers.
    shows_early: true,
    numbered: false,
    // `body` is a reserved word of MariaDB in `sql_mode = ORACLE`.
    answer_column: "`body`",
    body_bytes: "length(`body`)",
    // Two statements in one message: MySQL has no `RETURNING`. `ROW_COUNT` is about the first of them.
    claim: (
        StatementKind::Script,
        "INSERT IGNORE INTO {record} \
         VALUES (?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1); \
         SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, {answer}, \
         expires_us - {now}, {now}, CASE WHEN ROW_COUNT() = 1 THEN -version ELSE version END, {answer_bytes} \
         FROM {t} WHERE record_key = ?1",
    ),
    several: "SELECT {columns}, record_key FROM {t} WHERE record_key IN ({places})",
    // Neither waits for a lock: a batch that waited for a transaction with one of its records would hold up the
    // callers, and the transactions, of all others, and collide with a transaction that waits for one of them. Each
    // call is then sent alone, and waits alone.
    batches: Some((
        "SET STATEMENT innodb_lock_wait_timeout = 0 FOR INSERT IGNORE INTO {record} VALUES \
         [, |(?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1)] RETURNING record_key, fence",
        "SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE (SELECT NULL AS k, NULL AS s, NULL AS d, \
         NULL AS r, NULL AS b, NULL AS life, NULL AS o, NULL AS f, NULL AS a, NULL AS p WHERE 1 = 0 \
         UNION ALL VALUES [, |(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)]) AS v \
         STRAIGHT_JOIN {t} AS t ON t.record_key = v.k SET t.layout = 50, t.state = v.s, t.detail = v.d, \
         t.retain_ms = v.r, t.body = v.b, t.expires_us = {now} + v.life, t.version = t.version + 1 \
         WHERE t.owner = v.o AND t.fence = v.f AND t.attempts = v.a AND t.fingerprint = v.p \
         AND t.layout IN (50, 51, 52) AND t.state IN ('P', 'Q') AND t.expires_us > {now}",
    )),
    insert: "INSERT IGNORE INTO {record} \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, {now} + ?12, 1)",
    // `innodb_lock_wait_timeout` bounds the wait.
    bounded: "",
    // A record that a transaction holds is left to the next purge, because a wait for it would delay all calls that
    // need a record that this statement has locked already.
    purge: "DELETE {t} FROM (SELECT record_key FROM {t} WHERE expires_us <= {now} \
        ORDER BY expires_us LIMIT ?1 FOR UPDATE SKIP LOCKED) AS expired \
        STRAIGHT_JOIN {t} ON {t}.record_key = expired.record_key",
    schema: include_str!("../../../migrations/mysql/0001_idem_records.sql"),
    // The server serializes the creation of a table.
    migration: ("", ""),
    one_table: "",
    // `RETURNING` exists for other statements only. The number is part of the reply to any statement that changes a
    // row, and stays in the session until the next one.
    dated: ("LAST_INSERT_ID({now})", ""),
    // `init_connect`, or a global that is set while the store lives, may begin sessions without autocommit, or in a
    // transaction: such a session commits nothing that it acknowledges. `START TRANSACTION` commits that one, and takes
    // the properties that were set for the next one; its `COMMIT` begins no other, whatever `completion_type` is. A claim
    // whose caller has given up must not wait for a transaction that holds the key: if it were granted later, it would
    // hold the key for a lease. The others refuse a purge, and hide rows. The level, because `READ UNCOMMITTED` replays
    // an answer whose transaction may be rolled back; below `REPEATABLE READ`, a server that logs statements refuses each
    // write.
    session: "START TRANSACTION; COMMIT AND NO CHAIN NO RELEASE; \
        SET autocommit = 1, innodb_lock_wait_timeout = 1, sql_safe_updates = 0, \
        sql_select_limit = 18446744073709551615; \
        SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
        SELECT CAST(@@max_allowed_packet AS SIGNED)",
    bytes: ("x'", "'"),
    text: ("CONVERT(x'", "' USING utf8mb4)"),
    insert_within: "INSERT IGNORE INTO {values}",
    // Outside of a transaction a savepoint vanishes immediately, without an error.
    in_transaction: "ROLLBACK TO SAVEPOINT {claim}; ",
    // For MariaDB only: MySQL has no such variable, and its equivalent needs the right `PROCESS`.
    during: " /*M! AND @@in_transaction = 1 */",
    // The limit of a wait for a row is a setting of the session, and is restored. A claim that is dropped while it
    // waits cannot do that; the next claim of the session then does.
    wait: (
        "SET @idem_wait = CAST(COALESCE(@idem_wait, @@innodb_lock_wait_timeout) AS UNSIGNED), \
         innodb_lock_wait_timeout = ?11; ",
        "SET innodb_lock_wait_timeout = @idem_wait, @idem_wait = NULL; ",
    ),
    restore: "SET innodb_lock_wait_timeout = \
        CAST(COALESCE(@idem_wait, @@innodb_lock_wait_timeout) AS UNSIGNED), @idem_wait = NULL; ",
    // The transaction may have begun to read before the record was committed.
    shared: " LOCK IN SHARE MODE",
    releases: false,
    // Whole seconds, and at least one.
    lock_wait: |wait| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        i64::try_from(seconds.clamp(1, 3_600)).unwrap_or(1)
    },
    own_lock_wait: "",
    // A SQLSTATE is no number of an error: nothing is known of its statement.
    error_kind: |code, text| match code.parse() {
        // The option is in the text alone: `read-only`, or a limit such as `max-session-mem-used`.
        Ok(1290) if text.contains("-only") || text.is_empty() => SqlErrorKind::ReadOnly,
        Ok(1290) => SqlErrorKind::Busy,
        Ok(number) if number < 20_000 => kind_of(number),
        _ => SqlErrorKind::Busy,
    },
};

/// The kind of an error, by its number: <https://mariadb.com/kb/en/mariadb-error-code-reference/>
fn kind_of(number: u16) -> SqlErrorKind {
    match number {
        // 3101: another node of the group wrote first.
        1213 | 1020 | 1614 | 3101 => SqlErrorKind::Collision { goes_on: false },
        1205 | 3572 => SqlErrorKind::Locked,
        1021 | 1041 | 1114 | 1037 | 1038 => SqlErrorKind::Full,
        1146 | 1054 | 1364 => SqlErrorKind::NoTable,
        1049 => SqlErrorKind::NoDatabase,
        1044 | 1045 | 1130 | 1698 | 1820 | 1862 | 3118 | 3955 | 4151 => SqlErrorKind::Login,
        // A savepoint that is gone, because its transaction is.
        1305 => SqlErrorKind::Ended,
        1142 | 1143 | 1227 => SqlErrorKind::Refused,
        1792 | 1836 => SqlErrorKind::ReadOnly,
        1153 => SqlErrorKind::Setting(
            "a statement is longer than `max_allowed_packet` of the server; raise it, or limit the answers \
             (`max_value_bytes`)",
        ),
        1184 => SqlErrorKind::Setting(
            "the server has ended the new connection, as it does when a statement of `init_connect` fails for this user; \
             see its log",
        ),
        // 1927 and 4031 are returned on a connection that the server has closed; prepared statements are too many (1461),
        // gone (1243) or outdated (1615), as behind a proxy that has changed the server. Of 3, 1026 and 1030 the disk is
        // full or fails, as the text alone says; 1180 and 3100 are of a commit of which the outcome is unknown.
        3
        | 1026
        | 1030
        | 1040
        | 1129
        | 1158..=1161
        | 1180
        | 1203
        | 1206
        | 1226
        | 1243
        | 1317
        | 1461
        | 1615
        | 1637
        | 1927
        | 1969
        | 3024
        | 3100
        | 4031 => SqlErrorKind::Busy,
        // A proxy that has lost its server forwards its own client errors, 2000 and more; ProxySQL and RDS Proxy return
        // 9000 and more then.
        1047 | 1053 | 1077 | 1079 | 2000..=2999 | 9000..=9999 => SqlErrorKind::Unavailable,
        _ => SqlErrorKind::Other,
    }
}

impl Backend for MySql {
    const DIALECT: &'static Dialect = Dialect::MYSQL;

    #[cfg(feature = "mysql")]
    fn client(url: &str) -> ClientOfUrl {
        sqlx_client::of_url::<sqlx::MySqlConnection>(url)
    }

    fn probe<'a>(session: &'a mut dyn SqlSession, _: &'a str) -> SqlFuture<'a, Probed> {
        Box::pin(probe(session))
    }

    fn findings(session: &mut dyn SqlSession) -> SqlFuture<'_, Vec<Finding>> {
        Box::pin(findings::findings(session))
    }
}

async fn probe(session: &mut dyn SqlSession) -> Result<Probed, SqlError> {
    let settings = "SELECT CAST(@@innodb_flush_log_at_trx_commit AS SIGNED), CAST(@@read_only AS SIGNED), \
                    VERSION() LIKE '%MariaDB%', DATABASE()";
    let (numbers, database) = row(session, settings, |row| {
        let number = |column| row.number(column);
        let numbers = [number(0)?, number(1)?, number(2)?];
        Ok((numbers, row.text(3)?.map(Cow::into_owned)))
    })
    .await?;
    let [flush, read_only, is_mariadb] = numbers;
    let mut warnings = Vec::new();
    if read_only != 0 {
        warnings.push("MySQL: this server is read-only; no call runs".to_owned());
    }
    if flush != 1 {
        warnings.push(format!(
            "MySQL: innodb_flush_log_at_trx_commit is {flush}: a crash of the server forgets what \
             it has acknowledged, and a body may run again"
        ));
    }
    let quoted = |name: String| format!("`{}`", name.replace('`', "``"));
    Ok(Probed {
        warnings,
        // MySQL has neither `SET STATEMENT` nor `RETURNING`, and waits for a lock for a second at least.
        batches: is_mariadb != 0,
        schema: database.map(quoted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise an answer of unknown effect counts as a refusal, and the operator looks for a standby.
    #[test]
    fn an_option_that_prevents_a_statement_is_known_by_its_text() {
        let kind = |option: &str| {
            let text = format!(
                "The MariaDB server is running with the {option} option so it cannot execute this statement"
            );
            (DIALECT.error_kind)("1290", &text)
        };
        assert_eq!(kind("--read-only"), SqlErrorKind::ReadOnly);
        assert_eq!(kind("--super-read-only"), SqlErrorKind::ReadOnly);
        assert_eq!(kind("--max-session-mem-used=8192"), SqlErrorKind::Busy);
    }

    /// As numbered by `ProxySQL`, RDS Proxy and servers behind them.
    #[test]
    fn errors_of_a_proxy_or_a_full_disk_are_transient() {
        for number in [2013, 9001, 9501] {
            assert_eq!(kind_of(number), SqlErrorKind::Unavailable, "{number}");
        }
        for number in [1030, 1161, 1243, 1461, 1615, 3100] {
            assert_eq!(kind_of(number), SqlErrorKind::Busy, "{number}");
        }
        // A client that gives a SQLSTATE in place of the number.
        for code in ["08S01", "40001", ""] {
            assert_eq!((DIALECT.error_kind)(code, ""), SqlErrorKind::Busy, "{code}");
        }
        assert_eq!(kind_of(3101), SqlErrorKind::Collision { goes_on: false });
    }
}
