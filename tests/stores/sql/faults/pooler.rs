//! A store behind PgBouncer, which gives a session to another client after each transaction.

use std::str::FromStr as _;

use idem_harness::{PgBouncer, PostgresServer};
use idem_runtime::{step, step_in_tx};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

use super::prelude::*;

/// What PgBouncer 1.18 needs for any client of sqlx.
const ACCEPTS: (&str, &str) = ("ignore_startup_parameters", "extra_float_digits");

/// Bodies at once, each with a session of the server for as long as it runs.
const BODIES: usize = 4;

/// Keys of each kind of call.
const KEYS: usize = 24;

fn options(server: &PostgresServer, pooler: &PgBouncer) -> PgConnectOptions {
    PgConnectOptions::from_str(&server.url_at(pooler.addr())).unwrap()
}

/// A pool of the application, and a store with its options.
async fn behind(server: &PostgresServer, pooler: &PgBouncer) -> (PgPool, PostgresStore) {
    let unnamed = options(server, pooler).statement_cache_capacity(0);
    let pool = PgPoolOptions::new().max_connections(BODIES.try_into().unwrap());
    let pool = pool.acquire_timeout(Duration::from_mins(1));
    let pool = pool.connect_with(unnamed).await.unwrap();
    let store = PostgresStore::connect(&pool).await.unwrap();
    (pool, store)
}

/// Inserts a row as the guide shows it for a pooler.
async fn row(conn: &mut PgConnection, name: &str) {
    let insert = sqlx::query("INSERT INTO orders VALUES ($1)").bind(name);
    let insert = insert.persistent(false);
    insert.execute(conn).await.unwrap();
}

/// A call in a transaction, which makes a row.
async fn in_tx(engine: &Engine, pool: &PgPool, number: usize) -> Result<String, Error> {
    let mut tx = pool.begin().await.unwrap();
    let call = engine.operation("pooler.tx").key(&number);
    let told = call
        .in_tx(&mut *tx)
        .run(async |conn: &mut PgConnection, _| {
            row(conn, &format!("tx {number}")).await;
            Ok::<_, Error>(format!("order {number}"))
        });
    let told = told.await;
    tx.commit().await.unwrap();
    told
}

/// A call of two steps, of which the second makes a row.
async fn with_steps(engine: &Engine, pool: &PgPool, number: usize) -> Result<String, Error> {
    let call = engine.operation("pooler.steps").key(&number);
    let body = async |_| {
        let charge = step("charge", async |_| Ok::<_, Error>(number)).await?;
        let mut tx = pool.begin().await.unwrap();
        let booked = step_in_tx("book", &mut *tx, async |conn: &mut PgConnection, _| {
            row(conn, &format!("step {number}")).await;
            Ok::<_, Error>(charge)
        });
        let booked = booked.await?;
        tx.commit().await.unwrap();
        Ok::<_, Error>(format!("booked {booked}"))
    };
    call.run(body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_pooling_serves_calls_replays_transactions_and_steps() {
    let server = PostgresServer::start();
    // One session more than bodies.
    let sessions = (BODIES + 1).to_string();
    let pooler = PgBouncer::start(&server, &[("default_pool_size", &sessions), ACCEPTS]);
    let (pool, store) = behind(&server, &pooler).await;
    store.migrate().await.unwrap();
    server.execute("CREATE TABLE orders (name TEXT)");
    let fixture = Fixture::on(&store);
    let mut first = Vec::new();
    // The second round replays in another store, as another process would.
    for _ in 0..2 {
        let (pool, store) = behind(&server, &pooler).await;
        let fixture = fixture.beside(&store);
        let mut tasks = JoinSet::new();
        for number in (0..KEYS).chain(0..KEYS) {
            let (fixture, pool) = (fixture.clone(), pool.clone());
            tasks.spawn(async move {
                let paid = fixture.pay(&number.to_string()).await.unwrap();
                let ordered = in_tx(&fixture.engine, &pool, number).await.unwrap();
                let booked = with_steps(&fixture.engine, &pool, number).await.unwrap();
                (number, paid, ordered, booked)
            });
        }
        let mut told = tasks.join_all().await;
        told.sort();
        told.dedup();
        assert_eq!(told.len(), KEYS, "{told:?}");
        first.push(told);
    }
    assert_eq!(first[0], first[1]);
    assert_eq!(fixture.all_effects(), KEYS);
    let rows = server.execute("SELECT count(*), count(DISTINCT name) FROM orders");
    assert_eq!(rows, format!("{0}|{0}", 2 * KEYS));
    // Nothing stays in a session that belongs to every client.
    let mut held = Vec::new();
    for _ in 0..BODIES {
        let mut tx = pool.begin().await.unwrap();
        let kept = "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''";
        let kept = sqlx::query_scalar::<_, i64>(kept).persistent(false);
        assert_eq!(kept.fetch_one(&mut *tx).await.unwrap(), 0);
        held.push(tx);
    }
    drop(held);
    assert!(!store.findings().await.unwrap().is_empty());
    store.purge(Purge::default()).await.unwrap();
}

/// A pooler without its settings, and a client without its.
#[tokio::test]
async fn a_missing_pooler_setting_is_reported() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, &[]);
    let refused = PostgresStore::connect(server.url_at(pooler.addr())).await;
    let setting = "`ignore_startup_parameters = extra_float_digits`";
    assert_says(refused, Refused, &["connecting", "PgBouncer", setting]);

    let pooler = PgBouncer::start(&server, &[("default_pool_size", "1"), ACCEPTS]);
    let named = options(&server, &pooler);
    let connect = || PostgresStore::connect(named.clone());
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    one.migrate().await.unwrap();
    let refused = claim_of(&one, 1).await.and(claim_of(&other, 1).await);
    let capacity = "`statement_cache_capacity(0)`";
    assert_says(refused, Refused, &["a claim", "PgBouncer", capacity]);
}
