//! sqlx as a client: its connections are sessions, and its transactions those of callers.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod transaction_depth;

use std::str::FromStr;
use std::sync::Arc;

use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::pool::PoolConnection;
use sqlx::{Arguments as _, Connection, Decode, Encode, Pool, Row, Transaction, Type};

use super::argument::{SqlArgument, SqlArray};
use super::backend::Backend;
#[cfg(feature = "mysql")]
use super::backend::MySql;
#[cfg(feature = "postgres")]
use super::backend::Postgres;
#[cfg(feature = "sqlite")]
use super::backend::Sqlite;
use super::dialect::Dialect;
use super::error::SqlError;
use super::session::{SqlClient, SqlFuture, SqlSession, SqlStatement};
use super::source::{IntoSqlSource, SqlSource};
use super::transaction::SqlTransaction;
use crate::credentials::Credentials;

/// Maps an error of sqlx.
fn session_error(dialect: &Dialect, error: sqlx::Error) -> SqlError {
    use sqlx::Error::{Configuration, Database, Io, Protocol, Tls, WorkerCrashed};
    #[cfg(feature = "sqlite")]
    if let Database(error) = &error
        && let Some(cause) = sqlite::lacks_files(&**error)
    {
        return SqlError::lost(cause);
    }
    match error {
        Database(error) => SqlError::server(dialect, code(&*error), error.message()),
        Configuration(error) => SqlError::configuration(error),
        Tls(error) => SqlError::tls(error),
        error @ (Io(_) | Protocol(_) | WorkerCrashed) => SqlError::lost(error),
        error => SqlError::client(error),
    }
}

fn code(error: &dyn DatabaseError) -> String {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return error.number().to_string();
    }
    error.code().unwrap_or_default().into_owned()
}

/// A row of sqlx, and whether its column types are checked.
struct SqlxRow<'r, R> {
    row: &'r R,
    checks: bool,
}

impl<R: Row> SqlxRow<'_, R>
where
    usize: sqlx::ColumnIndex<R>,
{
    /// The value of a column.
    fn value<'r, T>(&'r self, column: usize) -> Result<T, SqlError>
    where
        T: Decode<'r, R::Database> + Type<R::Database>,
    {
        let value = if self.checks {
            self.row.try_get(column)
        } else {
            self.row.try_get_unchecked(column)
        };
        value.map_err(SqlError::client)
    }
}

/// A database of sqlx, with the properties that few databases have.
trait SqlxDatabase: sqlx::Database {
    /// Adds an array.
    fn add_array(_: &mut Self::Arguments, _: SqlArray<'_>) -> Result<(), BoxDynError> {
        Err("it has no arrays".into())
    }

    /// The number that a statement left for its client; 0: none.
    fn last_insert_id(_: &Self::QueryResult) -> u64 {
        0
    }
}

/// The arguments of a statement, as sqlx has them.
fn bound<D: SqlxDatabase>(statement: &SqlStatement<'_>) -> Result<D::Arguments, SqlError>
where
    for<'a> &'a [u8]: Encode<'a, D> + Type<D>,
    for<'a> Option<&'a [u8]>: Encode<'a, D> + Type<D>,
    for<'a> &'a str: Encode<'a, D> + Type<D>,
    for<'a> i64: Encode<'a, D> + Type<D>,
{
    let mut all = D::Arguments::default();
    all.reserve(statement.parameters(), 0);
    for argument in statement.arguments() {
        let added = match argument {
            SqlArgument::Bytes(bytes) => all.add(bytes),
            SqlArgument::Null => all.add(None::<&[u8]>),
            SqlArgument::Int(number) => all.add(number),
            SqlArgument::Text(text) => all.add(text),
            SqlArgument::Array(array) => D::add_array(&mut all, array),
        };
        added.map_err(SqlError::client)?;
    }
    Ok(all)
}

/// The methods of a row, with the type of bytes.
macro_rules! row {
    ($Bytes:ty) => {
        fn columns(&self) -> usize {
            sqlx::Row::len(self.row)
        }

        fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
            self.value(column)
        }

        fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
            Ok(self.value::<Option<&str>>(column)?.map(Cow::Borrowed))
        }

        fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
            Ok(self.value::<Option<$Bytes>>(column)?.map(Cow::from))
        }
    };
}

/// The methods of a session, except `rollback` and `start_rollback`.
///
/// A macro, because the types of sqlx have nothing in common.
macro_rules! session {
    ($Db:ty) => {
        fn dialect(&self) -> &'static Dialect {
            DIALECT
        }

        sends! {|session, message, receive|
            send: {
                let arguments = bound::<$Db>(&message);
                async move {
                    let text = sqlx::AssertSqlSafe(Arc::clone(message.text()));
                    let query = sqlx::query_with::<$Db, _>(text, arguments?);
                    let query = query.persistent(message.is_named());
                    // The check of the types is expensive.
                    let checks = !DIALECT.typed || !message.is_known();
                    session!(@ forward $Db, session.fetch_many(query), checks, receive, message.known());
                    Ok(())
                }
            },
            script: async move {
                let script = sqlx::raw_sql(sqlx::AssertSqlSafe(message));
                session!(@ forward $Db, session.fetch_many(script), true, receive, ());
                Ok(())
            },
        }

        fn depth(&mut self) -> usize {
            <$Db as sqlx::Database>::TransactionManager::get_transaction_depth(self)
        }

        fn begin(&mut self) -> SqlFuture<'_, ()> {
            Box::pin(async move {
                let begun = <$Db as sqlx::Database>::TransactionManager::begin(self, None);
                begun.await.map_err(|error| session_error(DIALECT, error))
            })
        }

        fn commit(&mut self) -> SqlFuture<'_, ()> {
            Box::pin(async move {
                let committed = <$Db as sqlx::Database>::TransactionManager::commit(self);
                committed
                    .await
                    .map_err(|error| session_error(DIALECT, error))
            })
        }
    };
    (@ forward $Db:ty, $results:expr, $checks:expr, $receive:ident, $row_is_read:expr) => {
        let mut results = $results;
        while let Some(part) = futures_util::StreamExt::next(&mut results).await {
            match part.map_err(|error| session_error(DIALECT, error))? {
                sqlx::Either::Left(done) => $receive(SqlReply::Done {
                    affected: done.rows_affected(),
                    last_insert_id: <$Db as SqlxDatabase>::last_insert_id(&done),
                })?,
                sqlx::Either::Right(row) => {
                    $receive(SqlReply::Row(&SqlxRow {
                        row: &row,
                        checks: $checks,
                    }))?;
                    $row_is_read;
                }
            }
        }
    };
    (rolls back $Db:ty) => {
        fn rollback(&mut self) -> SqlFuture<'_, ()> {
            Box::pin(async move {
                let undone = <$Db as sqlx::Database>::TransactionManager::rollback(self);
                undone.await.map_err(|error| session_error(DIALECT, error))
            })
        }

        fn start_rollback(&mut self) {
            <$Db as sqlx::Database>::TransactionManager::start_rollback(self);
        }
    };
}

#[allow(unused_imports, reason = "each is for the modules of the databases")]
use {row, session};

/// The options of a database's connections.
trait ClientOptions: Clone + Send + Sync + 'static {
    const DIALECT: &'static Dialect;

    /// Adds the settings of the store's own connections.
    fn of_store(self) -> Self {
        self
    }

    /// The options with other credentials, if the database has users.
    fn with_credentials(self, _: Credentials) -> Self {
        self
    }

    /// As [`SqlClient::is_unnamed`].
    fn is_unnamed(&self) -> bool {
        false
    }

    /// As [`SqlClient::warning`].
    fn warning(&self) -> Option<String> {
        None
    }

    /// The options of the connection that writes for several calls.
    fn of_writer(&self) -> Option<Self> {
        None
    }
}

/// The client of a database's connections.
struct SqlxClient<C: Connection>(C::Options);

impl<C> SqlClient for SqlxClient<C>
where
    C: Connection<Options: ClientOptions> + SqlSession + 'static,
{
    fn connect(&self, credentials: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
        Box::pin(async move {
            let with;
            let options = match credentials {
                Some(credentials) => {
                    with = self.0.clone().with_credentials(credentials);
                    &with
                }
                None => &self.0,
            };
            match C::connect_with(options).await {
                Ok(conn) => Ok(Box::new(conn) as _),
                Err(error) => Err(session_error(C::Options::DIALECT, error)),
            }
        })
    }

    fn is_unnamed(&self) -> bool {
        self.0.is_unnamed()
    }

    fn warning(&self) -> Option<String> {
        self.0.warning()
    }

    fn writer(&self) -> Option<Arc<dyn SqlClient>> {
        let options = self.0.of_writer()?;
        Some(Arc::new(Self(options)))
    }
}

/// The client of a URL. The error of sqlx may quote it, with the password in it.
pub(super) type ClientOfUrl = Option<Arc<dyn SqlClient>>;

#[allow(private_bounds, reason = "the connections of sqlx have the bound")]
pub(super) fn of_url<C>(url: &str) -> ClientOfUrl
where
    C: Connection<Options: ClientOptions> + SqlSession + 'static,
{
    let options = C::Options::from_str(url).ok()?;
    Some(Arc::new(SqlxClient::<C>(options.of_store())))
}

fn source<B: Backend, C>(options: C::Options) -> SqlSource<B>
where
    C: Connection<Options: ClientOptions> + SqlSession + 'static,
{
    SqlSource::new(SqlxClient::<C>(options.of_store()))
}

macro_rules! sqlx_types {
    ($($feature:literal $module:ident $Db:ident $Connection:ident $Options:ident;)*) => {
        $(
            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl IntoSqlSource<$Db> for sqlx::$module::$Options {
                fn into_source(self) -> SqlSource<$Db> {
                    source::<_, sqlx::$Connection>(self)
                }
            }

            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl IntoSqlSource<$Db> for &Pool<sqlx::$Db> {
                fn into_source(self) -> SqlSource<$Db> {
                    (*self.connect_options()).clone().into_source()
                }
            }

            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl SqlTransaction for sqlx::$Connection {
                fn session(&mut self) -> &mut dyn SqlSession {
                    self
                }
            }

            #[cfg(feature = $feature)]
            #[diagnostic::do_not_recommend]
            impl SqlTransaction for PoolConnection<sqlx::$Db> {
                fn session(&mut self) -> &mut dyn SqlSession {
                    &mut **self
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
            impl SqlTransaction for Transaction<'_, sqlx::$Db> {
                fn session(&mut self) -> &mut dyn SqlSession {
                    &mut **self
                }
            }
        )*
    };
}

sqlx_types! {
    "mysql" mysql MySql MySqlConnection MySqlConnectOptions;
    "postgres" postgres Postgres PgConnection PgConnectOptions;
    "sqlite" sqlite Sqlite SqliteConnection SqliteConnectOptions;
}
