//! The address of a database.

use std::marker::PhantomData;
use std::sync::Arc;

use super::backend::Backend;
use super::session::SqlClient;
use crate::store::StoreError;
#[cfg(feature = "_sqlx")]
use crate::store::StoreErrorKind;

/// The client of a store's own connections, for one kind of database.
///
/// Made of a URL or of the options or the pool of a client. Of a pool the options are used, not the connections: see
/// [`SqlStore`](super::SqlStore). Settings that idem has no name for (TLS, certificates, the size of sqlx's statement
/// cache) are set on the client's own options.
///
/// | source | client |
/// |---|---|
/// | a URL | sqlx |
/// | `sqlx::postgres::PgConnectOptions`, `&sqlx::PgPool`, … | sqlx |
/// | `tokio_postgres::Config`: without TLS | tokio-postgres |
/// | `(tokio_postgres::Config, T)`, with a connector `T` for TLS | tokio-postgres |
/// | `&deadpool_postgres::Pool`, `&bb8::Pool` of bb8-postgres | tokio-postgres |
/// | `&diesel_async::pooled_connection::deadpool::Pool<_>`, `&…::bb8::Pool<_>` | diesel-async |
/// | `mysql_async::Opts`, `OptsBuilder`, `&mysql_async::Pool` | `mysql_async` |
///
/// | database | URL |
/// |---|---|
/// | PostgreSQL | `postgres://user:password@host:5432/database` |
/// | MySQL, MariaDB | `mysql://user:password@host:3306/database` |
/// | SQLite | `sqlite:path/to/file.db` |
pub struct SqlSource<B: Backend>(
    Result<Arc<dyn SqlClient>, StoreError>,
    PhantomData<fn() -> B>,
);

// Options may show a password.
debug_fields!([B: Backend] SqlSource<B> {});

impl<B: Backend> SqlSource<B> {
    /// From any library's client, with connections to such a database.
    pub fn new(client: impl SqlClient + 'static) -> Self {
        Self(Ok(Arc::new(client)), PhantomData)
    }

    pub(super) fn into_client(self) -> Result<Arc<dyn SqlClient>, StoreError> {
        self.0
    }
}

/// An address of a store: a URL, options of a client, a reference to its pool, or a [`SqlSource`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no address that this store can connect to",
    label = "not a URL, options of a client, a reference to its pool, or a `SqlSource`",
    note = "of sqlx 0.9, by the feature of the store's database: a URL, options, or `&sqlx::PgPool` for a `PostgresStore`",
    note = "of another client, by its feature: see the guide's page `clients`"
)]
pub trait IntoSqlSource<B: Backend> {
    /// The client of the store's own connections.
    fn into_source(self) -> SqlSource<B>;
}

impl<B: Backend> IntoSqlSource<B> for SqlSource<B> {
    fn into_source(self) -> Self {
        self
    }
}

#[cfg(feature = "_sqlx")]
impl<B: Backend> IntoSqlSource<B> for &str {
    fn into_source(self) -> SqlSource<B> {
        let client = B::client(self).ok_or_else(|| {
            let name = B::DIALECT.name;
            let message =
                format!("connecting: this is no URL for {name}, or its feature with sqlx is off");
            StoreError::new(StoreErrorKind::Refused, message)
        });
        SqlSource(client, PhantomData)
    }
}

#[cfg(feature = "_sqlx")]
impl<B: Backend> IntoSqlSource<B> for String {
    fn into_source(self) -> SqlSource<B> {
        self.as_str().into_source()
    }
}

#[cfg(feature = "_sqlx")]
impl<B: Backend> IntoSqlSource<B> for &String {
    fn into_source(self) -> SqlSource<B> {
        self.as_str().into_source()
    }
}
