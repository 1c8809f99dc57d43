//! The caller's transaction.

use sqlx::Transaction;
use sqlx::pool::PoolConnection;

/// A transaction or connection of sqlx that a call can use.
///
/// For `tx = …` of the attribute and [`in_tx`](crate::CallBuilder::in_tx).
///
/// | type | begun and committed by |
/// |---|---|
/// | `sqlx::PgTransaction<'_>`, `sqlx::Transaction<'_, MySql>`, … | the caller |
/// | `sqlx::PgConnection`, `PoolConnection<Postgres>`, … in a transaction that sqlx began | the caller |
/// | the same without one | idem, for this call |
///
/// On SQLite, a transaction of sqlx within another is refused, and so is a pool connection that sqlx counts a
/// transaction on: SQLite may have rolled that back by itself.
///
/// sqlx does not know of a transaction that was begun by an SQL text (`BEGIN`); use one of sqlx's.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction that idem can use",
    label = "not a transaction or connection of sqlx 0.9",
    note = "of a pool: begin one, `pool.begin().await?`, and commit it",
    note = "take `&mut sqlx::PgTransaction<'_>`, or the transaction, connection or pool connection of another \
            database, and enable its feature of idem-runtime: `postgres`, `mysql` or `sqlite`"
)]
pub trait SqlTransaction: Send {
    /// The underlying connection.
    #[doc(hidden)]
    fn connection(&mut self) -> SqlConnection<'_>;

    /// Keeps the connection from being used again, as far as possible.
    ///
    /// It is not known how the server handles the commands that it was sent.
    #[doc(hidden)]
    fn give_up(&mut self) {}

    /// The number of transactions that sqlx may count on it before the call.
    #[doc(hidden)]
    fn most(&self) -> usize {
        1
    }
}

/// A connection to one of the databases.
#[doc(hidden)]
pub enum SqlConnection<'a> {
    #[cfg(feature = "mysql")]
    MySql(&'a mut sqlx::MySqlConnection),
    #[cfg(feature = "postgres")]
    Postgres(&'a mut sqlx::PgConnection),
    #[cfg(feature = "sqlite")]
    Sqlite(&'a mut sqlx::SqliteConnection),
}

debug_fields!(SqlConnection<'_> {});

macro_rules! transactions {
    ($($feature:literal $variant:ident $db:ident $conn:ident;)*) => {
        $(
            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl SqlTransaction for sqlx::$conn {
                fn connection(&mut self) -> SqlConnection<'_> {
                    SqlConnection::$variant(self)
                }
            }

            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl SqlTransaction for PoolConnection<sqlx::$db> {
                fn connection(&mut self) -> SqlConnection<'_> {
                    SqlConnection::$variant(self)
                }

                fn give_up(&mut self) {
                    self.close_on_drop();
                }

                // A transaction of sqlx on it borrows it.
                fn most(&self) -> usize {
                    0
                }
            }

            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl SqlTransaction for Transaction<'_, sqlx::$db> {
                fn connection(&mut self) -> SqlConnection<'_> {
                    SqlConnection::$variant(self)
                }
            }
        )*
    };
}

transactions! {
    "mysql" MySql MySql MySqlConnection;
    "postgres" Postgres Postgres PgConnection;
    "sqlite" Sqlite Sqlite SqliteConnection;
}
