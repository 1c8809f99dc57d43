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

/// What a server can be asked about itself.
pub(crate) trait Meter {
    /// Processor time that it has used, in microseconds.
    fn cpu_micros(&mut self) -> Option<f64>;

    /// The commands that it gets from clients while these calls are made.
    fn commands(&mut self, calls: &mut dyn FnMut()) -> Option<usize>;

    /// Deletes everything, if that is ours.
    fn flush(&mut self);
}

/// For stores without a server.
#[derive(Debug)]
pub(crate) struct NoMeter;

impl Meter for NoMeter {
    fn cpu_micros(&mut self) -> Option<f64> {
        None
    }

    fn commands(&mut self, _: &mut dyn FnMut()) -> Option<usize> {
        None
    }

    fn flush(&mut self) {}
}

/// A server that keeps what it has: others rely on it.
pub(crate) struct Kept<'a>(pub(crate) &'a mut dyn Meter);

impl Meter for Kept<'_> {
    fn cpu_micros(&mut self) -> Option<f64> {
        self.0.cpu_micros()
    }

    fn commands(&mut self, calls: &mut dyn FnMut()) -> Option<usize> {
        self.0.commands(calls)
    }

    fn flush(&mut self) {}
}

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

/// A case of one implementation.
pub(crate) struct Case {
    name: &'static str,
    made_by: &'static str,
    runs: Box<dyn Runs>,
}

/// Runs a case. Called once a run, so that the call through the table costs nothing.
trait Runs {
    fn fill(&self, runtime: &Runtime);
    fn run(&self, runtime: &Runtime, concurrency: usize, calls: usize) -> Sample;
}

impl<W: Work> Runs for W {
    fn fill(&self, runtime: &Runtime) {
        driver::fill(runtime, self);
    }

    fn run(&self, runtime: &Runtime, concurrency: usize, calls: usize) -> Sample {
        driver::run(runtime, self, concurrency, calls)
    }
}

/// Cases that are measured against each other.
pub(crate) struct Suite<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) options: &'a Options,
    pub(crate) store: &'a str,
    /// How long the first answers are left alone before they are asked for.
    pub(crate) settling: Duration,
    cases: Vec<Case>,
}

/// What the rounds of one case showed.
#[derive(Default)]
struct Findings {
    calls: usize,
    per_second: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    cpu: Vec<f64>,
    commands: Option<f64>,
}

impl<'a> Suite<'a> {
    pub(crate) fn new(runtime: &'a Runtime, options: &'a Options, store: &'a str) -> Self {
        Self {
            runtime,
            options,
            store,
            settling: Duration::ZERO,
            cases: Vec::new(),
        }
    }

    /// Adds a case, if it was asked for.
    pub(crate) fn add<W: Work>(&mut self, name: &'static str, made_by: &'static str, work: W) {
        if self.options.wants(name) && self.options.wants_impl(made_by) {
            self.cases.push(Case {
                name,
                made_by,
                runs: Box::new(work),
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
        let mut findings: Vec<Findings> = Vec::new();
        findings.resize_with(self.cases.len(), Findings::default);
        self.fill(meter);
        std::thread::sleep(self.settling);
        for (case, found) in self.cases.iter().zip(&mut findings) {
            self.prepare(case, found, concurrency, meter);
        }
        for round in 0..self.options.rounds {
            self.fill(meter);
            for turn in order(self.cases.len(), round as u64) {
                self.measure(&self.cases[turn], &mut findings[turn], concurrency, meter);
            }
        }
        self.rows(&findings, concurrency, value_bytes)
    }

    fn fill(&self, meter: &mut dyn Meter) {
        meter.flush();
        for case in &self.cases {
            case.runs.fill(self.runtime);
        }
    }

    /// Warms up, counts commands, and finds out how many calls fill a slice.
    fn prepare(
        &self,
        case: &Case,
        found: &mut Findings,
        concurrency: usize,
        meter: &mut dyn Meter,
    ) {
        let run = |concurrency, calls| case.runs.run(self.runtime, concurrency, calls);
        run(concurrency, concurrency);
        let commands = meter.commands(&mut || {
            run(1, COUNTED);
        });
        found.commands = commands.map(|commands| commands as f64 / COUNTED as f64);
        let slice = self.options.slice.as_secs_f64();
        let mut calls = concurrency.max(16).next_multiple_of(concurrency);
        loop {
            let rate = run(concurrency, calls).per_second();
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

    fn measure(
        &self,
        case: &Case,
        found: &mut Findings,
        concurrency: usize,
        meter: &mut dyn Meter,
    ) {
        let before = meter.cpu_micros();
        let sample = case.runs.run(self.runtime, concurrency, found.calls);
        let after = meter.cpu_micros();
        found.per_second.push(sample.per_second());
        found.p50.push(sample.percentile(50));
        found.p99.push(sample.percentile(99));
        if let (Some(before), Some(after)) = (before, after) {
            found.cpu.push((after - before) / sample.calls() as f64);
        }
    }

    fn rows(&self, findings: &[Findings], concurrency: usize, value_bytes: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (case, found) in self.cases.iter().zip(findings) {
            let ratios_to = |made_by: &str| {
                let mut cases = self.cases.iter();
                let raw = cases.position(|raw| raw.name == case.name && raw.made_by == made_by)?;
                let rounds = found.per_second.iter().zip(&findings[raw].per_second);
                let ratios = rounds.map(|(ours, raw)| ours / raw);
                Some((median(ratios.clone()), spread(ratios)))
            };
            let to_raw = ratios_to("raw");
            let row = Row {
                made_by: case.made_by.to_owned(),
                case: case.name.to_owned(),
                store: self.store.to_owned(),
                concurrency,
                value_bytes,
                ops_per_s: median(found.per_second.iter().copied()),
                p50_us: median(found.p50.iter().copied()),
                p99_us: median(found.p99.iter().copied()),
                commands_per_call: found.commands,
                server_cpu_us_per_call: (!found.cpu.is_empty())
                    .then(|| median(found.cpu.iter().copied())),
                ratio_to_raw: to_raw.map(|(ratio, _)| ratio),
                ratio_spread: to_raw.map(|(_, spread)| spread),
            };
            // The goals name both, and a row has one ratio.
            let unfenced = (case.made_by == "idem" && case.name == "first")
                .then(|| ratios_to("raw_unfenced"))
                .flatten();
            rows.push(row.clone());
            if let Some((ratio, spread)) = unfenced {
                rows.push(Row {
                    case: "first_vs_unfenced".to_owned(),
                    ratio_to_raw: Some(ratio),
                    ratio_spread: Some(spread),
                    ..row
                });
            }
        }
        rows
    }
}
