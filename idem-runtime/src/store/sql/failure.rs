//! Maps the errors of a session to those of a store.

use std::error::Error;
use std::io;

use super::dialect::Dialect;
use super::error::{SqlError, SqlFailure};
use super::error_kind::SqlErrorKind;
use crate::store::{StoreError, StoreErrorKind};

/// The error of a refused login by a formerly accepted provider.
///
/// `Unavailable`, because the password may be changing and the next credentials may be accepted.
pub(crate) fn login_error(dialect: &Dialect, what: &str) -> StoreError {
    let message = format!(
        "{what}: {} refuses the credentials of the provider, also after a second call of it; see what it takes them \
         from, and the password of the user",
        dialect.name
    );
    StoreError::new(StoreErrorKind::Unavailable, message).answered()
}

/// The error for the engine. `what` is the operation, as in "a claim".
pub(crate) fn store_error(dialect: &Dialect, what: &str, error: SqlError) -> StoreError {
    use StoreErrorKind::{Protocol, Refused, Unavailable};
    let with = |kind, advice| StoreError::new(kind, format!("{what}: {advice}"));
    match error.0 {
        SqlFailure::Provider(error) => StoreError::no_credentials(what, error),
        SqlFailure::Unfit(problem) => with(Refused, &*problem),
        SqlFailure::Server { kind, code } => server_error(dialect, what, kind, &code),
        SqlFailure::Configuration(cause) => {
            let advice = "the address or the server's settings do not do";
            with(Refused, advice).answered().because_of(cause)
        }
        SqlFailure::Tls(cause) => {
            let advice = "no TLS with the server: it, or the client, is without TLS (sqlx has it by a feature such as \
                          `sqlx/tls-rustls-ring`), or one refuses the certificate of the other";
            with(Unavailable, advice).here().because_of(cause)
        }
        SqlFailure::Lost(cause) => {
            let advice = "the connection is lost or cannot be made; see that the server runs, and that the URL \
                          names it";
            let error = with(Unavailable, advice);
            let error = match io_error(&*cause) {
                Some(io) if lacks_something_here(io) => error.here(),
                Some(io) if io.kind() == io::ErrorKind::ConnectionRefused => error.unreachable(),
                // A missing file may be that of a socket, or of a certificate.
                _ => error,
            };
            error.because_of(cause)
        }
        SqlFailure::Client(cause) => {
            let advice = "the reply cannot be read";
            with(Protocol, advice).answered().because_of(cause)
        }
    }
}

fn server_error(dialect: &Dialect, what: &str, kind: SqlErrorKind, code: &str) -> StoreError {
    use StoreErrorKind::{Full, Protocol, Refused, Unavailable};
    let (store_kind, advice) = match kind {
        SqlErrorKind::Collision { .. } => (
            Unavailable,
            "it collided with other transactions again and again; it may be sent again",
        ),
        SqlErrorKind::Locked => (
            Unavailable,
            "another transaction holds the record or the file; it may be sent again",
        ),
        SqlErrorKind::Full => (
            Full,
            "the database has no room; free some, or purge more often",
        ),
        SqlErrorKind::NoTable => (
            Refused,
            "the table is not there, or not as this version knows it; run `migrate()`, or the files \
             in `migrations` of idem-runtime",
        ),
        SqlErrorKind::NoDatabase => (
            Refused,
            "there is no such database or schema; create it, or mend the URL or the name of the table",
        ),
        SqlErrorKind::Login => (
            Refused,
            "the server does not let this user in; see to the user and the password, and to whom the \
             server lets into this database from here",
        ),
        SqlErrorKind::Refused => (
            Refused,
            "the server does not let this user do this: idem needs SELECT, INSERT, UPDATE and DELETE \
             on its table",
        ),
        SqlErrorKind::Setting(advice) => (Refused, advice),
        SqlErrorKind::Unavailable => (Unavailable, "the server starts, stops or fails over"),
        SqlErrorKind::Busy => (
            Unavailable,
            "the server has no connection left, or has ended the statement for a limit or a fault of its own; see \
             its log",
        ),
        SqlErrorKind::NoStatement => (
            Unavailable,
            "its session has no such prepared statement: a proxy has ended it, or has given the store the session of \
             another client; PgBouncer needs version 1.21 and `max_prepared_statements`, or the store's builder \
             `named_statements(false)`",
        ),
        SqlErrorKind::ReadOnly => (
            Unavailable,
            "the server is read-only, as a standby is, or makes this user's transactions read-only \
             (`default_transaction_read_only`, `tx_read_only`); idem needs one that writes",
        ),
        SqlErrorKind::Ended => (
            Unavailable,
            "a statement has ended the transaction, or an error in it has",
        ),
        SqlErrorKind::Other => (Protocol, "the server refused a statement"),
    };
    let code = if code.is_empty() {
        String::new()
    } else {
        format!(" ({} error {code})", dialect.name)
    };
    let error = StoreError::new(store_kind, format!("{what}: {advice}{code}"));
    if kind == SqlErrorKind::Unavailable {
        // Does not count as an answer.
        return error;
    }
    error.answered()
}

/// The error of the operating system behind this one.
fn io_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        next = error.source();
    }
    None
}

/// Whether this machine lacks memory, files or ports for a connection.
fn lacks_something_here(error: &io::Error) -> bool {
    const LACKS: [i32; 4] = [12, 23, 24, 99];
    error
        .raw_os_error()
        .is_some_and(|code| LACKS.contains(&code))
}

/// The error of a table that could not be created.
pub(crate) fn not_created(dialect: &Dialect, what: &str, error: SqlError) -> StoreError {
    if error.kind() == Some(SqlErrorKind::Refused) {
        let message = format!(
            "{what}: this user may not create it; whoever may runs the file in `migrations` of \
             idem-runtime, or what `schema()` gives, and grants SELECT, INSERT, UPDATE and DELETE"
        );
        return StoreError::new(StoreErrorKind::Refused, message);
    }
    store_error(dialect, what, error)
}

/// The error of an existing table that is not usable.
pub(crate) fn not_usable(dialect: &Dialect, what: &str, error: SqlError) -> StoreError {
    if error.kind() == Some(SqlErrorKind::NoTable) {
        let message = format!(
            "{what}: there is one of this name, but not as this version knows it; compare it with the \
             file in `migrations` of idem-runtime, or choose another name for the table"
        );
        return StoreError::new(StoreErrorKind::Refused, message);
    }
    store_error(dialect, what, error)
}

#[cfg(all(test, feature = "_postgres"))]
mod tests {
    use std::io;

    use super::*;
    use crate::store::Reach;

    #[test]
    fn an_unreachable_server_differs_from_a_process_that_cannot_connect() {
        let of = |error| store_error(Dialect::POSTGRES, "a claim", error).reach();
        let lost = |error: io::Error| of(SqlError::lost(error));
        assert_eq!(
            lost(io::ErrorKind::ConnectionRefused.into()),
            Reach::Unreachable
        );
        assert_eq!(lost(io::ErrorKind::ConnectionReset.into()), Reach::Silent);
        assert_eq!(lost(io::ErrorKind::NotFound.into()), Reach::Silent);
        // Too many open files.
        assert_eq!(lost(io::Error::from_raw_os_error(24)), Reach::Here);
        assert_eq!(of(SqlError::tls("no such certificate")), Reach::Here);
        assert_eq!(of(SqlError::lost("cut short")), Reach::Silent);
    }
}
