//! Which call it is, from its arguments to the digest.

use std::hint::black_box;

use criterion::Criterion;
use idem_runtime::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, ToKey};

use crate::order::{Order, merchant};

/// As the attribute names a call: operation, then key.
pub(crate) fn digest<K: ToKey + ?Sized>(key: &K) -> KeyDigest {
    let builder = KeyBuilder::new("payments.pay", DEFAULT_MAX_KEY_BYTES);
    builder.key(key).unwrap()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let order = Order::of(merchant());
    let mut group = criterion.benchmark_group("key");
    group.bench_function("one_field", |bench| {
        bench.iter(|| digest(black_box(&order.number)));
    });
    group.bench_function("three_fields", |bench| {
        bench.iter(|| {
            let order = black_box(&order);
            digest(&(order.merchant, order.number, &order.customer))
        });
    });
    group.bench_function("scope_and_field", |bench| {
        bench.iter(|| {
            let order = black_box(&order);
            let builder = KeyBuilder::new("payments.pay", DEFAULT_MAX_KEY_BYTES);
            builder.scope(&order.merchant).key(&order.number).unwrap()
        });
    });
    group.bench_function("text", |bench| {
        let digest = digest(&order.number);
        bench.iter(|| black_box(&digest).text_bytes());
    });
}
