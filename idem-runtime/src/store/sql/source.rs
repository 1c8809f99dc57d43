//! The address of a database.

use std::fmt;
use std::str::FromStr as _;

use sqlx::{Connection, Database, Pool};

use super::backend::{Backend, Options, SqlDriver};
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

impl<B: Backend> fmt::Debug for SqlSource<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Options may show a password.
        f.debug_struct("SqlSource").finish_non_exhaustive()
    }
}

impl<B: Backend> SqlSource<B> {
    /// From sqlx's own options.
    pub fn options(options: <<B::Db as Database>::Connection as Connection>::Options) -> Self {
        Self(Ok(options))
    }

    pub(super) fn into_options(self) -> Result<Options<B>, StoreError> {
        self.0
    }
}

impl<B: Backend> From<&str> for SqlSource<B> {
    fn from(url: &str) -> Self {
        // The error of sqlx may quote the address, with the password in it.
        Self(Options::<B>::from_str(url).map_err(|_| {
            let message = format!("connecting: this is no URL for {}", <B as SqlDriver>::NAME);
            StoreError::new(StoreErrorKind::Refused, message)
        }))
    }
}

impl<B: Backend> From<String> for SqlSource<B> {
    fn from(url: String) -> Self {
        url.as_str().into()
    }
}

impl<B: Backend> From<&String> for SqlSource<B> {
    fn from(url: &String) -> Self {
        url.as_str().into()
    }
}

impl<B: Backend> From<&Pool<B::Db>> for SqlSource<B> {
    fn from(pool: &Pool<B::Db>) -> Self {
        Self(Ok((*pool.connect_options()).clone()))
    }
}
