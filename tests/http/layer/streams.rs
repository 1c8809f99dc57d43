//! Responses that are streams: recorded while they are sent, and replayed.

use std::fmt::Display;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Fault, Faulty, StoreOperation};
use idem_runtime::{
    Context, Engine, EngineBuilder, Error, ErrorKind, OnLeaseLost, OnOutage, OnRunning,
    OnUnconfirmed, Reconciled, context,
};
use idem_tests::shop::{connect, started};
use tokio::runtime::{Builder, Runtime};

use super::bodies::{behind, next};
use crate::client::{
    Answer, Fixture, Gate, KEY, LOST, REUSED, RUNNING, Refused, Replayed, Seen, Source, UNKNOWN,
    call, data, frames, gated, leave, order, others, patiently, ran, replayed, routed, send, spawn,
    with_key,
};
use crate::server::{Server, with_key as raw};

const EVENTS: &str = "text/event-stream";
const ONE: &str = "id: 1\ndata: tea\n\n";
const TWO: &str = "id: 2\ndata: rum\n\n";
const BOTH: &str = "id: 1\ndata: tea\n\nid: 2\ndata: rum\n\n";

/// A service whose handler answers once, with a stream of the test.
struct Shop {
    fixture: Fixture,
    store: Faulty,
    engine: Engine,
    layer: IdempotencyLayer,
    service: Router,
    source: Option<Source>,
    /// The layer of another server over the same records.
    other: IdempotencyLayer,
}

impl Shop {
    fn open(set: impl Fn(IdempotencyLayer) -> IdempotencyLayer) -> Self {
        Self::of_type(EVENTS, 200, set)
    }

    fn of_type(
        of_type: &str,
        status: u16,
        set: impl Fn(IdempotencyLayer) -> IdempotencyLayer,
    ) -> Self {
        let fixture = Fixture::new();
        let memory = MemoryStore::builder().clock(fixture.clock.clone()).build();
        Self::over([memory.clone(), memory], fixture, (of_type, status), set)
    }

    /// Over the connections of two servers to one store.
    fn over(
        [here, there]: [impl Store; 2],
        fixture: Fixture,
        (of_type, status): (&str, u16),
        set: impl Fn(IdempotencyLayer) -> IdempotencyLayer,
    ) -> Self {
        let store = Faulty::new(here);
        let built = |engine: EngineBuilder| engine.clock(fixture.clock.clone()).build().unwrap();
        let engine = built(Engine::builder(store.clone()).observer(fixture.events.clone()));
        let layer = |engine| set(IdempotencyLayer::public(engine, "shop.api"));
        let other = built(Engine::builder(there));
        let (layer, other) = (layer(&engine), layer(&other));
        let (source, frames) = frames();
        let body = HandlersBody {
            frames,
            dies_at_its_end: false,
        };
        let stream = Response::builder().header("content-type", of_type);
        let stream = stream.header("x-node", "a").status(status);
        let stream = stream.body(Body::new(body)).unwrap();
        Self {
            service: behind(layer.clone(), &fixture, stream),
            fixture,
            store,
            engine,
            layer,
            source: Some(source),
            other,
        }
    }

    fn source(&self) -> &Source {
        self.source.as_ref().unwrap()
    }

    /// The handler sends this.
    fn write(&self, text: &'static str) {
        self.source().send(data(text)).unwrap();
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

    /// Waits until so many operations of this kind were sent.
    async fn sent(&self, operation: StoreOperation, times: usize) {
        patiently("an operation is sent", async {
            while self.store.count(operation) < times {
                others().await;
            }
        })
        .await;
    }

    /// Waits for this, and advances the time meanwhile.
    async fn passes(&self, what: &str, so: impl Fn() -> bool) {
        patiently(what, async {
            while !so() {
                self.fixture.clock.advance(Duration::from_millis(100));
                others().await;
            }
        })
        .await;
    }

    async fn entry(&self) -> Entry {
        let name = KEY.trim_matches('"');
        self.layer.entry(None, name).await.unwrap().unwrap()
    }

    async fn repeat(&self) -> Answer {
        send(&self.service, order("")).await
    }

    /// A repeat at this service gets this.
    async fn repeats(&self, row: impl Display, service: &Router, seen: Seen) {
        self.fixture.walk(service, [(row, order(""), seen)]).await;
    }

    /// A service of the other server.
    fn elsewhere(&self) -> Router {
        let other = self.other.clone();
        self.fixture.orders(other, |run| run.to_string())
    }
}

const TRAILER: HeaderName = HeaderName::from_static("repr-digest");

/// At this word the handler's body panics.
const PANIC: &str = "panic";
/// After this word it panics when it is dropped.
const FUSE: &str = "fuse";

struct HandlersBody {
    frames: Body,
    dies_at_its_end: bool,
}

impl http_body::Body for HandlersBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.frames).poll_frame(cx));
            let word = frame
                .as_ref()
                .and_then(|frame| frame.as_ref().ok()?.data_ref());
            assert!(word.is_none_or(|word| word != PANIC), "the handler dies");
            if word.is_none_or(|word| word != FUSE) {
                return Poll::Ready(frame);
            }
            self.dies_at_its_end = true;
        }
    }
}

impl Drop for HandlersBody {
    fn drop(&mut self) {
        assert!(!self.dies_at_its_end, "the handler dies at its end");
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
    // It also takes no other connection: the rest runs without the server.
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
    let mut shop = Shop::open(|layer| layer);
    shop.store
        .fail(StoreOperation::Complete, [Fault::ReplyHeld]);
    let client = spawn(&shop.service, order(""));
    shop.sent(StoreOperation::Complete, 1).await;
    leave(client).await;
    shop.store.deliver();
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
        shop.source().send(data(part.clone())).unwrap();
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

/// What becomes of a stream after its first event.
#[derive(Clone, Copy, Debug)]
enum Then {
    Ends,
    /// And its destructor panics.
    EndsBadly,
    BreaksOff,
    Panics,
    /// Over a limit of 30 bytes. If its client has left, its destructor panics.
    GoesOn,
    /// The same, until the time of its handler is over.
    Outlasts,
}
use Then::{BreaksOff, Ends, EndsBadly, GoesOn, Outlasts, Panics};

type Set = fn(IdempotencyLayer) -> IdempotencyLayer;

/// Ambiguous outcomes are released.
const BOLD: Set =
    |layer| layer.status_policy(StatusPolicy::careful().ambiguous(KeyVerdict::Release));

#[tokio::test]
async fn each_end_of_a_stream_decides_what_a_repeat_gets() {
    let careful: Set = |layer| layer;
    let draft: Set = |layer| layer.status_policy(StatusPolicy::draft());
    let hooked: Set =
        |layer| layer.reconcile(|_, _| async { Reconciled::<Response<&str>>::NotLanded });
    let limited: Set = |layer| layer.max_response_bytes(30);
    let unrecorded: Set = |layer| layer.record_streams(false);
    let (value, unknown) = ("completed value", "completed unknown");
    let (large, endless) = (
        "unsaved: it is larger than 30",
        "unsaved: it is an upgrade, or a stream",
    );
    let both = replayed(BOTH);
    for (number, (set, meanwhile, then, event, repeat)) in [
        (careful, UNKNOWN, Ends, value, both),
        (careful, UNKNOWN, EndsBadly, value, both),
        (careful, UNKNOWN, BreaksOff, unknown, UNKNOWN),
        (careful, UNKNOWN, Panics, unknown, UNKNOWN),
        (careful, UNKNOWN, Outlasts, endless, LOST),
        (draft, UNKNOWN, BreaksOff, unknown, UNKNOWN),
        (limited, UNKNOWN, GoesOn, large, LOST),
        (unrecorded, LOST, GoesOn, endless, LOST),
        // The claim is held.
        (BOLD, RUNNING, Ends, value, both),
        (BOLD, RUNNING, BreaksOff, "released", ran("2")),
        (BOLD, RUNNING, Panics, "released", ran("2")),
        (BOLD, RUNNING, Outlasts, endless, LOST),
        (hooked, RUNNING, Ends, value, both),
        (hooked, RUNNING, EndsBadly, value, both),
        (hooked, RUNNING, Outlasts, endless, LOST),
    ]
    .into_iter()
    .enumerate()
    {
        for client_stays in [true, false] {
            let row = format!("row {number}, {then:?}, its client stays: {client_stays}");
            let mut shop = Shop::open(|layer| set(layer.on_running(OnRunning::Reject)));
            let again = (shop.fixture).orders(shop.layer.clone(), |run| run.to_string());
            let client = Some(shop.first().await).filter(|_| client_stays);
            shop.repeats(&row, &again, meanwhile).await;
            shop.then(then, client_stays).await;
            shop.fixture.saw(event, 1).await;
            assert!(shop.fixture.events.count("completed") <= 1, "{row}");
            assert_eq!(shop.fixture.events.count("lease lost"), 0, "{row}");
            let after = [(&row, order("another"), REUSED), (&row, order(""), repeat)];
            shop.fixture.walk(&again, after).await;
            if let Some(client) = client {
                shop.rest(then, client).await;
            } else if let Some(source) = &shop.source {
                patiently("a stream without a reader is dropped", source.closed()).await;
            }
        }
    }
}

impl Shop {
    async fn then(&mut self, then: Then, client_stays: bool) {
        match then {
            Ends => {
                self.write(TWO);
                let trailers = [(TRAILER, HeaderValue::from_static("7"))];
                let trailers = Frame::trailers(HeaderMap::from_iter(trailers));
                self.source().send(Ok(trailers)).unwrap();
            }
            EndsBadly => {
                self.write(FUSE);
                self.write(TWO);
            }
            BreaksOff => {
                let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
                self.source().send(Err(broken)).unwrap();
            }
            Panics => self.write(PANIC),
            GoesOn | Outlasts if !client_stays => {
                // Refused if nothing reads it any more.
                let _ = self.source().send(data(FUSE));
                others().await;
            }
            GoesOn | Outlasts => {}
        }
        match then {
            Ends | EndsBadly => self.end(),
            GoesOn => drop(self.source().send(data(TWO))),
            Outlasts => self.fixture.clock.advance(Duration::from_mins(16)),
            BreaksOff | Panics => {}
        }
    }

    /// The rest for a client that stays, after the first event.
    async fn rest(&mut self, then: Then, mut client: Response) {
        match then {
            BreaksOff => assert!(next(&mut client).await.unwrap().is_err()),
            Panics => {
                let rest = patiently("a panic", spawn_next(client)).await;
                assert!(rest.unwrap_err().is_panic(), "as the handler's");
                return;
            }
            Outlasts => self.write(TWO),
            Ends | EndsBadly | GoesOn => {}
        }
        if !matches!(then, BreaksOff) {
            assert_eq!(next(&mut client).await.unwrap().unwrap(), TWO.as_bytes());
        }
        if let Ends = then {
            let trailers = next(&mut client).await.unwrap().unwrap();
            assert!(trailers.is_empty(), "a frame without data");
        }
        if let GoesOn | Outlasts = then {
            self.write("more");
            assert_eq!(next(&mut client).await.unwrap().unwrap(), b"more");
            self.end();
        }
        assert!(next(&mut client).await.is_none());
    }
}

fn spawn_next(
    mut response: Response,
) -> tokio::task::JoinHandle<Option<Result<Vec<u8>, axum::Error>>> {
    tokio::spawn(async move { next(&mut response).await })
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The process of the first request ends in the middle: the store keeps its records, and nothing runs there any more.
fn crash(shop: &Shop, during: Seen, unacknowledged: usize) -> Response {
    let hang = std::iter::repeat_n(Fault::Hangs, unacknowledged);
    shop.store.fail(StoreOperation::Complete, hang);
    let sent = || shop.store.count(StoreOperation::Complete) >= unacknowledged;
    runtime().block_on(async {
        let (first, ()) = tokio::join!(shop.first(), shop.passes("it is sent", sent));
        shop.repeats("during the stream", &shop.service, during)
            .await;
        first
    })
}

#[test]
fn a_crash_in_the_middle_starts_no_other_handler() {
    // Two requests without a reply: the engine goes on storing that the outcome is unknown.
    for (during, unacknowledged) in [(UNKNOWN, 0), (RUNNING, 2)] {
        let shop = Shop::open(|layer| {
            let layer = layer.max_attempts(NonZeroU16::new(3));
            layer.on_running(OnRunning::Reject)
        });
        let first = crash(&shop, during, unacknowledged);
        runtime().block_on(async {
            patiently("the outcome is unknown", async {
                while !shop.entry().await.is_streaming() {}
            })
            .await;
            assert_streaming(&shop.repeat().await);
            // Neither after the lease nor after the time of any handler.
            for minutes in [1, 20, 60] {
                shop.fixture.clock.advance(Duration::from_mins(minutes));
                shop.repeats(minutes, &shop.service, UNKNOWN).await;
            }
            // By then it cannot go on.
            let late = shop.repeat().await;
            assert_eq!(late.json()["retryable"], false);
            assert_eq!(late.header("retry-after"), None);
            assert_eq!(shop.fixture.runs(), 1);
            assert_eq!(shop.entry().await.state(), EntryState::Unknown);
        });
        drop(first);
    }
}

/// With a hook the claim is held: a hook that ran beside the handler could start another.
#[test]
fn a_crash_of_a_held_stream_ends_as_that_of_a_handler() {
    for (set, after) in [(landed as Set, replayed("found")), (BOLD, ran("2"))] {
        let shop = Shop::open(|layer| set(layer.on_running(OnRunning::Reject)));
        let first = crash(&shop, RUNNING, 0);
        runtime().block_on(async {
            shop.fixture.clock.advance(Duration::from_mins(1));
            let again = (shop.fixture).orders(shop.layer.clone(), |run| run.to_string());
            shop.repeats("after the crash", &again, after).await;
        });
        drop(first);
    }
}

/// The record outlives the stream, also with a shorter life of answers.
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

fn landed(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.reconcile(|_, _| async { Reconciled::Landed(http::Response::new("found")) })
}

/// A handler at a gate before its stream.
#[derive(Default)]
struct Handler {
    gate: Arc<Gate>,
    context: Arc<Mutex<Option<Context>>>,
    body: Arc<Mutex<Option<Body>>>,
}

impl Handler {
    fn service(&self, layer: &IdempotencyLayer) -> Router {
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
        routed(answers, layer.clone())
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

/// A handler that watches its lease while it streams: no other attempt is granted the key, though the record has no claim.
#[tokio::test]
async fn the_lease_is_not_lost_while_a_stream_is_recorded() {
    let shop = Shop::open(|layer| layer);
    let handler = Handler::default();
    let client = spawn(&handler.service(&shop.layer), order(""));
    let context = handler.runs().await;
    let source = handler.answers(ONE);
    shop.sent(StoreOperation::Complete, 1).await;
    shop.fixture.clock.advance(Duration::from_secs(10));
    shop.sent(StoreOperation::Renew, 1).await;
    // Read on the thread of the renewal, and after it.
    assert!(shop.entry().await.is_streaming());
    shop.fixture.clock.advance(Duration::from_mins(2));
    assert!(!context.lease_remaining().is_zero());
    assert!(context.lease_lost().now_or_never().is_none());
    assert_eq!(shop.fixture.events.count("lease lost"), 0);
    drop(source);
    shop.completed().await;
    assert_eq!(client.await.unwrap().said(), (200, ONE));
}

/// Another server takes over the claim, which lapses in an outage.
#[tokio::test]
async fn a_held_stream_loses_its_lease_as_a_running_handler() {
    for on_lease_lost in [OnLeaseLost::Continue, OnLeaseLost::Cancel] {
        let mut shop = Shop::open(|layer| landed(layer.on_lease_lost(on_lease_lost)));
        let mut response = shop.first().await;
        shop.write(FUSE);
        shop.store.fail(StoreOperation::Renew, [Fault::Unreachable]);
        shop.fixture.clock.advance(Duration::from_secs(31));
        let elsewhere = shop.elsewhere();
        if on_lease_lost == OnLeaseLost::Cancel {
            patiently("the stream is dropped", shop.source().closed()).await;
            let rest = patiently("its client learns of it", spawn_next(response)).await;
            assert!(rest.unwrap_err().is_panic(), "not as a stream that ends");
            shop.repeats("after the lease", &elsewhere, replayed("found"))
                .await;
            continue;
        }
        shop.fixture.saw("renewal failed", 1).await;
        shop.repeats("after the lease", &elsewhere, replayed("found"))
            .await;
        let renewed = shop.fixture.clock.sleeper_within(Duration::from_secs(3));
        patiently("the next renewal is due", renewed).await;
        shop.fixture.clock.advance(Duration::from_secs(3));
        shop.fixture.saw("lease lost", 1).await;
        shop.write(TWO);
        assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
        shop.end();
        shop.fixture.saw("adopted", 1).await;
        shop.repeats("after the lease", &elsewhere, replayed("found"))
            .await;
    }
}

/// A task of the handler has steps after the first byte; a held claim records them.
#[tokio::test]
async fn a_step_that_ends_beside_the_stream_costs_no_answer() {
    for (set, keeps) in [(landed as Set, true), (|layer| layer, false)] {
        for on_lease_lost in [OnLeaseLost::Continue, OnLeaseLost::Cancel] {
            let shop = Shop::open(|layer| set(layer.on_lease_lost(on_lease_lost)));
            let handler = Handler::default();
            let service = handler.service(&shop.layer);
            let client = tokio::spawn(async move { call(&service, order("")).await });
            let context = handler.runs().await;
            let gate = Arc::new(Gate::default());
            let (cx, through) = (context.clone(), Arc::clone(&gate));
            let begun = tokio::spawn(async move {
                let part = async |_| {
                    through.started.notify_one();
                    through.go_on.notified().await;
                    Ok::<_, Error>(7)
                };
                cx.step("charge", part).await
            });
            gate.runs().await;
            let source = handler.answers(ONE);
            let mut response = patiently("a response", client).await.unwrap();
            assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
            gate.go_on.notify_one();
            let begun = patiently("the end of a step", begun).await.unwrap();
            let later = context.step("mail", async |_| Ok::<_, Error>(7)).await;
            for step in [begun, later] {
                let step = step.map_err(|error| error.kind().clone());
                let expected = if keeps {
                    Ok(7)
                } else {
                    Err(ErrorKind::InvalidStep)
                };
                assert_eq!(step, expected);
            }
            assert!(context.lease_lost().now_or_never().is_none());
            source.send(data(TWO)).unwrap();
            drop(source);
            assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
            shop.completed().await;
            assert_both(&shop.repeat().await);
        }
    }
}

/// The handler answers after its lease: an answer that may differ from another one is not passed on.
#[tokio::test]
async fn a_stream_after_its_lease_is_passed_on_if_no_other_attempt_has_the_key() {
    let forgotten: Set = |layer| {
        let second = Duration::from_secs(1);
        layer.ttl(second).error_ttl(second)
    };
    // The lease is shorter than `complete_deadline`.
    let brief: Set = |layer| landed(layer.lease(Duration::from_secs(1)));
    let all = [
        OnUnconfirmed::WithinLease,
        OnUnconfirmed::Fail,
        OnUnconfirmed::Return,
    ];
    let lenient = &all[2..];
    for (set, meanwhile, is_confirmed_late, passes) in [
        (landed as Set, None, false, &all[..]),
        // Its hook has found another answer.
        (landed, Some(("tea", replayed("found"))), false, lenient),
        // The record was lost, and is another request's: the store does not take the unknown outcome.
        (forgotten, Some(("rum", ran("1"))), false, lenient),
        // Another attempt may have the key again by the time of the reply.
        (brief, None, true, lenient),
    ] {
        for on_unconfirmed in all {
            let shop = Shop::open(|layer| set(layer.on_unconfirmed(on_unconfirmed)));
            let handler = Handler::default();
            let client = spawn(&handler.service(&shop.layer), order("tea"));
            let context = handler.runs().await;
            shop.store
                .fail(StoreOperation::Renew, [Fault::Unreachable; 100]);
            shop.fixture.clock.advance(Duration::from_secs(61));
            shop.fixture.saw("renewal failed", 1).await;
            if let Some((request, seen)) = meanwhile {
                let row = (request, order(request), seen);
                shop.fixture.walk(&shop.elsewhere(), [row]).await;
            }
            shop.store.heal();
            let renewals = shop.store.count(StoreOperation::Renew);
            let source = handler.answers(ONE);
            if is_confirmed_late && on_unconfirmed != OnUnconfirmed::Return {
                let due = std::iter::repeat_n(Fault::Unreachable, 100);
                let held = std::iter::once(Fault::ReplyHeld);
                shop.store.fail(StoreOperation::Renew, held.chain(due));
                shop.sent(StoreOperation::Renew, renewals + 1).await;
                shop.fixture.clock.advance(Duration::from_millis(1_500));
                shop.store.deliver();
            }
            drop(source);
            let client = patiently("an answer", client).await.unwrap();
            if passes.contains(&on_unconfirmed) {
                assert_eq!(client.said(), (200, ONE));
            } else {
                assert_eq!(client.problem(), (503, "answer-unconfirmed"));
            }
            if meanwhile.is_some() {
                assert!(context.lease_remaining().is_zero());
            }
        }
    }
}

/// As of an ordinary answer, once the other attempt has none.
#[tokio::test]
async fn the_answer_of_an_overtaken_stream_saves_a_third_run() {
    let shop = Shop::open(|layer| layer.on_running(OnRunning::Reject));
    let handler = Handler::default();
    let client = spawn(&handler.service(&shop.layer), order(""));
    handler.runs().await;
    shop.store
        .fail(StoreOperation::Renew, [Fault::Unreachable; 100]);
    shop.fixture.clock.advance(Duration::from_secs(31));
    let gate = Arc::new(Gate::default());
    let through = Arc::clone(&gate);
    let fails = axum::routing::post(move || async move {
        through.started.notify_one();
        through.go_on.notified().await;
        http::StatusCode::SERVICE_UNAVAILABLE
    });
    let again = routed(fails, shop.other.clone());
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
    let stored = || shop.fixture.events.count("completed value") == 1;
    shop.passes("it is stored", stored).await;
    assert_both(&send(&again, order("")).await);
}

#[tokio::test]
async fn a_reset_in_the_middle_lets_the_next_request_run() {
    for next_comes_first in [true, false] {
        let mut shop = Shop::open(|layer| layer.on_running(OnRunning::Reject));
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
            shop.repeats("while the second runs", &again, RUNNING).await;
            gate.go_on.notify_one();
            let second = patiently("the second answer", second).await.unwrap();
            assert_eq!(second.replay(), (false, "2"));
            shop.fixture.clock.advance(Duration::from_secs(10));
            shop.fixture.saw("adopted", 1).await;
            shop.repeats("afterwards", &again, replayed("2")).await;
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
    shop.repeats("again", &shop.service, replayed("by hand"))
        .await;
}

/// The unknown outcome gets no reply; it is sent again meanwhile.
#[tokio::test]
async fn an_outage_before_the_first_byte_delays_the_unknown_outcome_alone() {
    for on_unconfirmed in [OnUnconfirmed::WithinLease, OnUnconfirmed::Fail] {
        let mut shop = Shop::open(|layer| {
            let layer = layer.on_running(OnRunning::Reject);
            layer.on_unconfirmed(on_unconfirmed)
        });
        let elsewhere = shop.elsewhere();
        let clock = &shop.fixture.clock;
        shop.store.fail(StoreOperation::Complete, [Fault::Hangs; 2]);
        let client = spawn(&shop.service, order(""));
        clock.sleeper_within(Duration::from_secs(2)).await;
        shop.repeats("no reply", &elsewhere, RUNNING).await;
        clock.advance(Duration::from_secs(2));
        shop.fixture.saw("unsaved", 1).await;
        shop.write(ONE);
        // The second one is in flight, and has no reply either.
        shop.repeats("still none", &elsewhere, RUNNING).await;
        let sent = || shop.store.count(StoreOperation::Complete) == 3;
        shop.passes("a third is sent", sent).await;
        others().await;
        assert_streaming(&send(&elsewhere, order("")).await);
        shop.write(TWO);
        shop.end();
        let client = patiently("an answer", client).await.unwrap();
        if on_unconfirmed == OnUnconfirmed::Fail {
            assert_eq!(client.problem(), (503, "answer-unconfirmed"));
        } else {
            assert_eq!(client.said(), (200, BOTH));
        }
        shop.completed().await;
        assert_both(&send(&elsewhere, order("")).await);
    }
}

/// Storing the unknown outcome fails, or storing the whole answer.
#[tokio::test]
async fn each_fault_of_storing_delays_the_answer_alone() {
    for fault in [
        Fault::Lost,
        Fault::ReplyLost,
        Fault::Hangs,
        Fault::ReplyHangs,
        Fault::Twice,
        Fault::Refused,
        Fault::Full,
        Fault::Busy,
        Fault::Unreachable,
    ] {
        for faults in [[fault, Fault::None], [Fault::None, fault], [fault; 2]] {
            let mut shop = Shop::open(|layer| layer.on_running(OnRunning::Reject));
            shop.store.fail(StoreOperation::Complete, faults);
            let client = spawn(&shop.service, order(""));
            shop.write(ONE);
            shop.write(TWO);
            shop.end();
            let stored = || shop.fixture.events.count("completed value") == 1;
            shop.passes(&format!("{faults:?}"), stored).await;
            let client = patiently("all of the stream", client).await.unwrap();
            assert_eq!(client.said(), (200, BOTH), "{faults:?}");
            assert_both(&send(&shop.elsewhere(), order("")).await);
            assert_eq!(shop.fixture.runs(), 1, "{faults:?}");
        }
    }
}

/// A response with a stalled body, and one with a stalled client.
#[tokio::test]
async fn a_response_that_stalls_holds_its_key_no_longer_than_its_handler_may_run() {
    let (whole, error) = (replayed(ONE), Replayed(409, ONE));
    for (of_type, status, ends, during, after, at_last) in [
        // It is held back until its end. So is a stream of an error, which replaces no unknown outcome.
        ("text/plain", 200, false, RUNNING, RUNNING, ran("2")),
        (EVENTS, 409, false, RUNNING, RUNNING, ran("2")),
        (EVENTS, 200, false, UNKNOWN, LOST, LOST),
        // Nothing waits for a client that reads nothing.
        ("text/plain", 200, true, whole, whole, whole),
        (EVENTS, 200, true, whole, whole, whole),
        (EVENTS, 409, true, error, error, error),
    ] {
        let (minute, lease) = (Duration::from_mins(1), Duration::from_mins(3));
        let mut shop = Shop::of_type(of_type, status, |layer| {
            let layer = layer.lease(lease).max_run(minute * 15);
            layer.on_running(OnRunning::Reject)
        });
        let again = (shop.fixture).orders(shop.layer.clone(), |run| run.to_string());
        shop.write(ONE);
        if ends {
            shop.end();
        }
        let service = shop.service.clone();
        let unread = tokio::spawn(async move { call(&service, order("")).await });
        let is_held_back = matches!(during, Refused(409, _));
        let begins = if ends { "completed" } else { "claimed" };
        shop.fixture.saw(begins, 1).await;
        others().await;
        for at in 0..15 {
            let row = format!("{of_type} {status}, at {at} min, ends: {ends}");
            shop.repeats(row, &again, during).await;
            shop.fixture.clock.advance(minute);
            match at {
                14 if is_held_back => shop.fixture.saw("lease lost", 1).await,
                14 if !ends => shop.fixture.saw("unsaved", 1).await,
                _ if is_held_back => shop.fixture.saw("renewed", at + 1).await,
                _ => {}
            }
        }
        let row = |at| format!("{of_type} {status}, {at}, ends: {ends}");
        shop.repeats(row("after `max_run`"), &again, after).await;
        shop.fixture.clock.advance(lease);
        shop.repeats(row("after the lease"), &again, at_last).await;
        drop(unread);
    }
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
    let engine = shop.engine.clone();
    let shutdown = tokio::spawn(async move { engine.shutdown(Duration::from_hours(1)).await });
    others().await;
    assert!(!shutdown.is_finished(), "a stream is recorded");
    shop.end();
    let ended = patiently("the end of the shutdown", shutdown).await;
    ended.unwrap().unwrap();
    assert_eq!(shop.fixture.events.count("completed value"), 1);
}

#[tokio::test]
async fn a_stream_that_is_not_recorded_does_not_count_as_running() {
    let shop = Shop::open(|layer| layer.record_streams(false).max_running(1));
    let _response = shop.first().await;
    let other = routed(axum::routing::post("other"), shop.layer.clone());
    assert_eq!(send(&other, with_key("\"other\"", "")).await.body, "other");
}

#[tokio::test]
async fn a_shutdown_waits_no_longer_than_it_may_for_a_stream_without_end() {
    let shop = Shop::open(|layer| layer);
    let mut response = shop.first().await;
    let engine = shop.engine.clone();
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
        let named = ["application/x-ndjson", "application/jsonl"];
        let mut shop = Shop::of_type(of_type, 201, |layer| layer.stream_types(named));
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

/// Of a layer without protection, after an outage: nothing is recorded, and the client reads the stream itself.
#[tokio::test]
async fn a_stream_without_protection_reaches_its_client() {
    let shop = Shop::open(|layer| layer.on_outage(OnOutage::Run));
    shop.store
        .fail(StoreOperation::Claim, [Fault::Unreachable; 1_000]);
    let (mut response, ()) = tokio::join!(
        shop.first(),
        shop.passes("it runs", || shop.fixture.events.count("unprotected") == 1)
    );
    shop.write(TWO);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
}

/// The bytes of the record, seen from another connection: unknown before the first byte leaves, then the answer.
#[tokio::test]
async fn redis_has_an_unknown_outcome_until_the_end_of_a_stream() {
    let (server, store) = started().await;
    let stores = [store, connect(server.url()).await.unwrap()];
    let mut shop = Shop::over(stores, Fixture::new(), (EVENTS, 200), |layer| layer);
    let mut response = call(&shop.service, order("")).await;
    let record = server.cli(&["KEYS", "*"]);
    let state = || {
        let state = server.cli(&["GETRANGE", record.trim(), "1", "1"]);
        state.chars().next()
    };
    assert_eq!(state(), Some('U'));
    shop.write(ONE);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
    let elsewhere = shop.elsewhere();
    assert_streaming(&send(&elsewhere, order("")).await);
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
    assert_both(&send(&elsewhere, order("")).await);
    assert_eq!(shop.fixture.runs(), 1);
}
