//! Scripts, whose rows only a query of sea-orm returns.

use sea_orm::{DatabaseBackend, Statement, Value};

use crate::store::sql::bytea::bytea;
use crate::store::sql::dialect::Dialect;

/// The last statement of a script, if it returns rows, and those before it.
pub(super) fn query_of(script: &str) -> Option<(&str, &str)> {
    let script = script.trim_end_matches([';', ' ']);
    let (before, last) = script.rsplit_once(';').unwrap_or(("", script));
    let last = last.trim_start();
    let returns_rows = last.starts_with("SELECT") || last.starts_with("PRAGMA");
    returns_rows.then_some((before, last))
}

/// A query with its literal of bytes as a parameter.
///
/// sea-orm prepares each query, and keeps it by its text, which is then the same for each key.
pub(super) fn parametrized(backend: DatabaseBackend, dialect: &Dialect, query: &str) -> Statement {
    let (open, close) = dialect.bytes;
    let literal = query.split_once(open).and_then(|(before, rest)| {
        let (digits, after) = rest.split_once(close)?;
        Some((before, bytea(&format!("\\x{digits}"))?, after))
    });
    match literal {
        Some((before, bytes, after)) => {
            let parameter = if dialect.numbered { "$1" } else { "?" };
            let text = format!("{before}{parameter}{after}");
            Statement::from_sql_and_values(backend, text, [Value::Bytes(Some(bytes))])
        }
        None => Statement::from_string(backend, query),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_at_the_end_of_a_script() {
        for (script, expected) in [
            ("SAVEPOINT a; SELECT 1", Some(("SAVEPOINT a", "SELECT 1"))),
            (
                "PRAGMA busy_timeout = 5; ",
                Some(("", "PRAGMA busy_timeout = 5")),
            ),
            ("SELECT 1; RELEASE SAVEPOINT a", None),
        ] {
            assert_eq!(query_of(script), expected, "{script}");
        }
    }

    #[test]
    fn a_literal_of_bytes_is_a_parameter() {
        for (backend, dialect, query, text) in [
            (
                DatabaseBackend::Postgres,
                Dialect::POSTGRES,
                "SELECT 1 FROM t WHERE k = decode('0aff', 'hex')",
                "SELECT 1 FROM t WHERE k = $1",
            ),
            (
                DatabaseBackend::MySql,
                Dialect::MYSQL,
                "SELECT 1 FROM t WHERE k = x'0aff' LOCK IN SHARE MODE",
                "SELECT 1 FROM t WHERE k = ? LOCK IN SHARE MODE",
            ),
            (
                DatabaseBackend::Sqlite,
                Dialect::SQLITE,
                "SELECT 1 FROM t WHERE k = x'0aff'",
                "SELECT 1 FROM t WHERE k = ?",
            ),
        ] {
            let sent = parametrized(backend, dialect, query);
            let bytes = Value::Bytes(Some(vec![10, 255]));
            assert_eq!(sent, Statement::from_sql_and_values(backend, text, [bytes]));
            let plain = parametrized(backend, dialect, "SELECT 1");
            assert_eq!(plain, Statement::from_string(backend, "SELECT 1"));
        }
    }
}
