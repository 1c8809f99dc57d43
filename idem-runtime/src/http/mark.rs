//! Marks the responses of handlers whose calls were replayed.

use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::replayed::mark_replayed;
use super::service::ServiceFuture;
use crate::call::ReplayCount;

/// Marks responses whose idempotent calls were all replayed.
///
/// Such a response gets the header `idempotent-replayed: true`.
///
/// [`Reply`](super::Reply) and [`Answer`](crate::Answer) carry the mark by themselves, and so do responses of an
/// [`IdempotencyLayer`](super::IdempotencyLayer). This layer is for the other cases: a kept error of a handler under
/// `#[idempotent]`, and a handler that makes a call and writes a response of its result.
///
/// A call that ran, or was refused, leaves the header out, also beside a replayed one. Not counted are calls that the
/// handler makes in a task of its own (`tokio::spawn`), and [`Claim`](crate::claim::Claim)s.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use axum::{Router, body::Body, http::{Request, StatusCode}, routing::post};
/// use idem_runtime::{Engine, Error, http::MarkReplays, store::memory::MemoryStore};
/// use tower::ServiceExt as _;
///
/// let engine = Engine::new(MemoryStore::new());
/// let order = move || async move {
///     let call = engine.operation("orders.create").key("7");
///     let order = call.run(|_| async { Ok::<_, Error>("two teapots".to_owned()) }).await;
///     order.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
/// };
/// let shop: Router = Router::new().route("/orders", post(order)).layer(MarkReplays::new());
///
/// let send = || shop.clone().oneshot(Request::post("/orders").body(Body::empty()).unwrap());
/// assert!(!send().await.unwrap().headers().contains_key("idempotent-replayed"));
/// assert_eq!(send().await.unwrap().headers()["idempotent-replayed"], "true");
/// # });
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct MarkReplays;

impl MarkReplays {
    /// The layer.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for MarkReplays {
    type Service = MarkedReplays<S>;

    fn layer(&self, inner: S) -> MarkedReplays<S> {
        MarkedReplays { inner }
    }
}

/// A service that marks replayed responses, made by [`MarkReplays`].
///
/// # Errors
///
/// Those of the inner service.
///
/// # Cancel safety
///
/// That of the inner service.
#[derive(Clone, Debug)]
pub struct MarkedReplays<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for MarkedReplays<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ServiceFuture<Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The ready service is called, and its clone stays.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(ReplayCount::watch(async move {
            let mut response = inner.call(request).await?;
            if ReplayCount::are_all() {
                mark_replayed(response.headers_mut());
            }
            Ok(response)
        }))
    }
}
