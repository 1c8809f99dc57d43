//! What is asked, from the arguments to the fingerprint.

use std::hint::black_box;

use criterion::Criterion;
use idem_runtime::fingerprint::{Fingerprint, FingerprintBuilder};

use crate::key;
use crate::order::{Order, merchant};

/// As the attribute takes it, of a function with this one argument.
fn of(order: &Order) -> Fingerprint {
    let mut asked = FingerprintBuilder::new("payments.pay", 1);
    asked.arg("order", order);
    asked.finish().unwrap().fingerprint()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let order = Order::of(merchant());
    let mut group = criterion.benchmark_group("fingerprint");
    group.bench_function("number", |bench| {
        bench.iter(|| Fingerprint::of("payments.pay", black_box(&order.cents)).unwrap());
    });
    group.bench_function("order", |bench| bench.iter(|| of(black_box(&order))));
    group.bench_function("order_and_key", |bench| {
        bench.iter(|| {
            let order = black_box(&order);
            (key::digest(&(order.merchant, order.number)), of(order))
        });
    });
}
