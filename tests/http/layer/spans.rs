//! The span of a request, in the task of its handler.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use idem_runtime::{Engine, Error, idempotent};
use tokio::sync::Notify;
use tower_http::trace::TraceLayer;
use tracing::instrument::Instrument as _;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Span, Subscriber, info_span};
use tracing_core::span::Current;

use crate::client::{Fixture, leave, order, patiently, routed, send, spawn};

/// Knows its spans, and which of them the only thread is in.
#[derive(Default)]
struct Spans(Mutex<Known>);

#[derive(Default)]
struct Known {
    spans: Vec<&'static Metadata<'static>>,
    entered: Vec<Id>,
}

impl Spans {
    /// For this thread.
    fn watched() -> DefaultGuard {
        set_default(Self::default())
    }
}

impl Subscriber for Spans {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut known = self.0.lock().unwrap();
        known.spans.push(span.metadata());
        Id::from_u64(known.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.clone());
    }

    fn exit(&self, span: &Id) {
        let left = self.0.lock().unwrap().entered.pop();
        assert_eq!(left.as_ref(), Some(span));
    }

    fn current_span(&self) -> Current {
        let known = self.0.lock().unwrap();
        let Some(id) = known.entered.last() else {
            return Current::none();
        };
        let number = usize::try_from(id.into_u64()).unwrap();
        Current::new(id.clone(), known.spans[number - 1])
    }
}

/// The name of the span that this is called in, and which one it is.
fn here() -> Option<(&'static str, u64)> {
    let span = Span::current();
    Some((span.metadata()?.name(), span.id()?.into_u64()))
}

#[tokio::test]
async fn a_handler_is_in_the_span_of_its_request() {
    let _watched = Spans::watched();
    let fixture = Fixture::new();
    let handler = post(async || format!("{:?}", here()));
    let shop = routed(handler, fixture.layer()).layer(TraceLayer::new_for_http());
    let first = send(&shop, order("")).await;
    assert_eq!(first.body, "Some((\"request\", 1))");
    // The span of the repeat is another one, in which nothing runs.
    assert_eq!(send(&shop, order("")).await.body, first.body);
    assert_eq!(here(), None);
}

#[tokio::test]
async fn a_handler_is_in_the_span_of_its_request_when_the_client_has_left() {
    let _watched = Spans::watched();
    let fixture = Fixture::new();
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (started.clone(), go_on.clone());
    let handler = post(async move || {
        let before = here();
        tell.notify_one();
        wait.notified().await;
        format!("{before:?}, {:?}", here())
    });
    let shop = routed(handler, fixture.layer()).layer(TraceLayer::new_for_http());
    let client = spawn(&shop, order(""));
    patiently("the handler runs", started.notified()).await;
    leave(client).await;
    go_on.notify_one();
    let answer = send(&shop, order("")).await;
    assert!(answer.is_replayed());
    assert_eq!(
        answer.body,
        "Some((\"request\", 1)), Some((\"request\", 1))"
    );
}

#[idempotent(op = "spans.finish", key = number, on_error = release, on_cancel = finish)]
async fn finish(number: u32) -> Result<Option<String>, Error> {
    tokio::task::yield_now().await;
    Ok(here().map(|(name, _)| name.to_owned()))
}

#[tokio::test]
async fn a_body_that_cannot_be_dropped_is_in_the_span_of_its_caller() {
    let _watched = Spans::watched();
    let engine: Engine = Fixture::new().engine;
    let named = engine.scope(finish(1).instrument(info_span!("checkout")));
    assert_eq!(named.await.unwrap().as_deref(), Some("checkout"));
    assert_eq!(engine.scope(finish(2)).await.unwrap(), None);
}

/// What the attribute expands to.
#[tokio::test]
async fn a_call_that_finishes_is_in_the_span_of_its_caller() {
    let _watched = Spans::watched();
    let fixture = Fixture::new();
    let call = fixture.engine.operation("spans.call").key(&7);
    let call = call.finish(|_| async {
        tokio::task::yield_now().await;
        Ok::<_, Error>(here().is_some_and(|(name, _)| name == "checkout"))
    });
    assert!(call.instrument(info_span!("checkout")).await.unwrap());
}
