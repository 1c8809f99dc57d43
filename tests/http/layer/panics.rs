//! Panics in code of the application: before the handler, in the body of a response, over a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http_body::Frame;
use idem_runtime::http::{IdempotencyLayer, KeyRules};

use crate::client::{Fixture, order, patiently, send, spawn};

async fn panics(shop: &Router, request: Request) -> bool {
    let task = spawn(shop, request);
    patiently("a response or a panic", task).await.is_err()
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
    let fixture = Fixture::new();
    let shop = |layer| fixture.orders(layer, |run| run.to_string());
    let scope = IdempotencyLayer::scoped(&fixture.engine, "shop.api", |_| panic!("no scope"));
    assert!(panics(&shop(scope), order("")).await);
    let accept = KeyRules::default().accept(|_| panic!("no rule"));
    assert!(panics(&shop(fixture.layer().keys(accept)), order("")).await);
    let plain = shop(fixture.layer());
    assert!(panics(&plain, order(Body::new(Bomb))).await);
    assert_eq!(fixture.runs(), 0);
    assert_eq!(send(&plain, order("")).await.body, "1");
}

#[tokio::test]
async fn a_panic_in_the_body_of_a_response_is_a_panic_of_the_handler() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |_| Body::new(Bomb));
    assert!(panics(&shop, order("")).await);
    let again = send(&shop, order("")).await;
    assert_eq!(again.problem(), (500, "outcome-unknown"));
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_panic_over_a_refusal_changes_nothing() {
    let fixture = Fixture::new();
    let panicking = fixture
        .layer()
        .on_problem(|_| -> http::Response<Bytes> { panic!("no words") });
    let shop = fixture.orders(panicking, |run| run.to_string());
    assert_eq!(send(&shop, order("tea")).await.body, "1");
    assert!(panics(&shop, order("rum")).await);
    assert!(send(&shop, order("tea")).await.is_replayed());
    assert_eq!(fixture.runs(), 1);
}
