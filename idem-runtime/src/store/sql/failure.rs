//! What the errors of sqlx mean for a store.

use super::backend::{Sealed, Trouble};
use crate::store::{StoreError, StoreErrorKind};

/// Whether the connection is of no more use.
pub(crate) fn broken(error: &sqlx::Error) -> bool {
    use sqlx::Error::{Io, Protocol, Tls, WorkerCrashed};
    matches!(error, Io(_) | Protocol(_) | Tls(_) | WorkerCrashed)
}

pub(crate) fn trouble<B: Sealed>(error: &sqlx::Error) -> Option<Trouble> {
    error.as_database_error().map(B::trouble)
}

/// The error for the engine. `what` is what was tried, as in "a claim".
pub(crate) fn store_error<B: Sealed>(what: &str, error: sqlx::Error) -> StoreError {
    use StoreErrorKind::{Full, Protocol, Refused, Unavailable};
    let (kind, advice) = match trouble::<B>(&error) {
        Some(Trouble::Collision) => (
            Unavailable,
            "it collided with other transactions again and again; it may be sent again",
        ),
        Some(Trouble::Locked) => (
            Unavailable,
            "another transaction holds the record or the file; it may be sent again",
        ),
        Some(Trouble::Full) => (
            Full,
            "the database has no room; free some, or purge more often",
        ),
        Some(Trouble::NoTable) => (
            Refused,
            "the table is not there, or not as this version knows it; run `migrate()`, or the files \
             in `migrations` of idem-runtime",
        ),
        Some(Trouble::Refused) => (
            Refused,
            "the server does not let this user in, or do this: idem needs SELECT, INSERT, UPDATE \
             and DELETE on its table",
        ),
        Some(Trouble::Unavailable) => (
            Unavailable,
            "the server starts, stops, is read-only or has no connection left",
        ),
        Some(Trouble::Other) => (Protocol, "the server refused a statement"),
        None => match &error {
            sqlx::Error::Configuration(_) => {
                (Refused, "the address or the server's settings do not do")
            }
            error if broken(error) => (Unavailable, "the connection is lost or cannot be made"),
            _ => (Protocol, "the reply cannot be read"),
        },
    };
    // The text of a server may quote values; its code does not.
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    let code = code.map_or(String::new(), |code| format!(" ({} error {code})", B::NAME));
    let message = format!("{what}: {advice}{code}");
    let cause = Some(error).filter(|error| error.as_database_error().is_none());
    let error = StoreError::new(kind, message);
    match cause {
        Some(cause) => error.because(cause),
        None => error,
    }
}
