//! Cost of metrics and traces on calls of the memory store.
//!
//! `cargo bench -p idem-runtime --features metrics,tracing --bench observed [-- SUBSCRIBER]`
//!
//! The subscriber of `tracing` is `none`, `info` (the default: spans are disabled at that level), `debug` (spans are
//! built) or `print` (they are formatted as well). The cases take turns within a round, so that a machine whose speed
//! changes is as fast for each; a row has the median of the rounds, and of each round's ratio to the first case.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends when something is wrong"
)]

use std::io::{Write, sink};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use idem_runtime::observe::{MetricsObserver, StderrObserver, TracingObserver};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, Error, Observer};
use metrics_exporter_prometheus::PrometheusBuilder;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

const ROUNDS: usize = 201;
/// Calls of a case within a round.
const CALLS: u64 = 2_000;
/// `--test`: a smoke run.
const FEW: usize = 2;

fn engine(observer: impl Observer) -> Engine {
    let engine = Engine::builder(MemoryStore::new()).observer(observer);
    engine.build().unwrap()
}

fn pay(engine: &Engine, number: u64) -> u64 {
    let call = engine
        .operation("payments.pay")
        .key(&number)
        .fingerprint(&number);
    let call = pin!(call.run(async |_| Ok::<_, Error>(number)));
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.unwrap(),
        Poll::Pending => panic!("a memory store replies at once"),
    }
}

/// Nanoseconds of a call, with these keys.
fn timed(engine: &Engine, mut key: impl FnMut(u64) -> u64) -> f64 {
    let start = Instant::now();
    for number in 0..CALLS {
        std::hint::black_box(pay(engine, key(number)));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(u32::try_from(CALLS).unwrap())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Formats, and writes nowhere.
struct Nowhere;

impl<'w> MakeWriter<'w> for Nowhere {
    type Writer = Box<dyn Write>;

    fn make_writer(&'w self) -> Self::Writer {
        Box::new(sink())
    }
}

fn subscribe(kind: &str) {
    let filter = |level| Targets::new().with_target("idem", level);
    let registry = tracing_subscriber::registry();
    let installed = match kind {
        "none" => return,
        "info" => {
            let subscriber = registry.with(filter(Level::INFO));
            tracing::subscriber::set_global_default(subscriber)
        }
        "debug" => {
            let subscriber = registry.with(filter(Level::DEBUG));
            tracing::subscriber::set_global_default(subscriber)
        }
        "print" => {
            let layer = tracing_subscriber::fmt::layer().with_writer(Nowhere);
            let subscriber = registry.with(filter(Level::DEBUG)).with(layer);
            tracing::subscriber::set_global_default(subscriber)
        }
        other => panic!("no subscriber {other}: none, info, debug or print"),
    };
    installed.unwrap();
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let kind = words.iter().find(|word| !word.starts_with('-'));
    let kind = kind.map_or("info", String::as_str);
    subscribe(kind);
    // Its handles are made before there is an exporter: the rest is idem's share.
    let unexported = engine(MetricsObserver::new());
    pay(&unexported, 7);
    let exporter = PrometheusBuilder::new().set_buckets(&MetricsObserver::SECONDS);
    let exporter = exporter.unwrap().install_recorder().unwrap();
    let rounds = if words.iter().any(|word| word == "--test") {
        FEW
    } else {
        ROUNDS
    };
    let cases = [
        ("default observer", engine(StderrObserver)),
        ("the same again", engine(StderrObserver)),
        ("no exporter", unexported),
        ("metrics", engine(MetricsObserver::new())),
        ("tracing", engine(TracingObserver)),
        ("both", engine((MetricsObserver::new(), TracingObserver))),
    ];
    println!("subscriber: {kind}; {rounds} rounds of {CALLS} calls a case");
    println!(
        "{:<12} {:<18} {:>9} {:>7}",
        "call", "observer", "ns", "ratio"
    );
    for call in ["replay", "first"] {
        let mut times = vec![Vec::new(); cases.len()];
        for round in 0..rounds as u64 {
            for turn in 0..cases.len() {
                // Another case begins each round.
                let case = (turn + usize::try_from(round).unwrap()) % cases.len();
                let engine = &cases[case].1;
                times[case].push(if call == "replay" {
                    timed(engine, |_| 7)
                } else {
                    timed(engine, |number| 1_000 + round * CALLS + number)
                });
            }
        }
        for (case, (name, _)) in cases.iter().enumerate() {
            let ratios = times[case].iter().zip(&times[0]);
            let ratios = ratios.map(|(time, first)| time / first).collect();
            let (time, ratio) = (median(times[case].clone()), median(ratios));
            println!("{call:<12} {name:<18} {time:>9.0} {ratio:>7.3}");
        }
    }
    exporter.run_upkeep();
    assert!(exporter.render().contains("idem_calls_total"));
}
