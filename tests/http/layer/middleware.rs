//! The layer among the usual tower layers: each inside and outside of it, and the effects of both.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::post;
use axum::{BoxError, Router};
use http::StatusCode;
use idem_runtime::http::{IdempotencyLayer, MarkReplays, StatusPolicy};
use tokio::task::JoinHandle;
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::client::{
    Answer, Fixture, Gate, Replayed, Seen, UNKNOWN, leave, order, patiently, ran, replayed, send,
    spawn, with_key,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Inside,
    Outside,
}
use Side::{Inside, Outside};

const SIDES: [Side; 2] = [Inside, Outside];

/// Refuses at once each request beyond the first.
fn shedding(shop: Router) -> Router {
    let refuse = async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE;
    let shed = ServiceBuilder::new().layer(HandleErrorLayer::new(refuse));
    let limit = GlobalConcurrencyLimitLayer::new(1);
    shop.layer(shed.load_shed().layer(limit))
}

/// Puts something around a service.
type Around = fn(Router) -> Router;

/// The usual layers around handlers.
const USUAL: [(&str, Around); 9] = [
    ("timeout", |shop| {
        let status = StatusCode::GATEWAY_TIMEOUT;
        shop.layer(TimeoutLayer::with_status_code(
            status,
            Duration::from_mins(1),
        ))
    }),
    ("concurrency limit", |shop| {
        shop.layer(GlobalConcurrencyLimitLayer::new(1))
    }),
    ("load shedding", shedding),
    ("panics", |shop| shop.layer(CatchPanicLayer::new())),
    ("compression", |shop| shop.layer(CompressionLayer::new())),
    ("tracing", |shop| shop.layer(TraceLayer::new_for_http())),
    ("a function", |shop| {
        shop.layer(from_fn(|request: Request, next: Next| next.run(request)))
    }),
    ("body limit", |shop| {
        shop.layer(RequestBodyLimitLayer::new(1_024))
    }),
    ("cors", |shop| {
        shop.layer(CorsLayer::new().allow_origin(Any))
    }),
];

/// A service behind the layer, with something else inside or outside.
struct Shop {
    fixture: Fixture,
    gate: Arc<Gate>,
    service: Router,
}

impl Shop {
    fn new(side: Side, around: Around) -> Self {
        let fixture = Fixture::new();
        let layer = fixture.layer();
        Self::with(side, around, fixture, layer)
    }

    fn with(side: Side, around: Around, fixture: Fixture, layer: IdempotencyLayer) -> Self {
        let gate = Arc::new(Gate::default());
        let (counter, through) = (fixture.clone(), Arc::clone(&gate));
        let handler = async move |order: String| {
            let run = counter.run();
            through.started.notify_one();
            through.go_on.notified().await;
            assert!(order != "panic", "as it was told to");
            format!("{order}: {run}")
        };
        let service = Router::new().route("/orders", post(handler));
        let service = match side {
            Inside => around(service).layer(layer),
            Outside => around(service.layer(layer)),
        };
        Self {
            fixture,
            gate,
            service,
        }
    }

    async fn send(&self, request: Request) -> Answer {
        send(&self.service, request).await
    }

    fn spawn(&self, request: Request) -> JoinHandle<Answer> {
        spawn(&self.service, request)
    }

    async fn begin(&self, request: Request) -> JoinHandle<Answer> {
        let client = self.spawn(request);
        self.gate.runs().await;
        client
    }

    async fn repeat(&self, row: &str, request: Request, seen: Seen) {
        let rows = [(row, request, seen)];
        self.fixture.walk(&self.service, rows).await;
    }
}

fn other(key: &str) -> Request {
    with_key(format!("\"{key}\""), "tea")
}

/// Whether or not the client of the first request is still there.
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
        }
    }
}

#[tokio::test]
async fn a_time_out_outside_lets_the_handler_end() {
    let hasty: Around = |shop| {
        // Shorter than any handler of these tests.
        let (status, limit) = (StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(5));
        shop.layer(TimeoutLayer::with_status_code(status, limit))
    };
    let shop = Shop::new(Outside, hasty);
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

/// Inside, a repeat takes no place; outside it does, and nothing is claimed.
#[tokio::test]
async fn a_request_that_is_shed_runs_when_it_is_repeated() {
    for side in SIDES {
        let shop = Shop::new(side, shedding);
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
async fn a_panic_that_is_caught_inside_is_a_response() {
    let caught = Replayed(500, "Service panicked");
    for (side, seen) in [(Inside, caught), (Outside, UNKNOWN)] {
        let fixture = Fixture::new();
        let layer = fixture.layer().status_policy(StatusPolicy::draft());
        let catch: Around = |shop| shop.layer(CatchPanicLayer::new());
        let shop = Shop::with(side, catch, fixture, layer);
        shop.gate.go_on.notify_one();
        let first = shop.send(order("panic")).await;
        assert_eq!(first.said(), (500, "Service panicked"));
        shop.repeat("again", order("panic"), seen).await;
        assert_eq!(shop.fixture.runs(), 1, "{side:?}");
    }
}

/// Calls a service and its clone, each when it was ready. The calls run in another order.
async fn in_another_order<S, R>(mut service: S)
where
    S: Service<Request, Response = Response<R>, Error = Infallible> + Clone,
{
    for _ in 0..2 {
        service.ready().await.unwrap();
    }
    let mut clone = service.clone();
    let first = service.call(other("first"));
    clone.ready().await.unwrap();
    let second = clone.call(other("second"));
    service.ready().await.unwrap();
    let third = service.call(other("third"));
    for call in [third, first] {
        assert_eq!(call.await.unwrap().status(), StatusCode::OK);
    }
    drop(second);
}

/// A service that panics when it is called before it is ready.
macro_rules! limited {
    () => {{
        let handler = |_| ready(Ok::<_, Infallible>(Response::new(Body::empty())));
        ConcurrencyLimit::new(service_fn(handler), 3)
    }};
}

#[tokio::test]
async fn a_service_inside_is_ready_before_each_call() {
    let fixture = Fixture::new();
    in_another_order(fixture.layer().layer(limited!())).await;
    in_another_order(MarkReplays::new().layer(limited!())).await;
}
