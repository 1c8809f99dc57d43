//! Calls on Redis, beside the same work by the redis crate:
//! `cargo bench -p idem-runtime --bench redis_load -- --help`.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_runtime::store::Store;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, Error, cache::LocalCache};
use tokio::runtime::Runtime;

use self::load::batch::batches;
use self::load::hand::{self, Hand};
use self::load::options::Options;
use self::load::order::merchant;
use self::load::redis_raw::{self as raw, Raw};
use self::load::redis_server::Server;
use self::load::row::Printer;
use self::load::shop::{Customer, Kind, Shop};
use self::load::suite::Suite;
use self::load::waiting::waiting;

/// How long a local cache may take to open.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    let mut options = Options::parse();
    let mut server = Server::of(&options);
    server.limit(&mut options);
    let mut printer = Printer::new(options.json);
    eprintln!("{}: {options}", server.meter.name());
    let runtime = options.runtime();
    // Each has its connections, as if it were another process.
    let engines = [(); 2].map(|()| engine(&runtime, &server));
    for &value_bytes in &options.sizes {
        let shops = engines.clone().map(|engine| Shop::new(engine, value_bytes));
        let suite = suite(&runtime, &options, &server, &shops[0], value_bytes);
        for &concurrency in &options.concurrency {
            printer.rows(&suite.run(concurrency, value_bytes, &mut server.meter));
            for waiting in waiting(&options, &shops) {
                let rounds = options.rounds;
                let row = waiting.measure(&runtime, "redis", concurrency, value_bytes, rounds);
                printer.row(&row);
            }
        }
    }
    printer.end();
}

fn suite<'a>(
    runtime: &'a Runtime,
    options: &'a Options,
    server: &Server,
    shop: &Arc<Shop>,
    value_bytes: usize,
) -> Suite<'a> {
    let connection = runtime.block_on(raw::connect(&server.meter.client));
    let caching = runtime.block_on(raw::connect_caching(&server.meter.url));
    // Keys of another run, or of another case, are others.
    let mut space = merchant() & 0xff_ffff;
    let mut sized = |connection: &redis::aio::MultiplexedConnection, bytes, steps| {
        space += 1;
        let raw = Raw::new(connection.clone(), bytes, space);
        raw::Calls(runtime.block_on(raw), steps)
    };
    // A kept error is short, whatever answers are.
    let error = sized(&connection, 16, raw::CLAIMED);
    let mut raw = |connection, steps| sized(connection, value_bytes, steps);
    let idem = |kind| Customer::of(shop, kind);
    let hand = |fills| {
        let hand = Hand::new(connection.clone(), value_bytes, merchant());
        hand::Calls(runtime.block_on(hand), fills)
    };

    let mut suite = Suite::new(runtime, options, "redis");
    suite.add("first", "raw_unfenced", raw(&connection, raw::UNFENCED));
    suite.add("first", "raw", raw(&connection, raw::FENCED));
    if runtime.block_on(raw(&connection, raw::IF_EQUAL).0.has_ifeq()) {
        suite.add("first", "raw_ifeq", raw(&connection, raw::IF_EQUAL));
    }
    suite.add("first", "hand", hand(false));
    suite.add("first", "idem", idem(Kind::First));
    suite.add("replay", "raw_get", raw(&connection, raw::GOT));
    suite.add("replay", "raw", raw(&connection, raw::CLAIMED));
    suite.add("replay", "hand", hand(true));
    suite.add("replay", "idem", idem(Kind::Replay));
    suite.add("local_replay", "raw", raw(&caching, raw::GOT));
    let caching_shop = Shop::new(caching_engine(runtime, server), value_bytes);
    suite.add(
        "local_replay",
        "idem",
        Customer::of(&caching_shop, Kind::Replay),
    );
    suite.add("business_error", "raw", error);
    suite.add("business_error", "idem", idem(Kind::BusinessError));
    suite.add("release", "raw", raw(&connection, raw::RELEASED));
    suite.add("release", "idem", idem(Kind::Release));
    suite.add(
        "first+replay",
        "raw",
        raw(&connection, raw::FENCED_AND_CLAIMED),
    );
    suite.add("first+replay", "idem", idem(Kind::FirstAndReplay));
    let claimed: Arc<dyn Store> = Arc::new(store(runtime, server));
    batches(
        &claimed,
        || idem(Kind::First),
        |case, batch| {
            suite.add(case, "idem", batch);
        },
    );
    suite
}

fn engine(runtime: &Runtime, server: &Server) -> Engine {
    Engine::new(store(runtime, server))
}

/// A worker that answers repeats from its own memory.
fn caching_engine(runtime: &Runtime, server: &Server) -> Engine {
    let engine = Engine::builder(store(runtime, server));
    let engine = engine.local_cache(LocalCache::new()).build().unwrap();
    // The first call has the cache opened, on the engine's own thread, and earlier answers are not kept.
    runtime.block_on(async {
        let opening = engine.operation("bench.open").key(&merchant());
        opening.run(async |_| Ok::<_, Error>(0)).await.unwrap();
        let is_open = || {
            engine
                .local_cache_stats()
                .is_some_and(|stats| stats.is_open)
        };
        let began = Instant::now();
        while !is_open() {
            assert!(began.elapsed() < PATIENCE, "the cache does not open");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    engine
}

fn store(runtime: &Runtime, server: &Server) -> RedisStore {
    let store = runtime.block_on(RedisStore::connect(server.meter.url.as_str()));
    store.unwrap()
}
