//! Cost of the HTTP layer over an axum handler, without a socket:
//! `cargo bench -p idem-runtime --features axum --bench http_load -- --help`.
//!
//! A `POST` of a JSON order of 250 bytes with an `Idempotency-Key`, answered with JSON. The router is called as a tower
//! service, in a task of the runtime, as a server calls it. `raw` is the router without the layer. Beside it stand the
//! layer (`idem`), the layer with [`Fingerprinter::json`] (`idem_json`), and the same call in the handler by
//! [`Engine::operation`] (`in_handler`): the cost of the engine without HTTP. A request takes 1 / `ops/s` where one is
//! made at once. The store in memory is measured, and Redis with `--store redis`.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

mod load;

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use idem_harness::RedisServer;
use idem_runtime::http::{Fingerprinter, IdempotencyKey, IdempotencyLayer};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, Error};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use self::load::driver::{Work, fill, run};
use self::load::options::Options;
use self::load::order::{Order, Receipt, merchant};
use self::load::row::Printer;
use self::load::suite::Suite;

/// Life of a record: short, so that Redis holds those of a few rounds.
const TTL: Duration = Duration::from_secs(120);

/// Requests of one case in one round.
const CALLS: usize = 10_000;

/// Makes a router whose answers have so many bytes.
type MakeRouter = fn(&Engine, usize) -> Router;

/// The routers, by the names of their rows.
const ROUTERS: [(&str, MakeRouter); 4] = [
    ("raw", |_, bytes| plain(bytes)),
    ("idem", |engine, bytes| plain(bytes).layer(layer(engine))),
    ("idem_json", |engine, bytes| {
        plain(bytes).layer(layer(engine).fingerprint(Fingerprinter::new().json()))
    }),
    ("in_handler", in_handler),
];

#[derive(Clone, Debug)]
struct Client {
    router: Router,
    body: Bytes,
    /// Of an answer.
    bytes: usize,
    /// Distinguishes the keys of this run from those of others.
    run: u64,
    /// Sends the keys of stored answers.
    repeats: bool,
}

impl Client {
    fn new(router: Router, bytes: usize, run: u64, repeats: bool) -> Self {
        let body = serde_json::to_vec(&Order::of(run)).unwrap().into();
        Self {
            router,
            body,
            bytes,
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
        assert_eq!(body.len(), self.bytes);
    }
}

impl Work for Client {
    fn fills(&self) -> bool {
        self.repeats
    }

    async fn call(&mut self, number: u64) {
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

fn plain(bytes: usize) -> Router {
    let receipt = Receipt::of(bytes);
    Router::new()
        .route("/orders", post(create))
        .with_state(receipt)
}

fn layer(engine: &Engine) -> IdempotencyLayer {
    let account =
        |request: &Parts| Some(request.headers.get("x-account")?.to_str().ok()?.to_owned());
    IdempotencyLayer::scoped(engine.clone(), "shop.orders", account).ttl(TTL)
}

fn in_handler(engine: &Engine, bytes: usize) -> Router {
    let (engine, receipt) = (engine.clone(), Receipt::of(bytes));
    Router::new()
        .route("/orders", post(create_once))
        .with_state(Shop { engine, receipt })
}

/// Measures the cases on the engines that `engine` makes.
fn measure(
    (options, runtime): (&Options, &Runtime),
    (store, bytes): (&str, usize),
    engine: impl Fn() -> Engine,
    printer: &mut Printer,
) {
    let mut suite = Suite::new(runtime, options, store);
    suite.calls = Some(options.calls.unwrap_or(CALLS));
    for (name, repeats) in [("first", false), ("replay", true)] {
        for (made_by, router) in ROUTERS {
            // Each case has its own keys.
            let (engine, keys) = (&engine, merchant());
            suite.add_anew(name, made_by, move |concurrency, calls| {
                let router = router(&engine(), bytes);
                let client = Client::new(router, bytes, keys, repeats);
                fill(runtime, &client);
                run(runtime, &client, concurrency, calls)
            });
        }
    }
    for &concurrency in &options.concurrency {
        printer.rows(&suite.run(concurrency, bytes, &mut ()));
    }
}

fn main() {
    let options = Options::parse();
    let mut printer = Printer::new(options.json);
    eprintln!("{options}");
    let runtime = options.runtime();
    let is_named = |store: &str| options.stores.iter().any(|named| named == store);
    let redis = is_named("redis").then(|| {
        let server = RedisServer::builder().start();
        let store = runtime.block_on(RedisStore::connect(&server.url()));
        (Engine::new(store.unwrap()), server)
    });
    let on = (&options, &runtime);
    for &bytes in &options.sizes {
        if options.wants_store("memory") {
            let engine = || Engine::new(MemoryStore::new());
            measure(on, ("memory", bytes), engine, &mut printer);
        }
        if let Some((engine, _)) = &redis {
            measure(on, ("redis", bytes), || engine.clone(), &mut printer);
        }
    }
    printer.end();
}
