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
/// Made of a URL, of sqlx's options, or of a pool of sqlx or diesel-async. Of a pool the options are used, not the
/// connections: see [`SqlStore`](super::SqlStore). Settings that idem has no name for (TLS, certificates, the size of the statement
/// cache, which must be 0 for PgBouncer before its version 1.21) are set on sqlx's own options.
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
    /// From a client of any library, whose connections are to a database of this kind.
    pub fn new(client: impl SqlClient + 'static) -> Self {
        Self(Ok(Arc::new(client)), PhantomData)
    }

    pub(super) fn into_client(self) -> Result<Arc<dyn SqlClient>, StoreError> {
        self.0
    }
}

/// What a store connects to: a URL, options of sqlx, a reference to a pool of sqlx, or a [`SqlSource`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no address that this store can connect to",
    label = "not a URL, options of sqlx, a reference to a pool, or a `SqlSource`",
    note = "a pool is of sqlx 0.9, which idem-runtime uses, and of the database of the store: `&sqlx::PgPool` for a \
            `PostgresStore`",
    note = "or of diesel-async 0.9, by the feature `diesel-async-deadpool` or `diesel-async-bb8`: \
            `&deadpool::Pool<AsyncPgConnection>`"
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
