//! The metrics of a process, for a Prometheus beside the soak.

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use idem_runtime::admin::EntryFilter;
use idem_runtime::observe::MetricsObserver;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::stores::{self, block_on};

/// Time between two listings of unknown records.
const APART: Duration = Duration::from_secs(10);

/// The port of a seat; behind those of all seats is that of the soak itself.
pub(crate) fn port(first: u16, seat: u32) -> u16 {
    first + u16::try_from(seat).expect("a few seats")
}

/// Serves the metrics of this process on loopback.
pub(crate) async fn serve(port: u16) -> MetricsObserver {
    let exporter = PrometheusBuilder::new().set_buckets(&MetricsObserver::SECONDS);
    let exporter = exporter.expect("there are buckets").install_recorder();
    let exporter = exporter.expect("no recorder was installed before");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.expect("the port is free: the process before it has ended");
    let upkeep = exporter.clone();
    let app = Router::new().route("/metrics", get(async move || exporter.render()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    MetricsObserver::new()
}

/// Counts the unknown records of the store, in a thread without end.
pub(crate) fn count_unknown(store: &str, url: &str, port: u16) {
    let (store, url) = (store.to_owned(), url.to_owned());
    thread::spawn(move || {
        block_on(async {
            serve(port).await;
            let connected = stores::connect(&store, &url, Path::new("")).await;
            let engine = connected.engine.prefix(stores::PREFIX).build();
            let engine = engine.expect("the settings agree");
            loop {
                // A listing that fails is made again.
                if let Ok(unknown) = engine.entries().state(EntryFilter::Unknown).count().await {
                    MetricsObserver::set_unknown_records(unknown);
                }
                sleep(APART).await;
            }
        });
    });
}
