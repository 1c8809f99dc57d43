//! The errors of sea-orm.

use sea_orm::sqlx::Error::Database;
use sea_orm::sqlx::error::DatabaseError;
use sea_orm::{DbErr, RuntimeErr};

use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;

/// An error of the database that sqlx has passed on.
pub(super) fn of_server(error: &DbErr) -> Option<&dyn DatabaseError> {
    let (DbErr::Conn(RuntimeErr::SqlxError(cause))
    | DbErr::Exec(RuntimeErr::SqlxError(cause))
    | DbErr::Query(RuntimeErr::SqlxError(cause))) = error
    else {
        return None;
    };
    match &**cause {
        Database(error) => Some(&**error),
        _ => None,
    }
}

/// Maps an error: one without a code of the database leaves the outcome unknown.
pub(super) fn session_error(dialect: &Dialect, error: DbErr) -> SqlError {
    match of_server(&error) {
        Some(server) => SqlError::server(dialect, code(dialect, server), server.message()),
        None => SqlError::lost(error),
    }
}

/// The code by which the dialect knows it.
fn code(dialect: &Dialect, error: &dyn DatabaseError) -> String {
    if dialect.name == Dialect::MYSQL.name {
        // Only the driver's own type has the number, and the driver is the application's; its text begins with it.
        let text = error.to_string();
        let end = text.find(|c: char| !c.is_ascii_digit());
        return text[..end.unwrap_or(text.len())].to_owned();
    }
    error.code().unwrap_or_default().into_owned()
}
