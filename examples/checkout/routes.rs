//! Routes of the shop.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use idem_runtime::OnRunning;
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, StatusPolicy};

use super::caller::Caller;
use super::session::with_session;
use super::shop::Shop;
use super::submit::submit;
use super::{api, docs, html, live_page, pages};

/// Path of the API's published policy.
pub(crate) const DOCUMENTED_AT: &str = "/docs/idempotency";

/// Retention of the API's answers.
pub(crate) const RETENTION: Duration = Duration::from_hours(24);

/// Maximum size of an API request.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

/// Routes of the whole shop.
pub(crate) fn routes(shop: Shop) -> Router {
    pages(&shop)
        .merge(api(&shop))
        .fallback(pages::nowhere)
        .with_state(shop)
}

/// Routes for people. The form carries a one-time token: see [`submit`].
fn pages(shop: &Shop) -> Router<Shop> {
    let submit = post(submit).layer(from_fn_with_state(shop.clone(), pages::explain));
    Router::new()
        .route("/", get(pages::product))
        .route("/orders", submit)
        .route("/orders/{id}", get(pages::order))
        .layer(from_fn(with_session))
        .route("/live", get(live_page::live))
        .route("/live/rows", get(live_page::live_rows))
        .route(DOCUMENTED_AT, get(docs::policy))
        .route(
            "/checkout.css",
            get(async || html::file("text/css", include_str!("checkout.css"))),
        )
        .route(
            "/checkout.js",
            get(async || html::file("text/javascript", include_str!("checkout.js"))),
        )
        .route(
            "/live.js",
            get(async || html::file("text/javascript", include_str!("live.js"))),
        )
}

/// Routes for programs: a request that changes something needs an `Idempotency-Key`.
fn api(shop: &Shop) -> Router<Shop> {
    let orders = IdempotencyLayer::scoped(shop.engine.clone(), "shop.api", Caller::of)
        // The provider and the books recognize a repeat, so a failed request may run again.
        .status_policy(
            StatusPolicy::careful().on(StatusCode::SERVICE_UNAVAILABLE, KeyVerdict::Release),
        )
        .ttl(RETENTION)
        .lease(Duration::from_secs(3))
        // Programs time out sooner than people.
        .on_running(OnRunning::Wait(Duration::from_secs(1)))
        .max_body_bytes(MOST_BYTES)
        .documented_at(DOCUMENTED_AT);
    Router::new()
        .route("/api/orders", post(api::create).layer(orders))
        .route("/api/orders/{id}", get(api::find))
}
