//! Cost of the HTTP layer over a plain axum handler, without a socket:
//! `cargo bench -p idem-runtime --features axum --bench http_load -- --help`.
//!
//! A `POST` of a JSON order of 250 bytes with an `Idempotency-Key`, answered with JSON of 200 bytes. The router is called
//! as a tower service, in a task of the runtime, as a server calls it. `plain` is the router without the layer. `first` and
//! `replay` have the layer, `first_json` and `replay_json` with [`Fingerprinter::json`]. `in_handler_first` and
//! `in_handler_replay` make the same call in the handler by [`Engine::operation`]: the cost of the engine without HTTP.
//! The cases take turns within a round. A row has the median of the rounds, and of each round's difference to `plain`.

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends when something is wrong"
)]

mod load;

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use idem_harness::RedisServer;
use idem_runtime::http::{Fingerprinter, IdempotencyKey, IdempotencyLayer};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, Error};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

use self::load::driver::{STORED, Work, current_thread, fill, run};
use self::load::options::{number, words};
use self::load::order::{Order, Receipt, merchant};
use self::load::sample::{median, spread};

/// Bytes of an answer.
const ANSWER: usize = 200;

/// Life of a record: short, so that Redis holds those of a few rounds.
const TTL: Duration = Duration::from_secs(120);

const CASES: [&str; 7] = [
    "plain",
    "first",
    "replay",
    "first_json",
    "replay_json",
    "in_handler_first",
    "in_handler_replay",
];

#[derive(Debug, Parser)]
#[command(after_help = "Prefix `taskset -c 0` to keep client and server on one core.")]
struct Options {
    /// One JSON line a row instead of a table
    #[arg(long)]
    json: bool,
    /// These cases only, for a profiler [default: all]
    #[arg(long = "case", value_name = "A,B", value_delimiter = ',', value_parser = CASES)]
    cases: Vec<String>,
    /// The store: memory, redis
    #[arg(long = "store", value_name = "A,B", value_delimiter = ',', value_parser = ["memory", "redis"],
        default_values_t = ["memory".to_owned()])]
    stores: Vec<String>,
    /// Requests at once
    #[arg(long, value_name = "1,64", value_delimiter = ',', value_parser = number::<usize>, default_values_t = [1])]
    concurrency: Vec<usize>,
    /// One thread, or several
    #[arg(long, default_value = "current", value_parser = ["current", "multi"])]
    runtime: String,
    /// Rounds whose medians are printed [default: 31]
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    rounds: Option<usize>,
    /// Requests of one case in one round [default: 10000]
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    calls: Option<usize>,
    /// 5 rounds of 1,000 requests, for a first look
    #[arg(long)]
    quick: bool,
}

impl Options {
    fn runtime(&self) -> Runtime {
        if self.runtime == "current" {
            return current_thread();
        }
        let mut builder = Builder::new_multi_thread();
        builder.enable_all().build().unwrap()
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 5 } else { 31 })
    }

    fn calls(&self) -> usize {
        self.calls
            .unwrap_or(if self.quick { 1_000 } else { 10_000 })
    }
}

/// A row of the result.
#[derive(Debug, Serialize)]
struct Row {
    store: String,
    concurrency: usize,
    case: &'static str,
    /// Time of a request: that of the run over its requests, in microseconds.
    us: f64,
    /// Difference to `plain`, round by round; the median of the rounds.
    over_plain_us: Option<f64>,
    /// Range of the middle 90 % of the rounds.
    over_plain_spread: Option<[f64; 2]>,
}

/// A client of a router.
#[derive(Clone, Debug)]
struct Client {
    router: Router,
    body: Bytes,
    /// Makes the keys of this run of the benchmark different from those of others.
    run: u64,
    /// Sends the keys of stored answers.
    repeats: bool,
}

impl Client {
    fn new(router: Router, run: u64, repeats: bool) -> Self {
        let body = serde_json::to_vec(&Order::of(run)).unwrap().into();
        Self {
            router,
            body,
            run,
            repeats,
        }
    }

    async fn send(&self, number: u64) {
        let run = self.run & 0xffff_ffff;
        let key = format!(
            "\"8e03978e-40d5-43dd-{:04x}-{run:08x}{:04x}\"",
            number >> 16,
            number & 0xffff
        );
        let request = Request::post("/orders")
            .header("host", "shop.example")
            .header("user-agent", "bench/1.0")
            .header("accept", "application/json")
            .header("x-account", "acme")
            .header("content-type", "application/json")
            .header("content-length", self.body.len())
            .header("idempotency-key", key)
            .body(Body::from(self.body.clone()))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(body.len(), ANSWER);
    }
}

impl Work for Client {
    fn fills(&self) -> bool {
        self.repeats
    }

    async fn fill(&mut self, number: u64) {
        self.send(number).await;
    }

    async fn call(&mut self, number: u64) {
        let number = if self.repeats {
            number % STORED
        } else {
            STORED + number
        };
        self.send(number).await;
    }
}

async fn create(
    State(receipt): State<Receipt>,
    Json(_): Json<Order>,
) -> (StatusCode, Json<Receipt>) {
    (StatusCode::CREATED, Json(receipt))
}

#[derive(Clone)]
struct Shop {
    engine: Engine,
    receipt: Receipt,
}

/// The same as under the layer, as calls of a handler.
async fn create_once(
    State(shop): State<Shop>,
    key: IdempotencyKey,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<Receipt>), Error> {
    let account = headers["x-account"].to_str().unwrap();
    let call = shop
        .engine
        .operation("shop.orders")
        .scope(account)
        .key(&key)
        .fingerprint(&order)
        .ttl(TTL);
    let receipt = call.run(|_| async { Ok::<_, Error>(shop.receipt) }).await?;
    Ok((StatusCode::CREATED, Json(receipt)))
}

fn plain() -> Router {
    let receipt = Receipt::of(ANSWER);
    Router::new()
        .route("/orders", post(create))
        .with_state(receipt)
}

fn layer(engine: &Engine) -> IdempotencyLayer {
    let account =
        |request: &Parts| Some(request.headers.get("x-account")?.to_str().ok()?.to_owned());
    IdempotencyLayer::scoped(engine.clone(), "shop.orders", account).ttl(TTL)
}

fn in_handler(engine: &Engine) -> Router {
    let (engine, receipt) = (engine.clone(), Receipt::of(ANSWER));
    Router::new()
        .route("/orders", post(create_once))
        .with_state(Shop { engine, receipt })
}

/// A case, and the client that it begins a round with.
type Case = (&'static str, Box<dyn Fn() -> Client>);

/// The cases on the engines that `engine` returns.
fn cases(engine: impl Fn() -> Engine + Clone + 'static) -> Vec<Case> {
    let case = |name: &'static str| -> Case {
        let router = match name {
            "plain" => |_: &Engine| plain(),
            "first" | "replay" => |engine: &Engine| plain().layer(layer(engine)),
            "first_json" | "replay_json" => |engine: &Engine| {
                plain().layer(layer(engine).fingerprint(Fingerprinter::new().json()))
            },
            _ => in_handler,
        };
        // Each case has its own keys.
        let (engine, run, repeats) = (engine.clone(), merchant(), name.contains("replay"));
        (
            name,
            Box::new(move || Client::new(router(&engine()), run, repeats)),
        )
    };
    CASES.map(case).into()
}

fn measure(
    cases: &[Case],
    runtime: &Runtime,
    options: &Options,
    store: &str,
    concurrency: usize,
) -> Vec<Row> {
    let calls = options.calls().next_multiple_of(concurrency);
    let mut times = vec![Vec::new(); cases.len()];
    // The first round warms up.
    for round in 0..=options.rounds() {
        for turn in 0..cases.len() {
            // Another case begins each round.
            let case = (turn + round) % cases.len();
            let client = cases[case].1();
            fill(runtime, &client);
            let sample = run(runtime, &client, concurrency, calls);
            if round > 0 {
                times[case].push(1e6 / sample.per_second());
            }
        }
    }
    let plain = cases.iter().position(|(name, _)| *name == "plain");
    let rows = cases.iter().enumerate().map(|(case, (name, _))| {
        let over = plain.filter(|plain| *plain != case).map(|plain| {
            let rounds = times[case].iter().zip(&times[plain]);
            rounds
                .map(|(time, plain)| rounded(time - plain))
                .collect::<Vec<_>>()
        });
        Row {
            store: store.to_owned(),
            concurrency,
            case: name,
            us: rounded(median(times[case].iter().copied())),
            over_plain_us: over
                .as_ref()
                .map(|over| rounded(median(over.iter().copied()))),
            over_plain_spread: over.map(spread),
        }
    });
    rows.collect()
}

/// Without digits that mean nothing.
fn rounded(us: f64) -> f64 {
    (us * 100.0).round() / 100.0
}

fn print(row: &Row, json: bool) {
    if json {
        println!("{}", serde_json::to_string(row).unwrap());
        return;
    }
    let figure =
        |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.2}"));
    let spread = row
        .over_plain_spread
        .map_or_else(String::new, |[from, to]| format!("{from:.2}–{to:.2}"));
    let (store, concurrency, case, us) = (&row.store, row.concurrency, row.case, row.us);
    let over = figure(row.over_plain_us);
    println!("{store:<8}{concurrency:>5}  {case:<20}{us:>9.2}{over:>9}  {spread}");
}

fn main() {
    let options = Options::parse_from(words());
    let (rounds, calls) = (options.rounds(), options.calls());
    let runtime = &options.runtime;
    eprintln!("{runtime}-thread runtime, medians of {rounds} rounds of {calls} requests");
    if !options.json {
        println!(
            "{:<8}{:>5}  {:<20}{:>9}{:>9}  90 %",
            "store", "once", "case", "µs", "over"
        );
    }
    for store in &options.stores {
        let runtime = options.runtime();
        let server = (store == "redis").then(|| RedisServer::builder().start());
        let mut cases = match &server {
            None => cases(|| Engine::new(MemoryStore::new())),
            Some(server) => {
                let store = runtime.block_on(RedisStore::connect(&server.url()));
                let engine = Engine::new(store.unwrap());
                cases(move || engine.clone())
            }
        };
        if !options.cases.is_empty() {
            cases.retain(|(name, _)| options.cases.iter().any(|wanted| wanted == name));
        }
        for &concurrency in &options.concurrency {
            for row in measure(&cases, &runtime, &options, store, concurrency) {
                print(&row, options.json);
            }
        }
    }
}
