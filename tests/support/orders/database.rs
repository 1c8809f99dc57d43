//! A database for the shop: tables, whole numbers in and out, transactions.

use std::future::Future;
use std::str::FromStr as _;
use std::time::Duration;

use idem_runtime::store::sql::{self, Backend, SqlTransaction};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor as _, Pool, Row as _};

use super::order::{ITEMS, STOCK};
use crate::sql::connect;

/// Bounds every wait of the shop: for a connection, for a locked file, for a quicker transaction.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bounds the time without a server: the minute in which a killed one must be up again, and the wait that it began in.
pub const OUTAGE: Duration = Duration::from_secs(80);

pub trait Database: Send + Sync + 'static {
    /// What idem calls it.
    type Backend: Backend;
    /// What sqlx calls it.
    type Driver: sqlx::Database<Connection = Self::Connection>;
    type Connection: SqlTransaction + Connection<Database = Self::Driver>;

    /// Connections that are made when they are needed.
    fn pool(url: &str, connections: u32) -> Pool<Self::Driver>;

    /// The rows of a query whose columns are whole numbers.
    fn rows(
        conn: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = sqlx::Result<Vec<Vec<i64>>>> + Send;

    /// How many rows a statement has changed.
    fn change(
        conn: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;
}

macro_rules! database {
    ($name:ident, $driver:ident, $conn:ident, $options:expr) => {
        #[doc = concat!("The shop in ", stringify!($driver), ".")]
        #[derive(Debug)]
        pub struct $name;

        impl Database for $name {
            type Backend = sql::$driver;
            type Driver = sqlx::$driver;
            type Connection = sqlx::$conn;

            fn pool(url: &str, connections: u32) -> Pool<Self::Driver> {
                let pool = PoolOptions::new().max_connections(connections);
                let options = Options::<Self>::from_str(url).expect("a URL of this database");
                let with: fn(Options<Self>) -> Options<Self> = $options;
                pool.acquire_timeout(PATIENCE)
                    .connect_lazy_with(with(options))
            }

            async fn rows(conn: &mut Self::Connection, sql: String) -> sqlx::Result<Vec<Vec<i64>>> {
                let rows = conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
                let row = |row: &<Self::Driver as sqlx::Database>::Row| {
                    (0..row.len()).map(|column| row.try_get(column)).collect()
                };
                rows.iter().map(row).collect()
            }

            async fn change(conn: &mut Self::Connection, sql: String) -> sqlx::Result<u64> {
                let done = conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
                Ok(done.rows_affected())
            }
        }
    };
}

type Options<D> = <<D as Database>::Connection as Connection>::Options;

database!(InSqlite, Sqlite, SqliteConnection, |options| {
    options.busy_timeout(PATIENCE)
});
database!(InPostgres, Postgres, PgConnection, |same| same);
database!(InMariaDb, MySql, MySqlConnection, |same| same);

/// Creates idem's table and those of the shop, with its stock.
pub async fn open_shop<D: Database>(url: &str) {
    let store = connect::<D::Backend>(url).await;
    store.migrate().await.expect("the table is created");
    let pool = D::pool(url, 1);
    let mut conn = pool.acquire().await.expect("the database is up");
    let items: Vec<_> = (0..ITEMS)
        .map(|item| format!("({item}, {STOCK})"))
        .collect();
    for sql in [
        // No column is unique: only idem keeps an order from being taken twice.
        "CREATE TABLE orders (number BIGINT, item BIGINT)".to_owned(),
        "CREATE TABLE stock (item BIGINT PRIMARY KEY, units BIGINT)".to_owned(),
        format!(
            "INSERT INTO stock (item, units) VALUES {}",
            items.join(", ")
        ),
    ] {
        D::change(&mut conn, sql).await.expect("a good statement");
    }
}
