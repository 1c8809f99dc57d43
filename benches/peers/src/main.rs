//! The same calls by other crates. `redis_load --compare` runs this; alone it says what that says:
//! `cargo run --release --manifest-path benches/peers/Cargo.toml -- --help`.

mod load;
mod peers;

use load::options::Options;
use load::order::merchant;
use load::redis_meter::RedisMeter;
use load::redis_raw::{self as raw, Raw};
use load::row::Printer;
use load::suite::Suite;

fn main() {
    let options = Options::parse();
    let Some(url) = options.url.clone() else {
        load::options::refuse("name a server: `--url redis://127.0.0.1:6379`");
    };
    let mut server = RedisMeter::of(url, false);
    let mut printer = Printer::new(options.json);
    let runtime = options.runtime();
    for &value_bytes in &options.sizes {
        let mut suite = Suite::new(&runtime, &options, "redis");
        let raw = || {
            runtime.block_on(async {
                let connection = raw::connect(&server.client).await;
                Raw::new(connection, value_bytes, merchant()).await
            })
        };
        let idempotent = runtime.block_on(peers::idempotent::Shop::new(&server.url, value_bytes));
        let cached = runtime.block_on(peers::cached::Shop::new(&server.url, value_bytes));
        for (case, steps, fills) in [
            ("first", raw::FENCED, false),
            ("replay", raw::CLAIMED, true),
        ] {
            suite.add(case, "raw", raw::Calls(raw(), steps));
            let idempotent = peers::idempotent::Calls(idempotent.clone(), fills);
            suite.add(case, "idempotent", idempotent);
            suite.add(case, "cached", peers::cached::Calls(cached.clone(), fills));
        }
        for &concurrency in &options.concurrency {
            let mut rows = suite.run(concurrency, value_bytes, &mut server);
            // Whoever compares has those already.
            rows.retain(|row| !(options.compare && row.made_by == "raw"));
            printer.rows(&rows);
        }
    }
}
