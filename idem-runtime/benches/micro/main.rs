//! Cost of the parts of a call without a server:
//! `cargo bench -p idem-runtime --features encryption,msgpack,zstd --bench micro`.
//! After `--`, a part of the name of a case: `-- codec/encode/zstd`.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod blank;
mod cache;
mod codec;
mod fingerprint;
#[path = "../load/order.rs"]
mod order;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    fingerprint::bench(&mut criterion);
    codec::bench(&mut criterion);
    cache::bench(&mut criterion);
    criterion.final_summary();
}
