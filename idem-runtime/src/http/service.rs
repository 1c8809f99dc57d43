//! The service that the layer wraps around another.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::body::{Buffered, Collected};
use super::exchange::{Disposition, RequestEnd, ServiceEnd};
use super::key::IdempotencyKey;
use super::payment::has_payment;
use super::problem::Problem;
use super::replayed::mark_replayed;
use super::request::{Admitted, admit};
use super::settings::LayerSettings;
use super::status::KeyVerdict;
use crate::call::context::context;
use crate::call::reconcile::{reconciled, unsettled};
use crate::call::run_in_own_slot;
use crate::error::{Error, ErrorKind};
use crate::outcome::Output;
use crate::outcome::chosen_life::OpenLife;
use crate::outcome::provenance::AnswerSource;

/// A service whose requests are idempotent by their `Idempotency-Key`.
///
/// An [`IdempotencyLayer`](super::IdempotencyLayer) makes it of a service.
///
/// A request reaches the inner service with its [`IdempotencyKey`](super::IdempotencyKey) among its extensions, and the
/// response to a request with a key has a [`AnswerSource`] among its own.
///
/// The service is always ready. A request polls the inner service when it is about to run, so that a limit inside counts
/// neither repeats nor requests whose body or claim is on its way; a request waits for it with its key claimed, and is refused
/// if its lease is lost meanwhile (409 `request-running`).
///
/// # Errors
///
/// Those of the inner service, as they are. A refusal of idem is a response: see [`Problem`].
///
/// # Panics
///
/// With the inner service; [`StatusPolicy::ambiguous`](super::StatusPolicy::ambiguous) decides about the key.
///
/// # Cancel safety
///
/// Dropped before its claim, nothing has happened; dropped later, the request continues, and its response is stored.
pub struct Idempotency<S> {
    settings: Arc<LayerSettings>,
    inner: S,
}

impl<S> Idempotency<S> {
    pub(super) fn new(settings: Arc<LayerSettings>, inner: S) -> Self {
        Self { settings, inner }
    }
}

pub(crate) type ServiceFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<S, B, R> Service<Request<B>> for Idempotency<S>
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        if self.settings.covers(request.method(), request.headers()) {
            Box::pin(protect(Arc::clone(&self.settings), inner, request))
        } else {
            Box::pin(pass(inner, request.map(Buffered::passing)))
        }
    }
}

/// Calls the inner service without any protection.
pub(crate) async fn pass<S, B, R>(
    mut inner: S,
    request: Request<Buffered<B>>,
) -> Result<Response<Buffered<R>>, S::Error>
where
    S: Service<Request<Buffered<B>>, Response = Response<R>>,
    B: Body,
    R: Body,
{
    poll_fn(|cx| inner.poll_ready(cx)).await?;
    let response = inner.call(request).await?;
    Ok(response.map(Buffered::passing))
}

/// Protects a request, if it has a key.
///
/// The future is made of an `async` block, because that of an `async fn` has room for its arguments twice.
pub(crate) fn protect<S, B, R>(
    settings: Arc<LayerSettings>,
    inner: S,
    request: Request<B>,
) -> impl Future<Output = Result<Response<Buffered<R>>, S::Error>>
where
    S: Service<Request<Buffered<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body + Send + 'static,
    B::Error: Send,
    R: Body + Send + 'static,
    R::Error: Send,
{
    let (parts, body) = request.into_parts();
    let mut execution = Box::new(Execution {
        settings,
        inner,
        parts,
        body: Buffered::passing(body),
    });
    async move {
        let settings = Arc::clone(&execution.settings);
        let Execution { parts, body, .. } = &mut *execution;
        let due = settings.due(&parts.headers);
        let Admitted { scope, asked } = match admit(parts, body, &settings, due).await {
            Ok(Some(admitted)) => admitted,
            Ok(None) => {
                let Execution {
                    inner, parts, body, ..
                } = *execution;
                // Boxed as the execution is, so that no request has room for the inner future.
                return Box::pin(pass(inner, Request::from_parts(parts, body))).await;
            }
            Err(problem) => {
                // The unread rest of the body blocks the next request of the connection.
                let closes = problem.status() == StatusCode::REQUEST_TIMEOUT
                    && parts.version < Version::HTTP_2;
                let mut response = refuse(&settings, problem, Some(parts));
                if parts.extensions.get::<IdempotencyKey>().is_some() {
                    add(settings.echo(&parts.headers), &mut response);
                }
                if closes {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                return Ok(response);
            }
        };
        let echo = settings.echo(&parts.headers);
        let is_head = parts.method == Method::HEAD;
        let head = settings.head(parts);
        let call = settings.call(scope, asked, parts, head.as_ref(), due);
        let output = Output::new(Arc::clone(&settings.rules), OpenLife);
        let execute = || Box::pin(Some(execution.run()));
        let RequestEnd { end, how } = run_in_own_slot(call, output, execute).await;
        let mut response = match end {
            ServiceEnd::Answered {
                response,
                disposition,
                ..
            } => answer(&settings, response, &disposition, how, is_head),
            ServiceEnd::Failed(error) | ServiceEnd::Unready(error) => return Err(error),
            ServiceEnd::Refused(error) => {
                let mut problem = Problem::from(&error);
                if let (ErrorKind::Unknown { .. }, Some(_)) = (error.kind(), &settings.reconcile) {
                    problem = problem.retryable(true);
                }
                refuse(&settings, problem, head.as_deref())
            }
        };
        add(echo, &mut response);
        Ok(response)
    }
}

/// Adds the headers that echo a key, replacing the response's own.
fn add<B>(echo: Option<Box<HeaderMap>>, response: &mut Response<B>) {
    let headers = response.headers_mut();
    for (name, value) in echo.into_iter().flat_map(|echo| *echo) {
        // Each has one value, and so a name. A response that is full of headers goes without.
        let _ = name.map(|name| headers.try_insert(name, value));
    }
}

/// The response of a refusal. `request`: the head of the request.
pub(crate) fn refuse<R: Body>(
    settings: &LayerSettings,
    problem: Problem,
    request: Option<&Parts>,
) -> Response<Buffered<R>> {
    let whole = |body| Buffered::whole(Collected::new(body, None));
    settings.refusal(problem, request).map(whole)
}

/// The response to the client, of this execution or another one.
fn answer<R: Body>(
    settings: &LayerSettings,
    mut response: Response<Buffered<R>>,
    disposition: &Disposition<R>,
    how: AnswerSource,
    is_head: bool,
) -> Response<Buffered<R>> {
    let is_replayed = how != AnswerSource::Executed;
    // axum writes the length of a buffered body, and hyper sends no response with that and this header, which a handler
    // may have copied from the response of another server.
    if response.body().is_whole() {
        response.headers_mut().remove(TRANSFER_ENCODING);
    }
    if is_replayed {
        // Another version or layer may have stored it, or an intruder. A hook's finding is the service's own.
        if let Disposition::Nothing(_) = disposition {
            let stored = &settings.profile().headers;
            stored.retain(response.headers_mut());
            let trailers = |trailers: &mut _| stored.retain(trailers);
            response.body_mut().retain_trailers(trailers);
        }
        if settings.rules.protocol.is_none() {
            set_length(&mut response, is_head);
        }
        mark_replayed(response.headers_mut());
    }
    let is_final = match disposition {
        Disposition::Whole | Disposition::Lost(_) | Disposition::Streamed(_) => true,
        Disposition::Broken => false,
        // The next request runs the hook.
        Disposition::Nothing(KeyVerdict::Unknown) => settings.reconcile.is_none(),
        Disposition::Nothing(_) => is_replayed,
    };
    if is_final {
        settings.profile().status.advise_of_final(&mut response);
    }
    response.extensions_mut().insert(how);
    response
}

/// The body of a request's call: the request, and the inner service.
///
/// Boxed, and its future as well: a call moves its body several times before it is polled.
struct Execution<S, B: Body> {
    settings: Arc<LayerSettings>,
    inner: S,
    parts: Parts,
    /// In memory once the request is admitted.
    body: Buffered<B>,
}

impl<S, B, R> Execution<S, B>
where
    S: Service<Request<Buffered<B>>, Response = Response<R>>,
    B: Body,
    R: Body,
{
    async fn run(mut self: Box<Self>) -> RequestEnd<R, S::Error> {
        if let Some(hook) = &self.settings.reconcile
            && unsettled()
        {
            let asked = self.copy();
            // The hook is called inside the future, where its panics are caught.
            let hook = async { hook(asked, context()).await };
            // Boxed, so that no request has room for it.
            if let Some(landed) = Box::pin(reconciled(hook)).await {
                return RequestEnd::landed(landed, &self.settings.rules);
            }
        }
        let mut waited = false;
        let ready = poll_fn(|cx| {
            let ready = self.inner.poll_ready(cx);
            waited |= ready.is_pending();
            ready
        });
        if let Err(error) = ready.await {
            return RequestEnd::executed(ServiceEnd::Unready(error));
        }
        if waited
            && let cx = context()
            && let Some(lease) = cx.lease()
            && cx.lease_remaining().is_zero()
        {
            let retry_after = lease.lasts();
            let operation = self.settings.operation();
            let error = Error::new(ErrorKind::Running { retry_after }, operation);
            let error = error.detail("the lease was lost while the request waited for the service");
            return RequestEnd::executed(ServiceEnd::Refused(error));
        }
        let has_payment = has_payment(&self.parts.headers);
        // Moved before the next await, because otherwise the future has room for the head.
        let (settings, called) = self.call();
        match called.await {
            Ok(response) => {
                let max_bytes = settings.max_response_bytes();
                RequestEnd::of(response, has_payment, &settings.rules, max_bytes).await
            }
            Err(error) => RequestEnd::executed(ServiceEnd::Failed(error)),
        }
    }

    fn call(self) -> (Arc<LayerSettings>, S::Future) {
        let Self {
            settings,
            mut inner,
            parts,
            body,
        } = self;
        (settings, inner.call(Request::from_parts(parts, body)))
    }

    fn copy(&self) -> Request<Bytes> {
        Request::from_parts(self.parts.clone(), self.body.bytes())
    }
}

/// Sets the length of a replayed response, and announces its trailers.
fn set_length<R: Body>(response: &mut Response<Buffered<R>>, is_head: bool) {
    // The length of a response to `HEAD` is that of another body: RFC 9110, section 8.6.
    let has_body = !is_head
        && !response.status().is_informational()
        && !matches!(
            response.status(),
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    let length = response.body().size_hint().exact();
    let trailers = response.body().trailers().map(|trailers| {
        let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        names.join(", ")
    });
    let headers = response.headers_mut();
    match (trailers, length) {
        // HTTP/1.1 sends only announced trailers.
        (Some(names), _) => {
            if let Ok(names) = HeaderValue::try_from(names) {
                headers.insert(TRAILER, names);
            }
        }
        (None, Some(length)) if has_body => {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        (None, _) => {}
    }
}

impl<S: Clone> Clone for Idempotency<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.settings), self.inner.clone())
    }
}

debug_fields!([S: std::fmt::Debug] Idempotency<S> { settings, inner });

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body as AxumBody;
    use tower::service_fn;

    use super::*;
    use crate::call::engine::Engine;
    use crate::http::scope::CallerScope;
    use crate::store::memory::MemoryStore;

    /// Futures are copied when they are boxed, and when they are spawned.
    #[test]
    fn the_future_of_a_request_has_no_room_for_its_handler() {
        let engine = Engine::new(MemoryStore::new());
        let settings = LayerSettings::new(engine, "shop.api".into(), CallerScope::Public);
        let handler = service_fn(|_: Request<Buffered<AxumBody>>| async {
            let room = [7_u8; 4_096];
            tokio::task::yield_now().await;
            let body = AxumBody::from(room.to_vec());
            Ok::<_, Infallible>(Response::new(body))
        });
        let request = Request::new(AxumBody::empty());
        let future = protect(Arc::new(settings), handler, request);
        assert!(
            size_of_val(&future) <= 1_024,
            "{} bytes",
            size_of_val(&future)
        );
    }
}
