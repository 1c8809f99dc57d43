//! Connections of diesel-async to PostgreSQL.

use diesel::connection::TransactionManagerStatus;
use diesel::pg::Pg;
use diesel::query_builder::AstPass;
use diesel::result::{DatabaseErrorKind, Error, QueryResult};
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection as _};
use futures_util::FutureExt as _;

use super::connection::{DieselConnection, client_error, status};
use super::query::{Array, DieselArrays};
use super::session::session;
use super::{message, transaction};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlFuture, SqlSession, sends};
use crate::store::sql::transaction::SqlTransaction;

session!(AsyncPgConnection);

impl DieselConnection for AsyncPgConnection {
    const DIALECT: &'static Dialect = Dialect::POSTGRES;
    // The server replies to `COMMIT` with `ROLLBACK` then, which is no error.
    const COMMIT: &'static str = "SELECT 1; COMMIT";

    async fn prepare(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    // The client discards its reply.
    fn abandon(&mut self) {}

    fn undo(&mut self) {
        // The first poll queues the message.
        let _ = self.batch_execute("ROLLBACK").now_or_never();
        let status = status(self);
        if !matches!(status, TransactionManagerStatus::InError) {
            *status = TransactionManagerStatus::default();
        }
    }

    async fn error(&mut self, error: Error) -> SqlError {
        let (kind, text) = match client_error(error) {
            Ok(of_server) => of_server,
            Err(error) => return error,
        };
        let code = match kind {
            DatabaseErrorKind::SerializationFailure => "40001",
            DatabaseErrorKind::ReadOnlyTransaction => "25006",
            DatabaseErrorKind::RestrictViolation => "23001",
            DatabaseErrorKind::NotNullViolation => "23502",
            DatabaseErrorKind::ForeignKeyViolation => "23503",
            DatabaseErrorKind::UniqueViolation => "23505",
            DatabaseErrorKind::CheckViolation => "23514",
            DatabaseErrorKind::ExclusionViolation => "23P01",
            _ => return Self::error_of_text(&text),
        };
        SqlError::server(Self::DIALECT, code, &text)
    }

    /// Texts in other languages have no code: the outcome is unknown.
    fn error_of_text(text: &str) -> SqlError {
        SqlError::server(Self::DIALECT, code(text), text)
    }
}

/// The code of an error, by the server's text in English; empty for any other.
fn code(text: &str) -> &'static str {
    let mut parts = TEXTS.iter();
    let found = parts.find(|(_, starts, ends)| text.starts_with(starts) && text.contains(ends));
    found.map_or("", |(code, ..)| code)
}

/// The codes of [`Dialect::error_kind`], with beginning and part of the text.
const TEXTS: &[(&str, &str, &str)] = &[
    ("40P01", "deadlock detected", ""),
    ("55P03", "canceling statement due to lock timeout", ""),
    ("55P03", "could not obtain lock on", ""),
    ("57014", "canceling statement due to", ""),
    ("25P02", "current transaction is aborted", ""),
    ("25P01", "", "can only be used in transaction blocks"),
    ("3B001", "savepoint \"", "does not exist"),
    ("42P01", "relation \"", "does not exist"),
    ("42703", "column ", "does not exist"),
    ("42804", "column \"", "is of type"),
    ("3F000", "schema \"", "does not exist"),
    ("3F000", "no schema has been selected", ""),
    ("3D000", "database \"", "does not exist"),
    ("28000", "role \"", "does not exist"),
    ("28000", "role \"", "is not permitted to log in"),
    ("28000", "no pg_hba.conf entry", ""),
    ("28000", "pg_hba.conf rejects connection", ""),
    ("28P01", "password authentication failed", ""),
    ("42501", "permission denied", ""),
    ("42501", "must be owner of", ""),
    ("25006", "cannot execute", "in a read-only transaction"),
    ("22P02", "invalid input syntax for", ""),
    ("26000", "prepared statement \"", "does not exist"),
    ("42P05", "prepared statement \"", "already exists"),
    ("0A000", "cached plan must not change result type", ""),
    ("53100", "", "No space left on device"),
    ("53200", "out of memory", ""),
    ("53300", "sorry, too many clients already", ""),
    ("53300", "too many connections", ""),
    ("53300", "remaining connection slots", ""),
    ("57P01", "terminating connection", ""),
    ("57P03", "the database system is", ""),
    ("08P01", "unsupported startup parameter", ""),
    ("08P01", "transaction blocks not allowed", ""),
];

impl DieselArrays for Pg {
    fn push_array<'b>(out: &mut AstPass<'_, 'b, Self>, array: &'b Array<'_>) -> QueryResult<()> {
        type Of<T> = sql_types::Array<sql_types::Nullable<T>>;
        match array {
            Array::Bytes(all) => out.push_bind_param_value_only::<Of<sql_types::Binary>, _>(all),
            Array::Ints(all) => out.push_bind_param_value_only::<Of<sql_types::BigInt>, _>(all),
            Array::Texts(all) => out.push_bind_param_value_only::<Of<sql_types::Text>, _>(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn a_text_of_the_server_has_a_code() {
        for (text, expected) in [
            ("canceling statement due to lock timeout", "55P03"),
            ("canceling statement due to statement timeout", "57014"),
            ("deadlock detected", "40P01"),
            ("savepoint \"idem_claim_0\" does not exist", "3B001"),
            ("relation \"idem_records\" does not exist", "42P01"),
            ("column t.layout does not exist", "42703"),
            (
                "RELEASE SAVEPOINT can only be used in transaction blocks",
                "25P01",
            ),
            (
                "terminating connection due to administrator command",
                "57P01",
            ),
            (
                "could not extend file \"base/1\": No space left on device",
                "53100",
            ),
            (
                "transaction blocks not allowed in statement pooling mode",
                "08P01",
            ),
            // Another language, and a text of a trigger.
            ("Verklemmung entdeckt", ""),
            ("a deadlock detected by hand", ""),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
    }
}
