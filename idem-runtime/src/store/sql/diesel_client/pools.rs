//! Pools of diesel-async: connections of a pool in a call, and new ones for a store, as a pool would make them.

#[cfg(feature = "diesel-async-deadpool")]
use ::deadpool::managed::Manager;
use diesel::connection::Instrumentation;
use diesel::result::ConnectionError;
#[cfg(feature = "diesel-async-mysql")]
use diesel_async::AsyncMysqlConnection;
#[cfg(feature = "diesel-async-postgres")]
use diesel_async::AsyncPgConnection;
#[cfg(feature = "diesel-async-deadpool")]
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::PoolError;
#[cfg(feature = "diesel-async-bb8")]
use diesel_async::pooled_connection::bb8;
#[cfg(feature = "diesel-async-deadpool")]
use diesel_async::pooled_connection::deadpool;

use super::connection::{DieselConnection, client_error};
use crate::credentials::Credentials;
#[cfg(feature = "diesel-async-mysql")]
use crate::store::sql::backend::MySql;
#[cfg(feature = "diesel-async-postgres")]
use crate::store::sql::backend::Postgres;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlClient, SqlFuture, SqlSession};
use crate::store::sql::source::{IntoSqlSource, SqlSource};
use crate::store::sql::transaction::SqlTransaction;

/// A pool, whose manager makes the connections of a store.
struct NewConnections<P>(P);

/// A new connection for a store.
fn of_store<C: DieselConnection + SqlSession + 'static>(
    made: Result<C, PoolError>,
) -> Result<Box<dyn SqlSession>, SqlError> {
    match made {
        Ok(mut conn) => {
            // Some of the store's texts have an answer in them.
            conn.set_instrumentation(None::<Box<dyn Instrumentation>>);
            Ok(Box::new(conn))
        }
        Err(PoolError::ConnectionError(error)) => Err(connection_error::<C>(error)),
        Err(PoolError::QueryError(_)) => Err(SqlError::lost("its connection cannot be made")),
    }
}

/// Maps the error of a new connection.
fn connection_error<C: DieselConnection>(error: ConnectionError) -> SqlError {
    match error {
        ConnectionError::CouldntSetupConfiguration(error) => match client_error(error) {
            Ok((_, text)) => C::error_of_text(&text),
            Err(error) => error,
        },
        ConnectionError::BadConnection(text) => SqlError::lost_or_untrusted(text),
        // Its text may quote a password.
        _ => SqlError::configuration("the URL of the pool cannot be read"),
    }
}

/// A connection that is none of the pool.
#[cfg(feature = "diesel-async-deadpool")]
async fn created<C>(pool: &deadpool::Pool<C>) -> Result<C, PoolError>
where
    AsyncDieselConnectionManager<C>: Manager<Type = C, Error = PoolError>,
{
    pool.manager().create().await
}

/// The parts for one pool. `connects` makes a connection that is none of the pool.
macro_rules! pool {
    (
        $($pool:literal $database:literal $Pool:ty, $Pooled:ty, $Backend:ty, $connects:expr;)*
    ) => {
        $(
            #[cfg(all(feature = $pool, feature = $database))]
            impl SqlClient for NewConnections<$Pool> {
                fn connect(
                    &self,
                    credentials: Option<Credentials>,
                ) -> SqlFuture<'_, Box<dyn SqlSession>> {
                    Box::pin(async move {
                        if credentials.is_some() {
                            return Err(SqlError::configuration(NO_CREDENTIALS));
                        }
                        of_store($connects(&self.0).await)
                    })
                }
            }

            #[cfg(all(feature = $pool, feature = $database))]
            #[diagnostic::do_not_recommend]
            impl IntoSqlSource<$Backend> for &$Pool {
                fn into_source(self) -> SqlSource<$Backend> {
                    SqlSource::new(NewConnections(self.clone()))
                }
            }

            #[cfg(all(feature = $pool, feature = $database))]
            #[diagnostic::do_not_recommend]
            impl SqlTransaction for $Pooled {
                fn session(&mut self) -> &mut dyn SqlSession {
                    &mut **self
                }

                fn give_up(&mut self) {
                    SqlTransaction::give_up(&mut **self);
                }
            }
        )*
    };
}

const NO_CREDENTIALS: &str =
    "the manager of the pool logs in: its `custom_setup` takes the credentials from the provider";

pool! {
    "diesel-async-bb8" "diesel-async-mysql"
        bb8::Pool<AsyncMysqlConnection>, bb8::PooledConnection<'_, AsyncMysqlConnection>, MySql,
        bb8::Pool::dedicated_connection;
    "diesel-async-bb8" "diesel-async-postgres"
        bb8::Pool<AsyncPgConnection>, bb8::PooledConnection<'_, AsyncPgConnection>, Postgres,
        bb8::Pool::dedicated_connection;
    "diesel-async-deadpool" "diesel-async-mysql"
        deadpool::Pool<AsyncMysqlConnection>, deadpool::Object<AsyncMysqlConnection>, MySql,
        created;
    "diesel-async-deadpool" "diesel-async-postgres"
        deadpool::Pool<AsyncPgConnection>, deadpool::Object<AsyncPgConnection>, Postgres,
        created;
}

#[cfg(all(test, feature = "diesel-async-mysql"))]
mod tests {
    use diesel::result::ConnectionError::{BadConnection, CouldntSetupConfiguration};
    use diesel::result::{DatabaseErrorKind, Error};

    use super::*;

    #[test]
    fn an_error_of_a_new_connection_has_its_cause() {
        let of_server = |text: &str| {
            let text = Box::new(text.to_owned());
            CouldntSetupConfiguration(Error::DatabaseError(DatabaseErrorKind::Unknown, text))
        };
        for (error, expected) in [
            (
                BadConnection("invalid peer certificate: Expired".to_owned()),
                "no TLS with the server",
            ),
            (
                BadConnection("connection refused".to_owned()),
                "the connection is lost or cannot be made",
            ),
            (
                of_server("Access denied, this account is locked"),
                "the server replied with error 4151",
            ),
            (
                of_server("You must SET PASSWORD before executing this statement"),
                "the server replied with error 1820",
            ),
        ] {
            let error = connection_error::<AsyncMysqlConnection>(error);
            assert_eq!(error.to_string(), expected);
        }
    }
}
