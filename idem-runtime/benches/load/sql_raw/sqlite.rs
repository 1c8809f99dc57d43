//! In the words of `SQLite`.

use sqlx::SqliteConnection;

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

const COMPLETE: &str = "UPDATE raw_records SET state = ?1, detail = ?2, retain_ms = ?3, body = ?4, \
    expires_us = (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000) + ?5, \
    version = version + 1 WHERE record_key = ?6 AND owner = ?7 AND fence = ?8 AND attempts = ?9 \
    AND fingerprint = ?10 AND layout = 50 AND state IN ('P', 'Q') \
    AND expires_us > (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)";

const READ: &str = "SELECT layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, \
    body, expires_us - (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), \
    (CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000), version \
    FROM raw_records WHERE record_key = ?1";

dialect!(Sqlite: SqliteConnection, include_str!("../../../migrations/sqlite/0001_idem_records.sql"));
