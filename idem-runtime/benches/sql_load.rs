//! What a call costs on SQL databases, beside the same statements by sqlx alone:
//! `cargo bench -p idem-runtime --features mysql,postgres,sqlite --bench sql_load -- --help`.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod load;

use std::sync::Arc;

use tokio::runtime::Runtime;

use self::load::batch::batches;
use self::load::options::Options;
use self::load::order::merchant;
use self::load::process_meter::ProcessMeter;
use self::load::row::Printer;
use self::load::shop::{self, Customer, Shop};
use self::load::sql_raw::mysql::MySql;
use self::load::sql_raw::postgres::Postgres;
use self::load::sql_raw::sqlite::Sqlite;
use self::load::sql_raw::{Calls, Dialect, Kind, Options as SqlOptions, Raw};
use self::load::sql_server::{self as server, Database, STORES};
use self::load::suite::Suite;
use self::load::waiting::waiting;

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
    for &value_bytes in &options.sizes {
        let mut suite = Suite::new(&runtime, options, store);
        suite.settling = database.youth();
        match &database {
            Database::Sqlite(dir, synchronous) => {
                let options = server::sqlite(dir, *synchronous);
                add_raw::<Sqlite>(&mut suite, &runtime, &options, value_bytes);
            }
            Database::Postgres(server) => {
                let options = server::postgres(server);
                add_raw::<Postgres>(&mut suite, &runtime, &options, value_bytes);
            }
            Database::MySql(server) => {
                let options = server::mysql(server);
                add_raw::<MySql>(&mut suite, &runtime, &options, value_bytes);
            }
        }
        let shops = engines
            .clone()
            .map(|engines| engines.map(|engine| Shop::new(engine, value_bytes)));
        if let Some([shop, replaying, mixed]) = &shops {
            // A store reads first or claims first as its latest calls make it expect: each its own.
            let customer = |shop| Customer::of(shop, merchant());
            suite.add("first", "idem", shop::First(customer(shop)));
            suite.add("replay", "idem", shop::Replay(customer(replaying)));
            suite.add(
                "business_error",
                "idem",
                shop::BusinessError(customer(shop)),
            );
            suite.add("release", "idem", shop::Release(customer(shop)));
            suite.add(
                "first+replay",
                "idem",
                shop::FirstAndReplay(customer(mixed)),
            );
            let store = database.store(&runtime);
            batches(
                &store,
                || customer(shop),
                |case, batch| suite.add(case, "idem", batch),
            );
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

fn add_raw<D: Dialect>(
    suite: &mut Suite<'_>,
    runtime: &Runtime,
    options: &SqlOptions<D>,
    value_bytes: usize,
) {
    let raw = || runtime.block_on(Raw::<D>::new(options.clone(), value_bytes, merchant()));
    for (case, made_by, kind) in [
        ("first", "raw", Kind::First),
        ("first", "raw_read_first", Kind::ReadFirst),
        ("replay", "raw", Kind::Replay),
        ("replay", "raw_claim", Kind::ReplayByClaim),
    ] {
        suite.add(case, made_by, Calls(raw(), kind));
    }
}
