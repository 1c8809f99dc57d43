//! A store behind PgBouncer, which switches sessions after each transaction.

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

/// The advice for a pooler without support for names.
const UNNAMED: &str = "`named_statements(false)`";

/// Concurrent bodies, each with a session of the server until its end.
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

    /// The answers to callers of this number.
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
    let unnamed = |url: &str| PostgresStore::builder(url).named_statements(false);
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
        let mut conn = TokioPostgres::connect(&url).await;
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
    assert_says(refused, Refused, &["a claim", "PgBouncer", UNNAMED]);

    let pooler = PgBouncer::start(&server, &[("pool_mode", "statement"), ACCEPTS]);
    let unnamed = PostgresStore::builder(server.url_at(pooler.addr())).named_statements(false);
    let refused = claim_of(&unnamed.connect().await.unwrap(), 1).await;
    let setting = "`pool_mode = transaction`";
    assert_says(refused, Refused, &["a claim", "PgBouncer", setting]);
}

fn by_tokio_postgres(url: &str, named: bool) -> SqlStoreBuilder<Postgres> {
    let config: tokio_postgres::Config = url.parse().unwrap();
    PostgresStore::builder(config).named_statements(named)
}

/// Their names are numbers of the process: another one has the same.
#[tokio::test]
async fn a_session_with_the_statements_of_another_process_is_refused() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, &[("default_pool_size", "1")]);
    let url = server.url_at(pooler.addr());
    let unnamed = by_tokio_postgres(&url, false).connect().await.unwrap();
    unnamed.migrate().await.unwrap();
    let mut beside = TokioPostgres::connect(&server.url()).await;
    let _kept = beside.prepare("SELECT 1").await.unwrap();
    let number = "SELECT substr(name, 2)::bigint FROM pg_prepared_statements WHERE name <> ''";
    let number = beside.count(number).await;
    let mut other = TokioPostgres::connect(&url).await;
    let prepares = format!(
        "DO $$ BEGIN FOR number IN {number}..{} LOOP \
         EXECUTE format('PREPARE s%s AS SELECT 1', number); END LOOP; END $$",
        number + 2_000
    );
    other.run(&prepares).await.unwrap();
    let named = by_tokio_postgres(&url, true).connect().await.unwrap();
    let refused = claim_of(&named, 1).await;
    assert_says(refused, Refused, &["a claim", "PgBouncer", UNNAMED]);
    assert_eq!(server.execute("SELECT count(*) FROM idem_records"), "0");
    let claimed = claim_of(&unnamed, 1).await.unwrap();
    assert!(matches!(claimed, ClaimReply::Granted { .. }), "{claimed:?}");
}

/// Each session knows some of the names. A refused statement was not executed, and a repeated call runs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_a_session_does_not_know_is_refused() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, &[("default_pool_size", "3")]);
    let url = server.url_at(pooler.addr());
    let store = by_tokio_postgres(&url, true).connect().await.unwrap();
    store.migrate().await.unwrap();
    let (mut granted, mut refused) = (0, 0);
    let claiming = async {
        for round in 0.. {
            let claims = (0..64).map(|number| claim_of(&store, 64 * round + number));
            for claimed in join_all(claims).await {
                match claimed {
                    Ok(ClaimReply::Granted { .. }) => granted += 1,
                    Ok(other) => panic!("{other:?}"),
                    error => {
                        refused += 1;
                        assert_says(error, Unavailable, &["a claim", "PgBouncer", UNNAMED]);
                    }
                }
            }
            if refused > 0 {
                return;
            }
        }
    };
    patiently("a claim is refused", claiming).await;
    let records = "SELECT count(*) FROM idem_records";
    assert_eq!(server.execute(records), granted.to_string());

    let fixture = Fixture::on(&store);
    let keys: Vec<_> = (0..KEYS).map(|key| key.to_string()).collect();
    let answers = join_all(keys.iter().map(|key| fixture.pay(key))).await;
    assert_eq!(fixture.all_effects(), KEYS);
    let unnamed = by_tokio_postgres(&url, false).connect().await.unwrap();
    let unnamed = fixture.beside(&unnamed);
    for (key, answer) in keys.iter().zip(answers) {
        assert_eq!(unnamed.pay(key).await, answer);
        assert_eq!(unnamed.effects(key), 1);
    }
}
