//! Cases on a store that each round makes anew; threads share its engine, and no call waits for another.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use super::driver::{self, STORED, Work, nanos};
use super::options::Options;
use super::row::Row;
use super::sample::{Sample, median, spread};

/// Makes `calls` calls on each of so many threads.
fn run<W: Work>(work: &W, threads: usize, calls: usize) -> Sample {
    let barrier = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads as u64)
        .map(|thread| {
            let (mut work, barrier) = (work.clone(), Arc::clone(&barrier));
            thread::spawn(move || {
                let runtime = driver::current_thread();
                let mut latencies: Vec<u32> = Vec::with_capacity(calls);
                // Far from what is stored, and from each other's.
                let first = STORED + (thread << 32);
                barrier.wait();
                let start = Instant::now();
                runtime.block_on(async {
                    let mut began = start;
                    for number in first..first + calls as u64 {
                        work.call(number).await;
                        let ended = Instant::now();
                        latencies.push(nanos(ended - began));
                        began = ended;
                    }
                });
                (start.elapsed(), latencies)
            })
        })
        .collect();
    let results: Vec<_> = workers
        .into_iter()
        .map(|worker| worker.join().unwrap())
        .collect();
    let wall = results.iter().map(|(wall, _)| *wall).max().unwrap();
    let latencies = results.into_iter().flat_map(|(_, latencies)| latencies);
    Sample::new(wall, latencies.collect())
}

/// A case whose store is made anew for each round, so that it does not grow.
pub(crate) struct Remade {
    name: &'static str,
    made_by: &'static str,
    run: Box<dyn Fn(usize, usize) -> Sample>,
}

impl Remade {
    /// `run` makes the store, fills it, and makes calls: so many at once, so many of each.
    pub(crate) fn new(
        name: &'static str,
        made_by: &'static str,
        run: impl Fn(usize, usize) -> Sample + 'static,
    ) -> Self {
        Self {
            name,
            made_by,
            run: Box::new(run),
        }
    }

    /// Calls on threads, each with a runtime of its own. `make` makes the store, and what calls it.
    pub(crate) fn threaded<W: Work>(name: &'static str, make: impl Fn() -> W + 'static) -> Self {
        Self::new(name, "idem", move |threads, calls| {
            let work = make();
            driver::fill(&driver::current_thread(), &work);
            run(&work, threads, calls)
        })
    }
}

/// Runs the cases by turns, with so many calls at once.
pub(crate) fn measure(
    cases: &[Remade],
    options: &Options,
    (store, value_bytes): (&str, usize),
    concurrency: &[usize],
    calls: usize,
) -> Vec<Row> {
    let wanted = |case: &&Remade| options.wants(case.name) && options.wants_impl(case.made_by);
    let all: Vec<_> = concurrency
        .iter()
        .flat_map(|at_once| {
            cases
                .iter()
                .filter(wanted)
                .map(move |case| (case, *at_once))
        })
        .collect();
    let mut samples: Vec<Vec<Sample>> = all.iter().map(|_| Vec::new()).collect();
    // The first round warms up.
    for round in 0..=options.rounds {
        for turn in 0..all.len() {
            // Another case begins each round.
            let turn = (turn + round) % all.len();
            let (case, at_once) = all[turn];
            let sample = (case.run)(at_once, calls);
            if round > 0 {
                samples[turn].push(sample);
            }
        }
    }
    let rates = |turn: usize| samples[turn].iter().map(Sample::per_second);
    let rows = all.iter().zip(&samples).enumerate();
    let rows = rows.map(|(turn, (&(case, at_once), of))| {
        let is_raw = |(raw, of): &(&Remade, usize)| {
            raw.name == case.name && raw.made_by == "raw" && *of == at_once
        };
        let raw = all.iter().position(is_raw);
        let ratios = raw.map(|raw| rates(turn).zip(rates(raw)).map(|(ours, raw)| ours / raw));
        Row {
            made_by: case.made_by.to_owned(),
            ratio_to_raw: ratios.clone().map(median),
            ratio_spread: ratios.map(spread),
            ..Row::of(case.name, store, at_once, value_bytes, of)
        }
    });
    rows.collect()
}
