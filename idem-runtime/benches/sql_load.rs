//! Calls on SQL databases, beside the same statements by sqlx:
//! `cargo bench -p idem-runtime --features mysql,postgres,sqlite --bench sql_load -- --help`. With the feature
//! `tokio-postgres` also by that client, its statements unnamed and named.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod load;

use std::sync::Arc;

use self::load::batch::batches;
use self::load::options::Options;
use self::load::process_meter::ProcessMeter;
use self::load::row::Printer;
use self::load::shop::{Customer, Kind, Shop};
use self::load::sql_raw;
use self::load::sql_server::{Database, STORES};
use self::load::suite::Suite;
use self::load::waiting::waiting;

/// The store's statements, and those of one expecting other calls.
const RAW: [(&str, &str, sql_raw::Kind); 4] = [
    ("first", "raw", sql_raw::Kind::First),
    ("first", "raw_read_first", sql_raw::Kind::ReadFirst),
    ("replay", "raw", sql_raw::Kind::Replay),
    ("replay", "raw_claim", sql_raw::Kind::ReplayByClaim),
];

fn main() {
    let options = Options::parse();
    let mut printer = Printer::new(options.json);
    eprintln!("{options}");
    for store in STORES {
        let is_named = options.stores.iter().any(|named| named == store);
        if is_named || options.stores.is_empty() && !store.ends_with("_nosync") {
            measure(&options, store, &mut printer);
        }
    }
    printer.end();
}

fn measure(options: &Options, store: &str, printer: &mut Printer) {
    let runtime = options.runtime();
    let database = Database::start(store);
    let engines = database
        .suits_idem()
        .then(|| [(); 3].map(|()| database.engine(&runtime, None)));
    let others = database.engines_by_others(&runtime);
    for &value_bytes in &options.sizes {
        let mut suite = Suite::new(&runtime, options, store);
        suite.settling = database.youth();
        database.add_raw(&mut suite, value_bytes, &RAW);
        let shops = engines
            .clone()
            .map(|engines| engines.map(|engine| Shop::new(engine, value_bytes)));
        if let Some([shop, replaying, mixed]) = &shops {
            for (name, kind) in Kind::ALL {
                // A store reads first or claims first as its latest calls make it expect: each its own.
                let shop = match kind {
                    Kind::Replay => replaying,
                    Kind::FirstAndReplay => mixed,
                    _ => shop,
                };
                suite.add(name, "idem", Customer::of(shop, kind));
            }
            for (client, engines) in &others {
                let shops = engines.clone().map(|engine| Shop::new(engine, value_bytes));
                for (shop, name, kind) in [
                    (&shops[0], "first", Kind::First),
                    (&shops[1], "replay", Kind::Replay),
                ] {
                    suite.add(name, client, Customer::of(shop, kind));
                }
            }
            let (store, customer) = (database.store(&runtime), || Customer::of(shop, Kind::First));
            batches(&store, customer, |case, batch| {
                suite.add(case, "idem", batch);
            });
        }
        for &concurrency in &options.concurrency {
            printer.rows(&suite.run(concurrency, value_bytes, &mut ProcessMeter));
            let pair = shops
                .iter()
                .map(|[one, other, _]| [one, other].map(Arc::clone));
            for waiting in pair.flat_map(|pair| waiting(options, &pair)) {
                let rounds = options.rounds;
                let row = waiting.measure(&runtime, store, concurrency, value_bytes, rounds);
                printer.row(&row);
            }
        }
    }
}
