//! The caller's transaction.

use super::session::SqlSession;

/// A transaction or connection of a SQL client that a call can use.
///
/// For `tx = …` of the attribute and [`in_tx`](crate::CallBuilder::in_tx).
///
/// | type | begun and committed by |
/// |---|---|
/// | `sqlx::PgTransaction<'_>`, `sqlx::Transaction<'_, MySql>`, … | the caller |
/// | `sqlx::PgConnection`, `PoolConnection<Postgres>`, … in a transaction that sqlx began | the caller |
/// | the same without one | idem, for this call |
/// | `sea_orm::DatabaseTransaction` (feature `sea-orm`) | the caller |
///
/// On SQLite, a transaction of sqlx within another is refused, and so is a pool connection that sqlx counts a
/// transaction on: SQLite may have rolled that back by itself. A transaction of sea-orm on SQLite is refused within
/// another, and after one within it was rolled back; see the guide's page `sql`.
///
/// sqlx does not know of a transaction that was begun by an SQL text (`BEGIN`); use one of sqlx's.
///
/// Another client's connection is wrapped in a type that implements [`SqlSession`] and this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction that idem can use",
    label = "not a transaction or connection of sqlx 0.9",
    note = "of a pool: begin one, `pool.begin().await?`, and commit it",
    note = "take `&mut sqlx::PgTransaction<'_>`, or the transaction, connection or pool connection of another \
            database, and enable its feature of idem-runtime: `postgres`, `mysql` or `sqlite`",
    note = "of sea-orm: take `&mut sea_orm::DatabaseTransaction`, and enable the feature `sea-orm`"
)]
pub trait SqlTransaction: Send {
    /// The session of the transaction: the very connection that the body writes through.
    fn session(&mut self) -> &mut (dyn SqlSession + '_);

    /// Keeps the connection from being used again, as far as possible. Called from destructors too.
    ///
    /// It is not known how the server handles the messages that it was sent, such as a `BEGIN` whose caller is gone. A
    /// client that does not roll that back by itself starts a rollback here, or closes the connection.
    fn give_up(&mut self) {}

    /// The number of transactions that the client may count on it before the call.
    fn most(&self) -> usize {
        1
    }
}
