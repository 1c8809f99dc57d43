//! In the words of `PostgreSQL`.

use sqlx::PgConnection;

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

const COMPLETE: &str = "UPDATE raw_records SET state = $1, detail = $2, retain_ms = $3, body = $4, \
    expires_us = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $5, \
    version = version + 1 WHERE record_key = $6 AND owner = $7 AND fence = $8 AND attempts = $9 \
    AND fingerprint = $10 AND layout = 50 AND state IN ('P', 'Q') \
    AND expires_us > (date_part('epoch', clock_timestamp()) * 1000000)::bigint \
    AND set_config('lock_timeout', '2000', true) IS NOT NULL";

const READ: &str = "SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, \
    body, expires_us - (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS left_us, \
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now_us, version \
    FROM raw_records WHERE record_key = $1";

dialect!(Postgres: PgConnection, include_str!("../../../migrations/postgres/0001_idem_records.sql"));
