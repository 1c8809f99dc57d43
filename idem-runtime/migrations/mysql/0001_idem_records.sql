-- The records of idem on MySQL and MariaDB, one a key. Can be run again.
--
-- For very large tables: PARTITION BY KEY (record_key), never by time. A unique index of a partitioned table
-- must contain the partition column, so that with one of time the same key could exist twice.
CREATE TABLE IF NOT EXISTS idem_records (
    record_key  BINARY(48)   NOT NULL PRIMARY KEY
        COMMENT '16 bytes of the SHA-256 of prefix and operation, and the digest',
    op          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
        COMMENT 'the operation, for listings; no statement looks for it',
    layout      BIGINT       NOT NULL COMMENT '50, with steps 51; others are refused',
    state       CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        COMMENT 'P pending, R released, Q reconciling; done: D value, E error, U unknown, T tombstone',
    owner       BINARY(16)   NOT NULL COMMENT 'whose attempt wrote it last',
    fence       BIGINT       NOT NULL COMMENT 'grows with every claim',
    attempts    BIGINT       NOT NULL COMMENT 'those that count',
    detail      BIGINT       NOT NULL COMMENT 'P, Q: lease in ms; D, E, T: tag of the type; U: cause',
    retain_ms   BIGINT       NOT NULL COMMENT 'how long it was written to be kept',
    fingerprint BINARY(20)   NOT NULL COMMENT '16 bytes: what was asked; 4: tags of the types of its answers',
    `body`      LONGBLOB              COMMENT 'D, E: the answer; layout 51: the steps',
    expires_us  BIGINT       NOT NULL COMMENT 'microseconds since 1970',
    version     BIGINT       NOT NULL COMMENT 'grows with every write',
    -- For the purge alone.
    KEY idem_records_expires (expires_us)
) ENGINE = InnoDB;
