//! Calls without a server, and with Redis in front of a database:
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

use idem_runtime::Engine;
use idem_runtime::store::memory::MemoryStore;

use self::load::driver::{current_thread, fill, run_on_threads};
use self::load::options::Options;
use self::load::order::merchant;
use self::load::redis_raw;
use self::load::redis_server::Server;
use self::load::row::Printer;
use self::load::shop::{Customer, Kind, Shop};
use self::load::sql_raw;
use self::load::sql_server::Database;
use self::load::suite::Suite;

/// Calls of one thread in one run: a store holds all of their answers.
const CALLS: usize = 30_000;

fn main() {
    let options = Options::parse();
    let mut printer = Printer::new(options.json);
    eprintln!("{options}");
    if options.wants_store("memory") {
        for &value_bytes in &options.sizes {
            in_memory(&options, value_bytes, &mut printer);
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

fn in_memory(options: &Options, value_bytes: usize, printer: &mut Printer) {
    let runtime = current_thread();
    let mut suite = Suite::new(&runtime, options, "memory");
    let calls = CALLS * 200 / value_bytes.max(200) + 3_000;
    suite.calls = Some(options.calls.unwrap_or(calls));
    for (name, kind) in Kind::ALL {
        suite.add_anew(name, "idem", move |threads, calls| {
            let engine = Engine::new(MemoryStore::new());
            let customer = Customer::of(&Shop::new(engine, value_bytes), kind);
            fill(&current_thread(), &customer);
            run_on_threads(&customer, threads, calls)
        });
    }
    for threads in [1, 2] {
        printer.rows(&suite.run(threads, value_bytes, &mut ()));
    }
}

fn in_front_of(options: &Options, store: &str, durable: &str, printer: &mut Printer) {
    let runtime = options.runtime();
    let mut redis = Server::of(options);
    // It keeps its keys: the database relies on them.
    redis.meter.is_ours = false;
    let database = Database::start(durable);
    let fast = database.engine(&runtime, Some(&redis.meter.url));
    let alone = database.engine(&runtime, None);
    for &value_bytes in &options.sizes {
        let mut suite = Suite::new(&runtime, options, store);
        let raw = [("first", "raw", sql_raw::Kind::First)];
        database.add_raw(&mut suite, value_bytes, &raw);
        let connection = runtime.block_on(redis_raw::connect(&redis.meter.client));
        let raw = redis_raw::Raw::new(connection, value_bytes, merchant());
        let raw = redis_raw::Calls(runtime.block_on(raw), redis_raw::GOT);
        suite.add("replay", "raw", raw);
        for (made_by, engine) in [("idem_alone", &alone), ("idem", &fast)] {
            let shop = Shop::new(engine.clone(), value_bytes);
            for (name, kind) in Kind::ALL {
                if kind != Kind::FirstAndReplay {
                    suite.add(name, made_by, Customer::of(&shop, kind));
                }
            }
        }
        for &concurrency in &options.concurrency {
            printer.rows(&suite.run(concurrency, value_bytes, &mut redis.meter));
        }
    }
}
