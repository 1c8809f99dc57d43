//! `#[idempotent]` on an axum handler: the client's `Idempotency-Key` is the key of the call.
//!
//! `cargo run -p idem-quickstart --example axum_handler` sends requests to its own router and prints the responses:
//!
//! ```text
//! key "k1" for tea
//!     (the handler runs)
//!     201 Created
//!     "order 7"
//! key "k1" for tea
//!     201 Created, replayed
//!     "order 7"
//! key "k1" for rum
//!     422 Unprocessable Entity
//!     this key came before with another request: a new request needs a new key
//! key "k2" for ambrosia
//!     (the handler runs)
//!     409 Conflict
//!     sold out
//! key "k2" for ambrosia
//!     409 Conflict, replayed
//!     sold out
//! key "" for tea
//!     400 Bad Request
//!     the Idempotency-Key header is empty
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its responses")]

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Json};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use axum::http::{Request, StatusCode, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use idem_runtime::http::{IdempotencyKey, MarkReplays, Reply};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Classify, Engine, idempotent};
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

/// The authenticated client. Two clients may choose the same key, so it is part of the key's scope.
struct Client {
    id: String,
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        // A real service verifies the credential, and takes its subject: a token is renewed before a request is repeated.
        let credential = parts.headers.get(AUTHORIZATION);
        let id = credential.and_then(|c| c.to_str().ok()?.strip_prefix("Bearer "));
        let id = id.ok_or(StatusCode::UNAUTHORIZED)?.to_owned();
        Ok(Self { id })
    }
}

#[derive(Serialize, Deserialize)]
struct NewOrder {
    item: String,
}

#[derive(Serialize, Deserialize, Classify)]
enum ApiError {
    /// An answer: it is stored and replayed.
    #[class(business)]
    SoldOut,
    /// A refusal by idem: a problem document with status 400, 409, 422 or 503.
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for ApiError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::SoldOut => (StatusCode::CONFLICT, "sold out").into_response(),
            Self::Idempotency(error) => error.into_response(),
        }
    }
}

/// `on_cancel = finish`: the body runs to completion even if the client disconnects.
#[idempotent(
    op = "orders.create",
    scope = client.id,
    key = idempotency_key,
    on_cancel = finish,
)]
async fn create(
    #[idem(skip)] client: Client,
    idempotency_key: IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<String>, ApiError> {
    println!("    (the handler runs)");
    if order.item == "ambrosia" {
        return Err(ApiError::SoldOut);
    }
    Ok(Reply::created("order 7".to_owned()).header(LOCATION, "/orders/7"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Engine::new(MemoryStore::new()).install()?;
    let app = Router::new()
        .route("/orders", post(create))
        // Errors are replayed too; this marks their replays.
        .layer(MarkReplays::new());

    for (key, item) in [
        ("k1", "tea"),
        ("k1", "tea"),
        ("k1", "rum"),
        ("k2", "ambrosia"),
        ("k2", "ambrosia"),
        ("", "tea"),
    ] {
        println!("key {key:?} for {item}");
        let request = Request::post("/orders")
            .header(AUTHORIZATION, "Bearer ada")
            .header(CONTENT_TYPE, "application/json")
            // A string of RFC 8941, which is quoted.
            .header("idempotency-key", format!("{key:?}"))
            .body(Body::from(format!(r#"{{"item":"{item}"}}"#)))?;
        let response = app.clone().oneshot(request).await?;
        let replayed = response.headers().contains_key("idempotent-replayed");
        let mark = if replayed { ", replayed" } else { "" };
        println!("    {}{mark}", response.status());
        println!("    {}", text(response).await?);
    }
    Ok(())
}

/// The body of a response; of a problem document the `detail`.
async fn text(response: Response) -> Result<String, axum::Error> {
    let body = to_bytes(response.into_body(), 4096).await?;
    let problem: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    let detail = problem.as_ref().and_then(|p| p.get("detail")?.as_str());
    Ok(detail.map_or_else(|| String::from_utf8_lossy(&body).into(), str::to_owned))
}
