//! What a call costs where no server takes part, and where Redis stands in front of a database:
//! `cargo bench -p idem-runtime --features mysql,postgres,sqlite --bench engine_load -- --help`.
//!
//! On the store in memory, `concurrency` is the number of threads that share the engine, and a latency
//! holds one look at the clock. In front of a database, `raw` is the statements that the database gets
//! by sqlx alone for a first call, and a `GET` for a replay; `idem_alone` is the same call on the
//! database without Redis.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod load;

use std::sync::Arc;

use idem_runtime::Engine;
use idem_runtime::store::memory::MemoryStore;
use tokio::runtime::Runtime;

use self::load::options::Options;
use self::load::order::merchant;
use self::load::redis_raw;
use self::load::redis_server::Server;
use self::load::row::Printer;
use self::load::shop::{self, Customer, Shop};
use self::load::sql_raw::postgres::Postgres;
use self::load::sql_raw::sqlite::Sqlite;
use self::load::sql_raw::{Calls, Dialect, Kind, Options as SqlOptions, Raw};
use self::load::sql_server::{self as server, Database};
use self::load::suite::{Kept, Suite};
use self::load::threads::{self, Remade};

/// Calls of one thread in one run: a store holds all of their answers.
const CALLS: usize = 30_000;

fn main() {
    let options = Options::parse();
    let mut printer = Printer::new(options.json);
    eprintln!("{options}");
    if options.wants_store("memory") {
        for &value_bytes in &options.sizes {
            let cases = in_memory(value_bytes);
            let calls = CALLS * 200 / value_bytes.max(200) + 3_000;
            let calls = options.calls.unwrap_or(calls);
            let of = ("memory", value_bytes);
            let rows = threads::measure(&cases, &options, of, &[1, 2], calls);
            printer.rows(&rows);
        }
    }
    for (store, durable) in [
        ("redis+sqlite", "sqlite_full"),
        ("redis+postgres", "postgres"),
    ] {
        if options.wants_store(store) {
            in_front_of(&options, store, durable, &mut printer);
        }
    }
    printer.end();
}

fn in_memory(value_bytes: usize) -> Vec<Remade> {
    let customer = move || {
        let engine = Engine::new(MemoryStore::new());
        Customer::of(&Shop::new(engine, value_bytes), merchant())
    };
    vec![
        Remade::threaded("first", move || shop::First(customer())),
        Remade::threaded("replay", move || shop::Replay(customer())),
        Remade::threaded("first+replay", move || shop::FirstAndReplay(customer())),
        Remade::threaded("business_error", move || shop::BusinessError(customer())),
        Remade::threaded("release", move || shop::Release(customer())),
    ]
}

fn in_front_of(options: &Options, store: &str, durable: &str, printer: &mut Printer) {
    let runtime = options.runtime();
    let mut redis = Server::of(options);
    let database = Database::start(durable);
    let fast = database.engine(&runtime, Some(&redis.meter.url));
    let alone = database.engine(&runtime, None);
    for &value_bytes in &options.sizes {
        let fast = Shop::new(fast.clone(), value_bytes);
        let alone = Shop::new(alone.clone(), value_bytes);
        let mut suite = Suite::new(&runtime, options, store);
        match &database {
            Database::Sqlite(dir, synchronous) => {
                let options = server::sqlite(dir, *synchronous);
                add_first::<Sqlite>(&mut suite, &runtime, options, value_bytes);
            }
            Database::Postgres(server) => {
                let options = server::postgres(server);
                add_first::<Postgres>(&mut suite, &runtime, options, value_bytes);
            }
            Database::MySql(_) => unreachable!("not among those above"),
        }
        let connection = runtime.block_on(redis_raw::connect(&redis.meter.client));
        let raw = redis_raw::Raw::new(connection, value_bytes, merchant());
        let raw = redis_raw::Calls(runtime.block_on(raw), redis_raw::GOT);
        suite.add("replay", "raw", raw);
        add(&mut suite, "idem_alone", &alone);
        add(&mut suite, "idem", &fast);
        for &concurrency in &options.concurrency {
            let mut meter = Kept(&mut redis.meter);
            printer.rows(&suite.run(concurrency, value_bytes, &mut meter));
        }
    }
}

fn add_first<D: Dialect>(
    suite: &mut Suite<'_>,
    runtime: &Runtime,
    options: SqlOptions<D>,
    value_bytes: usize,
) {
    let raw = runtime.block_on(Raw::<D>::new(options, value_bytes, merchant()));
    suite.add("first", "raw", Calls(raw, Kind::First));
}

fn add(suite: &mut Suite<'_>, made_by: &'static str, shop: &Arc<Shop>) {
    let customer = || Customer::of(shop, merchant());
    suite.add("first", made_by, shop::First(customer()));
    suite.add("replay", made_by, shop::Replay(customer()));
    suite.add("business_error", made_by, shop::BusinessError(customer()));
    suite.add("release", made_by, shop::Release(customer()));
}
