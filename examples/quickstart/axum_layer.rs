//! A layer that makes the handlers of a router idempotent, unchanged.
//!
//! `cargo run -p idem-quickstart --example axum_layer` sends requests to its own server and prints the responses:
//!
//! ```text
//! double click: 201 Created: order 1: tea
//!               201 Created, replayed: order 1: tea
//!       repeat: 201 Created, replayed: order 1: tea
//!   other item: 422 Unprocessable Entity: this key came before with another request: a new request needs a new key
//!      new key: 201 Created: order 2: rum
//!    empty key: 400 Bad Request: the Idempotency-Key header is empty
//!          GET: 200 OK: 2 orders
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its responses")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Json, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{Method, Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use idem_runtime::Engine;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::memory::MemoryStore;
use serde::Deserialize;
use tower::ServiceExt as _;

/// Number of orders so far.
type Orders = Arc<AtomicU32>;

#[derive(Deserialize)]
struct NewOrder {
    item: String,
}

/// Does not know of keys and repeats: the layer stores its response.
async fn create(
    State(orders): State<Orders>,
    Json(NewOrder { item }): Json<NewOrder>,
) -> impl IntoResponse {
    // Long enough for a double click.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let number = orders.fetch_add(1, Ordering::Relaxed) + 1;
    let location = [(LOCATION, format!("/orders/{number}"))];
    (
        StatusCode::CREATED,
        location,
        format!("order {number}: {item}"),
    )
}

/// A GET needs no key: the layer lets it through.
async fn count(State(orders): State<Orders>) -> String {
    format!("{} orders", orders.load(Ordering::Relaxed))
}

fn api(engine: Engine) -> Router {
    // The scope is the owner of the key. Two tenants may choose the same key, and neither gets the
    // other's response. A request without a scope is refused with 403.
    let idempotency = IdempotencyLayer::scoped(engine, "shop.api", |request| {
        // Set by a gateway that has authenticated the client.
        Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
    });
    Router::new()
        .route("/orders", get(count).post(create))
        .with_state(Orders::default())
        .layer(idempotency)
}

/// Sends a request, and returns the client's view of its response.
async fn send(
    api: &Router,
    method: Method,
    key: &str,
    item: &str,
) -> Result<String, Box<dyn std::error::Error>> {
    let request = Request::builder()
        .method(method)
        .uri("/orders")
        .header("x-tenant", "north")
        // A string of RFC 8941, which is quoted.
        .header("idempotency-key", format!("{key:?}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(format!(r#"{{"item":"{item}"}}"#)))?;
    let response = api.clone().oneshot(request).await?;
    let status = response.status();
    let replayed = response.headers().contains_key("idempotent-replayed");
    let mark = if replayed { ", replayed" } else { "" };
    let body = to_bytes(response.into_body(), 4096).await?;
    // Of a problem document the `detail`.
    let problem: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    let detail = problem.as_ref().and_then(|p| p.get("detail")?.as_str());
    let text = detail.map_or_else(|| String::from_utf8_lossy(&body), Into::into);
    Ok(format!("{status}{mark}: {text}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new(MemoryStore::new());
    let api = api(engine.clone());

    // A double click: the second request waits for the response of the first.
    let (first, second) = tokio::join!(
        send(&api, Method::POST, "k1", "tea"),
        send(&api, Method::POST, "k1", "tea"),
    );
    println!("double click: {}", first?);
    println!("              {}", second?);

    for (label, method, key, item) in [
        ("repeat", Method::POST, "k1", "tea"),
        ("other item", Method::POST, "k1", "rum"),
        ("new key", Method::POST, "k2", "rum"),
        ("empty key", Method::POST, "", "rum"),
        ("GET", Method::GET, "", ""),
    ] {
        println!("{label:>12}: {}", send(&api, method, key, item).await?);
    }

    // Completes the handlers whose clients have disconnected.
    engine.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
