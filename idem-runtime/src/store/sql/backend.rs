//! A kind of database that a store can be in.

#![allow(unnameable_types, reason = "sealed")]

use std::fmt::Debug;
#[cfg(feature = "_sqlx")]
use std::sync::Arc;

use super::dialect::Dialect;
#[cfg(feature = "_sqlx")]
use super::session::SqlClient;
use super::session::{SqlFuture, SqlSession};
use crate::store::Finding;

#[cfg(feature = "_mysql")]
/// MySQL 8.0 or newer, MariaDB 10.6 or newer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MySql;

#[cfg(feature = "_postgres")]
/// PostgreSQL 12 or newer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Postgres;

#[cfg(feature = "_sqlite")]
/// SQLite 3.42 or newer; the bundled one is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Sqlite;

/// The server and the table, as found at connect.
#[derive(Debug, Default)]
pub struct Probed {
    /// The warnings for an operator about this server.
    pub(crate) warnings: Vec<String>,
    /// Whether the server knows [`Dialect::batches`].
    pub(crate) batches: bool,
    /// The schema of the present or future table, as written in statements.
    pub(crate) schema: Option<String>,
}

/// A kind of database.
///
/// Sealed: [`Postgres`](super::Postgres), [`MySql`](super::MySql) and [`Sqlite`](super::Sqlite) are all.
pub trait Backend: Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const DIALECT: &'static Dialect;

    /// The client of a URL; `None` if it is none, or the database's feature with sqlx is off.
    #[cfg(feature = "_sqlx")]
    #[doc(hidden)]
    #[must_use]
    fn client(url: &str) -> Option<Arc<dyn SqlClient>> {
        let _ = url;
        None
    }

    /// Probes the server. An error makes it unusable.
    #[doc(hidden)]
    fn probe<'a>(session: &'a mut dyn SqlSession, table: &'a str) -> SqlFuture<'a, Probed>;

    /// The findings for an operator about this server.
    #[doc(hidden)]
    fn findings(session: &mut dyn SqlSession) -> SqlFuture<'_, Vec<Finding>>;
}
