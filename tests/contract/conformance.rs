//! The conformance suite on every store: `memory::…` on the memory store, and each shape of Redis under its name:
//! `redis::…`, `sentinel::…`, `cluster::…`. A memory store with another in front of it is `layered_memory::…`, with
//! Redis in front of it `layered_redis::…`.
//!
//! Every case runs where the deciding code differs, and the cases of the transport run on the other shapes as well.
//!
//! `cargo test -p idem-tests --test conformance -- redis::` runs the cases whose names contain that.

use std::ops::Deref;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use idem_conformance::{Case, Tag, cases};
use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, TestDir};
use idem_runtime::store::sql::{Backend, MySqlStore, PostgresStore, SqlStoreBuilder, SqliteStore};
use idem_tests::sql::InSql;
use idem_tests::{InLayers, InMemory, Redis, Shape};
use libtest_mimic::{Arguments, Trial, run};
use tokio::runtime::{Builder, Runtime};

/// The shapes of Redis whose deciding code differs: by the commands they support, and across slots.
const DECIDING: [&str; 4] = ["redis", "redis_6_2", "valkey", "cluster"];

fn main() -> ExitCode {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    let runtime = Arc::new(runtime.expect("a runtime starts"));
    let mut trials = Vec::new();
    let transport = || {
        cases()
            .into_iter()
            .filter(|case| case.tag == Tag::Transport)
    };
    trials.extend(cases().into_iter().map(|case| memory(&runtime, case)));
    trials.extend(cases().into_iter().map(|case| layered(&runtime, case)));
    let (fast, durable) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    trials.extend(transport().map(|case| layered_redis(&runtime, &fast, case)));
    trials.extend(transport().map(|case| layered_postgres(&runtime, &fast, &durable, case)));
    let shapes = Shape::ALL.map(|(name, _)| name);
    assert!(DECIDING.iter().all(|name| shapes.contains(name)));
    for (store, shape) in Shape::ALL {
        let server = Arc::new(OnceLock::new());
        let trial = |case| redis(&runtime, store, shape, &server, case);
        if DECIDING.contains(&store) {
            trials.extend(cases().into_iter().map(trial));
        } else {
            trials.extend(transport().map(trial));
        }
    }
    trials.extend(cases().into_iter().map(|case| sqlite(&runtime, case)));
    let server = Arc::new(OnceLock::new());
    let postgres = |name, notify: bool, case| {
        let store = move |url: &str| PostgresStore::builder(url).notify(notify);
        database(&runtime, name, &server, PostgresServer::start, store, case)
    };
    trials.extend(
        cases()
            .into_iter()
            .map(|case| postgres("postgres", false, case)),
    );
    trials.extend(transport().map(|case| postgres("postgres_notify", true, case)));
    let server = Arc::new(OnceLock::new());
    let store = |url: &str| MySqlStore::builder(url);
    let mariadb = |case| {
        database(
            &runtime,
            "mariadb",
            &server,
            MariaDbServer::start,
            store,
            case,
        )
    };
    trials.extend(cases().into_iter().map(mariadb));
    let mut arguments = Arguments::from_args();
    // A case waits for servers most of the time.
    arguments.test_threads.get_or_insert(8);
    run(&arguments, trials).exit_code()
}

fn memory(runtime: &Arc<Runtime>, case: Case) -> Trial {
    let runtime = Arc::clone(runtime);
    Trial::test(format!("memory::{}", case.name), move || {
        let fixture = InMemory::new(1_000_000);
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

fn layered(runtime: &Arc<Runtime>, case: Case) -> Trial {
    let runtime = Arc::clone(runtime);
    Trial::test(format!("layered_memory::{}", case.name), move || {
        let (fast, durable) = (InMemory::new(1_000_000), InMemory::new(1_000_000));
        let front = Arc::new(fast.memory());
        let fixture = InLayers::new(front, Arc::new(fast), Arc::new(durable));
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

fn layered_redis(runtime: &Arc<Runtime>, server: &Arc<OnceLock<Redis>>, case: Case) -> Trial {
    let (runtime, server) = (Arc::clone(runtime), Arc::clone(server));
    Trial::test(format!("layered_redis::{}", case.name), move || {
        let redis = server.get_or_init(|| runtime.block_on(Redis::start(Shape::Server)));
        let front = Arc::new(redis.store().clone());
        let (fast, durable) = (redis.fixture(case.name), InMemory::running(1_000_000));
        let fixture = InLayers::new(front, Arc::new(fast), Arc::new(durable));
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

/// A common deployment: Redis in front of a database.
fn layered_postgres(
    runtime: &Arc<Runtime>,
    fast: &Arc<OnceLock<Redis>>,
    durable: &Arc<OnceLock<PostgresServer>>,
    case: Case,
) -> Trial {
    let runtime = Arc::clone(runtime);
    let (fast, durable) = (Arc::clone(fast), Arc::clone(durable));
    Trial::test(format!("layered_postgres::{}", case.name), move || {
        let redis = fast.get_or_init(|| runtime.block_on(Redis::start(Shape::Server)));
        let front = Arc::new(redis.store().clone());
        let store = PostgresStore::builder(durable.get_or_init(PostgresServer::start).url());
        let durable = runtime.block_on(InSql::new(store, "layered", case.name));
        let fast = redis.fixture(&format!("over postgres, {}", case.name));
        let fixture = InLayers::new(front, Arc::new(fast), Arc::new(durable));
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

/// The servers of a shape serve all cases; they start with the first that runs.
fn redis(
    runtime: &Arc<Runtime>,
    store: &'static str,
    shape: Shape,
    server: &Arc<OnceLock<Redis>>,
    case: Case,
) -> Trial {
    let (runtime, server) = (Arc::clone(runtime), Arc::clone(server));
    Trial::test(format!("{store}::{}", case.name), move || {
        let redis = server.get_or_init(|| runtime.block_on(Redis::start(shape)));
        let fixture = redis.fixture(case.name);
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

/// Each case has a file of its own.
fn sqlite(runtime: &Arc<Runtime>, case: Case) -> Trial {
    let runtime = Arc::clone(runtime);
    Trial::test(format!("sqlite::{}", case.name), move || {
        let dir = TestDir::new("sqlite").expect("there is room for a file");
        let file = format!("sqlite:{}", dir.path().join("records.db").display());
        let store = SqliteStore::builder(file);
        let fixture = runtime.block_on(InSql::new(store, "sqlite", case.name));
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

/// The server serves all cases, each in a table of its own.
fn database<B: Backend, S>(
    runtime: &Arc<Runtime>,
    name: &'static str,
    server: &Arc<OnceLock<S>>,
    start: fn() -> S,
    store: impl FnOnce(&str) -> SqlStoreBuilder<B> + Send + 'static,
    case: Case,
) -> Trial
where
    S: Deref<Target = DatabaseServer> + Send + Sync + 'static,
{
    let (runtime, server) = (Arc::clone(runtime), Arc::clone(server));
    Trial::test(format!("{name}::{}", case.name), move || {
        let store = store(&server.get_or_init(start).url());
        let fixture = runtime.block_on(InSql::new(store, name, case.name));
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}
