//! The more records there are.

use std::sync::Arc;

use tokio::runtime::Runtime;

use super::filler;
use super::line::Line;
use super::load::driver::{self, Work};
use super::load::order::{Order, merchant};
use super::load::sample::{Sample, median};
use super::options::Growth;
use super::payments::{First, Made, Payments, Replay, name};
use super::server::Measured;

const VALUE_BYTES: usize = 200;

pub(crate) fn run(growth: &Growth, server: &mut Measured) {
    let runtime = driver::current_thread();
    let payments = Payments::new(server.engine(&runtime), VALUE_BYTES);
    let stored = merchant();
    let mut order = Order::of(stored);
    runtime.block_on(payments.pay(&order, None)).unwrap();
    let record = server.get(&name(stored, 0));
    let record = record.expect("the name of a record is known");
    server.flush();
    // The order that goes first holds the script and the buffers of the connections.
    order = Order::of(merchant());
    runtime.block_on(payments.pay(&order, None)).unwrap();
    let before = server.used_memory();
    let mut there = 0;
    for &keys in &growth.keys {
        filler::fill(server, there..keys, &record, |number| name(stored, number));
        there = keys;
        let bytes = (server.used_memory() - before) as f64 / keys as f64;
        let made = Arc::new(Made::none());
        let works = (
            First {
                payments: Arc::clone(&payments),
                order: Order::of(merchant()),
                made,
            },
            Replay {
                payments: Arc::clone(&payments),
                order: Order::of(stored),
                stored: keys,
            },
        );
        measure(growth, server, &runtime, &works, keys, bytes);
    }
}

/// Both cases with one call at once and with many, by turns.
fn measure(
    growth: &Growth,
    server: &mut Measured,
    runtime: &Runtime,
    (first, replay): &(First, Replay),
    keys: u64,
    bytes: f64,
) {
    let cases = [("first", 1), ("replay", 1), ("first", 64), ("replay", 64)];
    let mut rounds: [Vec<Sample>; 4] = Default::default();
    let mut calls = [512; 4];
    let mut traffic = [const { [Vec::new(), Vec::new()] }; 4];
    // The first round warms up, and says how many calls fill a slice.
    for round in 0..=growth.load.rounds {
        for (case, &(what, concurrency)) in cases.iter().enumerate() {
            // What a look at the traffic adds to it.
            let earlier = server.traffic();
            let before = server.traffic();
            let sample = if what == "first" {
                take(runtime, first, concurrency, calls[case])
            } else {
                take(runtime, replay, concurrency, calls[case])
            };
            let after = server.traffic();
            for (way, bytes) in traffic[case].iter_mut().enumerate() {
                let all = (after[way] - before[way]) as f64;
                let look = (before[way] - earlier[way]) as f64;
                bytes.push((all - look) / sample.calls() as f64);
            }
            // As many records as it says, in every round.
            if what == "first" {
                let merchant = first.order.merchant;
                filler::delete(server, first.made.take(), |number| name(merchant, number));
            }
            if round == 0 {
                let slice = growth.load.slice.as_secs_f64();
                calls[case] = (sample.per_second() * slice) as usize / concurrency * concurrency;
                calls[case] = calls[case].max(concurrency);
            } else {
                rounds[case].push(sample);
            }
        }
    }
    let found = cases.iter().zip(&rounds).zip(traffic);
    for (((what, concurrency), samples), [bytes_in, bytes_out]) in found {
        let of = |figure: fn(&Sample) -> f64| Some(median(samples.iter().map(figure)));
        Line::new(growth, "keys")
            .word("case", what)
            .count("keys", keys)
            .count("concurrency", *concurrency as u64)
            .figure("ops_per_s", of(Sample::per_second), 0)
            .figure("p50_us", of(|sample| sample.percentile(50)), 1)
            .figure("p99_us", of(|sample| sample.percentile(99)), 1)
            .figure("bytes_in_per_call", Some(median(bytes_in)), 0)
            .figure("bytes_out_per_call", Some(median(bytes_out)), 0)
            .figure("used_memory_per_key", Some(bytes), 1)
            .print();
    }
}

fn take<W: Work>(runtime: &Runtime, work: &W, concurrency: usize, calls: usize) -> Sample {
    driver::run(runtime, work, concurrency, calls)
}
