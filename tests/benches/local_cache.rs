//! The cost of a call that the local cache answers, on one thread, whatever the store is.
//!
//! `cargo bench -p idem-tests --bench local_cache`. Seven rounds of each case, the cases in turn: a replay
//! from the cache, one from the memory store, and what both do besides, the key and the fingerprint of the
//! call. Printed are the medians, in nanoseconds a call and calls a second.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, Error, cache::LocalCache, fingerprint::Fingerprint, key::KeyBuilder};

const ROUNDS: usize = 7;
const CALLS: u32 = 200_000;
const KEYS: u32 = 1_000;

async fn pay(engine: &Engine, key: u32, answer: &str) -> String {
    let call = engine.operation("bench.pay").key(&("shop-1", key));
    let call = call.fingerprint(&(1_250_u32, "EUR"));
    call.run(async |_| Ok::<_, Error>(answer.to_owned()))
        .await
        .unwrap()
}

fn key_and_fingerprint(key: u32) {
    let digest = KeyBuilder::new("bench.pay", 1_024).key(&("shop-1", key));
    black_box(digest.unwrap());
    black_box(Fingerprint::of("bench.pay", &(1_250_u32, "EUR")).unwrap());
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let answer = "x".repeat(200);
        let cached = Engine::builder(MemoryStore::new());
        let cached = cached.local_cache(LocalCache::new()).build().unwrap();
        let plain = Engine::new(MemoryStore::new());
        pay(&cached, 0, &answer).await;
        while !cached.local_cache_stats().unwrap().is_open {
            tokio::task::yield_now().await;
        }
        for engine in [&cached, &plain] {
            for key in 0..2 * KEYS {
                pay(engine, key % KEYS, &answer).await;
            }
        }
        let before = cached.local_cache_stats().unwrap();
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (engine, times) in [&cached, &plain].into_iter().zip(&mut times) {
                let start = Instant::now();
                for call in 0..CALLS {
                    black_box(pay(engine, call % KEYS, &answer).await);
                }
                times.push(start.elapsed());
            }
            let start = Instant::now();
            for call in 0..CALLS {
                key_and_fingerprint(call % KEYS);
            }
            times[2].push(start.elapsed());
        }
        let stats = cached.local_cache_stats().unwrap();
        assert_eq!(stats.misses, before.misses, "every call was a hit");
        let names = ["local cache", "memory store", "key and fingerprint"];
        for (name, times) in names.into_iter().zip(times) {
            let ns = median(times);
            println!("{name:20} {ns:8.0} ns {:10.0}/s", 1e9 / ns);
        }
    });
}
