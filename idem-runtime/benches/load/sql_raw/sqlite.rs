//! In the words of `SQLite`.

use sqlx::{Executor as _, Row as _, SqliteConnection};

use super::{
    ATTEMPTS, DONE, Dialect, FINGERPRINT, Found, LAYOUT, LEASE_MS, LIFE_US, OPERATION, OWNER,
    PENDING, RETAIN_MS, answer,
};

const CLAIM: &str = "INSERT INTO raw_records (record_key, op, layout, state, owner, fence, \
    attempts, detail, retain_ms, fingerprint, body, expires_us, version) \
    VALUES (?1, ?2, ?3, ?4, ?5, (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), \
    ?6, ?7, ?8, ?9, NULL, \
    (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000) + ?10, 1) \
    ON CONFLICT (record_key) DO NOTHING RETURNING layout, state, owner, fence, attempts, detail, \
    retain_ms, fingerprint, body, \
    expires_us - (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), \
    (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), -version";

const COMPLETE: &str = "UPDATE raw_records SET state = ?2, detail = ?3, retain_ms = ?4, body = ?5, \
    expires_us = (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000) + ?6, \
    version = version + 1 WHERE record_key = ?1 AND owner = ?7 AND fence = ?8 AND attempts = ?9 \
    AND fingerprint = ?10 AND layout = 50 AND state IN ('P', 'Q') \
    AND expires_us > (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)";

const READ: &str = "SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, \
    body, expires_us - (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), \
    (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), version \
    FROM raw_records WHERE record_key = ?1";

pub(crate) enum Sqlite {}

impl Dialect for Sqlite {
    type Conn = SqliteConnection;

    async fn migrate(conn: &mut SqliteConnection) -> sqlx::Result<()> {
        let schema = include_str!("../../../migrations/sqlite/0001_idem_records.sql");
        let schema = schema.replace("idem_records", "raw_records");
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(schema)))
            .await?;
        Ok(())
    }

    async fn claim(conn: &mut SqliteConnection, key: &[u8]) -> sqlx::Result<Option<i64>> {
        let claim = sqlx::query(CLAIM).bind(key).bind(OPERATION);
        let claim = claim.bind(LAYOUT).bind(PENDING).bind(OWNER).bind(ATTEMPTS);
        let claim = claim.bind(LEASE_MS).bind(RETAIN_MS).bind(FINGERPRINT);
        let row = claim.bind(LIFE_US).fetch_optional(conn).await?;
        row.map(|row| row.try_get(3)).transpose()
    }

    async fn complete(
        conn: &mut SqliteConnection,
        key: &[u8],
        fence: i64,
        value: &[u8],
    ) -> sqlx::Result<u64> {
        let done = sqlx::query(COMPLETE).bind(key).bind(DONE).bind(0_i64);
        let done = done.bind(RETAIN_MS).bind(value).bind(LIFE_US).bind(OWNER);
        let done = done.bind(fence).bind(ATTEMPTS).bind(FINGERPRINT);
        Ok(done.execute(conn).await?.rows_affected())
    }

    async fn read(conn: &mut SqliteConnection, key: &[u8]) -> sqlx::Result<Option<usize>> {
        let row = sqlx::query_as::<_, Found>(READ).bind(key);
        Ok(row.fetch_optional(conn).await?.map(answer))
    }
}
