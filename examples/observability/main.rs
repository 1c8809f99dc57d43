//! Metrics and traces of idem: a load on a store in this process, what Prometheus scrapes from it, and its spans.
//!
//! ```text
//! cargo run --example observability                      metrics on loopback, warnings on standard error
//! cargo run --example observability -- --trace debug     each call as a span
//! ```
//!
//! `dashboard.json` beside this file is a Grafana dashboard of these metrics, and the guide's page `observing` explains
//! each of them.

#![allow(clippy::print_stdout, reason = "the program shows its address")]

mod load;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use axum::Router;
use axum::routing::get;
use clap::Parser;
use idem_runtime::Engine;
use idem_runtime::admin::EntryFilter;
use idem_runtime::cache::LocalCache;
use idem_runtime::observe::{MetricsObserver, TracingObserver};
use idem_runtime::store::memory::MemoryStore;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;

use self::load::Load;

/// Runs calls, and serves their metrics on loopback.
#[derive(Debug, Parser)]
struct Options {
    /// The port of the metrics; 0 takes a free one.
    #[arg(long, default_value_t = 9_464)]
    port: u16,
    /// The number of rounds of the load; without it, the load goes on.
    #[arg(long)]
    rounds: Option<u64>,
    /// The level of idem's spans and events: `off`, `error`, `warn`, `info`, `debug` or `trace`.
    #[arg(long, default_value = "warn")]
    trace: LevelFilter,
}

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Failure> {
    // Spans are the calls; each is printed when it has ended, with its outcome and its times.
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = layer.with_ansi(false).with_span_events(FmtSpan::CLOSE);
    let filter = Targets::new().with_target("idem", options.trace);
    tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(filter).with(layer),
    )?;
    // The recorder comes first: handles of an operation are made at its first call.
    let exporter = PrometheusBuilder::new()
        .set_buckets(&MetricsObserver::SECONDS)?
        .install_recorder()?;

    let store = MemoryStore::new();
    let observed = |store: &MemoryStore| Engine::builder(store.clone()).observer(observers());
    let engine = observed(&store).local_cache(LocalCache::new()).build()?;
    // As another process of the same service.
    let other = observed(&store).build()?;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
    println!("metrics: http://{}/metrics", listener.local_addr()?);
    let rendered = exporter.clone();
    let app = Router::new().route("/metrics", get(async move || rendered.render()));
    tokio::spawn(async move { axum::serve(listener, app).await });

    let load = Load::new(engine.clone(), other);
    let rounds = options.rounds.unwrap_or(u64::MAX);
    let loading = async {
        for round in 0..rounds {
            load.round(round).await;
            // A listing knows what no call does; every few minutes is often enough.
            let unknown = engine.entries().state(EntryFilter::Unknown).count().await?;
            MetricsObserver::set_unknown_records(unknown);
            exporter.run_upkeep();
        }
        println!("the load is done; the metrics stay until Ctrl-C");
        std::future::pending::<Result<(), Failure>>().await
    };
    tokio::select! {
        ended = loading => ended,
        stopped = tokio::signal::ctrl_c() => Ok(stopped?),
    }
}

fn observers() -> (MetricsObserver, TracingObserver) {
    (MetricsObserver::new(), TracingObserver)
}
