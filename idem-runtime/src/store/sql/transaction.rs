//! The caller's transaction.

use super::session::SqlSession;

/// A SQL client's transaction or connection that a call can use.
///
/// For `tx = …` of the attribute and [`in_tx`](crate::CallBuilder::in_tx).
///
/// | type | begun and committed by |
/// |---|---|
/// | `sqlx::PgTransaction<'_>`, `sqlx::Transaction<'_, MySql>`, … | the caller |
/// | `tokio_postgres::Transaction<'_>`, `deadpool_postgres::Transaction<'_>` | the caller |
/// | `mysql_async::Transaction<'_>` | the caller |
/// | `sea_orm::DatabaseTransaction` | the caller |
/// | `sqlx::PgConnection`, `PoolConnection<Postgres>`, … in a transaction that sqlx began | the caller |
/// | `diesel_async::AsyncPgConnection`, `AsyncMysqlConnection`, in `conn.transaction(…)` | the caller |
/// | a type of the last two rows, or a connection of its pool, without one | idem, for this call |
///
/// On SQLite, a transaction of sqlx within another is refused, and so is a pool connection that sqlx counts a
/// transaction on: SQLite may have rolled that back by itself. A transaction of sea-orm on SQLite is refused within
/// another, and after one within it was rolled back.
///
/// sqlx and diesel-async do not know of a transaction that was begun by an SQL text (`BEGIN`); use one of theirs.
///
/// The guide's page [`clients`](crate::guide::clients) has an example for each. Another client's connection is wrapped in
/// a type that implements [`SqlSession`] and this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction that idem can use",
    label = "not a transaction of a client that idem knows, or its feature is off",
    note = "of a pool or a client: begin one, `pool.begin().await?` or `client.transaction().await?`, and commit it",
    note = "sqlx 0.9: take `&mut sqlx::PgTransaction<'_>`, or the transaction, connection or pool connection of \
            another database, and enable its feature of idem-runtime: `postgres`, `mysql` or `sqlite`",
    note = "the transactions of tokio-postgres 0.7, `mysql_async` 0.37 and sea-orm 2, and the connections of diesel-async \
            0.9, have features of their own: see the guide's page `clients`"
)]
pub trait SqlTransaction: Send {
    /// The session of the transaction: the very connection that the body writes through.
    fn session(&mut self) -> &mut (dyn SqlSession + '_);

    /// Keeps the connection from being used again, as far as possible. Called from destructors too.
    ///
    /// It is not known how the server handles the messages that it was sent, such as a `BEGIN` whose caller is gone. A
    /// client that does not roll that back by itself starts a rollback here, or closes the connection.
    fn give_up(&mut self) {}

    /// The most transactions that the client may count before the call.
    fn most(&self) -> usize {
        1
    }
}
