//! The conformance kit on every store: `memory::…` on the memory store, and each shape of Redis under its name:
//! `redis::…`, `sentinel::…`, `cluster::…`. A memory store with another in front of it is `layered_memory::…`, with
//! Redis in front of it `layered_redis::…`.
//!
//! Every case runs where the deciding code differs, and the cases of the transport run on the other shapes as well.
//! Where the deciding code differs, a full run makes sequences of many more seeds; on the memory store each run does.
//!
//! `cargo test -p idem-tests --test conformance -- redis::` runs the cases whose names contain that.

use std::ops::Deref;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool};
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use idem_conformance::{Fixture, Tag, cases, sequences};
use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TestDir};
use idem_runtime::store::sql::{Backend, MySqlStore, PostgresStore, SqlStoreBuilder, SqliteStore};
use idem_tests::bounds::bound;
use idem_tests::sql::InSql;
use idem_tests::{InLayers, InMemory, Redis, Shape};
use libtest_mimic::{Arguments, Trial, run};
use mysql_async::{Opts, OptsBuilder};
use tokio::runtime::{Builder, Runtime};

/// The shapes of Redis whose deciding code differs: by the commands they support, and across slots.
const DECIDING: [&str; 4] = ["redis", "redis_6_2", "valkey", "cluster"];

/// Makes the fixture of a case, by its name.
type Make = Arc<dyn Fn(&Runtime, &str) -> Arc<dyn Fixture> + Send + Sync>;

/// A store on which the kit runs.
struct Place {
    name: &'static str,
    /// Whether its deciding code differs from that of the others.
    decides: bool,
    /// The seeds of a trial of their own.
    seeds: u64,
    make: Make,
}

impl Place {
    fn new(
        (name, decides): (&'static str, bool),
        make: impl Fn(&Runtime, &str) -> Arc<dyn Fixture> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            decides,
            seeds: if decides { bound(0, 1_000) } else { 0 },
            make: Arc::new(make),
        }
    }

    fn trials(&self, runtime: &Arc<Runtime>) -> Vec<Trial> {
        let cases = cases().into_iter();
        let cases = cases.filter(|case| self.decides || case.tag == Tag::Transport);
        let name = |case: &str| format!("{}::{case}", self.name);
        let mut trials: Vec<_> = cases
            .map(|case| {
                let (runtime, make) = (Arc::clone(runtime), Arc::clone(&self.make));
                Trial::test(name(case.name), move || {
                    let fixture = make(&runtime, case.name);
                    runtime.block_on((case.run)(fixture));
                    Ok(())
                })
            })
            .collect();
        let seeds = self.seeds;
        if seeds > 0 {
            let (runtime, make) = (Arc::clone(runtime), Arc::clone(&self.make));
            trials.push(Trial::test(name("sequences_of_many_seeds"), move || {
                let fixture = make(&runtime, "many seeds");
                runtime.block_on(sequences(fixture, 0..seeds))?;
                Ok(())
            }));
        }
        trials
    }
}

fn main() -> ExitCode {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    let runtime = Arc::new(runtime.expect("a runtime starts"));
    let places = in_process().into_iter().chain(databases()).chain(redis());
    let trials = places.flat_map(|place| place.trials(&runtime));
    let mut arguments = Arguments::from_args();
    // A case waits for servers most of the time.
    arguments.test_threads.get_or_insert(8);
    run(&arguments, trials.collect()).exit_code()
}

fn in_process() -> Vec<Place> {
    let memory = Place::new(("memory", true), |_, _| Arc::new(InMemory::new(1_000_000)));
    let layered = Place::new(("layered_memory", true), |_, _| {
        let (fast, durable) = (InMemory::new(1_000_000), InMemory::new(1_000_000));
        let front = Arc::new(fast.memory());
        Arc::new(InLayers::new(front, Arc::new(fast), Arc::new(durable)))
    });
    vec![
        Place {
            seeds: bound(1_000, 10_000),
            ..memory
        },
        layered,
    ]
}

/// Each case has a file or a table of its own; a server starts with the first case that runs on it.
fn databases() -> Vec<Place> {
    let dir = OnceLock::new();
    let sqlite = Place::new(("sqlite", true), move |runtime, case| {
        let dir = dir.get_or_init(|| TestDir::new("sqlite").expect("there is room for files"));
        let file = dir.path().join(format!("{case}.db"));
        let store = SqliteStore::builder(format!("sqlite:{}", file.display()));
        Arc::new(runtime.block_on(InSql::new(store, "sqlite", case)))
    });
    let postgres = database(("postgres", true), PostgresServer::start, |url| {
        PostgresStore::builder(url)
    });
    // Another client of the same database.
    let tokio_postgres = |name, named| {
        database((name, false), PostgresServer::start, move |url| {
            let config: tokio_postgres::Config = url.parse().expect("a URL");
            PostgresStore::builder(config).named_statements(named)
        })
    };
    let tokio_postgres_unnamed = tokio_postgres("tokio_postgres", false);
    let tokio_postgres_named = tokio_postgres("tokio_postgres_named", true);
    let diesel_postgres = database(("diesel_postgres", false), PostgresServer::start, |url| {
        let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
        let pool = deadpool::Pool::builder(manager).build().expect("a pool");
        PostgresStore::builder(&pool)
    });
    let diesel_mysql = database(("diesel_mysql", false), MariaDbServer::start, |url| {
        let manager = AsyncDieselConnectionManager::<AsyncMysqlConnection>::new(url);
        let pool = deadpool::Pool::builder(manager).build().expect("a pool");
        MySqlStore::builder(&pool)
    });
    let mariadb = database(("mariadb", true), MariaDbServer::start, |url| {
        MySqlStore::builder(url)
    });
    // A statement counts the rows that it has changed; with the other setting, and always with sqlx, those it has found.
    let mysql_async = |name, decides, found_rows| {
        database((name, decides), MariaDbServer::start, move |url| {
            let opts = Opts::from_url(url).expect("a URL");
            MySqlStore::builder(OptsBuilder::from_opts(opts).client_found_rows(found_rows))
        })
    };
    let mysql_async_changed = mysql_async("mysql_async_changed_rows", true, false);
    let mysql_async_found = mysql_async("mysql_async_found_rows", false, true);
    vec![
        sqlite,
        postgres,
        tokio_postgres_unnamed,
        tokio_postgres_named,
        mariadb,
        mysql_async_changed,
        mysql_async_found,
        diesel_postgres,
        diesel_mysql,
    ]
}

fn database<B: Backend, S>(
    (name, decides): (&'static str, bool),
    start: fn() -> S,
    store: impl Fn(&str) -> SqlStoreBuilder<B> + Send + Sync + 'static,
) -> Place
where
    S: Deref<Target = DatabaseServer> + Send + Sync + 'static,
{
    let server = OnceLock::new();
    Place::new((name, decides), move |runtime, case| {
        let store = store(&server.get_or_init(start).url());
        Arc::new(runtime.block_on(InSql::new(store, name, case)))
    })
}

/// The servers of a shape serve all cases; they start with the first that runs.
fn redis() -> Vec<Place> {
    assert!(
        DECIDING
            .iter()
            .all(|name| Shape::ALL.iter().any(|(shape, _)| shape == name))
    );
    let start = |runtime: &Runtime, server: &OnceLock<Redis>, shape| {
        let redis = server.get_or_init(|| runtime.block_on(Redis::start(shape)));
        redis.clone()
    };
    let mut places: Vec<_> = Shape::ALL
        .into_iter()
        .map(|(name, shape)| {
            let server = OnceLock::new();
            Place::new((name, DECIDING.contains(&name)), move |runtime, case| {
                Arc::new(start(runtime, &server, shape).fixture(case))
            })
        })
        .collect();
    let fast = Arc::new(OnceLock::new());
    let (front, server) = (Arc::clone(&fast), OnceLock::new());
    places.push(Place::new(
        ("layered_redis", false),
        move |runtime, case| {
            let redis = start(runtime, &fast, Shape::Server);
            let (front, durable) = (redis.store().clone(), InMemory::running(1_000_000));
            let fast = Arc::new(redis.fixture(case));
            Arc::new(InLayers::new(Arc::new(front), fast, Arc::new(durable)))
        },
    ));
    // A common deployment: Redis in front of a database.
    places.push(Place::new(
        ("layered_postgres", false),
        move |runtime, case| {
            let redis = start(runtime, &front, Shape::Server);
            let store = PostgresStore::builder(server.get_or_init(PostgresServer::start).url());
            let durable = runtime.block_on(InSql::new(store, "layered", case));
            let fast = Arc::new(redis.fixture(&format!("over postgres, {case}")));
            let front = Arc::new(redis.store().clone());
            Arc::new(InLayers::new(front, fast, Arc::new(durable)))
        },
    ));
    places
}
