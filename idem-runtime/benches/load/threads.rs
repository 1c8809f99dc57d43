//! Calls that wait for nobody, on threads that share an engine.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use super::driver::{self, STORED, Work, nanos};
use super::options::Options;
use super::row::Row;
use super::sample::Sample;

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
pub(crate) struct Threaded {
    name: &'static str,
    run: Box<dyn Fn(usize, usize) -> Sample>,
}

impl Threaded {
    /// `make` makes the store, and what calls it.
    pub(crate) fn new<W: Work>(name: &'static str, make: impl Fn() -> W + 'static) -> Self {
        let run = move |threads, calls| {
            let work = make();
            driver::fill(&driver::current_thread(), &work);
            run(&work, threads, calls)
        };
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// Runs the cases by turns, with one thread and with two.
pub(crate) fn measure(
    cases: &[Threaded],
    options: &Options,
    store: &str,
    value_bytes: usize,
    calls: usize,
) -> Vec<Row> {
    let wanted = || cases.iter().filter(|case| options.wants(case.name));
    let all: Vec<_> = [1, 2]
        .into_iter()
        .flat_map(|threads| wanted().map(move |case| (case, threads)))
        .collect();
    let mut samples: Vec<Vec<Sample>> = all.iter().map(|_| Vec::new()).collect();
    // The first round warms up.
    for round in 0..=options.rounds {
        for ((case, threads), samples) in all.iter().zip(&mut samples) {
            let sample = (case.run)(*threads, calls);
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    let found = all.iter().zip(&samples);
    let rows = found.map(|((case, threads), samples)| {
        Row::of(case.name, store, *threads, value_bytes, samples)
    });
    rows.collect()
}
