//! A server on loopback for the tables of `idem_conformance::http`: a shop behind a layer, and its target.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, get, post};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::channel::Channel;
use idem_conformance::http::{Operation, Specification, Target};
use idem_runtime::Engine;
use idem_runtime::clock::ManualClock;
use idem_runtime::http::{IdempotencyLayer, Profile};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Fault, Faulty, StoreOperation};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The time that only a hang takes.
pub(super) const HANG_LIMIT: Duration = Duration::from_secs(300);

/// The time after which a blocked request is considered waiting.
pub(super) const WAIT: Duration = Duration::from_millis(200);

/// The content type of streamed orders.
const EVENTS: &str = "text/event-stream";

/// A service and its surroundings.
pub(super) type Around = fn(Router) -> Router;

/// The server of a table, before it starts.
pub(super) struct ShopSetup {
    /// Whether requests pass a layer.
    pub(super) is_layered: bool,
    /// Whether a key belongs to its caller.
    pub(super) is_scoped: bool,
    /// The layer's settings after those of its profile.
    pub(super) set: fn(IdempotencyLayer) -> IdempotencyLayer,
    /// Outside of the layer.
    pub(super) around: Around,
    /// Inside of the layer.
    pub(super) inside: Around,
    /// The time after which a blocked request is considered waiting. `None`: a slow order ends after the first response
    /// to it.
    pub(super) waits: Option<Duration>,
    /// The fault of a store that cannot be used.
    pub(super) fault: Fault,
}

/// The bodies of slow orders.
#[derive(Default)]
struct Slow {
    begun: BTreeSet<Bytes>,
    streamed: BTreeSet<Bytes>,
    ended: BTreeSet<Bytes>,
}

/// The handlers' side.
#[derive(Clone)]
struct Shop {
    orders: Arc<AtomicUsize>,
    failures: Arc<AtomicUsize>,
    slow: watch::Sender<Slow>,
    /// The status of a rejected order.
    rejects: StatusCode,
}

impl Shop {
    fn order(&self) -> usize {
        self.orders.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The slow orders that have begun end: at least one.
    async fn release(self) {
        let mut orders = self.slow.subscribe();
        let runs = orders.wait_for(|slow| slow.begun != slow.ended);
        timeout(HANG_LIMIT, runs).await.unwrap().unwrap();
        self.slow
            .send_modify(|slow| slow.ended = slow.begun.clone());
    }
}

/// Of two requests for a slow order, a refusal ends the other; of two for a streamed one, the second response both.
async fn ends_slow(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let response = next
        .run(Request::from_parts(parts, Body::from(body.clone())))
        .await;
    let is_stream = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|it| it == EVENTS);
    shop.slow.send_modify(|slow| {
        if !(is_stream && slow.streamed.insert(body.clone())) {
            slow.ended.insert(body);
        }
    });
    response
}

async fn order(State(shop): State<Shop>, body: Bytes) -> Response {
    if body.ends_with(b"\"quantity\": -1}") {
        return (StatusCode::BAD_REQUEST, "a negative quantity").into_response();
    }
    let id = shop.order();
    (StatusCode::CREATED, Json(json!({ "id": id }))).into_response()
}

async fn slow(State(shop): State<Shop>, body: Bytes) -> Response {
    let id = shop.order();
    shop.slow
        .send_modify(|slow| _ = slow.begun.insert(body.clone()));
    let mut orders = shop.slow.subscribe();
    let ends = orders.wait_for(|slow| slow.ended.contains(&body));
    ends.await.unwrap();
    Json(json!({ "id": id })).into_response()
}

async fn streamed(State(shop): State<Shop>, body: Bytes) -> Response {
    let event = format!("data: {}\n\n", shop.order());
    let mut orders = shop.slow.subscribe();
    shop.slow
        .send_modify(|slow| _ = slow.begun.insert(body.clone()));
    let (mut sender, events) = Channel::<Bytes>::new(1);
    sender.send_data(event.into()).await.unwrap();
    tokio::spawn(async move {
        let ends = orders.wait_for(|slow| slow.ended.contains(&body));
        ends.await.unwrap();
        drop(sender);
    });
    ([(CONTENT_TYPE, EVENTS)], Body::new(events)).into_response()
}

async fn rejected(State(shop): State<Shop>) -> Response {
    let id = shop.order();
    (shop.rejects, Json(json!({ "rejected": id }))).into_response()
}

async fn failing(State(shop): State<Shop>) -> Response {
    let failure = shop.failures.fetch_add(1, Ordering::SeqCst) + 1;
    let failure = Json(json!({ "failure": failure }));
    (StatusCode::INTERNAL_SERVER_ERROR, failure).into_response()
}

async fn total(State(shop): State<Shop>) -> Response {
    Json(json!({ "total": shop.orders.load(Ordering::SeqCst) })).into_response()
}

async fn config() -> Response {
    Json(json!({ "defaults": {}, "overrides": {}, "idempotency-key-lifetime": "PT30M" }))
        .into_response()
}

/// The terms of payment, `x402Version` 2, whose extension requires an identifier.
const TERMS: &str = "eyJ4NDAyVmVyc2lvbiI6MiwiZXJyb3IiOiJQQVlNRU5ULVNJR05BVFVSRSBoZWFkZXIgaXMgcmVxdWlyZWQiLCJhY2NlcHRz\
IjpbeyJzY2hlbWUiOiJleGFjdCIsIm5ldHdvcmsiOiJlaXAxNTU6ODQ1MzIiLCJhbW91bnQiOiIxMDAwMCJ9XSwiZXh0ZW5zaW9ucyI6eyJwYXltZW50LW\
lkZW50aWZpZXIiOnsiaW5mbyI6eyJyZXF1aXJlZCI6dHJ1ZX19fX0=";

/// The settlement of a payment: its success, and a transaction.
const SETTLED: &str = "eyJzdWNjZXNzIjp0cnVlLCJ0cmFuc2FjdGlvbiI6IjB4MSJ9";

/// A layer of payments: takes each, and challenges the rest.
pub(super) async fn paid(request: Request, next: Next) -> Response {
    if !request.headers().contains_key("payment-signature") {
        let terms = [("payment-required", TERMS)];
        return (StatusCode::PAYMENT_REQUIRED, terms, "{}").into_response();
    }
    let mut response = next.run(request).await;
    let settled = HeaderValue::from_static(SETTLED);
    response.headers_mut().insert("payment-response", settled);
    response
}

fn tenant(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
}

fn caller(name: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(
        http::HeaderName::from_static("x-tenant"),
        HeaderValue::from_static(name),
    )])
}

/// A server that runs.
pub(super) struct Served {
    pub(super) base: Uri,
    pub(super) caller: HeaderMap,
    pub(super) operation: Operation,
    /// All that it offers.
    pub(super) target: Target,
    task: JoinHandle<std::io::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    /// Starts a server with a layer of this profile.
    pub(super) async fn start(
        specification: Specification,
        profile: Profile,
        setup: &ShopSetup,
    ) -> Self {
        let clock = ManualClock::new();
        let store = Faulty::new(MemoryStore::builder().clock(clock.clone()).build());
        let engine = Engine::new(store.clone());
        let layer = if setup.is_scoped {
            IdempotencyLayer::scoped(&engine, "shop.api", tenant)
        } else {
            IdempotencyLayer::public(&engine, "shop.api")
        };
        let layer = layer.profile(profile);
        let life = layer.life().unwrap();
        let layer = (setup.set)(layer);
        let shop = Shop {
            orders: Arc::default(),
            failures: Arc::default(),
            slow: watch::Sender::default(),
            rejects: match specification {
                Specification::IcebergRest => StatusCode::CONFLICT,
                _ => StatusCode::PAYMENT_REQUIRED,
            },
        };
        let router = Router::new()
            .route("/orders", any(order))
            .route("/refunds", any(order))
            .route("/slow", post(slow))
            .route("/streamed", post(streamed))
            .route("/rejected", post(rejected))
            .route("/failing", post(failing))
            .with_state(shop.clone());
        let router = if specification == Specification::X402 {
            router.layer(from_fn(paid))
        } else {
            router
        };
        let reads = Router::new()
            .route("/total", get(total))
            .route("/v1/config", get(config))
            .with_state(shop.clone());
        let mut router = (setup.inside)(router.merge(reads));
        if setup.is_layered {
            router = router.layer(layer);
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut router = (setup.around)(router);
        if setup.waits.is_none() {
            router = router.layer(from_fn_with_state(shop.clone(), ends_slow));
        }
        let served = axum::serve(listener, router).into_future();
        let task = tokio::spawn(served);

        let body = r#"{"items": ["tea", "cake"], "quantity": {number}}"#;
        let of = |method, path: &str| Operation::new(method, path).json(body);
        let advance = move |by| {
            clock.advance(by);
            async {}
        };
        let fault = setup.fault;
        let outage = move |begins| {
            if begins {
                store.fail(StoreOperation::Claim, [fault; 64]);
            } else {
                store.heal();
            }
            async {}
        };
        let base: Uri = format!("http://{addr}").parse().unwrap();
        let operation = of(Method::POST, "/orders");
        let target = Target::new(base.clone(), operation.clone())
            .also(of(Method::PATCH, "/orders"))
            .also(of(Method::PUT, "/orders"))
            .also(of(Method::DELETE, "/orders"))
            .caller(caller("acme"))
            .other_caller(caller("eve"))
            .elsewhere(of(Method::POST, "/refunds"))
            .slow(of(Method::POST, "/slow"))
            .streamed(of(Method::POST, "/streamed"))
            .rejected(of(Method::POST, "/rejected"))
            .invalid(Operation::post("/orders").json(r#"{"quantity": -1}"#))
            .failing(of(Method::POST, "/failing"))
            .effects("GET /total".parse().unwrap(), "/total")
            .clock(life, advance)
            .outage(outage)
            .config("GET /v1/config".parse().unwrap())
            .patience(HANG_LIMIT);
        let target = match setup.waits {
            Some(waits) => target.release(waits, move || shop.clone().release()),
            None => target,
        };
        Self {
            base,
            caller: caller("acme"),
            operation,
            target,
            task,
        }
    }
}
