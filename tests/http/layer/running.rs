//! The number of concurrent handlers, with and without their clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use idem_runtime::http::{IdempotencyLayer, KeyVerdict};
use idem_runtime::{OnRunning, Reconciled};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer as _, Service, ServiceExt};
use tower_http::timeout::TimeoutLayer;

use crate::client::{
    Answer, Fixture, frames, leave, of_tenant, others, patiently, send, spawn, with_key,
};

/// A service whose handlers hold their request's body and wait for permission.
struct Shop {
    fixture: Fixture,
    layer: IdempotencyLayer,
    service: Router,
    /// How many handlers have begun, and how many of them run.
    handlers: watch::Sender<(usize, usize)>,
    go_on: Arc<Semaphore>,
}

/// A handler that runs, until it is dropped.
struct Running(watch::Sender<(usize, usize)>);

impl Running {
    fn begin(handlers: &watch::Sender<(usize, usize)>) -> Self {
        handlers.send_modify(|(begun, running)| (*begun, *running) = (*begun + 1, *running + 1));
        Self(handlers.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|(_, running)| *running -= 1);
    }
}

/// A handler's treatment of a request with this body.
fn respond(order: &[u8]) -> Response {
    match order {
        b"panic" => panic!("as it was told to"),
        b"invalid" => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        b"fails" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        b"stream" => ([("content-type", "text/event-stream")], "data: 1\n\n").into_response(),
        b"passes" => {
            let mut response = "passes".into_response();
            response.extensions_mut().insert(KeyVerdict::Release);
            response
        }
        order => Bytes::copy_from_slice(order).into_response(),
    }
}

impl Shop {
    fn open(set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Self {
        let fixture = Fixture::new();
        let layer = set(fixture.layer());
        Self::with(fixture, layer, |handlers| handlers)
    }

    /// With another layer, and something inside it.
    fn with(fixture: Fixture, layer: IdempotencyLayer, inside: fn(Router) -> Router) -> Self {
        let (handlers, go_on) = (watch::Sender::new((0, 0)), Arc::new(Semaphore::new(0)));
        let (begin, through) = (handlers.clone(), Arc::clone(&go_on));
        let handler = post(move |order: Bytes| async move {
            let _running = Running::begin(&begin);
            through.acquire().await.unwrap().forget();
            respond(&order)
        });
        let service = inside(Router::new().route("/orders", handler)).layer(layer.clone());
        Self {
            fixture,
            layer,
            service,
            handlers,
            go_on,
        }
    }

    fn running(&self) -> usize {
        self.handlers.borrow().1
    }

    fn spawn(&self, request: Request) -> JoinHandle<Answer> {
        spawn(&self.service, request)
    }

    /// A request whose handler has begun and waits.
    async fn begin(&self, request: Request) -> JoinHandle<Answer> {
        let before = self.handlers.borrow().0;
        let client = self.spawn(request);
        let mut handlers = self.handlers.subscribe();
        let begun = handlers.wait_for(|(begun, _)| *begun > before);
        patiently("the handler runs", begun).await.unwrap();
        client
    }

    /// A request whose client leaves while its handler runs.
    async fn leave(&self, request: Request) {
        let client = self.begin(request).await;
        leave(client).await;
    }

    fn let_go(&self, handlers: usize) {
        self.go_on.add_permits(handlers);
    }
}

fn order(key: impl std::fmt::Display, body: &str) -> Request {
    with_key(format!("\"{key}\""), body.to_owned())
}

/// The same, of a tenant.
fn order_of(tenant: &str, key: &str) -> Request {
    of_tenant(tenant, order(key, "tea"))
}

fn assert_full(answer: &Answer) {
    assert_eq!(answer.problem(), (503, "too-many-running"));
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["retryable"], true);
}

/// The attack: a concurrency limit outside counts clients, and these are gone.
#[tokio::test]
async fn clients_that_hang_up_start_no_more_handlers_than_may_run() {
    let shop = Shop::open(|layer| layer.max_running(2));
    let outside = shop.service.clone();
    let outside = outside.layer(GlobalConcurrencyLimitLayer::new(2));
    let body = "x".repeat(1_000);
    let mut refused = 0;
    for number in 0..300 {
        let before = shop.handlers.borrow().0;
        let (service, request) = (outside.clone(), order(number, &body));
        let mut client = spawn(&service, request);
        let mut handlers = shop.handlers.subscribe();
        let ended = tokio::select! {
            _ = handlers.wait_for(|(begun, _)| *begun > before) => None,
            answer = &mut client => Some(answer.unwrap()),
        };
        if let Some(answer) = ended {
            assert_full(&answer);
            refused += 1;
            let entry = shop.layer.entry(None, &number.to_string()).await.unwrap();
            assert!(entry.is_none(), "nothing is written");
        } else {
            leave(client).await;
        }
    }
    assert_eq!(shop.running(), 2, "so many handlers run at once");
    assert_eq!(refused, 298);
    assert_eq!(shop.fixture.events.count("claimed"), 2);
    // They end without their clients, and others run.
    shop.let_go(3);
    shop.fixture.saw("completed value", 2).await;
    for (key, is_replayed) in [(0, true), (299, false)] {
        let repeat = send(&outside, order(key, &body)).await;
        assert_eq!(repeat.replay(), (is_replayed, &*body));
    }
}

#[tokio::test]
async fn each_way_to_end_gives_the_place_back() {
    let bodies = ["tea", "panic", "invalid", "fails", "stream", "passes"];
    for client_stays in [true, false] {
        for body in bodies {
            let shop = Shop::open(|layer| layer.max_running(1));
            if client_stays {
                let client = shop.begin(order("first", body)).await;
                shop.let_go(1);
                let answer = patiently("an answer", client).await;
                assert_eq!(answer.is_err(), body == "panic");
            } else {
                shop.leave(order("first", body)).await;
                assert_full(&send(&shop.service, order("second", "tea")).await);
                shop.let_go(1);
                // The only word of an end that every one of them has.
                let mut handlers = shop.handlers.subscribe();
                let ended = handlers.wait_for(|(_, running)| *running == 0);
                patiently("the handler has ended", ended).await.unwrap();
                let events = &shop.fixture.events;
                let settled = async {
                    tokio::select! {
                        () = events.wait_for("completed", 1) => {}
                        () = events.wait_for("released", 1) => {}
                    }
                };
                patiently("its key is settled", settled).await;
                others().await;
            }
            shop.let_go(1);
            let second = send(&shop.service, order("second", "tea")).await;
            assert_eq!(second.body, "tea", "{body}, client stays: {client_stays}");
        }
    }
}

/// A request that never runs its handler holds no place either.
#[tokio::test]
async fn a_request_without_a_handler_takes_no_place() {
    let shop = Shop::open(|layer| layer.max_running(1).max_body_bytes(5));
    let (_source, never) = frames();
    let slow = shop.spawn(with_key("\"slow\"", never));
    let reads = shop.fixture.clock.sleeper_within(Duration::from_secs(30));
    patiently("a body is waited for", reads).await;
    let long = send(&shop.service, order("long", "too long")).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    shop.let_go(1);
    assert_eq!(send(&shop.service, order("tea", "tea")).await.body, "tea");
    slow.abort();
}

#[tokio::test]
async fn a_tenant_takes_no_more_than_its_places() {
    let fixture = Fixture::new();
    let layer = fixture.scoped().max_running(3).max_running_per_scope(2);
    let shop = Shop::with(fixture, layer, |handlers| handlers);
    shop.leave(order_of("mallory", "1")).await;
    shop.leave(order_of("mallory", "2")).await;
    assert_full(&send(&shop.service, order_of("mallory", "3")).await);
    shop.leave(order_of("alice", "1")).await;
    // In all.
    assert_full(&send(&shop.service, order_of("alice", "2")).await);
    assert_eq!(shop.running(), 3);
    shop.let_go(4);
    shop.fixture.saw("completed value", 3).await;
    assert_eq!(
        send(&shop.service, order_of("mallory", "3")).await.body,
        "tea"
    );
}

/// A hook that finds out takes a place, as the handler would.
#[tokio::test]
async fn a_reconcile_hook_takes_a_place() {
    let shop = Shop::open(|layer| {
        layer
            .max_running(1)
            .reconcile(|_, _| async { Reconciled::Landed(http::Response::new("found")) })
    });
    shop.let_go(1);
    assert_eq!(
        send(&shop.service, order("first", "fails")).await.status,
        500
    );
    shop.leave(order("second", "tea")).await;
    assert_full(&send(&shop.service, order("first", "fails")).await);
    shop.let_go(1);
    shop.fixture.saw("completed value", 1).await;
    assert_eq!(
        send(&shop.service, order("first", "fails")).await.body,
        "found"
    );
}

/// The inner time-out holds for a handler whose client has left.
#[tokio::test]
async fn a_time_out_inside_ends_a_handler_whose_client_has_left() {
    let fixture = Fixture::new();
    let layer = fixture.layer().max_running(1);
    let shop = Shop::with(fixture, layer, |handlers| {
        let (status, hasty) = (StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(5));
        handlers.layer(TimeoutLayer::with_status_code(status, hasty))
    });
    // It never receives the signal to go on.
    shop.leave(order("hangs", "tea")).await;
    shop.fixture.saw("completed unknown", 1).await;
    assert_eq!(shop.running(), 0, "the handler was dropped");
    shop.let_go(1);
    assert_eq!(send(&shop.service, order("next", "tea")).await.body, "tea");
    let repeat = send(&shop.service, order("hangs", "tea")).await;
    assert_eq!(repeat.problem(), (500, "outcome-unknown"));
}

/// Handlers behind a limit of 1, which a router does not hide; how many have begun, and how many may go on.
struct Limited {
    fixture: Fixture,
    begun: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl Limited {
    fn open() -> (
        Self,
        impl Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    ) {
        let fixture = Fixture::with(|engine| engine.on_running(OnRunning::Reject));
        let [begun, go_on] = [(), ()].map(|()| Arc::new(Semaphore::new(0)));
        let (starts, through) = (Arc::clone(&begun), Arc::clone(&go_on));
        let handler = post(move |order: Bytes| async move {
            starts.add_permits(1);
            through.acquire().await.unwrap().forget();
            order
        });
        let limited = GlobalConcurrencyLimitLayer::new(1);
        let limited = limited.layer(Router::new().route("/orders", handler));
        let service = fixture.layer().layer(limited);
        let service =
            ServiceExt::<Request>::map_response(service, |response| response.map(Body::new));
        let this = Self {
            fixture,
            begun,
            go_on,
        };
        (this, service)
    }

    async fn begun(&self, handlers: u32) {
        let begun = self.begun.acquire_many(handlers);
        patiently("the handler runs", begun).await.unwrap().forget();
    }
}

/// Finds repeats and slow clients that fill a limit inside.
#[tokio::test]
async fn a_limit_inside_counts_handlers_alone() {
    let (shop, service) = Limited::open();
    let (slow, body) = frames();
    let waiting = spawn(&service, with_key("\"slow\"", body));
    shop.go_on.add_permits(1);
    send(&service, order("done", "tea")).await;
    let first = spawn(&service, order("runs", "tea"));
    shop.begun(2).await;
    let repeat = send(&service, order("done", "tea")).await;
    assert_eq!(repeat.replay(), (true, "tea"));
    let repeat = send(&service, order("runs", "tea")).await;
    assert_eq!(repeat.problem(), (409, "request-running"));
    drop(slow);
    shop.go_on.add_permits(2);
    for answer in [first, waiting] {
        let answer = patiently("an answer", answer).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
    }
}

/// Another process may have taken the key over. Finds a handler that begins after the loss is known.
#[tokio::test]
async fn a_request_that_loses_its_lease_at_a_limit_runs_no_handler() {
    let (shop, service) = Limited::open();
    let first = spawn(&service, order("runs", "tea"));
    shop.begun(1).await;
    let late = spawn(&service, order("late", "tea"));
    shop.fixture.saw("claimed", 2).await;
    // Beyond `max_run`, after which no lease is renewed.
    shop.fixture.clock.advance(Duration::from_mins(16));
    shop.go_on.add_permits(2);
    patiently("an answer", first).await.unwrap();
    let late = patiently("an answer", late).await.unwrap();
    assert_eq!(late.problem(), (409, "request-running"));
    assert_eq!(shop.begun.available_permits(), 0, "no other handler began");
}
