//! A client without a network, and a service that counts.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodRouter, any, post};
use bytes::Bytes;
use http::request::{Builder, Parts};
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use idem_runtime::Engine;
use idem_runtime::clock::ManualClock;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::memory::MemoryStore;
use idem_tests::events::Events;
pub(crate) use idem_tests::shop::patiently;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tower::{Service, ServiceExt as _};

pub(crate) const KEY: &str = "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"";

/// A client's view of the response, and whether a handler ran: (status, text or code of a problem).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// A handler ran, and this is its response.
    Ran(u16, &'static str),
    /// The stored response of an earlier request, marked as such.
    Replayed(u16, &'static str),
    /// A problem document; no handler ran.
    Refused(u16, &'static str),
}
pub(crate) use Seen::{Ran, Refused, Replayed};

pub(crate) const INVALID: Seen = Refused(400, "key-invalid");
pub(crate) const MISSING: Seen = Refused(400, "key-missing");
pub(crate) const REUSED: Seen = Refused(422, "key-reused");
pub(crate) const RUNNING: Seen = Refused(409, "request-running");
pub(crate) const LOST: Seen = Refused(500, "answer-lost");
pub(crate) const UNKNOWN: Seen = Refused(500, "outcome-unknown");

pub(crate) fn ran(text: &'static str) -> Seen {
    Ran(200, text)
}

pub(crate) fn replayed(text: &'static str) -> Seen {
    Replayed(200, text)
}

/// An engine in memory with observer and clock, and the handlers' runs.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) events: Events,
    pub(crate) clock: ManualClock,
    runs: Arc<AtomicUsize>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|engine| engine)
    }

    /// With other settings.
    pub(crate) fn with(
        set: impl FnOnce(idem_runtime::EngineBuilder) -> idem_runtime::EngineBuilder,
    ) -> Self {
        let (events, clock) = (Events::default(), ManualClock::new());
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let builder = Engine::builder(store)
            .clock(clock.clone())
            .observer(events.clone());
        Self {
            engine: set(builder).build().unwrap(),
            events,
            clock,
            runs: Arc::default(),
        }
    }

    pub(crate) fn layer(&self) -> IdempotencyLayer {
        IdempotencyLayer::public(&self.engine, "shop.api")
    }

    /// A layer whose clients are tenants.
    pub(crate) fn scoped(&self) -> IdempotencyLayer {
        IdempotencyLayer::scoped(&self.engine, "shop.api", tenant)
    }

    /// The handler runs once more; which time it is.
    pub(crate) fn run(&self) -> usize {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How often a handler ran.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// As [`walk`].
    pub(crate) async fn walk<N: Display>(
        &self,
        shop: &Router,
        rows: impl IntoIterator<Item = (N, Request, Seen)>,
    ) {
        walk(shop, || self.runs(), rows).await;
    }

    /// Waits until an event of this name was observed so often.
    pub(crate) async fn saw(&self, event: &str, times: usize) {
        patiently(event, self.events.wait_for(event, times)).await;
    }

    /// A router whose `/orders` sends the response of `respond`, behind the layer.
    pub(crate) fn orders<R>(
        &self,
        layer: IdempotencyLayer,
        respond: impl Fn(usize) -> R + Clone + Send + Sync + 'static,
    ) -> Router
    where
        R: axum::response::IntoResponse + 'static,
    {
        let fixture = self.clone();
        let order = move |_: Bytes| async move { respond(fixture.run()) };
        routed(any(order), layer)
    }
}

/// Sends requests one after the other: each finds the record of those before it. The handler counts its runs.
pub(crate) async fn walk<N: Display>(
    shop: &Router,
    runs: impl Fn() -> usize,
    rows: impl IntoIterator<Item = (N, Request, Seen)>,
) {
    for (row, request, seen) in rows {
        let (before, answer) = (runs(), send(shop, request).await);
        let (is_run, is_replayed) = match seen {
            Ran(status, text) => {
                assert_eq!(answer.said(), (status, text), "{row}");
                (true, false)
            }
            Replayed(status, text) => {
                assert_eq!(answer.said(), (status, text), "{row}");
                (false, true)
            }
            Refused(status, code) => {
                assert_eq!(answer.status, status, "{row}: {answer:?}");
                assert_eq!(answer.problem(), (status, code), "{row}");
                (false, false)
            }
        };
        assert_eq!(
            answer.is_replayed(),
            is_replayed,
            "marked as replayed: {row}"
        );
        assert_eq!(
            runs() - before,
            usize::from(is_run),
            "runs of the handler: {row}"
        );
    }
}

/// A router behind a layer with these settings. Its handler answers with the number of its run.
pub(crate) fn numbered(
    set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
) -> (Fixture, Router) {
    let fixture = Fixture::new();
    let shop = fixture.orders(set(fixture.layer()), |run| run.to_string());
    (fixture, shop)
}

/// A router whose `/orders` is this handler, behind the layer.
pub(crate) fn routed(handler: MethodRouter, layer: IdempotencyLayer) -> Router {
    Router::new().route("/orders", handler).layer(layer)
}

/// A handler that reports its beginning and waits for permission to end.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) started: Notify,
    pub(crate) go_on: Notify,
}

impl Gate {
    /// Waits until the handler runs.
    pub(crate) async fn runs(&self) {
        patiently("the handler runs", self.started.notified()).await;
    }
}

/// A router whose handler waits at a gate. It answers with its run's number.
pub(crate) fn gated(fixture: &Fixture, layer: IdempotencyLayer) -> (Arc<Gate>, Router) {
    let gate = Arc::new(Gate::default());
    let (fixture, through) = (fixture.clone(), Arc::clone(&gate));
    let handler = post(move || async move {
        let run = fixture.run();
        through.started.notify_one();
        through.go_on.notified().await;
        run.to_string()
    });
    (gate, routed(handler, layer))
}

/// Woken tasks of this thread go first.
pub(crate) async fn others() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// A request without a key.
pub(crate) fn bare(body: impl Into<Body>) -> Request {
    Request::post("/orders").body(body.into()).unwrap()
}

/// A request with the usual key.
pub(crate) fn order(body: impl Into<Body>) -> Request {
    keyed("/orders").body(body.into()).unwrap()
}

pub(crate) fn with_key(key: impl AsRef<[u8]>, body: impl Into<Body>) -> Request {
    let request = Request::post("/orders").header("idempotency-key", key.as_ref());
    request.body(body.into()).unwrap()
}

/// The same request by this tenant.
pub(crate) fn of_tenant(tenant: &str, mut request: Request) -> Request {
    request
        .headers_mut()
        .insert("x-tenant", tenant.parse().unwrap());
    request
}

pub(crate) fn tenant(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
}

/// The usual request, without a body yet.
pub(crate) fn keyed(uri: &str) -> Builder {
    Request::post(uri).header("idempotency-key", KEY)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }

    /// Whether it is a replay, and its text.
    pub(crate) fn replay(&self) -> (bool, &str) {
        (self.is_replayed(), self.said().1)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn said(&self) -> (u16, &str) {
        (self.status.as_u16(), str::from_utf8(&self.body).unwrap())
    }

    /// Status and code of a problem document.
    pub(crate) fn problem(&self) -> (u16, &str) {
        #[derive(Deserialize)]
        struct Document<'a> {
            status: u16,
            code: &'a str,
        }
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let document: Document<'_> = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(document.status, self.status.as_u16());
        (document.status, document.code)
    }
}

/// Sends it; the response has not been read.
pub(crate) async fn call<S>(service: &S, request: Request) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone,
{
    let response = patiently("a response", service.clone().oneshot(request)).await;
    response.unwrap_or_else(|never| match never {})
}

pub(crate) async fn send<S>(service: &S, request: Request) -> Answer
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone,
{
    let (parts, body) = call(service, request).await.into_parts();
    let body = patiently("the end of a response", to_bytes(body, usize::MAX)).await;
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: body.unwrap(),
    }
}

pub(crate) fn spawn<S>(service: &S, request: Request) -> JoinHandle<Answer>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let service = service.clone();
    tokio::spawn(async move { send(&service, request).await })
}

/// The client of a request that was sent in the background disconnects.
pub(crate) async fn leave(client: JoinHandle<Answer>) {
    client.abort();
    let gone = patiently("the client is gone", client).await;
    assert!(gone.unwrap_err().is_cancelled());
}

/// A body that comes from elsewhere, frame by frame.
pub(crate) struct Frames(UnboundedReceiver<Result<Frame<Bytes>, io::Error>>);

pub(crate) type Source = UnboundedSender<Result<Frame<Bytes>, io::Error>>;

/// A body, and where its frames are put in. It ends when that is dropped.
pub(crate) fn frames() -> (Source, Body) {
    let (source, frames) = unbounded_channel();
    (source, Body::new(Frames(frames)))
}

#[allow(clippy::unnecessary_wraps, reason = "it is what is put into a body")]
pub(crate) fn data(bytes: impl Into<Bytes>) -> Result<Frame<Bytes>, io::Error> {
    Ok(Frame::data(bytes.into()))
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx)
    }
}
