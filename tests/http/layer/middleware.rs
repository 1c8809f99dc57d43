//! The layer among the usual tower layers: each inside and outside of it, and the effects of both.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::{Extension, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, ORIGIN};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{BoxError, Router};
use http::{HeaderName, StatusCode};
use idem_runtime::http::{IdempotencyLayer, StatusPolicy};
use tokio::task::JoinHandle;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::client::{
    Answer, Fixture, Gate, Replayed, Seen, UNKNOWN, bare, data, frames, keyed, leave, order,
    others, patiently, ran, replayed, send, spawn, with_key,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Inside,
    Outside,
}
use Side::{Inside, Outside};

const SIDES: [Side; 2] = [Inside, Outside];

/// A transaction: its uncommitted writes. Dropped, nothing has happened.
#[derive(Clone, Default)]
struct Transaction(Arc<Mutex<Vec<String>>>);

/// The committed rows.
#[derive(Clone, Default)]
struct Ledger {
    rows: Arc<Mutex<Vec<String>>>,
    /// So many commits fail from now on.
    failures: Arc<AtomicUsize>,
}

/// A transaction for each request, which is committed after a response that is a success.
async fn transaction(State(ledger): State<Ledger>, mut request: Request, next: Next) -> Response {
    let transaction = Transaction::default();
    request.extensions_mut().insert(transaction.clone());
    let response = next.run(request).await;
    if !response.status().is_success() {
        return response;
    }
    let fail = |failures: usize| failures.checked_sub(1);
    let failed = (ledger.failures).fetch_update(Ordering::SeqCst, Ordering::SeqCst, fail);
    if failed.is_ok() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the commit has failed").into_response();
    }
    let mut rows = ledger.rows.lock().unwrap();
    rows.append(&mut transaction.0.lock().unwrap());
    response
}

async fn authenticated(request: Request, next: Next) -> Response {
    if request.headers().contains_key(AUTHORIZATION) {
        next.run(request).await
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A number for each request.
#[derive(Clone, Default)]
struct Numbers(Arc<Mutex<u32>>);

impl MakeRequestId for Numbers {
    fn make_request_id<B>(&mut self, _: &http::Request<B>) -> Option<RequestId> {
        let mut number = self.0.lock().unwrap();
        *number += 1;
        Some(RequestId::new(HeaderValue::from(*number)))
    }
}

/// Refuses at once each request beyond the first.
fn shedding(shop: Router) -> Router {
    let refuse = async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE;
    let shed = ServiceBuilder::new().layer(HandleErrorLayer::new(refuse));
    let limit = GlobalConcurrencyLimitLayer::new(1);
    shop.layer(shed.load_shed().layer(limit))
}

/// Puts something around a service.
type Around = fn(Router, &Ledger) -> Router;

/// The usual layers around handlers.
const USUAL: [(&str, Around); 11] = [
    ("timeout", |shop, _| {
        let status = StatusCode::GATEWAY_TIMEOUT;
        shop.layer(TimeoutLayer::with_status_code(
            status,
            Duration::from_mins(1),
        ))
    }),
    ("concurrency limit", |shop, _| {
        shop.layer(GlobalConcurrencyLimitLayer::new(1))
    }),
    ("load shedding", |shop, _| shedding(shop)),
    ("transaction", |shop, ledger| {
        shop.layer(from_fn_with_state(ledger.clone(), transaction))
    }),
    ("panics", |shop, _| shop.layer(CatchPanicLayer::new())),
    ("compression", |shop, _| shop.layer(CompressionLayer::new())),
    ("tracing", |shop, _| shop.layer(TraceLayer::new_for_http())),
    ("request id", |shop, _| {
        shop.layer(PropagateRequestIdLayer::new(REQUEST_ID))
            .layer(SetRequestIdLayer::new(REQUEST_ID, Numbers::default()))
    }),
    ("authentication", |shop, _| {
        shop.layer(from_fn(authenticated))
    }),
    ("body limit", |shop, _| {
        shop.layer(RequestBodyLimitLayer::new(1_024))
    }),
    ("cors", |shop, _| {
        shop.layer(CorsLayer::new().allow_origin(Any))
    }),
];

fn usual(name: &str) -> Around {
    let found = USUAL.iter().find(|(of, _)| *of == name);
    found.expect("it is among the usual").1
}

/// A service behind the layer, and something else inside or outside of that.
struct Shop {
    fixture: Fixture,
    gate: Arc<Gate>,
    ledger: Ledger,
    service: Router,
}

impl Shop {
    fn new(side: Side, around: Around) -> Self {
        let fixture = Fixture::new();
        let layer = fixture.layer();
        Self::with(side, around, fixture, layer, Ledger::default())
    }

    fn with(
        side: Side,
        around: Around,
        fixture: Fixture,
        layer: IdempotencyLayer,
        ledger: Ledger,
    ) -> Self {
        let gate = Arc::new(Gate::default());
        let (counter, through) = (fixture.clone(), Arc::clone(&gate));
        let handler = async move |tx: Option<Extension<Transaction>>, order: String| {
            let run = counter.run();
            if let Some(Extension(Transaction(rows))) = tx {
                rows.lock().unwrap().push(order.clone());
            }
            through.started.notify_one();
            through.go_on.notified().await;
            assert!(order != "panic", "as it was told to");
            format!("{order}: {run}")
        };
        let service = Router::new().route("/orders", post(handler));
        let service = match side {
            Inside => around(service, &ledger).layer(layer),
            Outside => around(service.layer(layer), &ledger),
        };
        Self {
            fixture,
            gate,
            ledger,
            service,
        }
    }

    async fn send(&self, request: Request) -> Answer {
        send(&self.service, authorized(request)).await
    }

    fn spawn(&self, request: Request) -> JoinHandle<Answer> {
        spawn(&self.service, authorized(request))
    }

    /// A request whose handler runs.
    async fn begin(&self, request: Request) -> JoinHandle<Answer> {
        let client = self.spawn(request);
        self.gate.runs().await;
        client
    }

    /// Asserts the answer to a repeat.
    async fn repeat(&self, row: &str, request: Request, seen: Seen) {
        let rows = [(row, authorized(request), seen)];
        self.fixture.walk(&self.service, rows).await;
    }

    fn committed(&self) -> usize {
        self.ledger.rows.lock().unwrap().len()
    }
}

/// By a client whose credentials are right.
fn authorized(mut request: Request) -> Request {
    let credentials = HeaderValue::from_static("Bearer ada");
    request.headers_mut().insert(AUTHORIZATION, credentials);
    request
}

/// Another request, with a key of its own.
fn other(key: &str) -> Request {
    with_key(format!("\"{key}\""), "tea")
}

/// Whether or not the client of the first request is still there. The one effect that is lost with it is that of a
/// transaction outside, as `docs/middleware.md` says.
#[tokio::test]
async fn a_repeat_gets_the_answer_through_each_middleware() {
    for (name, around) in USUAL {
        for (side, leaves) in SIDES
            .into_iter()
            .flat_map(|side| [(side, false), (side, true)])
        {
            let row = format!("{name} {side:?}, the client leaves: {leaves}");
            let shop = Shop::new(side, around);
            let first = shop.begin(order("tea")).await;
            if leaves {
                leave(first).await;
                shop.gate.go_on.notify_one();
                shop.fixture.saw("completed value", 1).await;
            } else {
                shop.gate.go_on.notify_one();
                let first = patiently("an answer", first).await.unwrap();
                assert_eq!(
                    (first.status.as_u16(), first.replay()),
                    (200, (false, "tea: 1"))
                );
            }
            shop.repeat(&row, order("tea"), replayed("tea: 1")).await;
            assert_eq!(shop.fixture.runs(), 1, "{row}");
            let is_lost = leaves && side == Outside;
            let rows = usize::from(name == "transaction" && !is_lost);
            assert_eq!(shop.committed(), rows, "{row}");
        }
    }
}

/// Shorter than any handler of these tests.
fn hasty(status: StatusCode) -> TimeoutLayer {
    TimeoutLayer::with_status_code(status, Duration::from_millis(5))
}

/// The outcome is unknown, or the response that is repeated where failures are. The handler acts and does not answer.
#[tokio::test]
async fn a_time_out_inside_leaves_the_outcome_unknown() {
    let (request, gateway) = (StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT);
    let inside: [(StatusCode, Around); 2] = [
        (request, |shop, _| {
            shop.layer(hasty(StatusCode::REQUEST_TIMEOUT))
        }),
        (gateway, |shop, _| {
            shop.layer(hasty(StatusCode::GATEWAY_TIMEOUT))
        }),
    ];
    for (status, around) in inside {
        let failed = Replayed(status.as_u16(), "");
        for (policy, seen) in [
            (StatusPolicy::careful(), UNKNOWN),
            (StatusPolicy::stripe(), failed),
            (StatusPolicy::draft(), failed),
        ] {
            let row = format!("{status} {policy:?}");
            let fixture = Fixture::new();
            let layer = fixture.layer().status_policy(policy);
            let shop = Shop::with(Inside, around, fixture, layer, Ledger::default());
            assert_eq!(shop.send(order("tea")).await.status, status, "{row}");
            shop.repeat(&row, order("tea"), seen).await;
            assert_eq!(shop.fixture.runs(), 1, "{row}");
        }
    }
}

#[tokio::test]
async fn a_time_out_outside_lets_the_handler_end() {
    let around: Around = |shop, _| shop.layer(hasty(StatusCode::GATEWAY_TIMEOUT));
    let shop = Shop::new(Outside, around);
    // A repeat that waits is cut off as well, and takes nothing with it.
    for _ in 0..2 {
        let cut_off = shop.send(order("tea")).await;
        assert_eq!(cut_off.status, StatusCode::GATEWAY_TIMEOUT);
    }
    shop.gate.go_on.notify_one();
    shop.fixture.saw("completed value", 1).await;
    shop.repeat("at last", order("tea"), replayed("tea: 1"))
        .await;
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_limit_counts_handlers_without_clients_only_inside() {
    for (side, at_once) in [(Inside, 1), (Outside, 2)] {
        let shop = Shop::new(side, usual("concurrency limit"));
        leave(shop.begin(other("first")).await).await;
        let second = shop.spawn(other("second"));
        if side == Outside {
            shop.gate.runs().await;
        }
        others().await;
        assert_eq!(shop.fixture.runs(), at_once, "{side:?}");
        shop.gate.go_on.notify_one();
        shop.gate.go_on.notify_one();
        if side == Inside {
            shop.gate.runs().await;
        }
        shop.gate.go_on.notify_one();
        let answer = patiently("the second answer", second).await.unwrap();
        assert_eq!(answer.body, "tea: 2");
    }
}

/// Inside, a repeat takes no place; outside it does, and nothing is claimed.
#[tokio::test]
async fn a_request_that_is_shed_runs_when_it_is_repeated() {
    for side in SIDES {
        let shop = Shop::new(side, usual("load shedding"));
        let first = shop.begin(order("tea")).await;
        let repeat = (side == Inside).then(|| shop.spawn(order("tea")));
        let shed = match side {
            Inside => vec![other("second")],
            Outside => vec![order("tea"), other("second")],
        };
        for request in shed {
            let shed = shop.send(request).await;
            assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE, "{side:?}");
        }
        assert_eq!(shop.fixture.runs(), 1, "{side:?}");
        shop.gate.go_on.notify_one();
        assert_eq!(patiently("an answer", first).await.unwrap().body, "tea: 1");
        if let Some(repeat) = repeat {
            assert!(patiently("its repeat", repeat).await.unwrap().is_replayed());
        }
        shop.repeat("again", order("tea"), replayed("tea: 1")).await;
        shop.gate.go_on.notify_one();
        shop.repeat("second", other("second"), ran("tea: 2")).await;
    }
}

#[tokio::test]
async fn a_commit_that_fails_is_part_of_the_answer_only_inside() {
    // Outside it was stored before, and nothing has happened.
    for (side, seen) in [(Inside, UNKNOWN), (Outside, replayed("tea: 1"))] {
        let shop = Shop::new(side, usual("transaction"));
        shop.ledger.failures.store(1, Ordering::SeqCst);
        shop.gate.go_on.notify_one();
        let first = shop.send(order("tea")).await;
        assert_eq!(first.body, "the commit has failed");
        shop.repeat("again", order("tea"), seen).await;
        assert_eq!((shop.fixture.runs(), shop.committed()), (1, 0));
    }
}

#[tokio::test]
async fn a_panic_that_is_caught_inside_is_a_response() {
    let (careful, draft) = (StatusPolicy::careful(), StatusPolicy::draft());
    let caught = Replayed(500, "Service panicked");
    for (side, policy, seen) in [
        (Inside, &careful, UNKNOWN),
        (Outside, &careful, UNKNOWN),
        (Inside, &draft, caught),
        (Outside, &draft, UNKNOWN),
    ] {
        let fixture = Fixture::new();
        let layer = fixture.layer().status_policy(policy.clone());
        let shop = Shop::with(side, usual("panics"), fixture, layer, Ledger::default());
        shop.gate.go_on.notify_one();
        let first = shop.send(order("panic")).await;
        assert_eq!(first.said(), (500, "Service panicked"));
        let row = format!("{side:?} {policy:?}");
        shop.repeat(&row, order("panic"), seen).await;
        assert_eq!(shop.fixture.runs(), 1, "{row}");
    }
}

/// Long enough to be compressed.
const LONG: &str = "teapots, teapots, teapots, teapots, teapots, teapots, teapots, teapots";

#[tokio::test]
async fn compression_outside_is_by_each_request_and_inside_by_the_first() {
    for side in SIDES {
        let shop = Shop::new(side, usual("compression"));
        shop.gate.go_on.notify_one();
        let compressed = |encoding: &'static str| {
            let mut request = order(LONG);
            let headers = request.headers_mut();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
            request
        };
        let first = shop.send(compressed("gzip")).await;
        assert_eq!(first.headers[CONTENT_ENCODING], "gzip");
        let repeat = shop.send(compressed("identity")).await;
        assert!(repeat.is_replayed());
        match side {
            Outside => assert_eq!(repeat.body, format!("{LONG}: 1")),
            // To a client that does not read it.
            Inside => assert_eq!(repeat.headers[CONTENT_ENCODING], "gzip"),
        }
        assert_eq!(shop.fixture.runs(), 1);
    }
}

#[tokio::test]
async fn each_response_has_a_request_id_only_outside() {
    for (side, of_repeat) in [(Inside, None), (Outside, Some("2"))] {
        let shop = Shop::new(side, usual("request id"));
        shop.gate.go_on.notify_one();
        let first = shop.send(order("tea")).await;
        assert_eq!(first.header("x-request-id"), Some("1"));
        let repeat = shop.send(order("tea")).await;
        assert_eq!(repeat.header("x-request-id"), of_repeat);
    }
}

#[tokio::test]
async fn credentials_are_looked_at_for_each_request_only_outside() {
    // Inside, of a layer without a scope, to any client that knows the key.
    for (side, of_repeat) in [(Inside, (200, "tea: 1")), (Outside, (401, ""))] {
        let shop = Shop::new(side, usual("authentication"));
        let stranger = async || send(&shop.service, order("tea")).await;
        assert_eq!(stranger().await.said(), (401, ""));
        shop.gate.go_on.notify_one();
        assert_eq!(shop.send(order("tea")).await.body, "tea: 1");
        assert_eq!(stranger().await.said(), of_repeat);
        assert_eq!(shop.fixture.runs(), 1);
    }
}

#[tokio::test]
async fn a_body_over_a_limit_uses_no_key_up() {
    for side in SIDES {
        let shop = Shop::new(side, usual("body limit"));
        let long = "x".repeat(1_025);
        let announced = keyed("/orders").header("content-length", long.len());
        let announced = announced.body(long.clone().into()).unwrap();
        let refused = shop.send(announced).await;
        assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
        let (source, body) = frames();
        source.send(data(long)).unwrap();
        drop(source);
        let refused = shop.send(order(body)).await;
        match side {
            Inside => assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE),
            // The body that the layer reads breaks off.
            Outside => assert_eq!(refused.problem(), (400, "body-unreadable")),
        }
        assert_eq!(shop.fixture.runs(), 0);
        shop.gate.go_on.notify_one();
        shop.repeat("short", order("tea"), ran("tea: 1")).await;
    }
}

#[tokio::test]
async fn a_page_reads_refusals_where_cors_is_outside() {
    for side in SIDES {
        let shop = Shop::new(side, usual("cors"));
        let mut request = bare("");
        let origin = HeaderValue::from_static("https://shop.test");
        request.headers_mut().insert(ORIGIN, origin);
        let refused = shop.send(request).await;
        assert_eq!(refused.problem(), (400, "key-missing"));
        let is_readable = refused.headers.contains_key("access-control-allow-origin");
        assert_eq!(is_readable, side == Outside);
    }
}
