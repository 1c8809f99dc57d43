//! The local cache, in calls that no store has a share in: `uncached` is the same call without it, and
//! `uncached_keyed` that one with a digest key.

use std::cell::LazyCell;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use idem_runtime::{
    Engine, Error,
    cache::{LocalCache, LocalCacheStats},
};

use crate::blank::{Blank, at_once};
use crate::order::Receipt;

const MILLION: u64 = 1_000_000;

/// Answers of a large cache. `--test` runs each case once, and is for builds that take a minute for a million.
fn many() -> u64 {
    let is_test = std::env::args().any(|word| word == "--test");
    if is_test { 1_000 } else { MILLION }
}

/// A call that is answered with 200 bytes.
fn pay(engine: &Engine, number: u64, receipt: &Receipt) -> Receipt {
    let call = engine.operation("payments.pay");
    let call = call.key(&number).fingerprint(&number);
    at_once(call.run(async |_| Ok::<_, Error>(receipt.clone()))).unwrap()
}

/// An engine with a cache of `most` answers, filled below `entries`.
fn engine(most: u64, entries: u64, receipt: &Receipt) -> Engine {
    let cache = LocalCache::new()
        .max_entries(usize::try_from(most).unwrap())
        .max_bytes(usize::MAX);
    let engine = Engine::builder(Blank).local_cache(cache).build().unwrap();
    // The first call has it opened, on the engine's own thread. This one is not kept, whenever that is.
    let opening = engine.operation("payments.open").key(&0);
    at_once(opening.run(async |_| Ok::<_, Error>(0))).unwrap();
    while !stats(&engine).is_open {
        std::thread::yield_now();
    }
    for number in 0..entries {
        pay(&engine, number, receipt);
    }
    engine
}

fn stats(engine: &Engine) -> LocalCacheStats {
    engine.local_cache_stats().unwrap_or_default()
}

/// Room to spare: a part of the cache may get more than its share of the keys.
const fn ample(entries: u64) -> u64 {
    entries * 2
}

/// Measures calls of `next` numbers on a lazily made engine: a case runs once for each of its samples, or not at all.
fn calls(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    receipt: &Receipt,
    engine: impl FnOnce() -> Engine,
    mut next: impl FnMut() -> u64,
) -> Option<LocalCacheStats> {
    let engine = LazyCell::new(engine);
    let mut ran = false;
    group.bench_function(name, |bench| {
        ran = true;
        bench.iter(|| pay(&engine, next(), receipt));
    });
    ran.then(|| stats(&engine))
}

/// Numbers below `below`, in an order that no processor foresees.
fn shuffled(below: u64) -> impl FnMut() -> u64 {
    let mut state = 0_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 32) % below
    }
}

/// Numbers that were not called with yet.
fn above(mut number: u64) -> impl FnMut() -> u64 {
    move || {
        number += 1;
        number
    }
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let receipt = &Receipt::of(200);
    let mut group = criterion.benchmark_group("cache");
    let uncached = || Engine::builder(Blank).build().unwrap();
    calls(&mut group, "uncached", receipt, uncached, above(0));
    #[cfg(feature = "digest-key")]
    {
        let keyed = || Engine::builder(Blank).digest_key([7; 32]).build().unwrap();
        calls(&mut group, "uncached_keyed", receipt, keyed, above(0));
    }
    for entries in [1, many()] {
        let full = || engine(ample(entries), entries, receipt);
        let name = format!("hit/{entries}");
        if let Some(stats) = calls(&mut group, &name, receipt, full, shuffled(entries)) {
            let opened = 1;
            assert!(stats.misses == entries + opened, "{} misses", stats.misses);
        }
        // It grows while it is measured: a cache that only takes in does not stay as it is.
        let roomy = || engine(16 * MILLION, entries, receipt);
        let name = format!("insert/{entries}");
        if let Some(stats) = calls(&mut group, &name, receipt, roomy, above(entries)) {
            assert_eq!(stats.evictions, 0);
        }
        let tight = || engine(entries, ample(entries), receipt);
        let name = format!("evict/{entries}");
        if let Some(stats) = calls(&mut group, &name, receipt, tight, above(ample(entries))) {
            assert!(stats.evictions > entries, "{} had to go", stats.evictions);
        }
    }
}
