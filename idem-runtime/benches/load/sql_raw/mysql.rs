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

dialect! {
    MySql: MySqlConnection, include_str!("../../../migrations/mysql/0001_idem_records.sql");
    async fn claim(conn: &mut MySqlConnection, key: &[u8]) -> sqlx::Result<Option<i64>> {
        let mut digits = String::with_capacity(67);
        digits.push_str("x'");
        for byte in key {
            write!(digits, "{byte:02x}").unwrap();
        }
        digits.push('\'');
        let claim = sqlx::AssertSqlSafe(CLAIM.replace("{key}", &digits));
        let row = &conn.fetch_all(sqlx::raw_sql(claim)).await?[0];
        // A row inserted by the first statement has a negative version.
        let is_new = row.try_get::<i64, _>(11)? < 0;
        is_new.then(|| row.try_get(3)).transpose()
    }
}
