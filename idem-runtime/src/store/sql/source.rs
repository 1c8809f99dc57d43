//! The address of a database.

use std::str::FromStr as _;

use sqlx::{Connection, Database, Pool};

use super::backend::{Backend, Options};
use crate::store::{StoreError, StoreErrorKind};

/// The address of a database: a URL, a pool, or connection options.
///
/// Of a pool the options are used, not the connections: see [`SqlStore`](super::SqlStore). Settings that idem has no
/// name for (TLS, certificates, the size of the statement cache, which must be 0 for PgBouncer before its version 1.21)
/// are set on sqlx's own options.
///
/// | database | URL |
/// |---|---|
/// | PostgreSQL | `postgres://user:password@host:5432/database` |
/// | MySQL, MariaDB | `mysql://user:password@host:3306/database` |
/// | SQLite | `sqlite:path/to/file.db` |
pub struct SqlSource<B: Backend>(Result<Options<B>, StoreError>);

// Options may show a password.
debug_fields!([B: Backend] SqlSource<B> {});

impl<B: Backend> SqlSource<B> {
    /// From sqlx's own options.
    pub fn options(options: <<B::Db as Database>::Connection as Connection>::Options) -> Self {
        Self(Ok(options))
    }

    pub(super) fn into_options(self) -> Result<Options<B>, StoreError> {
        self.0
    }
}

/// What a store connects to: a URL, a reference to a pool of sqlx, or a [`SqlSource`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no address that this store can connect to",
    label = "not a URL, a reference to a pool, or a `SqlSource`",
    note = "a pool is of sqlx 0.9, which idem-runtime uses, and of the database of the store: `&sqlx::PgPool` for a \
            `PostgresStore`"
)]
pub trait IntoSqlSource<B: Backend> {
    /// The address.
    fn into_source(self) -> SqlSource<B>;
}

impl<B: Backend> IntoSqlSource<B> for SqlSource<B> {
    fn into_source(self) -> Self {
        self
    }
}

impl<B: Backend> IntoSqlSource<B> for &str {
    fn into_source(self) -> SqlSource<B> {
        // The error of sqlx may quote the address, with the password in it.
        SqlSource(Options::<B>::from_str(self).map_err(|_| {
            let message = format!("connecting: this is no URL for {}", B::DIALECT.name);
            StoreError::new(StoreErrorKind::Refused, message)
        }))
    }
}

impl<B: Backend> IntoSqlSource<B> for String {
    fn into_source(self) -> SqlSource<B> {
        self.as_str().into_source()
    }
}

impl<B: Backend> IntoSqlSource<B> for &String {
    fn into_source(self) -> SqlSource<B> {
        self.as_str().into_source()
    }
}

impl<B: Backend> IntoSqlSource<B> for &Pool<B::Db> {
    fn into_source(self) -> SqlSource<B> {
        SqlSource(Ok((*self.connect_options()).clone()))
    }
}
