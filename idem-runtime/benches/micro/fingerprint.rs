//! Key and fingerprint, from the arguments to the digests.

use std::hint::black_box;

use criterion::Criterion;
use idem_runtime::__private::FingerprintBuilder;
use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, KeyBuilder};
use idem_runtime::fingerprint::Fingerprint;

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
    group.bench_function("order_and_key", |bench| {
        bench.iter(|| {
            let order = black_box(&order);
            let key = KeyBuilder::new("payments.pay", DEFAULT_MAX_KEY_BYTES);
            let key = key.key(&(order.merchant, order.number));
            (key.unwrap(), of(order))
        });
    });
}
