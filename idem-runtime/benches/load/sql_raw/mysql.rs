//! In the words of `MySQL` and `MariaDB`.

use std::fmt::Write as _;

use sqlx::{Executor as _, MySqlConnection, Row as _};

use super::{ATTEMPTS, DONE, Dialect, FINGERPRINT, Found, LIFE_US, OWNER, RETAIN_MS, answer};

/// Several statements in one message, with the arguments in the text.
const CLAIM: &str = "INSERT IGNORE INTO raw_records (record_key, op, layout, state, owner, \
    fence, attempts, detail, retain_ms, fingerprint, body, expires_us, version) \
    VALUES ({key}, 'bench.pay', 50, 'P', x'07070707070707070707070707070707', \
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 1, 30000, 120000, \
    x'0303030303030303030303030303030303030303', NULL, \
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 120000000, 1); \
    SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, body, \
    expires_us - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), \
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), \
    CASE WHEN ROW_COUNT() = 1 THEN -version ELSE version END \
    FROM raw_records WHERE record_key = {key}";

const COMPLETE: &str = "UPDATE raw_records SET state = ?, detail = ?, retain_ms = ?, body = ?, \
    expires_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?, \
    version = version + 1 WHERE record_key = ? AND owner = ? AND fence = ? AND attempts = ? \
    AND fingerprint = ? AND layout = 50 AND state IN ('P', 'Q') \
    AND expires_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

const READ: &str = "SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, \
    body, expires_us - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), \
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), version \
    FROM raw_records WHERE record_key = ?";

pub(crate) enum MySql {}

impl Dialect for MySql {
    type Conn = MySqlConnection;

    async fn migrate(conn: &mut MySqlConnection) -> sqlx::Result<()> {
        let schema = include_str!("../../../migrations/mysql/0001_idem_records.sql");
        let schema = schema.replace("idem_records", "raw_records");
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(schema)))
            .await?;
        Ok(())
    }

    async fn claim(conn: &mut MySqlConnection, key: &[u8]) -> sqlx::Result<Option<i64>> {
        let mut digits = String::with_capacity(67);
        digits.push_str("x'");
        for byte in key {
            write!(digits, "{byte:02x}").unwrap();
        }
        digits.push('\'');
        let claim = sqlx::AssertSqlSafe(CLAIM.replace("{key}", &digits));
        let rows = conn.fetch_all(sqlx::raw_sql(claim)).await?;
        let row = &rows[0];
        // What the first statement put there has a negative version.
        let is_new = row.try_get::<i64, _>(11)? < 0;
        if is_new {
            row.try_get(3).map(Some)
        } else {
            Ok(None)
        }
    }

    async fn complete(
        conn: &mut MySqlConnection,
        key: &[u8],
        fence: i64,
        value: &[u8],
    ) -> sqlx::Result<u64> {
        let done = sqlx::query(COMPLETE).bind(DONE).bind(0_i64).bind(RETAIN_MS);
        let done = done
            .bind(value)
            .bind(LIFE_US)
            .bind(key)
            .bind(OWNER)
            .bind(fence);
        let done = done.bind(ATTEMPTS).bind(FINGERPRINT);
        Ok(done.execute(conn).await?.rows_affected())
    }

    async fn read(conn: &mut MySqlConnection, key: &[u8]) -> sqlx::Result<Option<usize>> {
        let row = sqlx::query_as::<_, Found>(READ).bind(key);
        Ok(row.fetch_optional(conn).await?.map(answer))
    }
}
