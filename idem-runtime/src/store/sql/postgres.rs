//! PostgreSQL.

mod findings;

use std::borrow::Cow;

use super::backend::{Backend, Postgres, Probed};
use super::dialect::{Dialect, StatementKind};
use super::error::SqlError;
use super::error_kind::SqlErrorKind;
use super::hit_rate::HitRate;
use super::session::{SqlFuture, SqlSession, row};
#[cfg(feature = "postgres")]
use super::sqlx_client::{self, ClientOfUrl};
use crate::store::Finding;

impl Dialect {
    /// PostgreSQL.
    pub const POSTGRES: &'static Self = &DIALECT;
}

const DIALECT: Dialect = Dialect {
    name: "PostgreSQL",
    // The time of the read, not that of the transaction's beginning. In floating point, which holds it exactly enough
    // for longer than two centuries, because `extract` is slower.
    now: "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
    // A round trip more for a first call, and half the work for a replay.
    reads_first: HitRate::SCALE / 16 * 15,
    typed: true,
    has_one_writer: false,
    shows_early: false,
    numbered: true,
    // Known without reading the answer, also if it is stored apart from its row or compressed.
    answer_column: "body",
    body_bytes: "length(body)::bigint",
    // One round trip for a first call and for a replay, which locks nothing. Zero rows are a valid reply as well: the
    // record was inserted after this statement began, which therefore does not see it.
    claim: (
        StatementKind::Claim,
        "WITH found AS MATERIALIZED (SELECT {columns} FROM {t} WHERE record_key = ?1), \
         fresh AS (INSERT INTO {record} \
         SELECT ?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1 \
         WHERE NOT EXISTS (SELECT 1 FROM found){bounded} ON CONFLICT (record_key) DO NOTHING \
         RETURNING layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, body, \
         expires_us - {now} AS left_us, {now} AS now_us, -version AS version, NULL::bigint AS body_bytes) \
         SELECT * FROM found UNION ALL SELECT * FROM fresh",
    ),
    // A query of its own for each key, because a plan that was made while the table was small scans all of it for as
    // long as it is kept.
    several: "SELECT found.* FROM unnest(?1::bytea[]) AS wanted (place) \
        CROSS JOIN LATERAL (SELECT {columns}, record_key FROM {t} \
        WHERE record_key = wanted.place LIMIT 1) AS found",
    // A record that exists is left to a statement of its own: inserting beside it would wait for a transaction that
    // changes it. The condition on the length always holds; a planner that expects one matching key
    // looks each up by the index, also in a plan that was made while the table was small.
    batches: Some((
        "INSERT INTO {record} \
         SELECT k, o, l, s, w, {now}, a, d, r, f, NULL, {now} + life, 1 \
         FROM unnest(?1::bytea[], ?2::text[], ?3::bigint[], ?4::text[], ?5::bytea[], ?6::bigint[], ?7::bigint[], \
         ?8::bigint[], ?9::bytea[], ?10::bigint[]) AS wanted (k, o, l, s, w, a, d, r, f, life) \
         WHERE (SELECT 1 FROM {t} WHERE record_key = k LIMIT 1) IS NULL{bounded} \
         ON CONFLICT (record_key) DO NOTHING RETURNING record_key, fence",
        "UPDATE {t} AS t SET layout = 50, state = s, detail = d, retain_ms = r, body = b, \
         expires_us = {now} + life, version = version + 1 \
         FROM unnest(?1::bytea[], ?2::text[], ?3::bigint[], ?4::bigint[], ?5::bytea[], ?6::bigint[], ?7::bytea[], \
         ?8::bigint[], ?9::bigint[], ?10::bytea[]) AS done (k, s, d, r, b, life, o, f, a, p) \
         WHERE record_key = k AND length(k) = 48 AND owner = o AND fence = f AND attempts = a AND fingerprint = p \
         AND layout IN (50, 51, 52) AND state IN ('P', 'Q') AND expires_us > {now}{bounded}",
    )),
    insert: "INSERT INTO {record} \
        SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, {now} + ?12, 1 WHERE true{bounded} \
        ON CONFLICT (record_key) DO NOTHING",
    // A backend that waits for a lock does not notice that its client is gone: it would wait for as long as the
    // transaction lasts that holds the record, and each retry of a claim would add another. Set for this statement
    // alone, so that a proxy may give the session to other clients.
    bounded: " AND set_config('lock_timeout', '{patience}', true) IS NOT NULL",
    // The time in a query of its own, because an index does not serve an expression that may change from row to row.
    purge: "DELETE FROM {t} WHERE record_key IN \
        (SELECT record_key FROM {t} WHERE expires_us <= (SELECT {now}) \
         ORDER BY expires_us LIMIT ?1 FOR UPDATE SKIP LOCKED)",
    schema: include_str!("../../../migrations/postgres/0001_idem_records.sql"),
    // `IF NOT EXISTS` alone is not safe beside a concurrent migration.
    migration: (
        "BEGIN; SELECT pg_advisory_xact_lock(8245920571); ",
        "; COMMIT",
    ),
    // The cast fails, and its text reaches the server's log. It is no constant, which a planner would cast beforehand.
    one_table: "SELECT CASE WHEN COALESCE(to_regclass('{name}') = to_regclass('{t}'), true) \
        THEN 0 ELSE CAST(to_regclass('{name}')::text || ' comes before {t} in search_path' AS int) END; ",
    dated: ("{now}", " RETURNING {now}"),
    session: "",
    bytes: ("decode('", "', 'hex')"),
    text: ("convert_from(decode('", "', 'hex'), 'UTF8')"),
    insert_within: "INSERT INTO {values} ON CONFLICT (record_key) DO NOTHING",
    in_transaction: "",
    // A transaction has an id from its first write on, which the claim is.
    during: " AND txid_current_if_assigned() IS NOT NULL",
    // `lock_timeout` is the caller's, and is restored. If a statement in between fails, the savepoint restores it.
    wait: (
        "SELECT set_config('idem.lock_timeout', current_setting('lock_timeout'), true), \
         set_config('lock_timeout', (?11)::text, true); ",
        "SELECT set_config('lock_timeout', current_setting('idem.lock_timeout'), true); ",
    ),
    restore: "",
    shared: "",
    releases: false,
    // Milliseconds; 0 would be for ever.
    lock_wait: |wait| i64::try_from(wait.as_millis().clamp(1, 3_600_000)).unwrap_or(1),
    own_lock_wait: "",
    error_kind,
};

/// The kind of an error, by its SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn error_kind(code: &str, text: &str) -> SqlErrorKind {
    match code {
        "40001" | "40P01" => SqlErrorKind::Collision { goes_on: false },
        "55P03" => SqlErrorKind::Locked,
        "53100" | "53200" | "53400" => SqlErrorKind::Full,
        // No transaction, a failed one, no such savepoint.
        "25P01" | "25P02" | "3B001" => SqlErrorKind::Ended,
        "42P01" | "42703" | "42804" => SqlErrorKind::NoTable,
        "3D000" | "3F000" => SqlErrorKind::NoDatabase,
        "28000" | "28P01" => SqlErrorKind::Login,
        "42501" => SqlErrorKind::Refused,
        "25006" => SqlErrorKind::ReadOnly,
        // Of `one_table`; no other statement casts a text.
        "22P02" => SqlErrorKind::Setting(
            "the `search_path` of this transaction finds another table of this name than that of the store, which \
             would run a key a second time; give the store and the transaction the same `search_path`, or the store \
             a table with its schema in front",
        ),
        "42P05" => SqlErrorKind::Setting(
            "a proxy gave it a session that has a prepared statement of another client; PgBouncer needs version 1.21 \
             and `max_prepared_statements`, or the store's builder `named_statements(false)` (your own connections by \
             sqlx: `statement_cache_capacity(0)`)",
        ),
        "08P01" if refuses_start_up(text, "extra_float_digits") => SqlErrorKind::Setting(
            "a proxy refuses the start-up parameter `extra_float_digits`, which sqlx sends; PgBouncer accepts it with \
             `ignore_startup_parameters = extra_float_digits`",
        ),
        "08P01" if text.contains("statement pooling mode") => SqlErrorKind::Setting(
            "a proxy gives each statement another session, so that there are no transactions; PgBouncer has them with \
             `pool_mode = transaction` or `session`",
        ),
        "08P01" if refuses_start_up(text, "") => SqlErrorKind::Setting(
            "a proxy refuses a start-up parameter, such as the `options` of the URL; see its log, and PgBouncer's \
             `ignore_startup_parameters`",
        ),
        "22P05" => SqlErrorKind::Setting(
            "the encoding of the database lacks a character of the operation's name; create the database with the \
             encoding UTF8, or name the operation in ASCII",
        ),
        "26000" => SqlErrorKind::NoStatement,
        // PgBouncer without room for another client returns 08P01. The last two: it has ended the session. Nothing is
        // known of an error whose code the client does not give.
        "" | "08P01" | "40003" | "53300" | "57014" | "25P03" | "25P04" => SqlErrorKind::Busy,
        // `XX000` is also what Supavisor returns without room for another client, or without its server.
        code if code.starts_with("58") || code.starts_with("XX") => SqlErrorKind::Busy,

        code if code.starts_with("57P") || code.starts_with("08") => SqlErrorKind::Unavailable,
        _ => SqlErrorKind::Other,
    }
}

/// Whether a proxy refuses this parameter of a new connection; an empty name stands for any.
///
/// <https://github.com/pgbouncer/pgbouncer/blob/pgbouncer_1_18_0/src/client.c>
fn refuses_start_up(text: &str, parameter: &str) -> bool {
    text.contains("startup parameter") && text.contains(parameter)
}

impl Backend for Postgres {
    const DIALECT: &'static Dialect = Dialect::POSTGRES;

    #[cfg(feature = "postgres")]
    fn client(url: &str) -> ClientOfUrl {
        sqlx_client::of_url::<sqlx::PgConnection>(url)
    }

    fn probe<'a>(session: &'a mut dyn SqlSession, table: &'a str) -> SqlFuture<'a, Probed> {
        Box::pin(probe(session, table))
    }

    fn findings(session: &mut dyn SqlSession) -> SqlFuture<'_, Vec<Finding>> {
        Box::pin(findings::findings(session))
    }
}

async fn probe(session: &mut dyn SqlSession, table: &str) -> Result<Probed, SqlError> {
    // A name with a schema needs no search, which may lack the right to that schema.
    let name = if table.contains('.') {
        "NULL".to_owned()
    } else {
        format!("'{table}'")
    };
    let settings = format!(
        "SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery()::int::bigint, \
         quote_ident(COALESCE((SELECT nspname FROM pg_class JOIN pg_namespace \
         ON pg_namespace.oid = relnamespace WHERE pg_class.oid = to_regclass({name})), current_schema()))"
    );
    let (fsync, commit, standby, schema) = row(session, settings, |row| {
        let schema = row.text(3)?.map(Cow::into_owned);
        Ok((row.string(0)?, row.string(1)?, row.number(2)? != 0, schema))
    })
    .await?;
    let mut warnings = Vec::new();
    if standby {
        warnings
            .push("PostgreSQL: this server is a standby and only reads; no call runs".to_owned());
    }
    if fsync == "off" || commit == "off" {
        warnings.push(format!(
            "PostgreSQL: fsync is {fsync} and synchronous_commit is {commit}: a crash of the server \
             forgets what it has acknowledged, and a body may run again"
        ));
    }
    Ok(Probed {
        warnings,
        batches: true,
        schema,
    })
}
