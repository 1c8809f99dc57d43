//! The layer among the usual tower layers.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::StatusCode;
use idem_runtime::http::StatusPolicy;
use tower_http::timeout::TimeoutLayer;

use crate::client::{Answer, Desk, order, send};

/// Two equal requests to a handler that acts and never answers, behind a time-out layer inside the layer. Counts
/// the effects.
async fn cut_off(policy: StatusPolicy, status: StatusCode) -> ([Answer; 2], usize) {
    let desk = Desk::new();
    let counter = desk.clone();
    let handler = any(move || async move {
        let _ = counter.run();
        pending::<()>().await;
    });
    // It asks the handler first, which acts at once.
    let inside = TimeoutLayer::with_status_code(status, Duration::from_millis(5));
    let layer = desk.layer().status_policy(policy);
    let shop = Router::new()
        .fallback_service(handler)
        .layer(inside)
        .layer(layer);
    let first = send(&shop, order("tea")).await;
    assert_eq!(first.status, status);
    let again = send(&shop, order("tea")).await;
    ([first, again], desk.runs())
}

#[tokio::test]
async fn a_time_out_inside_leaves_the_outcome_unknown() {
    for status in [StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT] {
        let ([_, again], effects) = cut_off(StatusPolicy::careful(), status).await;
        assert_eq!(effects, 1, "{status}");
        assert_eq!(again.problem(), (500, "outcome-unknown".to_owned()));
    }
}

#[tokio::test]
async fn a_time_out_inside_is_repeated_where_failures_are() {
    for policy in [StatusPolicy::stripe(), StatusPolicy::draft()] {
        for status in [StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT] {
            let ([_, again], effects) = cut_off(policy.clone(), status).await;
            assert_eq!(effects, 1, "{status}");
            assert_eq!(again.status, status);
            assert!(again.is_replayed());
        }
    }
}
