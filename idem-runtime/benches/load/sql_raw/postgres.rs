//! In the words of `PostgreSQL`.

use sqlx::{Executor as _, PgConnection, Row as _};

use super::{
    ATTEMPTS, DONE, Dialect, FINGERPRINT, Found, LAYOUT, LEASE_MS, LIFE_US, OPERATION, OWNER,
    PENDING, RETAIN_MS, answer,
};

const CLAIM: &str = "WITH found AS MATERIALIZED (SELECT layout, state, owner, fence, attempts, \
    detail, retain_ms, fingerprint, body, \
    expires_us - (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS left_us, \
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now_us, version \
    FROM raw_records WHERE record_key = $1), \
    fresh AS (INSERT INTO raw_records (record_key, op, layout, state, owner, fence, attempts, \
    detail, retain_ms, fingerprint, body, expires_us, version) \
    SELECT $1, $2, $3, $4, $5, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, \
    $6, $7, $8, $9, NULL, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $10, 1 \
    WHERE NOT EXISTS (SELECT 1 FROM found) AND set_config('lock_timeout', '2000', true) IS NOT NULL \
    ON CONFLICT (record_key) DO NOTHING RETURNING layout, state, owner, fence, attempts, detail, \
    retain_ms, fingerprint, body, \
    expires_us - (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS left_us, \
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now_us, -version AS version) \
    SELECT * FROM found UNION ALL SELECT * FROM fresh";

const COMPLETE: &str = "UPDATE raw_records SET state = $2, detail = $3, retain_ms = $4, body = $5, \
    expires_us = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $6, \
    version = version + 1 WHERE record_key = $1 AND owner = $7 AND fence = $8 AND attempts = $9 \
    AND fingerprint = $10 AND layout = 50 AND state IN ('P', 'Q') \
    AND expires_us > (date_part('epoch', clock_timestamp()) * 1000000)::bigint \
    AND set_config('lock_timeout', '2000', true) IS NOT NULL";

const READ: &str = "SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, \
    body, expires_us - (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS left_us, \
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now_us, version \
    FROM raw_records WHERE record_key = $1";

pub(crate) enum Postgres {}

impl Dialect for Postgres {
    type Conn = PgConnection;

    async fn migrate(conn: &mut PgConnection) -> sqlx::Result<()> {
        let schema = include_str!("../../../migrations/postgres/0001_idem_records.sql");
        let schema = schema.replace("idem_records", "raw_records");
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(schema)))
            .await?;
        Ok(())
    }

    async fn claim(conn: &mut PgConnection, key: &[u8]) -> sqlx::Result<Option<i64>> {
        let claim = sqlx::query(CLAIM).bind(key).bind(OPERATION);
        let claim = claim.bind(LAYOUT).bind(PENDING).bind(OWNER).bind(ATTEMPTS);
        let claim = claim.bind(LEASE_MS).bind(RETAIN_MS).bind(FINGERPRINT);
        let row = claim.bind(LIFE_US).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        // What the statement put there has a negative version.
        let is_new = row.try_get::<i64, _>(11)? < 0;
        if is_new {
            row.try_get(3).map(Some)
        } else {
            Ok(None)
        }
    }

    async fn complete(
        conn: &mut PgConnection,
        key: &[u8],
        fence: i64,
        value: &[u8],
    ) -> sqlx::Result<u64> {
        let done = sqlx::query(COMPLETE).bind(key).bind(DONE).bind(0_i64);
        let done = done.bind(RETAIN_MS).bind(value).bind(LIFE_US).bind(OWNER);
        let done = done.bind(fence).bind(ATTEMPTS).bind(FINGERPRINT);
        Ok(done.execute(conn).await?.rows_affected())
    }

    async fn read(conn: &mut PgConnection, key: &[u8]) -> sqlx::Result<Option<usize>> {
        let row = sqlx::query_as::<_, Found>(READ).bind(key);
        Ok(row.fetch_optional(conn).await?.map(answer))
    }
}
