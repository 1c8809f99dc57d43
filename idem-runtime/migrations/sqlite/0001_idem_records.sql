-- The records of idem on SQLite, one a key. Can be run again.
CREATE TABLE IF NOT EXISTS idem_records (
    record_key  BLOB    NOT NULL PRIMARY KEY, -- 48 bytes: 16 of the SHA-256 of prefix and operation,
                                              -- and the digest
    op          TEXT    NOT NULL,             -- the operation, for listings; no statement of idem looks for it
    layout      INTEGER NOT NULL,             -- 50, with steps 51; others are refused
    state       TEXT    NOT NULL,             -- P pending, R released, Q reconciling;
                                              -- done: D value, E error, U unknown, T tombstone
    owner       BLOB    NOT NULL,             -- 16 bytes: whose attempt wrote it last
    fence       INTEGER NOT NULL,             -- grows with every claim
    attempts    INTEGER NOT NULL,             -- those that count
    detail      INTEGER NOT NULL,             -- P, Q: lease in ms; D, E, T: tag of the type; U: cause
    retain_ms   INTEGER NOT NULL,             -- how long it was written to be kept
    fingerprint BLOB    NOT NULL,             -- 16 bytes: what was asked; 4: tags of the types of its answers
    body        BLOB,                         -- D, E: the answer; layout 51: the steps
    expires_us  INTEGER NOT NULL,             -- microseconds since 1970
    version     INTEGER NOT NULL              -- grows with every write
);

-- For the purge alone.
CREATE INDEX IF NOT EXISTS idem_records_expires ON idem_records (expires_us);
