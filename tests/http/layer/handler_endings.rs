//! How a handler ends: its client disconnects, it panics, its service fails, the engine shuts down.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, Response};
use idem_runtime::http::{Buffered, IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::{OnPanic, OnRunning, Policy};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use crate::client::{
    self, Answer, Fixture, Gate, Source, data, frames, leave, order, patiently, routed, send,
    spawn, with_key,
};

/// A router whose handler waits at a gate, and whose repeats do not wait.
fn gated(fixture: &Fixture) -> (Arc<Gate>, Router) {
    client::gated(fixture, fixture.layer().on_running(OnRunning::Reject))
}

/// Sends a request, and goes away as soon as the handler runs.
async fn disconnect(gate: &Gate, shop: &Router) {
    let client = spawn(shop, order(""));
    gate.runs().await;
    leave(client).await;
}

#[tokio::test]
async fn a_client_that_disconnects_finds_the_answer_when_it_comes_back() {
    let fixture = Fixture::new();
    let (gate, shop) = gated(&fixture);
    disconnect(&gate, &shop).await;
    let early = send(&shop, order("")).await;
    assert_eq!(early.problem(), (409, "request-running"));
    gate.go_on.notify_one();
    fixture.saw("completed value", 1).await;
    let answer = send(&shop, order("")).await;
    assert!(answer.is_replayed());
    assert_eq!(answer.body, "1");
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_shutdown_waits_for_handlers_whose_clients_are_gone() {
    let fixture = Fixture::new();
    let (gate, shop) = gated(&fixture);
    disconnect(&gate, &shop).await;
    let engine = fixture.engine.clone();
    let mut shutdown = Box::pin(engine.shutdown(Duration::from_hours(1)));
    let pending = std::future::poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx).is_pending()));
    assert!(pending.await, "a handler runs");
    let late = send(&shop, with_key("\"late\"", "")).await;
    assert_eq!(late.problem(), (503, "unavailable"));
    gate.go_on.notify_one();
    patiently("the end of the shutdown", shutdown)
        .await
        .unwrap();
    assert_eq!(fixture.events.count("completed value"), 1);
    assert_eq!(fixture.runs(), 1);
}

async fn panicked(policy: StatusPolicy) -> Answer {
    panicked_behind(|layer| layer.status_policy(policy)).await
}

/// The response to a repeat of a request whose handler has panicked.
async fn panicked_behind(settings: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Answer {
    let fixture = Fixture::new();
    let shop = fixture.orders(settings(fixture.layer()), |run| {
        assert!(run > 1, "the first run panics");
        "done"
    });
    let first = spawn(&shop, order("")).await;
    let panic = first.unwrap_err().into_panic();
    let message = panic.downcast_ref::<&str>().unwrap();
    assert_eq!(*message, "the first run panics");
    send(&shop, order("")).await
}

#[tokio::test]
async fn a_panic_has_the_ambiguity_of_the_layer() {
    let unknown = (500, "outcome-unknown");
    assert_eq!(panicked(StatusPolicy::careful()).await.problem(), unknown);
    assert_eq!(panicked(StatusPolicy::stripe()).await.problem(), unknown);
    let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    assert_eq!(panicked(bold).await.body, "done");
}

#[tokio::test]
async fn a_layer_decides_about_panics_itself_if_it_is_set_so() {
    let unknown = (500, "outcome-unknown");
    let bold = || StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    let strict = panicked_behind(|layer| layer.status_policy(bold()).on_panic(OnPanic::Unknown));
    assert_eq!(strict.await.problem(), unknown);
    let released = Policy::new().on_panic(OnPanic::Release);
    let lenient = panicked_behind(|layer| layer.policy(released));
    assert_eq!(lenient.await.body, "done");
    // What a policy leaves open stays as it was.
    let other = Policy::new().count_errors(true);
    let open = panicked_behind(|layer| layer.on_panic(OnPanic::Release).policy(other));
    assert_eq!(open.await.body, "done");
}

async fn failed(policy: StatusPolicy) -> Result<Response<Buffered<Body>>, String> {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let service = tower::service_fn(move |_: Request<Buffered<Body>>| {
        let run = counter.run();
        async move {
            match run {
                1 => Err("the upstream is gone".to_owned()),
                _ => Ok(Response::new(Body::from("done"))),
            }
        }
    });
    let layer: IdempotencyLayer = fixture.layer().status_policy(policy);
    let service = layer.layer(service);
    let first = service.clone().oneshot(order("")).await;
    assert_eq!(first.unwrap_err(), "the upstream is gone");
    service.oneshot(order("")).await
}

#[tokio::test]
async fn the_error_of_a_service_has_the_ambiguity_of_the_layer() {
    let status = |result: Result<Response<_>, String>| result.unwrap().status();
    assert_eq!(status(failed(StatusPolicy::careful()).await), 500);
    assert_eq!(status(failed(StatusPolicy::draft()).await), 500);
    let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    assert_eq!(status(failed(bold).await), 200);
}

#[tokio::test]
async fn a_client_that_disconnects_while_sending_claims_nothing() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let (source, body) = frames();
    source.send(data("half of ")).unwrap();
    let mut first = Box::pin(shop.clone().oneshot(order(body)));
    let pending = std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending()));
    assert!(pending.await, "the request is not all there");
    // Another one with the same key is not kept waiting, and has the key.
    assert_eq!(send(&shop, order("tea")).await.body, "1");
    drop(first);
    assert!(source.is_closed());
    assert!(send(&shop, order("tea")).await.is_replayed());
    assert_eq!(fixture.runs(), 1);
}

/// Sends a request whose response does not end yet, and leaves.
async fn leave_during_the_response(fixture: &Fixture) -> (Router, Source) {
    let (source, body) = frames();
    let body = Arc::new(std::sync::Mutex::new(Some(body)));
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
    let early = send(&shop, order("")).await;
    assert_eq!(early.problem(), (409, "request-running"));
    source.send(data("order")).unwrap();
    drop(source);
    fixture.saw("completed value", 1).await;
    let answer = send(&shop, order("")).await;
    assert_eq!(answer.replay(), (true, "one order"));
}

#[tokio::test]
async fn a_shutdown_waits_for_the_end_of_a_response() {
    let fixture = Fixture::new();
    let (_, source) = leave_during_the_response(&fixture).await;
    let engine = fixture.engine.clone();
    let mut shutdown = Box::pin(engine.shutdown(Duration::from_hours(1)));
    let pending = std::future::poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx).is_pending()));
    assert!(pending.await, "a response is being read");
    drop(source);
    patiently("the end of the shutdown", shutdown)
        .await
        .unwrap();
    assert_eq!(fixture.events.count("completed value"), 1);
}
