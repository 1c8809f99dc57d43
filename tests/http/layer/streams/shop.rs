//! A service whose answers are streams of the test.

use std::fmt::Display;
use std::pin::Pin;
use std::task;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderName;
use http_body::Frame;
use idem_runtime::admin::Entry;
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Faulty, StoreOperation};
use idem_runtime::{Engine, EngineBuilder, Reconciled};

use super::super::bodies::{behind, next};
use crate::client::{
    Answer, Fixture, KEY, Seen, Source, call, data, frames, order, others, patiently, send,
};

pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const ONE: &str = "id: 1\ndata: tea\n\n";
pub(super) const TWO: &str = "id: 2\ndata: rum\n\n";
pub(super) const BOTH: &str = "id: 1\ndata: tea\n\nid: 2\ndata: rum\n\n";

/// A service whose handler answers once, with a stream of the test.
pub(super) struct Shop {
    pub(super) fixture: Fixture,
    pub(super) store: Faulty,
    pub(super) engine: Engine,
    pub(super) layer: IdempotencyLayer,
    pub(super) service: Router,
    pub(super) source: Option<Source>,
    /// The layer of another server over the same records.
    pub(super) other: IdempotencyLayer,
}

impl Shop {
    pub(super) fn open(set: impl Fn(IdempotencyLayer) -> IdempotencyLayer) -> Self {
        Self::of_type(EVENTS, 200, set)
    }

    pub(super) fn of_type(
        of_type: &str,
        status: u16,
        set: impl Fn(IdempotencyLayer) -> IdempotencyLayer,
    ) -> Self {
        let fixture = Fixture::new();
        let memory = MemoryStore::builder().clock(fixture.clock.clone()).build();
        Self::over([memory.clone(), memory], fixture, (of_type, status), set)
    }

    /// Over the connections of two servers to one store.
    pub(super) fn over(
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

    pub(super) fn source(&self) -> &Source {
        self.source.as_ref().unwrap()
    }

    /// The handler sends this.
    pub(super) fn write(&self, text: &'static str) {
        self.source().send(data(text)).unwrap();
    }

    /// The handler ends the stream.
    pub(super) fn end(&mut self) {
        self.source = None;
    }

    /// The first request, whose client has got the first event.
    pub(super) async fn first(&self) -> Response {
        self.write(ONE);
        let mut response = call(&self.service, order("")).await;
        assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
        response
    }

    pub(super) async fn completed(&self) {
        self.fixture.saw("completed value", 1).await;
    }

    /// Waits until so many operations of this kind were sent.
    pub(super) async fn sent(&self, operation: StoreOperation, times: usize) {
        patiently("an operation is sent", async {
            while self.store.count(operation) < times {
                others().await;
            }
        })
        .await;
    }

    /// Waits for this, and advances the time meanwhile.
    pub(super) async fn passes(&self, what: &str, so: impl Fn() -> bool) {
        patiently(what, async {
            while !so() {
                self.fixture.clock.advance(Duration::from_millis(100));
                others().await;
            }
        })
        .await;
    }

    pub(super) async fn entry(&self) -> Entry {
        let name = KEY.trim_matches('"');
        self.layer.entry(None, name).await.unwrap().unwrap()
    }

    pub(super) async fn repeat(&self) -> Answer {
        send(&self.service, order("")).await
    }

    /// A repeat at this service gets this.
    pub(super) async fn repeats(&self, row: impl Display, service: &Router, seen: Seen) {
        self.fixture.walk(service, [(row, order(""), seen)]).await;
    }

    /// A service of the other server.
    pub(super) fn elsewhere(&self) -> Router {
        let other = self.other.clone();
        self.fixture.orders(other, |run| run.to_string())
    }
}

pub(super) const TRAILER: HeaderName = HeaderName::from_static("repr-digest");

/// At this word the handler's body panics.
pub(super) const PANIC: &str = "panic";
/// After this word it panics when it is dropped.
pub(super) const FUSE: &str = "fuse";

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

pub(super) fn assert_streaming(answer: &Answer) {
    assert_eq!(answer.problem(), (409, "request-running"));
    let document = answer.json();
    assert_eq!(document["retryable"], true);
    let detail = document["detail"].as_str().unwrap();
    assert!(
        detail.contains("being streamed, or was cut off"),
        "{detail}"
    );
    assert_eq!(answer.headers["retry-after"], "2");
}

pub(super) fn assert_both(answer: &Answer) {
    assert_eq!(answer.said(), (200, BOTH));
    assert!(answer.is_replayed());
    assert_eq!(answer.header("content-type"), Some(EVENTS));
    assert_eq!(answer.headers["content-length"], BOTH.len().to_string());
    assert_eq!(answer.header("x-node"), None);
}

pub(super) type Set = fn(IdempotencyLayer) -> IdempotencyLayer;

/// Ambiguous outcomes are released.
pub(super) const BOLD: Set =
    |layer| layer.status_policy(StatusPolicy::careful().ambiguous(KeyVerdict::Release));

pub(super) fn landed(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.reconcile(|_, _| async { Reconciled::Landed(http::Response::new("found")) })
}

pub(super) fn spawn_next(
    mut response: Response,
) -> tokio::task::JoinHandle<Option<Result<Vec<u8>, axum::Error>>> {
    tokio::spawn(async move { next(&mut response).await })
}
