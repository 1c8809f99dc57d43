//! What the shop needs of a database: tables, whole numbers in and out, transactions.

use std::fmt::Write as _;
use std::future::Future;
use std::str::FromStr as _;
use std::time::Duration;

use idem_runtime::store::sql::{self, Backend, SqlStore, SqlTransaction};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor as _, Pool, Row as _};

use super::order::Account;

/// Bounds every wait of the shop: for a connection, for a locked file, for somebody who was quicker.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bounds the time without a server: the minute in which a killed one must be up again, and the wait that it began in.
pub const OUTAGE: Duration = Duration::from_secs(80);

pub trait Database: Send + Sync + 'static {
    /// What idem calls it.
    type Backend: Backend;
    /// What sqlx calls it.
    type Driver: sqlx::Database<Connection = Self::Connection>;
    type Connection: SqlTransaction + Connection<Database = Self::Driver>;

    /// Its name, as workers are told.
    const NAME: &'static str;
    /// The type of a column that counts.
    const SERIAL: &'static str;

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
    ($name:ident, $driver:ident, $conn:ident, $word:literal, $serial:literal, $options:expr) => {
        #[doc = concat!("The shop in ", stringify!($driver), ".")]
        #[derive(Debug)]
        pub struct $name;

        impl Database for $name {
            type Backend = sql::$driver;
            type Driver = sqlx::$driver;
            type Connection = sqlx::$conn;

            const NAME: &'static str = $word;
            const SERIAL: &'static str = $serial;

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

database!(
    InSqlite,
    Sqlite,
    SqliteConnection,
    "sqlite",
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    |options| options.busy_timeout(PATIENCE)
);
database!(
    InPostgres,
    Postgres,
    PgConnection,
    "postgres",
    "BIGSERIAL PRIMARY KEY",
    |same| same
);
database!(
    InMariaDb,
    MySql,
    MySqlConnection,
    "mariadb",
    "BIGINT AUTO_INCREMENT PRIMARY KEY",
    |same| same
);

/// Makes idem's table and those of the shop, with what it has at first.
pub async fn open_shop<D: Database>(url: &str) {
    let store = SqlStore::<D::Backend>::connect(url)
        .await
        .expect("the database is up");
    store.migrate().await.expect("the table is created");
    let pool = D::pool(url, 1);
    let mut conn = pool.acquire().await.expect("the database is up");
    let serial = D::SERIAL;
    // No column but those that count is unique: that there is one order is idem's doing.
    let mut tables = vec![
        format!("CREATE TABLE orders (id {serial}, number BIGINT)"),
        format!(
            "CREATE TABLE journal (id {serial}, account BIGINT, place BIGINT, change_by BIGINT, \
             balance BIGINT, number BIGINT)"
        ),
    ];
    for account in Account::ALL {
        let (table, (count, units)) = (account.table(), account.beginning());
        tables.push(format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, units BIGINT)"
        ));
        let mut insert = format!("INSERT INTO {table} (id, units) VALUES (0, {units})");
        for id in 1..count {
            write!(insert, ", ({id}, {units})").expect("a string takes anything");
        }
        tables.push(insert);
    }
    for sql in tables {
        D::change(&mut conn, sql).await.expect("a good statement");
    }
}
