//! Cases that take turns: in each round each of them runs once, so that what else the machine does
//! meets them alike.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::driver::{self, Work};
use super::options::Options;
use super::row::Row;
use super::sample::{Sample, median, spread};

/// Calls that are made to count commands.
const COUNTED: usize = 64;

/// Calls of a run, at least.
const LEAST: usize = 32;

/// A server's own figures; `()` has none.
pub(crate) trait Meter {
    /// Processor time that it has used, in microseconds.
    fn cpu_micros(&mut self) -> Option<f64> {
        None
    }

    /// The commands that it gets from clients while these calls are made.
    fn commands(&mut self, _calls: &mut dyn FnMut()) -> Option<usize> {
        None
    }

    /// Deletes everything, if that is ours.
    fn flush(&mut self) {}
}

impl Meter for () {}

/// The cases of a round, shuffled: a case may leave something behind, and an order that only moves on from round to
/// round can keep step with work that the server does ten times a second, which then meets the same case each time.
fn order(cases: usize, round: u64) -> Vec<usize> {
    let mut order: Vec<_> = (0..cases).collect();
    // SplitMix64, by its constants.
    let mut state = round << 32;
    for last in (1..cases).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(last, (bits ^ (bits >> 31)) as usize % (last + 1));
    }
    order
}

struct Case<'a> {
    name: &'static str,
    made_by: &'static str,
    fill: Box<dyn Fn() + 'a>,
    /// Makes calls: so many at once, so many of them.
    run: Box<dyn Fn(usize, usize) -> Sample + 'a>,
}

/// Cases that are measured against each other.
pub(crate) struct Suite<'a> {
    pub(crate) runtime: &'a Runtime,
    options: &'a Options,
    store: &'a str,
    /// How long first answers rest before their replays.
    pub(crate) settling: Duration,
    /// Calls of a run, in place of a slice of time.
    pub(crate) calls: Option<usize>,
    cases: Vec<Case<'a>>,
}

/// The results of one case's rounds.
#[derive(Default)]
struct Findings {
    calls: usize,
    samples: Vec<Sample>,
    cpu: Vec<f64>,
    commands: Option<f64>,
}

impl Findings {
    fn rates(&self) -> impl Iterator<Item = f64> + Clone {
        self.samples.iter().map(Sample::per_second)
    }
}

impl<'a> Suite<'a> {
    pub(crate) fn new(runtime: &'a Runtime, options: &'a Options, store: &'a str) -> Self {
        Self {
            runtime,
            options,
            store,
            settling: Duration::ZERO,
            calls: None,
            cases: Vec::new(),
        }
    }

    /// Adds a case, if it was asked for.
    pub(crate) fn add<W: Work>(&mut self, name: &'static str, made_by: &'static str, work: W) {
        let (runtime, filled) = (self.runtime, work.clone());
        let fill = move || driver::fill(runtime, &filled);
        let run = move |at_once, calls| driver::run(runtime, &work, at_once, calls);
        self.add_case(name, made_by, Box::new(fill), Box::new(run));
    }

    /// Adds a case whose `run` fills a new store each time.
    pub(crate) fn add_anew(
        &mut self,
        name: &'static str,
        made_by: &'static str,
        run: impl Fn(usize, usize) -> Sample + 'a,
    ) {
        self.add_case(name, made_by, Box::new(|| ()), Box::new(run));
    }

    fn add_case(
        &mut self,
        name: &'static str,
        made_by: &'static str,
        fill: Box<dyn Fn() + 'a>,
        run: Box<dyn Fn(usize, usize) -> Sample + 'a>,
    ) {
        if self.options.wants(name) && self.options.wants_impl(made_by) {
            self.cases.push(Case {
                name,
                made_by,
                fill,
                run,
            });
        }
    }

    /// Runs all cases.
    pub(crate) fn run(
        &self,
        concurrency: usize,
        value_bytes: usize,
        meter: &mut dyn Meter,
    ) -> Vec<Row> {
        let mut found: Vec<Findings> = Vec::new();
        found.resize_with(self.cases.len(), Findings::default);
        self.fill(meter);
        std::thread::sleep(self.settling);
        for (case, found) in self.cases.iter().zip(&mut found) {
            self.prepare(case, found, concurrency, meter);
        }
        for round in 0..self.options.rounds {
            self.fill(meter);
            for turn in order(self.cases.len(), round as u64) {
                let (case, found) = (&self.cases[turn], &mut found[turn]);
                let before = meter.cpu_micros();
                let sample = (case.run)(concurrency, found.calls);
                if let (Some(before), Some(after)) = (before, meter.cpu_micros()) {
                    found.cpu.push((after - before) / sample.calls() as f64);
                }
                found.samples.push(sample);
            }
        }
        self.rows(&found, concurrency, value_bytes)
    }

    fn fill(&self, meter: &mut dyn Meter) {
        meter.flush();
        for case in &self.cases {
            (case.fill)();
        }
    }

    /// Warms up, counts commands, and calibrates the calls of a slice.
    fn prepare(
        &self,
        case: &Case<'_>,
        found: &mut Findings,
        concurrency: usize,
        meter: &mut dyn Meter,
    ) {
        if let Some(calls) = self.calls {
            found.calls = calls.next_multiple_of(concurrency);
            (case.run)(concurrency, found.calls);
            return;
        }
        (case.run)(concurrency, concurrency);
        let commands = meter.commands(&mut || {
            (case.run)(1, COUNTED);
        });
        found.commands = commands.map(|commands| commands as f64 / COUNTED as f64);
        let slice = self.options.slice.as_secs_f64();
        let mut calls = concurrency.max(16).next_multiple_of(concurrency);
        loop {
            let rate = (case.run)(concurrency, calls).per_second();
            // A disk may take longer than a slice: a median is of more than one call all the same.
            let wanted = ((rate * slice) as usize)
                .max(LEAST)
                .max(concurrency * 4)
                .next_multiple_of(concurrency);
            // A short run says little: each one is at most eight times as long as that before.
            if wanted <= calls * 8 {
                found.calls = wanted;
                return;
            }
            calls *= 8;
        }
    }

    fn rows(&self, found: &[Findings], concurrency: usize, value_bytes: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (case, of) in self.cases.iter().zip(found) {
            let mut row = |name: &str, compared_with: &str| {
                let mut cases = self.cases.iter();
                let raw =
                    cases.position(|raw| raw.name == case.name && raw.made_by == compared_with);
                let ratios = raw.map(|raw| of.rates().zip(found[raw].rates()).map(|(a, b)| a / b));
                rows.push(Row {
                    made_by: case.made_by.to_owned(),
                    commands_per_call: of.commands,
                    server_cpu_us_per_call: (!of.cpu.is_empty())
                        .then(|| median(of.cpu.iter().copied())),
                    ratio_to_raw: ratios.clone().map(median),
                    ratio_spread: ratios.clone().map(spread),
                    ..Row::of(name, self.store, concurrency, value_bytes, &of.samples)
                });
                ratios.is_some()
            };
            row(case.name, "raw");
            // The goals name both, and a row has one ratio.
            if case.made_by == "idem"
                && case.name == "first"
                && !row("first_vs_unfenced", "raw_unfenced")
            {
                rows.pop();
            }
        }
        rows
    }
}
