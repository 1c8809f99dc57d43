//! The span of a request, in the task of its handler.

use std::sync::Arc;

use axum::routing::post;
use idem_runtime::{Engine, Error, idempotent};
use tower_http::trace::TraceLayer;
use tracing::instrument::Instrument as _;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Span, info_span};

use crate::client::{Fixture, Gate, leave, order, routed, send, spawn};

/// Makes spans of this thread known.
fn watched() -> DefaultGuard {
    set_default(tracing_subscriber::registry())
}

/// The name and the identity of the current span.
fn here() -> Option<(&'static str, u64)> {
    let span = Span::current();
    Some((span.metadata()?.name(), span.id()?.into_u64()))
}

#[tokio::test]
async fn a_handler_is_in_the_span_of_its_request_when_the_client_has_left() {
    let _watched = watched();
    let (fixture, gate) = (Fixture::new(), Arc::new(Gate::default()));
    let through = Arc::clone(&gate);
    let handler = post(async move || {
        let before = here();
        through.started.notify_one();
        through.go_on.notified().await;
        let name = before.map(|(name, _)| name);
        format!("{name:?}, the same: {}", before == here())
    });
    let shop = routed(handler, fixture.layer()).layer(TraceLayer::new_for_http());
    let client = spawn(&shop, order(""));
    gate.runs().await;
    leave(client).await;
    gate.go_on.notify_one();
    let answer = send(&shop, order("")).await;
    assert!(answer.is_replayed());
    assert_eq!(answer.body, "Some(\"request\"), the same: true");
}

#[idempotent(op = "spans.finish", key = number, on_error = release, on_cancel = finish)]
async fn finish(number: u32) -> Result<Option<String>, Error> {
    tokio::task::yield_now().await;
    Ok(here().map(|(name, _)| name.to_owned()))
}

#[tokio::test]
async fn a_body_that_cannot_be_dropped_is_in_the_span_of_its_caller() {
    let _watched = watched();
    let engine: Engine = Fixture::new().engine;
    let named = engine.scope(finish(1).instrument(info_span!("checkout")));
    assert_eq!(named.await.unwrap().as_deref(), Some("checkout"));
    assert_eq!(engine.scope(finish(2)).await.unwrap(), None);
}
