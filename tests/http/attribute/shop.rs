//! A shop whose orders are made once.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Json, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use http::header::LOCATION;
use http::request::Parts;
use idem_runtime::http::{IdempotencyKey, MarkReplays, Reply};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Classify, Engine, Error, HasEngine, idempotent};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::client::{self, Seen, patiently};

pub(crate) fn order(path: &str, key: &str, item: &str) -> Request {
    let request = Request::post(path).header("idempotency-key", format!("\"{key}\""));
    let request = request.header("content-type", "application/json");
    let body = json!({ "item": item }).to_string();
    request.body(Body::from(body)).unwrap()
}

/// The same by this user.
pub(crate) fn by(user: &str, mut request: Request) -> Request {
    request
        .headers_mut()
        .insert("x-user", user.parse().unwrap());
    request
}

/// What handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Shop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    runs: AtomicUsize,
    begun: Semaphore,
    end: Semaphore,
}

impl HasEngine for Shop {
    fn engine(&self) -> Engine {
        self.0.engine.clone()
    }
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            engine: Engine::new(MemoryStore::new()),
            runs: AtomicUsize::new(0),
            begun: Semaphore::new(0),
            end: Semaphore::new(0),
        }))
    }

    /// Counts a run of a body; a second one gives another answer.
    pub(crate) fn run(&self) -> usize {
        self.0.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn runs(&self) -> usize {
        self.0.runs.load(Ordering::SeqCst)
    }

    /// Waits in a body for [`let_end`](Self::let_end).
    async fn slow(&self) {
        self.0.begun.add_permits(1);
        self.0.end.acquire().await.unwrap().forget();
    }

    /// Waits until a slow body has begun.
    pub(crate) async fn begun(&self) {
        let begun = patiently("a body begins", self.0.begun.acquire()).await;
        begun.unwrap().forget();
    }

    pub(crate) fn let_end(&self) {
        self.0.end.add_permits(1);
    }

    pub(crate) fn routes(&self) -> Router {
        Router::new()
            .route("/orders", post(create))
            .route("/impatient", post(create_or_reject))
            .layer(MarkReplays::new())
            .with_state(self.clone())
    }

    /// As [`walk`](client::walk).
    pub(crate) async fn walk<N: Display>(
        &self,
        routes: &Router,
        rows: impl IntoIterator<Item = (N, Request, Seen)>,
    ) {
        client::walk(routes, || self.runs(), rows).await;
    }
}

/// The requesting user, by a header of the gateway.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) id: String,
}

impl<S: Send + Sync> FromRequestParts<S> for User {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let id = parts.headers.get("x-user");
        let id = id.map_or("anybody", |id| id.to_str().unwrap()).to_owned();
        Ok(Self { id })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewOrder {
    pub(crate) item: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) run: usize,
    pub(crate) item: String,
}

#[derive(Debug, Serialize, Deserialize, Classify)]
pub(crate) enum ApiError {
    #[class(business)]
    NoFunds { run: usize },
    #[class(system)]
    Database,
    #[class(unknown)]
    TimedOut,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::NoFunds { run } => {
                (StatusCode::PAYMENT_REQUIRED, run.to_string()).into_response()
            }
            Self::Database => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT.into_response(),
            Self::Idem(error) => error.into_response(),
        }
    }
}

#[idempotent(op = "orders.create", scope = user.id, key = idempotency_key, engine = shop, on_cancel = finish)]
async fn create(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    idempotency_key: IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<Order>, ApiError> {
    order_of(&shop, order).await
}

#[idempotent(op = "orders.create", scope = user.id, key = idempotency_key, engine = shop, on_running = reject)]
async fn create_or_reject(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    idempotency_key: IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<Order>, ApiError> {
    order_of(&shop, order).await
}

async fn order_of(shop: &Shop, NewOrder { item }: NewOrder) -> Result<Reply<Order>, ApiError> {
    let run = shop.run();
    match &*item {
        "dear" => return Err(ApiError::NoFunds { run }),
        "unlucky" if run == 1 => return Err(ApiError::Database),
        "lost" => return Err(ApiError::TimedOut),
        "slow" => shop.slow().await,
        _ => {}
    }
    let location = format!("/orders/{run}");
    Ok(Reply::created(Order { run, item })
        .header(LOCATION, location)
        .header("set-cookie", "last=1"))
}
