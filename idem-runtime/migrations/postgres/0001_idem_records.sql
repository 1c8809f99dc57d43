-- The records of idem on PostgreSQL, one a key. Can be run again.
--
-- For very large tables: partition by hash of the key, never by time. A unique index of a partitioned
-- table must contain the partition column, so that with one of time the same key could exist twice:
--   CREATE TABLE idem_records (...) PARTITION BY HASH (record_key);
--   CREATE TABLE idem_records_0 PARTITION OF idem_records FOR VALUES WITH (MODULUS 16, REMAINDER 0); ...
CREATE TABLE IF NOT EXISTS idem_records (
    record_key  bytea  NOT NULL PRIMARY KEY, -- 48 bytes: 16 of the SHA-256 of prefix and operation,
                                             -- and the digest
    op          text   NOT NULL,             -- the operation, for listings; no statement of idem looks for it
    layout      bigint NOT NULL,             -- 50, with steps 51; others are refused
    state       text   NOT NULL,             -- P pending, R released, Q reconciling;
                                             -- done: D value, E error, U unknown, T tombstone
    owner       bytea  NOT NULL,             -- 16 bytes: whose attempt wrote it last
    fence       bigint NOT NULL,             -- grows with every claim
    attempts    bigint NOT NULL,             -- those that count
    detail      bigint NOT NULL,             -- P, Q: lease in ms; D, E, T: tag of the type; U: cause
    retain_ms   bigint NOT NULL,             -- how long it was written to be kept
    fingerprint bytea  NOT NULL,             -- 16 bytes: what was asked; 4: tags of the types of its answers
    body        bytea,                       -- D, E: the answer; layout 51: the steps
    expires_us  bigint NOT NULL,             -- microseconds since 1970; to_timestamp(expires_us / 1e6)
    version     bigint NOT NULL              -- grows with every write
) WITH (fillfactor = 80);

-- For the purge alone.
CREATE INDEX IF NOT EXISTS idem_records_expires ON idem_records (expires_us);
