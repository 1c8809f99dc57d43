//! Queries of scripts, as statements of sea-orm.

use sea_orm::{DatabaseBackend, Statement, Value};

use crate::store::sql::bytea::bytea;
use crate::store::sql::dialect::Dialect;

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
