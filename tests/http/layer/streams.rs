//! Responses that are streams: recorded while they are sent, and replayed.

use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body::Frame;
use idem_harness::RedisServer;
use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::clock::Clock as _;
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::testing::{Fault, Faulty, StoreOperation};
use idem_runtime::{Context, Engine, OnLeaseLost, OnRunning, OnUnconfirmed, Reconciled, context};
use tokio::runtime::{Builder, Runtime};

use super::bodies::{behind, is_lost, next};
use crate::client::{
    Answer, Fixture, Gate, KEY, REUSED, RUNNING, Refused, Source, UNKNOWN, call, data, frames,
    gated, leave, order, others, patiently, ran, replayed, routed, send, spawn, with_key,
};
use crate::server::{Server, with_key as raw};

const EVENTS: &str = "text/event-stream";
const ONE: &str = "id: 1\ndata: tea\n\n";
const TWO: &str = "id: 2\ndata: rum\n\n";
const BOTH: &str = "id: 1\ndata: tea\n\nid: 2\ndata: rum\n\n";

/// A service whose handler answers once, with a stream that the test writes.
struct Shop {
    fixture: Fixture,
    layer: IdempotencyLayer,
    service: Router,
    source: Option<Source>,
}

impl Shop {
    fn open(set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Self {
        let fixture = Fixture::new();
        let layer = set(fixture.layer());
        Self::of_type(fixture, layer, EVENTS, 200)
    }

    fn of_type(fixture: Fixture, layer: IdempotencyLayer, of_type: &str, status: u16) -> Self {
        let (source, body) = frames();
        let stream = Response::builder().header("content-type", of_type);
        let stream = stream.header("x-node", "a").status(status).body(body);
        let service = behind(layer.clone(), &fixture, stream.unwrap());
        Self {
            fixture,
            layer,
            service,
            source: Some(source),
        }
    }

    /// With its engine over a store that can fail; and a layer of another server over the same records.
    fn with_faults(
        set: impl Fn(IdempotencyLayer) -> IdempotencyLayer,
    ) -> (Self, Faulty, IdempotencyLayer) {
        let fixture = Fixture::new();
        let store = MemoryStore::builder().clock(fixture.clock.clone()).build();
        let faulty = Faulty::new(store.clone());
        let engine = Engine::builder(faulty.clone()).clock(fixture.clock.clone());
        let engine = engine.observer(fixture.events.clone()).build().unwrap();
        let layer = set(IdempotencyLayer::public(engine, "shop.api"));
        let other = Engine::builder(store).clock(fixture.clock.clone());
        let other = set(IdempotencyLayer::public(other.build().unwrap(), "shop.api"));
        (Self::of_type(fixture, layer, EVENTS, 200), faulty, other)
    }

    /// The handler sends this.
    fn write(&self, text: &'static str) {
        self.source.as_ref().unwrap().send(data(text)).unwrap();
    }

    /// The handler ends the stream.
    fn end(&mut self) {
        self.source = None;
    }

    /// The first request, whose client has got the first event.
    async fn first(&self) -> Response {
        self.write(ONE);
        let mut response = call(&self.service, order("")).await;
        assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
        response
    }

    async fn completed(&self) {
        self.fixture.saw("completed value", 1).await;
    }

    async fn entry(&self) -> Entry {
        let name = KEY.trim_matches('"');
        self.layer.entry(None, name).await.unwrap().unwrap()
    }

    async fn repeat(&self) -> Answer {
        send(&self.service, order("")).await
    }
}

fn assert_streaming(answer: &Answer) {
    assert_eq!(answer.problem(), (500, "outcome-unknown"));
    let document = answer.json();
    assert_eq!(document["retryable"], true);
    let detail = document["detail"].as_str().unwrap();
    assert!(
        detail.contains("being streamed, or was cut off"),
        "{detail}"
    );
    assert_eq!(answer.headers["retry-after"], "2");
}

fn assert_both(answer: &Answer) {
    assert_eq!(answer.said(), (200, BOTH));
    assert!(answer.is_replayed());
    assert_eq!(answer.header("content-type"), Some(EVENTS));
    assert_eq!(answer.headers["content-length"], BOTH.len().to_string());
    assert_eq!(answer.header("x-node"), None);
}

/// The client has the first event before there is a second one.
#[tokio::test]
async fn a_stream_reaches_its_client_as_it_comes_and_repeats_as_a_whole() {
    let mut shop = Shop::open(|layer| layer);
    let server = Server::start(shop.service.clone()).await;
    let mut client = server.connect().await;
    client.write(&raw(KEY, "")).await;
    shop.write(ONE);
    let head = client.until(ONE.as_bytes()).await;
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", head.escape_ascii());
    assert_streaming(&server.ask(raw(KEY, "")).await);
    shop.write(TWO);
    shop.end();
    let rest = client.rest().await;
    assert!(
        String::from_utf8_lossy(&rest).contains(TWO),
        "{}",
        rest.escape_ascii()
    );
    shop.completed().await;
    for _ in 0..2 {
        assert_both(&server.ask(raw(KEY, "")).await);
    }
    let events = shop.fixture.events.all();
    assert_eq!(shop.fixture.events.count("completed"), 1, "{events:?}");
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_finds_all_of_the_stream() {
    let mut shop = Shop::open(|layer| layer);
    let server = Server::start(shop.service.clone()).await;
    let mut client = server.connect().await;
    client.write(&raw(KEY, "")).await;
    shop.write(ONE);
    client.until(ONE.as_bytes()).await;
    drop(client);
    // It also takes no other connection: what is left runs without the server.
    server.stop().await;
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
    assert_eq!(shop.fixture.runs(), 1);
}

/// The handler has answered, and its client does not know it yet.
#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_finds_all_of_the_stream() {
    let fixture = Fixture::new();
    let store = Faulty::new(MemoryStore::new());
    let engine = Engine::builder(store.clone()).clock(fixture.clock.clone());
    let engine = engine.observer(fixture.events.clone()).build().unwrap();
    let layer = IdempotencyLayer::public(engine, "shop.api");
    let mut shop = Shop::of_type(fixture, layer, EVENTS, 200);
    store.fail(StoreOperation::Complete, [Fault::ReplyHeld]);
    let client = spawn(&shop.service, order(""));
    patiently("it is stored that the outcome is unknown", async {
        while store.count(StoreOperation::Complete) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    leave(client).await;
    store.deliver();
    shop.write(ONE);
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
}

/// Its client reads nothing until all is stored.
#[tokio::test]
async fn a_slow_client_does_not_slow_the_recording() {
    let mut shop = Shop::open(|layer| layer);
    let mut response = call(&shop.service, order("")).await;
    let part = Bytes::from(vec![b'x'; 100_000]);
    for _ in 0..3 {
        let source = shop.source.as_ref().unwrap();
        source.send(data(part.clone())).unwrap();
        // The recorder takes a part of it before the end.
        others().await;
    }
    assert_eq!(
        next(&mut response).await.unwrap().unwrap().len(),
        32 << 10,
        "a slow client has no copy of all"
    );
    shop.end();
    shop.completed().await;
    let mut length = 32 << 10;
    while let Some(part) = next(&mut response).await {
        length += part.unwrap().len();
    }
    assert_eq!(length, 300_000);
    assert_eq!(shop.repeat().await.body.len(), 300_000);
}

#[tokio::test]
async fn a_stream_that_breaks_off_has_an_unknown_outcome() {
    for policy in [StatusPolicy::careful(), StatusPolicy::draft()] {
        let shop = Shop::open(|layer| layer.status_policy(policy));
        let mut response = shop.first().await;
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let source = shop.source.as_ref().unwrap();
        source.send(Err(broken)).unwrap();
        assert!(next(&mut response).await.unwrap().is_err());
        assert!(next(&mut response).await.is_none());
        shop.fixture.saw("completed unknown", 1).await;
        let row = ("again", order(""), UNKNOWN);
        shop.fixture.walk(&shop.service, [row]).await;
        // By then it cannot go on.
        shop.fixture.clock.advance(Duration::from_mins(16));
        let late = shop.repeat().await;
        assert_eq!(late.json()["retryable"], false);
        assert_eq!(late.header("retry-after"), None);
        assert_eq!(shop.fixture.runs(), 1);
    }
}

/// A body that panics after its first event.
struct Bomb(Option<&'static str>);

impl http_body::Body for Bomb {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let event = self.0.take().expect("the handler dies");
        Poll::Ready(Some(data(event)))
    }
}

/// The second request is another one, and then the same.
#[tokio::test]
async fn a_stream_that_breaks_off_or_panics_is_released_if_ambiguous_outcomes_are() {
    let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    for (policy, seen) in [(StatusPolicy::careful(), UNKNOWN), (bold, ran("2"))] {
        let fixture = Fixture::new();
        let layer = fixture.layer().status_policy(policy);
        let shop = fixture.orders(layer, |run| match run {
            1 => ([("content-type", EVENTS)], Body::new(Bomb(Some(ONE)))).into_response(),
            _ => run.to_string().into_response(),
        });
        let client = patiently("a panic", spawn(&shop, order("tea"))).await;
        assert!(client.unwrap_err().is_panic(), "as the handler's");
        patiently("its key is settled", async {
            while fixture.events.count("released") + fixture.events.count("completed") == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let rows = [
            ("another", order("rum"), REUSED),
            ("the same", order("tea"), seen),
        ];
        fixture.walk(&shop, rows).await;
    }
}

#[tokio::test]
async fn a_stream_over_the_limit_passes_and_is_lost() {
    for client_stays in [true, false] {
        let mut shop = Shop::open(|layer| layer.max_response_bytes(30));
        let mut response = shop.first().await;
        if !client_stays {
            drop(response);
            shop.write(TWO);
            shop.fixture.saw("unsaved: it is larger than 30", 1).await;
            // The stream has no reader.
            let source = shop.source.as_ref().unwrap();
            patiently("the stream is dropped", source.closed()).await;
            is_lost(&shop.fixture, &shop.service).await;
            continue;
        }
        shop.write(TWO);
        assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
        shop.fixture.saw("unsaved: it is larger than 30", 1).await;
        is_lost(&shop.fixture, &shop.service).await;
        shop.write("more");
        assert_eq!(next(&mut response).await.unwrap().unwrap(), b"more");
        shop.end();
        assert!(next(&mut response).await.is_none());
    }
}

/// A subscription. The handler's own time is over, and its client goes on.
#[tokio::test]
async fn a_stream_that_outlasts_its_handlers_time_passes_and_is_lost() {
    let hooked: fn(IdempotencyLayer) -> _ =
        |layer| layer.reconcile(|_, _| async { Reconciled::<Response<&str>>::NotLanded });
    for set in [|layer| layer, hooked] {
        let shop = Shop::open(set);
        let mut response = shop.first().await;
        shop.fixture.clock.advance(Duration::from_mins(16));
        shop.fixture
            .saw("unsaved: it is an upgrade, or a stream", 1)
            .await;
        is_lost(&shop.fixture, &shop.service).await;
        shop.write(TWO);
        assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
        assert_eq!(shop.fixture.events.count("lease lost"), 0);
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The process ends in the middle: the store keeps what it has, and nothing runs here any more.
#[test]
fn a_crash_in_the_middle_starts_no_other_handler() {
    let shop = Shop::open(|layer| {
        layer
            .max_attempts(NonZeroU16::new(3))
            .on_running(OnRunning::Reject)
    });
    let crashed = runtime();
    let first = crashed.block_on(shop.first());
    drop(crashed);
    runtime().block_on(async {
        assert_streaming(&shop.repeat().await);
        assert_eq!(shop.fixture.events.count("completed unknown"), 1);
        // Neither after the lease nor after the time of any handler.
        for minutes in [1, 20, 60] {
            shop.fixture.clock.advance(Duration::from_mins(minutes));
            let row = (minutes, order(""), UNKNOWN);
            shop.fixture.walk(&shop.service, [row]).await;
        }
        assert_eq!(shop.fixture.runs(), 1);
        let entry = shop.entry().await;
        assert!(entry.is_streaming());
        assert_eq!(entry.state(), EntryState::Unknown);
    });
    drop(first);
}

/// The record outlives the stream, however short the life of an answer is.
#[tokio::test]
async fn a_stream_outlasts_the_life_of_its_answer() {
    let second = Duration::from_secs(1);
    let mut shop = Shop::open(|layer| {
        let layer = layer.ttl(second).error_ttl(second);
        layer.on_running(OnRunning::Reject)
    });
    drop(shop.first().await);
    for _ in 0..14 {
        shop.fixture.clock.advance(Duration::from_mins(1));
        assert_streaming(&shop.repeat().await);
    }
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
    assert_eq!(shop.fixture.runs(), 1);
}

/// With a hook the claim is held: a hook that ran beside the handler could start another.
#[test]
fn a_hook_is_asked_after_a_crash_and_not_during_the_stream() {
    let hooked = |fixture: &Fixture| {
        let layer = fixture.layer().on_running(OnRunning::Reject);
        layer.reconcile(|_, _| async { Reconciled::Landed(http::Response::new("found")) })
    };
    let fixture = Fixture::new();
    let layer = hooked(&fixture);
    let shop = Shop::of_type(fixture, layer, EVENTS, 200);
    let crashed = runtime();
    let first = crashed.block_on(async {
        let first = shop.first().await;
        let row = ("during the stream", order(""), RUNNING);
        shop.fixture.walk(&shop.service, [row]).await;
        first
    });
    drop(crashed);
    runtime().block_on(async {
        shop.fixture.clock.advance(Duration::from_mins(1));
        let row = ("after the crash", order(""), replayed("found"));
        shop.fixture.walk(&shop.service, [row]).await;
    });
    drop(first);
}

#[tokio::test]
async fn a_stream_with_a_hook_is_stored() {
    let mut shop = Shop::open(|layer| {
        layer.reconcile(|_, _| async { Reconciled::<Response<&str>>::NotLanded })
    });
    drop(shop.first().await);
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
}

/// A handler that watches its lease while it streams: no other attempt is granted the key, though the record has no claim.
#[tokio::test]
async fn the_lease_is_not_lost_while_a_stream_is_recorded() {
    let fixture = Fixture::new();
    let store = Faulty::new(MemoryStore::new());
    let engine = Engine::builder(store.clone()).clock(fixture.clock.clone());
    let engine = engine.observer(fixture.events.clone()).build().unwrap();
    let layer = IdempotencyLayer::public(engine, "shop.api");
    let (source, body) = frames();
    let handler = Arc::new(Mutex::new((Some(body), None)));
    let of_test = Arc::clone(&handler);
    let answers = axum::routing::post(move || async move {
        let mut handler = handler.lock().unwrap();
        handler.1 = Some(context());
        ([("content-type", EVENTS)], handler.0.take().unwrap())
    });
    let shop = routed(answers, layer.clone());
    let response = call(&shop, order("")).await;
    let context = of_test.lock().unwrap().1.take().unwrap();
    fixture.clock.advance(Duration::from_secs(10));
    patiently("a renewal", async {
        while store.count(StoreOperation::Renew) == 0 {
            others().await;
        }
    })
    .await;
    // Read on the thread of the renewal, and after it.
    let entry = layer.entry(None, KEY.trim_matches('"')).await.unwrap();
    assert!(entry.unwrap().is_streaming());
    fixture.clock.advance(Duration::from_mins(2));
    assert!(!context.lease_remaining().is_zero());
    assert!(context.lease_lost().now_or_never().is_none());
    assert_eq!(fixture.events.count("lease lost"), 0);
    drop((source, response));
    fixture.saw("completed value", 1).await;
}

/// The claim of a stream that is held lapses in an outage, and another server takes it over.
#[tokio::test]
async fn a_held_stream_loses_its_lease_as_a_running_handler() {
    for on_lease_lost in [OnLeaseLost::Continue, OnLeaseLost::Cancel] {
        let (mut shop, store, other) = Shop::with_faults(|layer| {
            let layer = layer.on_lease_lost(on_lease_lost);
            layer.reconcile(|_, _| async { Reconciled::Landed(http::Response::new("found")) })
        });
        let mut response = shop.first().await;
        store.fail(StoreOperation::Renew, [Fault::Unreachable]);
        shop.fixture.clock.advance(Duration::from_secs(31));
        let other = routed(axum::routing::post("never"), other);
        let found = || ("after the lease", order(""), replayed("found"));
        if on_lease_lost == OnLeaseLost::Cancel {
            let source = shop.source.as_ref().unwrap();
            patiently("the stream is dropped", source.closed()).await;
            let rest = patiently("its client learns of it", spawn_next(response)).await;
            assert!(rest.unwrap_err().is_panic(), "not as a stream that ends");
            shop.fixture.walk(&other, [found()]).await;
            continue;
        }
        shop.fixture.saw("renewal failed", 1).await;
        shop.fixture.walk(&other, [found()]).await;
        let renewed = shop.fixture.clock.sleeper_within(Duration::from_secs(3));
        patiently("the next renewal is due", renewed).await;
        shop.fixture.clock.advance(Duration::from_secs(3));
        shop.fixture.saw("lease lost", 1).await;
        shop.write(TWO);
        assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
        shop.end();
        shop.fixture.saw("adopted", 1).await;
        shop.fixture.walk(&other, [found()]).await;
    }
}

fn spawn_next(
    mut response: Response,
) -> tokio::task::JoinHandle<Option<Result<Vec<u8>, axum::Error>>> {
    tokio::spawn(async move { next(&mut response).await })
}

/// The record was lost, and another request has the key: the store does not take the unknown outcome.
#[tokio::test]
async fn a_stream_whose_unknown_outcome_is_refused_is_unconfirmed() {
    for on_unconfirmed in [OnUnconfirmed::Fail, OnUnconfirmed::Return] {
        let second = Duration::from_secs(1);
        let (shop, store, other) = Shop::with_faults(|layer| {
            let layer = layer.ttl(second).error_ttl(second);
            layer.on_unconfirmed(on_unconfirmed)
        });
        let handler = Handler::default();
        let service = handler.service(shop.layer.clone());
        let client = spawn(&service, order("tea"));
        let context = handler.runs().await;
        store.fail(StoreOperation::Renew, [Fault::Unreachable; 100]);
        shop.fixture.clock.advance(Duration::from_secs(61));
        let other = shop.fixture.orders(other, |run| run.to_string());
        let row = ("another request", order("rum"), ran("1"));
        shop.fixture.walk(&other, [row]).await;
        drop(handler.answers(ONE));
        let client = patiently("an answer", client).await.unwrap();
        if on_unconfirmed == OnUnconfirmed::Fail {
            assert_eq!(client.problem(), (503, "answer-unconfirmed"));
        } else {
            assert_eq!(client.said(), (200, ONE));
        }
        assert!(context.lease_remaining().is_zero());
    }
}

/// A handler that is at a gate before its stream, and watches its lease.
#[derive(Default)]
struct Handler {
    gate: Arc<Gate>,
    context: Arc<Mutex<Option<Context>>>,
    body: Arc<Mutex<Option<Body>>>,
}

impl Handler {
    fn service(&self, layer: IdempotencyLayer) -> Router {
        let (gate, body) = (Arc::clone(&self.gate), Arc::clone(&self.body));
        let of_test = Arc::clone(&self.context);
        let answers = axum::routing::post(move || async move {
            *of_test.lock().unwrap() = Some(context());
            gate.started.notify_one();
            gate.go_on.notified().await;
            (
                [("content-type", EVENTS)],
                body.lock().unwrap().take().unwrap(),
            )
        });
        routed(answers, layer)
    }

    async fn runs(&self) -> Context {
        self.gate.runs().await;
        self.context.lock().unwrap().take().unwrap()
    }

    /// It answers with a stream that begins with this.
    fn answers(&self, text: &'static str) -> Source {
        let (source, body) = frames();
        source.send(data(text)).unwrap();
        *self.body.lock().unwrap() = Some(body);
        self.gate.go_on.notify_one();
        source
    }
}

/// An ordinary answer is stored as well once the other attempt has ended without one.
#[tokio::test]
async fn the_answer_of_an_overtaken_stream_saves_a_third_run() {
    let (shop, store, other) = Shop::with_faults(|layer| layer.on_running(OnRunning::Reject));
    let handler = Handler::default();
    let client = spawn(&handler.service(shop.layer.clone()), order(""));
    handler.runs().await;
    store.fail(StoreOperation::Renew, [Fault::Unreachable; 100]);
    shop.fixture.clock.advance(Duration::from_secs(31));
    let gate = Arc::new(Gate::default());
    let through = Arc::clone(&gate);
    let fails = axum::routing::post(move || async move {
        through.started.notify_one();
        through.go_on.notified().await;
        http::StatusCode::SERVICE_UNAVAILABLE
    });
    let again = routed(fails, other);
    let second = spawn(&again, order(""));
    gate.runs().await;
    let source = handler.answers(ONE);
    let client = patiently("a refusal", client).await.unwrap();
    assert_eq!(client.problem(), (409, "request-running"));
    gate.go_on.notify_one();
    let second = patiently("it fails", second).await.unwrap();
    assert_eq!(second.status, 503);
    source.send(data(TWO)).unwrap();
    drop(source);
    patiently("it is stored", async {
        while shop.fixture.events.count("completed value") == 0 {
            shop.fixture.clock.advance(Duration::from_millis(100));
            others().await;
        }
    })
    .await;
    assert_both(&send(&again, order("")).await);
}

/// The life runs from the first send, and not from the end of an outage.
#[tokio::test]
async fn an_outage_does_not_prolong_a_chosen_life() {
    let life = Duration::from_hours(10);
    let (shop, store, _) = Shop::with_faults(|layer| {
        let layer = layer.on_unconfirmed(OnUnconfirmed::Return);
        layer.ttl_of(move |_| Some(life))
    });
    let clock = &shop.fixture.clock;
    let orders = shop
        .fixture
        .orders(shop.layer.clone(), |run| run.to_string());
    store.fail(StoreOperation::Complete, [Fault::Hangs, Fault::Hangs]);
    let begun = clock.now();
    let client = spawn(&orders, order(""));
    patiently("it is sent", async {
        while store.count(StoreOperation::Complete) == 0 {
            others().await;
        }
    })
    .await;
    clock.advance(Duration::from_secs(2));
    let client = patiently("an unconfirmed answer", client).await.unwrap();
    assert_eq!(client.said(), (200, "1"));
    patiently("it is stored", async {
        while shop.fixture.events.count("completed value") == 0 {
            clock.advance(Duration::from_secs(1));
            others().await;
        }
    })
    .await;
    let elapsed = clock.now().saturating_sub(begun);
    assert_eq!(shop.entry().await.left() + elapsed, life);
}

#[tokio::test]
async fn a_reset_in_the_middle_lets_the_next_request_run() {
    for next_comes_first in [true, false] {
        let fixture = Fixture::new();
        let layer = fixture.layer().on_running(OnRunning::Reject);
        let mut shop = Shop::of_type(fixture, layer, EVENTS, 200);
        drop(shop.first().await);
        assert!(shop.entry().await.is_streaming());
        shop.entry().await.reset().await.unwrap();
        // A service over the same records, with a handler that answers.
        let (gate, again) = gated(&shop.fixture, shop.layer.clone());
        shop.write(TWO);
        if next_comes_first {
            let second = spawn(&again, order(""));
            gate.runs().await;
            shop.end();
            let row = ("while the second runs", order(""), RUNNING);
            shop.fixture.walk(&again, [row]).await;
            gate.go_on.notify_one();
            let second = patiently("the second answer", second).await.unwrap();
            assert_eq!(second.replay(), (false, "2"));
            shop.fixture.clock.advance(Duration::from_secs(10));
            shop.fixture.saw("adopted", 1).await;
            let row = ("afterwards", order(""), replayed("2"));
            shop.fixture.walk(&again, [row]).await;
        } else {
            shop.end();
            shop.fixture.saw("completed value late", 1).await;
            assert_both(&send(&again, order("")).await);
        }
    }
}

#[tokio::test]
async fn the_answer_of_an_operator_stays() {
    let mut shop = Shop::open(|layer| layer);
    drop(shop.first().await);
    let by_hand = http::Response::new("by hand");
    let entry = shop.entry().await;
    entry.resolve_response(by_hand).await.unwrap();
    shop.write(TWO);
    shop.end();
    shop.fixture.saw("adopted", 1).await;
    let row = ("again", order(""), replayed("by hand"));
    shop.fixture.walk(&shop.service, [row]).await;
}

/// Storing that the outcome is unknown has no reply, and is repeated beside the stream.
#[tokio::test]
async fn an_outage_before_the_first_byte_delays_the_unknown_outcome_alone() {
    let (fixture, store) = (Fixture::new(), MemoryStore::new());
    let faulty = Faulty::new(store.clone());
    let engine = |store| {
        let engine = Engine::builder(store).clock(fixture.clock.clone());
        let engine = engine.observer(fixture.events.clone()).build().unwrap();
        IdempotencyLayer::public(engine, "shop.api").on_running(OnRunning::Reject)
    };
    let other = fixture.orders(engine(Faulty::new(store.clone())), |run| run.to_string());
    let layer = engine(faulty.clone());
    let mut shop = Shop::of_type(fixture.clone(), layer, EVENTS, 200);
    faulty.fail(StoreOperation::Complete, [Fault::Hangs, Fault::Hangs]);
    let client = spawn(&shop.service, order(""));
    shop.fixture
        .clock
        .sleeper_within(Duration::from_secs(2))
        .await;
    fixture
        .walk(&other, [("no reply", order(""), RUNNING)])
        .await;
    fixture.clock.advance(Duration::from_secs(2));
    shop.fixture.saw("unsaved", 1).await;
    shop.write(ONE);
    // The second one is in flight, and has no reply either.
    fixture
        .walk(&other, [("still none", order(""), RUNNING)])
        .await;
    patiently("a third is sent", async {
        while faulty.count(StoreOperation::Complete) < 3 {
            fixture.clock.advance(Duration::from_millis(100));
            others().await;
        }
    })
    .await;
    others().await;
    assert_streaming(&send(&other, order("")).await);
    shop.write(TWO);
    shop.end();
    let client = patiently("all of the stream", client).await.unwrap();
    assert_eq!(client.said(), (200, BOTH));
    shop.completed().await;
    assert_both(&send(&other, order("")).await);
}

#[tokio::test]
async fn a_recorded_stream_counts_as_running_until_it_is_stored() {
    let mut shop = Shop::open(|layer| layer.max_running(1));
    drop(shop.first().await);
    let full = Refused(503, "too-many-running");
    let other = || with_key("\"other\"", "");
    shop.fixture
        .walk(&shop.service, [("full", other(), full)])
        .await;
    let engine = shop.fixture.engine.clone();
    let shutdown = tokio::spawn(async move { engine.shutdown(Duration::from_hours(1)).await });
    others().await;
    assert!(!shutdown.is_finished(), "a stream is recorded");
    shop.end();
    let ended = patiently("the end of the shutdown", shutdown).await;
    ended.unwrap().unwrap();
    assert_eq!(shop.fixture.events.count("completed value"), 1);
}

#[tokio::test]
async fn a_shutdown_waits_no_longer_than_it_may_for_a_stream_without_end() {
    let shop = Shop::open(|layer| layer);
    let mut response = shop.first().await;
    let engine = shop.fixture.engine.clone();
    let shutdown = tokio::spawn(async move { engine.shutdown(Duration::from_secs(20)).await });
    others().await;
    shop.fixture.clock.advance(Duration::from_secs(20));
    let ended = patiently("the end of the shutdown", shutdown).await;
    assert_eq!(ended.unwrap().unwrap_err().running, 1);
    shop.write(TWO);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
}

#[tokio::test]
async fn other_types_are_streams_if_they_are_named() {
    for of_type in [
        "Text/Event-Stream; charset=utf-8",
        "multipart/x-mixed-replace; boundary=b",
        "application/x-ndjson",
        "application/jsonl; charset=utf-8",
    ] {
        let fixture = Fixture::new();
        let layer = fixture.layer();
        let layer = layer.stream_types(["application/x-ndjson", "application/jsonl"]);
        let mut shop = Shop::of_type(fixture, layer, of_type, 201);
        drop(shop.first().await);
        shop.write(TWO);
        shop.end();
        shop.completed().await;
        let again = shop.repeat().await;
        assert_eq!(again.said(), (201, BOTH));
        assert_eq!(again.header("content-type"), Some(of_type));
    }
}

#[test]
#[should_panic = "`x-ndjson` in `stream_types` is no media type"]
fn a_stream_type_has_a_subtype() {
    let _ = Fixture::new().layer().stream_types(["x-ndjson"]);
}

/// It is held back as any response, because an error replaces no unknown outcome.
#[tokio::test]
async fn a_stream_of_an_error_is_held_back() {
    let fixture = Fixture::new();
    let layer = fixture.layer().on_running(OnRunning::Reject);
    let mut shop = Shop::of_type(fixture, layer, EVENTS, 409);
    shop.write(ONE);
    let client = spawn(&shop.service, order(""));
    shop.fixture.saw("claimed", 1).await;
    let row = ("while it comes", order(""), RUNNING);
    shop.fixture.walk(&shop.service, [row]).await;
    shop.write(TWO);
    shop.end();
    let client = patiently("an answer", client).await.unwrap();
    assert_eq!(client.said(), (409, BOTH));
    let again = shop.repeat().await;
    assert_eq!((again.said(), again.is_replayed()), ((409, BOTH), true));
}

#[tokio::test]
async fn a_stream_that_is_not_recorded_passes_and_is_lost() {
    let shop = Shop::open(|layer| layer.record_streams(false).max_running(1));
    let mut response = shop.first().await;
    is_lost(&shop.fixture, &shop.service).await;
    assert_eq!(
        shop.fixture.events.count("unsaved: it is an upgrade, or"),
        1
    );
    shop.write(TWO);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
    let other = routed(axum::routing::post("other"), shop.layer.clone());
    assert_eq!(send(&other, with_key("\"other\"", "")).await.body, "other");
    drop(response);
    let source = shop.source.as_ref().unwrap();
    patiently("the stream ends with its client", source.closed()).await;
}

/// Of a layer without protection, after an outage: nothing is recorded, and the client reads the stream itself.
#[tokio::test]
async fn a_stream_without_protection_reaches_its_client() {
    let fixture = Fixture::new();
    let store = Faulty::new(MemoryStore::new());
    let engine = Engine::builder(store.clone()).claim_deadline(Duration::from_millis(1));
    let engine = engine.observer(fixture.events.clone()).build().unwrap();
    let layer = IdempotencyLayer::public(engine, "shop.api");
    let layer = layer.on_outage(idem_runtime::OnOutage::Run);
    let shop = Shop::of_type(fixture, layer, EVENTS, 200);
    store.fail(StoreOperation::Claim, [Fault::Unreachable; 100]);
    let mut response = shop.first().await;
    assert_eq!(shop.fixture.events.count("unprotected"), 1);
    shop.write(TWO);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
}

/// The bytes of the record, seen from another connection: unknown before the first byte leaves, then the answer.
#[tokio::test]
async fn redis_has_an_unknown_outcome_until_the_end_of_a_stream() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (fixture, engine) = (Fixture::new(), Engine::new(store));
    let layer = IdempotencyLayer::public(engine, "shop.api");
    let mut shop = Shop::of_type(fixture, layer, EVENTS, 200);
    let mut response = call(&shop.service, order("")).await;
    let record = server.cli(&["KEYS", "*"]);
    let state = || {
        let state = server.cli(&["GETRANGE", record.trim(), "1", "1"]);
        state.chars().next()
    };
    assert_eq!(state(), Some('U'));
    shop.write(ONE);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
    // Another server over the same store.
    let other = Engine::new(RedisStore::connect(&server.url()).await.unwrap());
    let other = IdempotencyLayer::public(other, "shop.api");
    let other = shop.fixture.orders(other, |run| run.to_string());
    assert_streaming(&send(&other, order("")).await);
    shop.write(TWO);
    shop.end();
    while next(&mut response).await.is_some() {}
    patiently("it is stored", async {
        while state() == Some('U') {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(state(), Some('D'));
    assert_both(&send(&other, order("")).await);
    assert_eq!(shop.fixture.runs(), 1);
}
