//! Maps the errors of sqlx to those of a store.

use super::backend::SqlDriver;
use super::error_kind::SqlErrorKind;
use crate::env::credentials::ProviderError;
use crate::store::{Reach, StoreError, StoreErrorKind};

/// Whether the connection is unusable.
pub(crate) fn broken(error: &sqlx::Error) -> bool {
    use sqlx::Error::{Io, Protocol, Tls, WorkerCrashed};
    matches!(error, Io(_) | Protocol(_) | Tls(_) | WorkerCrashed)
}

pub(crate) fn error_kind<B: SqlDriver>(error: &sqlx::Error) -> Option<SqlErrorKind> {
    error.as_database_error().map(B::error_kind)
}

fn into_provider_error(error: sqlx::Error) -> Result<ProviderError, sqlx::Error> {
    match error {
        sqlx::Error::Configuration(error) => match error.downcast() {
            Ok(error) => Ok(*error),
            Err(error) => Err(sqlx::Error::Configuration(error)),
        },
        error => Err(error),
    }
}

/// The error of a store whose server has let the provider's user in before.
///
/// `Unavailable`, because the password may be changing and the next credentials may be accepted.
pub(crate) fn login_error<B: SqlDriver>(what: &str) -> StoreError {
    let message = format!(
        "{what}: {} refuses the credentials of the provider, also after a second call of it; see what it takes them \
         from, and the password of the user",
        B::DIALECT.name
    );
    StoreError::new(StoreErrorKind::Unavailable, message).answered()
}

/// The error for the engine. `what` is the operation, as in "a claim".
pub(crate) fn store_error<B: SqlDriver>(what: &str, error: sqlx::Error) -> StoreError {
    use StoreErrorKind::{Full, Protocol, Refused, Unavailable};
    let error = match into_provider_error(error) {
        Ok(error) => return StoreError::no_credentials(what, error),
        Err(error) => error,
    };
    let (kind, advice) = match error_kind::<B>(&error) {
        Some(SqlErrorKind::Collision) => (
            Unavailable,
            "it collided with other transactions again and again; it may be sent again",
        ),
        Some(SqlErrorKind::Locked) => (
            Unavailable,
            "another transaction holds the record or the file; it may be sent again",
        ),
        Some(SqlErrorKind::Full) => (
            Full,
            "the database has no room; free some, or purge more often",
        ),
        Some(SqlErrorKind::NoTable) => (
            Refused,
            "the table is not there, or not as this version knows it; run `migrate()`, or the files \
             in `migrations` of idem-runtime",
        ),
        Some(SqlErrorKind::NoDatabase) => (
            Refused,
            "there is no such database or schema; create it, or mend the URL or the name of the table",
        ),
        Some(SqlErrorKind::Login) => (
            Refused,
            "the server does not let this user in; see to the user and the password, and to whom the \
             server lets into this database from here",
        ),
        Some(SqlErrorKind::Refused) => (
            Refused,
            "the server does not let this user do this: idem needs SELECT, INSERT, UPDATE and DELETE \
             on its table",
        ),
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        Some(SqlErrorKind::Setting(advice)) => (Refused, advice),
        Some(SqlErrorKind::Unavailable) => (Unavailable, "the server starts, stops or fails over"),
        Some(SqlErrorKind::Busy) => (
            Unavailable,
            "the server has no connection left, or has ended the statement for a limit or a fault of its own; see \
             its log",
        ),
        Some(SqlErrorKind::ReadOnly) => (
            Unavailable,
            "the server is read-only, as a standby is; idem needs one that writes",
        ),
        Some(SqlErrorKind::Ended) => (
            Unavailable,
            "a statement has ended the transaction, or an error in it has",
        ),
        Some(SqlErrorKind::Other) => (Protocol, "the server refused a statement"),
        None => match &error {
            sqlx::Error::Configuration(_) => {
                (Refused, "the address or the server's settings do not do")
            }
            sqlx::Error::Tls(_) => (
                Unavailable,
                "no TLS with the server; it takes a server that has it, and a feature of sqlx, such as \
                 `sqlx/tls-rustls-ring`",
            ),
            error if broken(error) => (
                Unavailable,
                "the connection is lost or cannot be made; see that the server runs, and that the URL \
                 names it",
            ),
            _ => (Protocol, "the reply cannot be read"),
        },
    };
    // The text of a server may quote values; its code does not.
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    let code = code.map_or(String::new(), |code| {
        format!(" ({} error {code})", B::DIALECT.name)
    });
    let message = format!("{what}: {advice}{code}");
    let reach = reach::<B>(&error);
    let cause = Some(error).filter(|error| error.as_database_error().is_none());
    let error = StoreError::new(kind, message);
    let error = match reach {
        Reach::Answered => error.answered(),
        Reach::Here => error.here(),
        Reach::Unreachable => error.unreachable(),
        Reach::Silent => error,
    };
    match cause {
        Some(cause) => error.because(cause),
        None => error,
    }
}

/// How far a statement came. The error of a server that starts or fails over does not count as an answer.
fn reach<B: SqlDriver>(error: &sqlx::Error) -> Reach {
    let is_refused =
        matches!(error, sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused);
    let lacks = match error {
        sqlx::Error::Io(io) => lacks_something_here(io),
        // A certificate that does not match, or is missing.
        sqlx::Error::Tls(_) => true,
        _ => false,
    };
    match error_kind::<B>(error) {
        Some(SqlErrorKind::Unavailable) => Reach::Silent,
        None if lacks => Reach::Here,
        None if is_refused => Reach::Unreachable,
        // A missing file may be that of a socket, or of a certificate.
        None if broken(error) => Reach::Silent,
        _ => Reach::Answered,
    }
}

/// Whether this process or its machine lacks memory, files or ports for a connection.
fn lacks_something_here(error: &std::io::Error) -> bool {
    const LACKS: [i32; 4] = [12, 23, 24, 99];
    error
        .raw_os_error()
        .is_some_and(|code| LACKS.contains(&code))
}

/// The error of a table that could not be created.
pub(crate) fn not_created<B: SqlDriver>(what: &str, error: sqlx::Error) -> StoreError {
    if error_kind::<B>(&error) == Some(SqlErrorKind::Refused) {
        let message = format!(
            "{what}: this user may not create it; whoever may runs the file in `migrations` of \
             idem-runtime, or what `schema()` gives, and grants SELECT, INSERT, UPDATE and DELETE"
        );
        return StoreError::new(StoreErrorKind::Refused, message);
    }
    store_error::<B>(what, error)
}

/// The error of an existing table that is not usable.
pub(crate) fn not_usable<B: SqlDriver>(what: &str, error: sqlx::Error) -> StoreError {
    if error_kind::<B>(&error) == Some(SqlErrorKind::NoTable) {
        let message = format!(
            "{what}: there is one of this name, but not as this version knows it; compare it with the \
             file in `migrations` of idem-runtime, or choose another name for the table"
        );
        return StoreError::new(StoreErrorKind::Refused, message);
    }
    store_error::<B>(what, error)
}

/// The error of an unsuitable server. The problem is a sentence of this crate.
pub(crate) fn unfit<B: SqlDriver>(what: &str, error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Configuration(problem) if !problem.is::<ProviderError>() => {
            StoreError::new(StoreErrorKind::Refused, format!("{what}: {problem}"))
        }
        error => store_error::<B>(what, error),
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_unreachable_server_differs_from_a_process_that_cannot_connect() {
        type Postgres = crate::store::sql::postgres::Postgres;
        let of = |error: io::Error| store_error::<Postgres>("a claim", error.into()).reach();
        assert_eq!(
            of(io::ErrorKind::ConnectionRefused.into()),
            Reach::Unreachable
        );
        assert_eq!(of(io::ErrorKind::ConnectionReset.into()), Reach::Silent);
        assert_eq!(of(io::ErrorKind::NotFound.into()), Reach::Silent);
        // Too many open files.
        assert_eq!(of(io::Error::from_raw_os_error(24)), Reach::Here);
        let tls = sqlx::Error::Tls("no such certificate".into());
        assert_eq!(store_error::<Postgres>("a claim", tls).reach(), Reach::Here);
        let protocol = sqlx::Error::Protocol("cut short".into());
        let protocol = store_error::<Postgres>("a claim", protocol);
        assert_eq!(protocol.reach(), Reach::Silent);
    }
}
