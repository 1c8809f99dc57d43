//! The service that the layer wraps around another.

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderName, Request, Response, StatusCode};
use http_body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use super::methods::{Methods, Treatment};
use super::refusal::{method_not_listed, not_grpc};
use super::wire::{ACCEPT_ENCODING, GRPC};
use crate::http::{Buffered, LayerSettings, ServiceFuture, pass, protect, refuse};

/// A service whose unary calls are idempotent, made by a [`GrpcLayer`](super::GrpcLayer).
///
/// A call reaches the inner service with its [`IdempotencyKey`](crate::http::IdempotencyKey) among its extensions.
///
/// # Errors
///
/// Those of the inner service, as they are. A refusal of idem is a response.
///
/// # Panics
///
/// With the inner service.
///
/// # Cancel safety
///
/// That of an [`Idempotency`](crate::http::Idempotency): dropped before its claim, nothing has happened; dropped later,
/// the call continues, and its answer is stored.
#[derive(Clone)]
pub struct GrpcIdempotency<S> {
    pub(super) settings: Arc<LayerSettings>,
    pub(super) key: HeaderName,
    pub(super) methods: Arc<Methods>,
    pub(super) passes_unlisted: bool,
    pub(super) inner: S,
}

impl<S, B, R> Service<Request<B>> for GrpcIdempotency<S>
where
    S: Service<Request<Buffered<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body + Send + 'static,
    B::Error: Send,
    R: Body + Send + 'static,
    R::Error: Send,
{
    type Response = Response<Buffered<R>>;
    type Error = S::Error;
    type Future = ServiceFuture<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        let has_key = request.headers().contains_key(&self.key);
        let problem = match self.methods.of(request.uri().path()) {
            Some(Treatment::Protected) if !has_key || is_grpc(&request) => {
                if has_key {
                    // A stored response must be a message for every client.
                    request.headers_mut().remove(ACCEPT_ENCODING);
                }
                return Box::pin(protect(Arc::clone(&self.settings), inner, request));
            }
            Some(Treatment::Protected) => not_grpc(),
            None if has_key && !self.passes_unlisted => method_not_listed(),
            Some(Treatment::Passed) | None => {
                return Box::pin(pass(inner, request.map(Buffered::passing)));
            }
        };
        let mut refusal = refuse(&self.settings, problem, None);
        if !is_grpc(&request) {
            // Its client does not read the status of gRPC.
            *refusal.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        }
        Box::pin(ready(Ok(refusal)))
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    let rest = content_type.and_then(|it| it.as_bytes().strip_prefix(GRPC.as_bytes()));
    rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';' | b' ', ..]))
}

/// Under the inner service's name, so that a router accepts it.
impl<S: NamedService> NamedService for GrpcIdempotency<S> {
    const NAME: &'static str = S::NAME;
}

debug_fields!([S: std::fmt::Debug] GrpcIdempotency<S> { settings, key, methods, passes_unlisted, inner });
