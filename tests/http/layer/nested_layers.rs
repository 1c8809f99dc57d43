//! A layer inside a layer.

use axum::Router;
use axum::body::Body;
use idem_runtime::http::{IdempotencyLayer, StatusPolicy};

use crate::client::{Fixture, keyed, order, send};

fn caller(request: &http::request::Parts) -> Option<String> {
    Some(request.headers.get("x-caller")?.to_str().ok()?.to_owned())
}

/// Two layers, of which the outer one stores every response.
fn nested(fixture: &Fixture, inner: IdempotencyLayer) -> Router {
    let outer = IdempotencyLayer::public(&fixture.engine, "gateway");
    let outer = outer.status_policy(StatusPolicy::draft());
    fixture.orders(inner, |run| run.to_string()).layer(outer)
}

#[tokio::test]
async fn an_outer_layer_does_not_store_that_a_caller_was_unknown() {
    let fixture = Fixture::new();
    let inner = IdempotencyLayer::scoped(&fixture.engine, "shop.api", caller);
    let shop = nested(&fixture, inner);
    let refused = send(&shop, order("")).await;
    assert_eq!(refused.problem(), (403, "caller-unknown"));
    let known = keyed("/orders").header("x-caller", "ann");
    let answer = send(&shop, known.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.body, "1");
}

#[tokio::test]
async fn an_outer_layer_does_not_store_a_refusal_of_the_inner_one() {
    let fixture = Fixture::new();
    let inner = fixture.layer().max_body_bytes(3).on_problem(|problem| {
        let mut response = http::Response::new(problem.code());
        *response.status_mut() = problem.status();
        response
    });
    let shop = nested(&fixture, inner);
    for _ in 0..2 {
        let refused = send(&shop, order("four")).await;
        assert_eq!(refused.status, 413);
        assert_eq!(refused.body, "body-too-large");
        assert!(!refused.is_replayed());
    }
}

#[tokio::test]
async fn two_layers_of_one_name_run_nothing() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let shop = shop.layer(fixture.layer());
    for _ in 0..2 {
        let refused = send(&shop, order("")).await;
        assert_eq!(refused.problem(), (500, "misconfigured"));
    }
    assert_eq!(fixture.runs(), 0);
}
