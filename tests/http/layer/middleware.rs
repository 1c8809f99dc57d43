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
    Answer, Fixture, Gate, data, frames, keyed, leave, order, patiently, send, spawn, with_key,
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

    async fn is_running(&self) {
        self.gate.runs().await;
    }

    /// A client leaves while its handler runs.
    async fn left(&self, request: Request) {
        let client = self.spawn(request);
        self.is_running().await;
        leave(client).await;
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

/// Woken tasks of this thread go first.
pub(crate) async fn others() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_repeat_gets_the_answer_through_each_middleware() {
    for (name, around) in USUAL {
        for side in SIDES {
            let shop = Shop::new(side, around);
            shop.gate.go_on.notify_one();
            let first = shop.send(order("tea")).await;
            assert_eq!(first.said(), (200, "tea: 1"));
            assert!(!first.is_replayed(), "{name} {side:?}");
            let repeat = shop.send(order("tea")).await;
            assert_eq!(repeat.body, first.body, "{name} {side:?}");
            assert!(repeat.is_replayed(), "{name} {side:?}");
            assert_eq!(shop.fixture.runs(), 1, "{name} {side:?}");
            let rows = usize::from(name == "transaction");
            assert_eq!(shop.committed(), rows, "{side:?}");
        }
    }
}

/// The one effect that is lost is that of a transaction outside, as `docs/middleware.md` says.
#[tokio::test]
async fn a_repeat_gets_the_answer_of_a_disconnected_client_through_each_middleware() {
    for (name, around) in USUAL {
        for side in SIDES {
            let shop = Shop::new(side, around);
            shop.left(order("tea")).await;
            shop.gate.go_on.notify_one();
            shop.fixture.saw("completed value", 1).await;
            let repeat = shop.send(order("tea")).await;
            assert_eq!(repeat.said(), (200, "tea: 1"), "{name} {side:?}");
            assert!(repeat.is_replayed(), "{name} {side:?}");
            assert_eq!(shop.fixture.runs(), 1, "{name} {side:?}");
            let rows = usize::from(name == "transaction" && side == Inside);
            assert_eq!(shop.committed(), rows, "{name} {side:?}");
        }
    }
}

/// Shorter than any handler of these tests.
fn hasty(status: StatusCode) -> TimeoutLayer {
    TimeoutLayer::with_status_code(status, Duration::from_millis(5))
}

/// Two equal requests to a handler that acts and does not answer, behind a time-out layer inside. The effects are
/// counted.
async fn cut_off(policy: StatusPolicy, status: StatusCode) -> (Answer, usize) {
    let around: Around = match status {
        StatusCode::REQUEST_TIMEOUT => |shop, _| shop.layer(hasty(StatusCode::REQUEST_TIMEOUT)),
        _ => |shop, _| shop.layer(hasty(StatusCode::GATEWAY_TIMEOUT)),
    };
    let fixture = Fixture::new();
    let layer = fixture.layer().status_policy(policy);
    let shop = Shop::with(Inside, around, fixture, layer, Ledger::default());
    let first = shop.send(order("tea")).await;
    assert_eq!(first.status, status);
    let repeat = shop.send(order("tea")).await;
    (repeat, shop.fixture.runs())
}

const TIME_OUTS: [StatusCode; 2] = [StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT];

#[tokio::test]
async fn a_time_out_inside_leaves_the_outcome_unknown() {
    for status in TIME_OUTS {
        let (repeat, effects) = cut_off(StatusPolicy::careful(), status).await;
        assert_eq!(effects, 1, "{status}");
        assert_eq!(repeat.problem(), (500, "outcome-unknown"));
    }
}

#[tokio::test]
async fn a_time_out_inside_is_repeated_where_failures_are() {
    for policy in [StatusPolicy::stripe(), StatusPolicy::draft()] {
        for status in TIME_OUTS {
            let (repeat, effects) = cut_off(policy.clone(), status).await;
            assert_eq!(effects, 1, "{status}");
            assert_eq!(repeat.status, status);
            assert!(repeat.is_replayed());
        }
    }
}

#[tokio::test]
async fn a_time_out_outside_lets_the_handler_end() {
    let around: Around = |shop, _| shop.layer(hasty(StatusCode::GATEWAY_TIMEOUT));
    let shop = Shop::new(Outside, around);
    let first = shop.send(order("tea")).await;
    assert_eq!(first.status, StatusCode::GATEWAY_TIMEOUT);
    // A repeat that waits is cut off as well, and takes nothing with it.
    let early = shop.send(order("tea")).await;
    assert_eq!(early.status, StatusCode::GATEWAY_TIMEOUT);
    shop.gate.go_on.notify_one();
    shop.fixture.saw("completed value", 1).await;
    let repeat = shop.send(order("tea")).await;
    assert_eq!(repeat.replay(), (true, "tea: 1"));
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_limit_counts_handlers_without_clients_only_inside() {
    for (side, at_once) in [(Inside, 1), (Outside, 2)] {
        let shop = Shop::new(side, usual("concurrency limit"));
        shop.left(other("first")).await;
        let second = shop.spawn(other("second"));
        if side == Outside {
            shop.is_running().await;
        }
        others().await;
        assert_eq!(shop.fixture.runs(), at_once, "{side:?}");
        shop.gate.go_on.notify_one();
        shop.gate.go_on.notify_one();
        if side == Inside {
            shop.is_running().await;
        }
        shop.gate.go_on.notify_one();
        let answer = patiently("the second answer", second).await.unwrap();
        assert_eq!(answer.body, "tea: 2");
    }
}

#[tokio::test]
async fn a_request_shed_inside_runs_when_it_is_repeated() {
    let shop = Shop::new(Inside, usual("load shedding"));
    let first = shop.spawn(order("tea"));
    shop.is_running().await;
    // A repeat takes no place.
    let repeat = shop.spawn(order("tea"));
    let shed = shop.send(other("second")).await;
    assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(shop.fixture.runs(), 1);
    shop.gate.go_on.notify_one();
    assert_eq!(patiently("an answer", first).await.unwrap().body, "tea: 1");
    assert!(patiently("its repeat", repeat).await.unwrap().is_replayed());
    shop.gate.go_on.notify_one();
    let second = shop.send(other("second")).await;
    assert_eq!(second.replay(), (false, "tea: 2"));
}

#[tokio::test]
async fn a_request_shed_outside_claims_nothing() {
    let shop = Shop::new(Outside, usual("load shedding"));
    let first = shop.spawn(order("tea"));
    shop.is_running().await;
    // A repeat takes a place, too.
    for request in [order("tea"), other("second")] {
        let shed = shop.send(request).await;
        assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    shop.gate.go_on.notify_one();
    assert_eq!(patiently("an answer", first).await.unwrap().body, "tea: 1");
    assert!(shop.send(order("tea")).await.is_replayed());
    assert_eq!(shop.fixture.runs(), 1);
}

/// A request whose commit fails, and its repeat.
async fn not_committed(side: Side) -> [Answer; 2] {
    let shop = Shop::new(side, usual("transaction"));
    shop.ledger.failures.store(1, Ordering::SeqCst);
    shop.gate.go_on.notify_one();
    let first = shop.send(order("tea")).await;
    let repeat = shop.send(order("tea")).await;
    assert_eq!((shop.fixture.runs(), shop.committed()), (1, 0));
    [first, repeat]
}

#[tokio::test]
async fn a_commit_that_fails_is_part_of_the_answer_only_inside() {
    let [first, repeat] = not_committed(Inside).await;
    assert_eq!(first.body, "the commit has failed");
    assert_eq!(repeat.problem(), (500, "outcome-unknown"));
    let [first, repeat] = not_committed(Outside).await;
    assert_eq!(first.body, "the commit has failed");
    // It was stored before, and nothing has happened.
    assert_eq!(repeat.replay(), (true, "tea: 1"));
}

#[tokio::test]
async fn a_panic_that_is_caught_inside_is_a_response() {
    let unknown = (500, "outcome-unknown");
    for side in SIDES {
        for (policy, is_stored) in [
            (StatusPolicy::careful(), false),
            (StatusPolicy::draft(), side == Inside),
        ] {
            let fixture = Fixture::new();
            let layer = fixture.layer().status_policy(policy);
            let shop = Shop::with(side, usual("panics"), fixture, layer, Ledger::default());
            shop.gate.go_on.notify_one();
            let first = shop.send(order("panic")).await;
            assert_eq!(first.status, StatusCode::INTERNAL_SERVER_ERROR);
            let repeat = shop.send(order("panic")).await;
            if is_stored {
                assert!(repeat.is_replayed());
                assert_eq!(repeat.body, first.body);
            } else {
                assert_eq!(repeat.problem(), unknown);
            }
            assert_eq!(shop.fixture.runs(), 1);
        }
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
    for side in SIDES {
        let shop = Shop::new(side, usual("request id"));
        shop.gate.go_on.notify_one();
        let id = |answer: Answer| answer.headers.get(REQUEST_ID).cloned();
        assert_eq!(id(shop.send(order("tea")).await).unwrap(), "1");
        let repeat = id(shop.send(order("tea")).await);
        let repeat = repeat.as_ref().map(|id| id.to_str().unwrap());
        assert_eq!(repeat, (side == Outside).then_some("2"));
    }
}

#[tokio::test]
async fn credentials_are_looked_at_for_each_request_only_outside() {
    for side in SIDES {
        let shop = Shop::new(side, usual("authentication"));
        let stranger = async || send(&shop.service, order("tea")).await;
        assert_eq!(stranger().await.status, StatusCode::UNAUTHORIZED);
        shop.gate.go_on.notify_one();
        assert_eq!(shop.send(order("tea")).await.body, "tea: 1");
        let repeat = stranger().await;
        match side {
            Outside => assert_eq!(repeat.status, StatusCode::UNAUTHORIZED),
            // Of a layer without a scope, to any client that knows the key.
            Inside => assert_eq!(repeat.body, "tea: 1"),
        }
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
        assert_eq!(shop.send(order("tea")).await.body, "tea: 1");
    }
}

#[tokio::test]
async fn a_page_reads_refusals_where_cors_is_outside() {
    for side in SIDES {
        let shop = Shop::new(side, usual("cors"));
        let mut bare = Request::post("/orders")
            .body(axum::body::Body::empty())
            .unwrap();
        let origin = HeaderValue::from_static("https://shop.test");
        bare.headers_mut().insert(ORIGIN, origin);
        let refused = shop.send(bare).await;
        assert_eq!(refused.problem(), (400, "key-missing"));
        let is_readable = refused.headers.contains_key("access-control-allow-origin");
        assert_eq!(is_readable, side == Outside);
    }
}
