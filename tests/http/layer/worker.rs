//! A server in a process of its own: `idem-http-server <url> <attempts> held|free|found`.
//!
//! Its handler answers at once (`free`), or never (`held`). With `found`, a reconcile hook finds that every request was
//! done that may have been. It says `listening <address>`, `run` whenever the handler runs, and
//! `event <words>` of what its engine tells.

use std::io::{self, Write as _};
use std::num::NonZeroU16;
use std::time::Duration;
use std::{env, future};

use axum::Router;
use axum::http::Response;
use axum::routing::post;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::SqliteStore;
use idem_runtime::{Engine, EngineBuilder, Observer, OnRunning, Reconciled, observe::Event};
use idem_tests::events::Events;
use tokio::net::TcpListener;

/// A busy machine may keep a process waiting; no test is about that.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Told;

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        say(&format!("event {}", Events::words(event)));
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").expect("somebody listens");
}

async fn engine(url: &str) -> EngineBuilder {
    if url.starts_with("sqlite:") {
        Engine::builder(SqliteStore::connect(url).await.expect("the file is there"))
    } else {
        Engine::builder(RedisStore::connect(url).await.expect("the server answers"))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, attempts, manner] = &arguments[..] else {
        panic!("idem-http-server <url> <attempts> held|free|found");
    };
    let is_held = match &**manner {
        "held" => true,
        "free" | "found" => false,
        other => panic!("neither held, free nor found: {other}"),
    };
    let attempts: NonZeroU16 = attempts.parse().expect("a number of attempts");
    let engine = engine(url).await.lease(Duration::from_mins(1));
    let engine = engine.claim_deadline(PATIENCE);
    let engine = engine.observer(Told).build().expect("the settings agree");
    let handler = post(move |order: String| async move {
        say("run");
        if is_held {
            future::pending::<()>().await;
        }
        format!("done: {order}")
    });
    let layer = IdempotencyLayer::public(engine, "shop.api")
        .max_attempts(Some(attempts))
        .on_running(OnRunning::Reject);
    let layer = match &**manner {
        "found" => layer.reconcile(|request, _| async move {
            let found = [b"found: ", &request.body()[..]].concat();
            Reconciled::Landed(Response::new(found))
        }),
        _ => layer,
    };
    let service = Router::new().route("/orders", handler).layer(layer);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("an address");
    say(&format!("listening {address}"));
    axum::serve(listener, service).await.expect("it serves");
}
