//! A store behind PgBouncer, which gives a session to another client after each transaction.

use std::marker::PhantomData;
use std::str::FromStr as _;

use futures_util::future::join_all;
use idem_harness::{PgBouncer, PostgresServer};
use idem_runtime::{step, step_in_tx};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Semaphore;

use super::prelude::*;
use crate::database::Sql;
use crate::transactions::clients::{Client, Ended, TokioPostgres};

/// What PgBouncer 1.18 needs for any client of sqlx.
const ACCEPTS: (&str, &str) = ("ignore_startup_parameters", "extra_float_digits");

/// Bodies at once, each with a session of the server for as long as it runs.
const BODIES: usize = 4;

/// Keys of each kind of call.
const KEYS: usize = 24;

fn options(server: &PostgresServer, pooler: &PgBouncer) -> PgConnectOptions {
    PgConnectOptions::from_str(&server.url_at(pooler.addr())).unwrap()
}

/// An application behind a pooler, with a client of its own.
struct Application<C> {
    url: String,
    fixture: Fixture,
    bodies: Semaphore,
    client: PhantomData<C>,
}

impl<C: Client<Database = Postgres>> Application<C> {
    fn new(url: &str, fixture: Fixture) -> Self {
        Self {
            url: url.to_owned(),
            fixture,
            bodies: Semaphore::new(BODIES),
            client: PhantomData,
        }
    }

    /// Makes a row, inside `work` of a transaction.
    async fn in_transaction(
        &self,
        work: impl AsyncFnOnce(&mut C::Tx<'_>) -> Result<String, Error>,
    ) -> Result<String, Error> {
        let _body = self.bodies.acquire().await.unwrap();
        let mut conn = C::connect(&self.url).await;
        let work = async |tx: &mut C::Tx<'_>| (work(tx).await, Ended::Commit);
        let (told, ended) = C::in_transaction(&mut conn, work).await;
        ended.unwrap();
        told
    }

    /// A call in a transaction, which makes a row.
    async fn in_tx(&self, number: usize) -> Result<String, Error> {
        let work = async |tx: &mut C::Tx<'_>| {
            let call = self.fixture.engine.operation("pooler.tx").key(&number);
            let body = async |tx: &mut C::Tx<'_>, _| {
                row(tx, &format!("tx {number}")).await;
                Ok::<_, Error>(format!("order {number}"))
            };
            call.in_tx(tx).run(body).await
        };
        self.in_transaction(work).await
    }

    /// A call of two steps, of which the second makes a row.
    async fn with_steps(&self, number: usize) -> Result<String, Error> {
        let call = self.fixture.engine.operation("pooler.steps").key(&number);
        let body = async |_| {
            let charge = step("charge", async |_| Ok::<_, Error>(number)).await?;
            let work = async |tx: &mut C::Tx<'_>| {
                let booked = step_in_tx("book", tx, async |tx: &mut C::Tx<'_>, _| {
                    row(tx, &format!("step {number}")).await;
                    Ok::<_, Error>(charge)
                });
                Ok(format!("booked {}", booked.await?))
            };
            self.in_transaction(work).await
        };
        call.run(body).await
    }

    /// What the callers of this number are told.
    async fn told(&self, number: usize) -> [String; 3] {
        let paid = self.fixture.pay(&number.to_string()).await.unwrap();
        let ordered = self.in_tx(number).await.unwrap();
        [paid, ordered, self.with_steps(number).await.unwrap()]
    }
}

async fn row(tx: &mut impl Sql, name: &str) {
    let insert = format!("INSERT INTO orders VALUES ('{name}')");
    tx.run(&insert).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_pooling_serves_calls_replays_transactions_and_steps() {
    let unnamed = |url: &str| {
        let options = PgConnectOptions::from_str(url).unwrap();
        PostgresStore::builder(options.statement_cache_capacity(0))
    };
    assert_served::<Postgres>(&[ACCEPTS], unnamed).await;
}

/// No setting of the pooler, and none of the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_pooling_serves_tokio_postgres() {
    let store = |url: &str| {
        let config: tokio_postgres::Config = url.parse().unwrap();
        PostgresStore::builder(config)
    };
    assert_served::<TokioPostgres>(&[], store).await;
}

async fn assert_served<C: Client<Database = Postgres>>(
    settings: &[(&str, &str)],
    store: fn(&str) -> SqlStoreBuilder<Postgres>,
) {
    let server = PostgresServer::start();
    // One session more than bodies.
    let sessions = (BODIES + 1).to_string();
    let settings = [&[("default_pool_size", &*sessions)], settings].concat();
    let pooler = PgBouncer::start(&server, &settings);
    let url = server.url_at(pooler.addr());
    let first = store(&url).connect().await.unwrap();
    first.migrate().await.unwrap();
    server.execute("CREATE TABLE orders (name TEXT)");
    let fixture = Fixture::on(&first);
    let mut told = Vec::new();
    // The second round replays in another store, as another process would.
    for _ in 0..2 {
        let store = store(&url).connect().await.unwrap();
        let application = Application::<C>::new(&url, fixture.beside(&store));
        let numbers = (0..KEYS).chain(0..KEYS);
        let all = join_all(numbers.map(|number| application.told(number))).await;
        assert_eq!(all[..KEYS], all[KEYS..]);
        told.push(all);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(fixture.all_effects(), KEYS);
    let rows = server.execute("SELECT count(*), count(DISTINCT name) FROM orders");
    assert_eq!(rows, format!("{0}|{0}", 2 * KEYS));
    // Nothing stays in a session that belongs to every client.
    let mut held = Vec::new();
    for _ in 0..BODIES {
        let mut conn = C::connect(&url).await;
        conn.run("BEGIN").await.unwrap();
        let kept = "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''";
        assert_eq!(conn.count(kept).await, 0);
        held.push(conn);
    }
    drop(held);
    assert!(!first.findings().await.unwrap().is_empty());
    first.purge(Purge::default()).await.unwrap();
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
