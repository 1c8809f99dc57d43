//! How a request ends: its client disconnects, its handler panics, its service fails, the server stops.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::post;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use idem_runtime::http::{Buffered, IdempotencyLayer, KeyRules, KeyVerdict, StatusPolicy};
use idem_runtime::{OnPanic, OnRunning, Policy};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use crate::client::{
    Fixture, Gate, KEY, RUNNING, Refused, Source, UNKNOWN, data, frames, leave, numbered, order,
    patiently, ran, replayed, routed, send, spawn, with_key,
};
use crate::server::{Client, Server, request, with_key as raw};

/// Time that a repeat waits. The lease of the first request is renewed every 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// A service on a socket whose handler waits for permission.
struct Shop {
    fixture: Fixture,
    gate: Arc<Gate>,
    /// The server has let go of a request, answered or not.
    gone: Arc<Notify>,
    service: Router,
    server: Server,
}

/// Notifies when it is dropped.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Shop {
    async fn open() -> Self {
        let (fixture, gate) = (Fixture::new(), Arc::new(Gate::default()));
        let (counter, through) = (fixture.clone(), Arc::clone(&gate));
        let handler = post(move |order: String| async move {
            let run = counter.run();
            through.started.notify_one();
            through.go_on.notified().await;
            format!("{order}: {run}")
        });
        let gone = Arc::new(Notify::new());
        let tell = Arc::clone(&gone);
        let service =
            routed(handler, fixture.layer()).layer(from_fn(move |request: Request, next: Next| {
                let told = Told(Arc::clone(&tell));
                async move {
                    let response = next.run(request).await;
                    drop(told);
                    response
                }
            }));
        let server = Server::start(service.clone()).await;
        Self {
            fixture,
            gate,
            gone,
            service,
            server,
        }
    }

    /// A client sends this, and hangs up once the handler runs. An incomplete request ends at once.
    async fn hang_up(&self, request: &[u8], is_whole: bool) {
        let mut client = self.server.connect().await;
        client.write(request).await;
        if is_whole {
            self.gate.runs().await;
        }
        drop(client);
        patiently("the server notices it", self.gone.notified()).await;
    }

    /// A client repeats the request, which waits for the handler.
    async fn waits(&self) -> Client {
        let mut client = self.server.connect().await;
        client.write(&raw(KEY, "tea")).await;
        let waits = self.fixture.clock.sleeper_within(PATIENCE);
        patiently("the repeat waits", waits).await;
        client
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_answer() {
    let shop = Shop::open().await;
    shop.hang_up(&raw(KEY, "tea"), true).await;
    // While the handler runs, and when it has ended.
    let early = shop.waits().await;
    shop.gate.go_on.notify_one();
    let late = shop.server.ask(raw(KEY, "tea"));
    for answer in [early.answer().await, late.await] {
        assert_eq!(answer.replay(), (true, "tea: 1"));
    }
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_repeat_whose_client_hangs_up_waits_no_longer() {
    let shop = Shop::open().await;
    shop.hang_up(&raw(KEY, "tea"), true).await;
    drop(shop.waits().await);
    patiently("the server notices it", shop.gone.notified()).await;
    // Only the renewal of the lease is left.
    let next = shop.fixture.clock.next_wake();
    assert!(next.is_none_or(|next| next > PATIENCE), "{next:?}");
    assert_eq!(shop.fixture.events.count("claimed"), 1);
    shop.gate.go_on.notify_one();
    let answer = shop.server.ask(raw(KEY, "tea")).await;
    assert!(answer.is_replayed());
}

/// With a length, and within a chunk.
#[tokio::test]
async fn a_client_that_hangs_up_within_its_request_has_asked_for_nothing() {
    let shop = Shop::open().await;
    shop.gate.go_on.notify_one();
    let whole = raw(KEY, "two teapots");
    let start = request(format!("Idempotency-Key: {KEY}\r\n"), "");
    let start = String::from_utf8(start).unwrap();
    let start = start.replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let chunks = |end: &str| format!("{start}5\r\ntwo t\r\n6\r\nea{end}").into_bytes();
    for part in [&whole[..whole.len() - 4], &chunks("")] {
        shop.hang_up(part, false).await;
        let events = shop.fixture.events.all();
        assert_eq!(events, [""; 0], "the store was not asked");
        assert_eq!(shop.fixture.runs(), 0);
    }
    let first = shop.server.ask(chunks("pots\r\n0\r\n\r\n")).await;
    assert_eq!(first.replay(), (false, "two teapots: 1"));
    // However a body is cut into chunks, it is the same request.
    let one_chunk = format!("{start}b\r\ntwo teapots\r\n0\r\n\r\n").into_bytes();
    for again in [one_chunk, whole] {
        let again = shop.server.ask(again).await;
        assert_eq!(again.replay(), (true, "two teapots: 1"));
    }
}

async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

/// Its shutdown waits for the handlers, and refuses other requests.
#[tokio::test]
async fn a_stopped_server_completes_disconnected_requests() {
    let shop = Shop::open().await;
    shop.hang_up(&raw(KEY, "tea"), true).await;
    // The server has no client to answer, and so it ends at once.
    shop.server.stop().await;
    let engine = &shop.fixture.engine;
    let mut shutdown = Box::pin(engine.shutdown(Duration::from_hours(1)));
    assert!(is_pending(&mut shutdown).await, "a handler runs");
    let late = (
        "late",
        with_key("\"late\"", ""),
        Refused(503, "unavailable"),
    );
    shop.fixture.walk(&shop.service, [late]).await;
    shop.gate.go_on.notify_one();
    let ended = patiently("the end of the shutdown", shutdown).await;
    ended.unwrap();
    assert_eq!(shop.fixture.events.count("completed value"), 1);
    assert_eq!(shop.fixture.runs(), 1);
}

/// Sends a request whose response does not end yet, and leaves.
async fn leave_during_the_response(fixture: &Fixture) -> (Router, Source) {
    let (source, body) = frames();
    let body = Arc::new(Mutex::new(Some(body)));
    let (counter, answering) = (fixture.clone(), Arc::new(Notify::new()));
    let answers = Arc::clone(&answering);
    let handler = post(move || async move {
        counter.run();
        answers.notify_one();
        body.lock().unwrap().take().expect("it runs once")
    });
    let layer = fixture.layer().on_running(OnRunning::Reject);
    let shop = routed(handler, layer);
    let client = spawn(&shop, order(""));
    patiently("the handler answers", answering.notified()).await;
    leave(client).await;
    (shop, source)
}

#[tokio::test]
async fn a_client_that_disconnects_during_the_response_finds_all_of_it() {
    let fixture = Fixture::new();
    let (shop, source) = leave_during_the_response(&fixture).await;
    source.send(data("one ")).unwrap();
    fixture.walk(&shop, [("early", order(""), RUNNING)]).await;
    source.send(data("order")).unwrap();
    drop(source);
    fixture.saw("completed value", 1).await;
    let row = ("late", order(""), replayed("one order"));
    fixture.walk(&shop, [row]).await;
}

#[tokio::test]
async fn a_shutdown_waits_for_the_end_of_a_response() {
    let fixture = Fixture::new();
    let (_, source) = leave_during_the_response(&fixture).await;
    let engine = fixture.engine.clone();
    let mut shutdown = Box::pin(engine.shutdown(Duration::from_hours(1)));
    assert!(is_pending(&mut shutdown).await, "a response is being read");
    drop(source);
    let ended = patiently("the end of the shutdown", shutdown).await;
    ended.unwrap();
    assert_eq!(fixture.events.count("completed value"), 1);
}

async fn panic_of(shop: &Router, request: Request) -> Option<String> {
    let ended = patiently("a response or a panic", spawn(shop, request)).await;
    let panic = ended.err()?.into_panic();
    Some((*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

#[tokio::test]
async fn a_panic_has_the_ambiguity_of_the_layer_unless_it_is_set() {
    type Set = fn(IdempotencyLayer) -> IdempotencyLayer;
    let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    let (careful, stripe) = (StatusPolicy::careful(), StatusPolicy::stripe());
    let done = ran("done");
    let as_it_is: Set = |layer| layer;
    let unknown: Set = |layer| layer.on_panic(OnPanic::Unknown);
    let released: Set = |layer| layer.policy(Policy::new().on_panic(OnPanic::Release));
    // A setting that a policy leaves open stays unchanged.
    let open: Set = |layer| {
        let other = Policy::new().count_errors(true);
        layer.on_panic(OnPanic::Release).policy(other)
    };
    for (row, set, policy, seen) in [
        ("careful", as_it_is, &careful, UNKNOWN),
        ("of Stripe", as_it_is, &stripe, UNKNOWN),
        ("bold", as_it_is, &bold, done),
        ("bold, and set to unknown", unknown, &bold, UNKNOWN),
        ("careful, and set by a policy", released, &careful, done),
        ("set, and left open by a policy", open, &careful, done),
    ] {
        let fixture = Fixture::new();
        let layer = set(fixture.layer().status_policy(policy.clone()));
        let shop = fixture.orders(layer, |run| {
            assert!(run > 1, "the first run panics");
            "done"
        });
        let panic = panic_of(&shop, order("")).await;
        assert_eq!(panic.as_deref(), Some("the first run panics"), "{row}");
        fixture.walk(&shop, [(row, order(""), seen)]).await;
    }
}

#[tokio::test]
async fn the_error_of_a_service_has_the_ambiguity_of_the_layer() {
    let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    for (policy, status) in [
        (StatusPolicy::careful(), 500),
        (StatusPolicy::draft(), 500),
        (bold, 200),
    ] {
        let fixture = Fixture::new();
        let counter = fixture.clone();
        let service = tower::service_fn(move |_: http::Request<Buffered<Body>>| {
            let run = counter.run();
            async move {
                match run {
                    1 => Err("the upstream is gone"),
                    _ => Ok(Response::new(Body::from("done"))),
                }
            }
        });
        let service = fixture.layer().status_policy(policy).layer(service);
        let first = service.clone().oneshot(order("")).await;
        assert_eq!(first.unwrap_err(), "the upstream is gone");
        let again = service.oneshot(order("")).await.unwrap();
        assert_eq!(again.status(), status);
    }
}

/// A body that panics when it is read.
struct Bomb;

impl http_body::Body for Bomb {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        panic!("this body cannot be read")
    }
}

#[tokio::test]
async fn a_panic_before_the_handler_leaves_the_key_as_it_was() {
    let (fixture, plain) = numbered(|layer| layer);
    let shop = |layer| fixture.orders(layer, |run| run.to_string());
    let scope = IdempotencyLayer::scoped(&fixture.engine, "shop.api", |_| panic!("no scope"));
    let accept = KeyRules::default().accept(|_| panic!("no rule"));
    let accept = fixture.layer().keys(accept);
    let quota = fixture.layer().quota(|_, _| panic!("no quota"));
    let bomb = order(Body::new(Bomb));
    for (shop, request, panic) in [
        (&shop(scope), order(""), "no scope"),
        (&shop(accept), order(""), "no rule"),
        (&shop(quota), order(""), "no quota"),
        (&plain, bomb, "this body cannot be read"),
    ] {
        assert_eq!(panic_of(shop, request).await.as_deref(), Some(panic));
    }
    fixture
        .walk(&plain, [("afterwards", order(""), ran("1"))])
        .await;
}

#[tokio::test]
async fn a_released_request_may_be_corrected_whatever_the_engine_counts() {
    let fixture = Fixture::with(|engine| engine.count_errors(true));
    let shop = fixture.orders(fixture.layer(), |run| match run {
        1 => StatusCode::UNAUTHORIZED.into_response(),
        _ => "done".into_response(),
    });
    assert_eq!(send(&shop, order("tea")).await.status, 401);
    assert_eq!(send(&shop, order("rum")).await.replay(), (false, "done"));
}
