//! What the parts of a call cost that no server has a share in:
//! `cargo bench -p idem-runtime --features encryption,msgpack,zstd --bench micro`.
//! After `--`, a part of the name of a case: `-- key/`, `-- codec/encode/zstd`.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod blank;
mod cache;
mod codec;
mod fingerprint;
mod key;
#[path = "../load/order.rs"]
mod order;
mod record;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    key::bench(&mut criterion);
    fingerprint::bench(&mut criterion);
    record::bench(&mut criterion);
    codec::bench(&mut criterion);
    cache::bench(&mut criterion);
    criterion.final_summary();
}
