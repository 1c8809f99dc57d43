//! The cost that a call adds to a transaction: `cargo bench -p idem-tests --bench transaction`.
//!
//! An order is a row that is inserted in a transaction of its own. Measured are that transaction alone, the
//! same as a call in it, and a call that is replayed; and the same where idem begins and commits. They take
//! turns, so that what else the machine does meets them alike. Once on loopback, and once behind a proxy
//! that delays every reply by a millisecond, as a network does. Files have no network. The servers sync
//! their logs as in production only when `IDEM_DURABLE` is set.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

use std::time::{Duration, Instant};

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TcpProxy, TestDir};
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::{Engine, Error};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, Executor};
use sqlx::{MySqlConnection, PgConnection, SqliteConnection};

const ROUNDS: usize = 7;
const KINDS: [&str; 5] = [
    "bare",
    "call",
    "replay",
    "begun by idem",
    "replay, begun by idem",
];

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn report(what: &str, rounds: [Vec<Duration>; KINDS.len()]) {
    let medians = rounds.map(|mut medians| micros(median(&mut medians)));
    print!("{what:<32}");
    for (kind, median) in KINDS.iter().zip(medians) {
        print!("  {kind} {median:.0} µs ({:.2})", median / medians[0]);
    }
    println!();
}

/// Measures a database. The store and the connection are sqlx's own types, which have nothing in common.
macro_rules! measure {
    ($what:expr, $connection:ident, $conn:expr, $store:expr, $orders:expr) => {{
        let mut conn: $connection = $conn;
        let store = $store;
        store.migrate().await.unwrap();
        let table = "CREATE TABLE IF NOT EXISTS orders (number BIGINT)";
        conn.execute(table).await.unwrap();
        let engine = Engine::new(store);
        let insert = |number: usize| {
            let sql = format!("INSERT INTO orders VALUES ({number})");
            sqlx::raw_sql(AssertSqlSafe(sql))
        };
        let mut rounds: [Vec<Duration>; KINDS.len()] = Default::default();
        let mut number = 0;
        for round in 0..=ROUNDS {
            let mut times: [Vec<Duration>; KINDS.len()] = Default::default();
            for _ in 0..$orders {
                number += 1;
                for (kind, times) in times.iter_mut().enumerate() {
                    // A replay is that of the call before it.
                    let key = number * 10 + kind - usize::from(KINDS[kind].starts_with("replay"));
                    let call = engine.operation("bench.order").key(&key);
                    let began = Instant::now();
                    match kind {
                        0 => {
                            let mut tx = conn.begin().await.unwrap();
                            tx.execute(insert(number)).await.unwrap();
                            tx.commit().await.unwrap();
                        }
                        1 | 2 => {
                            let mut tx = conn.begin().await.unwrap();
                            let on: &mut $connection = &mut tx;
                            let body = async |conn: &mut $connection, _| {
                                conn.execute(insert(number)).await.unwrap();
                                Ok::<_, Error>(number)
                            };
                            call.in_tx(on).run(body).await.unwrap();
                            tx.commit().await.unwrap();
                        }
                        _ => {
                            let body = async |conn: &mut $connection, _| {
                                conn.execute(insert(number)).await.unwrap();
                                Ok::<_, Error>(number)
                            };
                            call.in_tx(&mut conn).run(body).await.unwrap();
                        }
                    }
                    times.push(began.elapsed());
                }
            }
            // The first round is for warmth.
            if round > 0 {
                for (times, medians) in times.iter_mut().zip(&mut rounds) {
                    medians.push(median(times));
                }
            }
        }
        report($what, rounds);
    }};
}

async fn postgres(what: &str, url: &str, orders: usize) {
    let conn = PgConnection::connect(url).await.unwrap();
    let store = PostgresStore::connect(url).await.unwrap();
    measure!(what, PgConnection, conn, store, orders);
}

async fn mariadb(what: &str, url: &str, orders: usize) {
    let conn = MySqlConnection::connect(url).await.unwrap();
    let store = MySqlStore::connect(url).await.unwrap();
    measure!(what, MySqlConnection, conn, store, orders);
}

async fn sqlite(synchronous: SqliteSynchronous, orders: usize) {
    let dir = TestDir::new("bench").unwrap();
    let url = format!("sqlite:{}", dir.path().join("shop.db").display());
    let options: SqliteConnectOptions = url.parse().unwrap();
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let options = options.synchronous(synchronous);
    let conn = SqliteConnection::connect_with(&options).await.unwrap();
    let store = SqliteStore::connect(&url).await.unwrap();
    let what = format!("SQLite, synchronous {synchronous:?}");
    measure!(&what, SqliteConnection, conn, store, orders);
}

fn far(server: &DatabaseServer) -> (TcpProxy, String) {
    let proxy = TcpProxy::start(server.addr());
    proxy.delay(Duration::from_millis(1));
    let url = server.url_at(proxy.addr());
    (proxy, url)
}

fn main() {
    let durable = std::env::var_os("IDEM_DURABLE").is_some();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        println!("medians of {ROUNDS} rounds' medians, and as multiples of the bare transaction");
        sqlite(SqliteSynchronous::Full, 200).await;
        sqlite(SqliteSynchronous::Normal, 200).await;
        let server = PostgresServer::builder();
        let server = if durable { server.durable() } else { server }.start();
        postgres("PostgreSQL", &server.url(), 200).await;
        let (_proxy, url) = far(&server);
        postgres("PostgreSQL, 1 ms away", &url, 40).await;
        drop(server);
        let server = MariaDbServer::builder();
        let server = if durable { server.durable() } else { server }.start();
        mariadb("MariaDB", &server.url(), 200).await;
        let (_proxy, url) = far(&server);
        mariadb("MariaDB, 1 ms away", &url, 40).await;
    });
}
