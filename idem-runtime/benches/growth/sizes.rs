//! The larger answers are.

use super::line::Line;
use super::load::driver;
use super::load::order::merchant;
use super::load::redis_raw::{self as raw, Raw};
use super::load::shop::{self, Customer, Shop};
use super::load::suite::Suite;
use super::options::{Growth, MAX_VALUE_BYTES};
use super::server::Measured;

pub(crate) fn run(growth: &Growth, server: &mut Measured) {
    let runtime = driver::current_thread();
    let connection = runtime.block_on(raw::connect(&server.client));
    let builder = server.builder(&runtime).max_value_bytes(MAX_VALUE_BYTES);
    let engine = builder.build().unwrap();
    let mut space = merchant() & 0xff_ffff;
    for &size in &growth.load.sizes {
        let mut raw = |steps| {
            space += 1;
            let raw = Raw::new(connection.clone(), size, space);
            raw::Calls(runtime.block_on(raw), steps)
        };
        let shop = Shop::new(engine.clone(), size);
        let customer = || Customer::of(&shop, merchant());
        let mut suite = Suite::new(&runtime, &growth.load, "redis");
        suite.add("first", "raw", raw(raw::UNFENCED));
        suite.add("first", "idem", shop::First(customer()));
        suite.add("replay", "raw", raw(raw::GOT));
        suite.add("replay", "idem", shop::Replay(customer()));
        for &concurrency in &growth.load.concurrency {
            for row in suite.run(concurrency, size, server.meter()) {
                // The suite's own line about the unfenced pair, which is all there is here.
                if row.case == "first_vs_unfenced" {
                    continue;
                }
                Line::new(growth, "sizes")
                    .word("case", &row.case)
                    .word("impl", &row.made_by)
                    .count("value_bytes", size as u64)
                    .count("concurrency", concurrency as u64)
                    .figure("ops_per_s", Some(row.ops_per_s), 0)
                    .figure("p50_us", Some(row.p50_us), 1)
                    .figure("p99_us", Some(row.p99_us), 1)
                    .figure("server_cpu_us_per_call", row.server_cpu_us_per_call, 2)
                    .figure("ratio_to_raw", row.ratio_to_raw, 3)
                    .print();
            }
        }
        server.flush();
    }
}
