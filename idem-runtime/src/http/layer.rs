//! The layer and its settings.

use std::borrow::Cow;
use std::future::Future;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderName, Method, Request, Response, response};
use bytes::Bytes;
use tower_layer::Layer;

use super::domain::KeyDomain;
use super::exchange::ResponseLife;
use super::fingerprint::Fingerprinter;
use super::headers::header_name;
use super::key::KeyRules;
use super::problem::Problem;
use super::profile::{Profile, profile_setters};
#[cfg(feature = "tonic")]
use super::protocol::Protocol;
use super::refusals::Refusals;
use super::scope::CallerScope;
use super::service::Idempotency;
use super::settings::{HookFuture, LayerSettings, OnProblem};
use super::source::KeySource;
use super::status::StatusPolicy;
use crate::call::context::Context;
use crate::call::engine::{Engine, HasEngine};
use crate::call::run_limit::{RunLimit, ScopeLimit};
use crate::error::Error;
use crate::outcome::reconciled::{IntoReconciled, Reconciled};
use crate::policy::{
    OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning, OnUnconfirmed,
    policy_setters, settings,
};

/// Layer that makes the requests of a service idempotent by their `Idempotency-Key`.
///
/// After [draft-ietf-httpapi-idempotency-key-header-07][draft].
///
/// The first request with a key is executed in a task of its own and so to its end, even if its client disconnects. Its
/// response is stored, and every repeat of the request gets it: the same status, headers and body, and
/// `idempotent-replayed: true`. The checks, in this order:
///
/// 1. The method: other than [`methods`](Self::methods) passes, with or without a key.
/// 2. The key ([`KeySource`], [`KeyRules`]): missing or not valid, 400. One in the body is read after the body.
/// 3. The scope: a request without an owner of its key, 403.
/// 4. The body: longer than [`max_body_bytes`](Self::max_body_bytes), 413; slower than
///    [`body_timeout`](Self::body_timeout), 408; broken off, 400.
/// 5. The record of the key: another request, 422; still running, a wait and then 409; and so on, see [`Problem`].
/// 6. Of a request that is to be executed, the limits: [`max_running`](Self::max_running) and
///    [`max_running_per_scope`](Self::max_running_per_scope), 503; the [`quota`](Self::quota), 429.
///
/// The key is one of its caller, of one path, or of one method and path: [`key_domain`](Self::key_domain). Two requests
/// are the same if their method, path, query and body are equal, byte by byte. Headers do not count, but those of a
/// payment (`PAYMENT-SIGNATURE`, `X-PAYMENT`). [`fingerprint`](Self::fingerprint) changes this: a JSON document that is
/// written anew, a form with another boundary, headers that count. Under the feature `axum` the path is the client's,
/// in nested routers too; the closures of a layer find that one as axum's `OriginalUri` among the extensions.
///
/// | response | its client gets | a repeat gets |
/// |---|---|---|
/// | by its status: store | it, once it is stored | it, with the [headers that are stored](#headers-that-are-stored) |
/// | by its status: release | it, streamed | is executed |
/// | by its status: unknown | it, streamed | 500 `outcome-unknown`, unless [`reconcile`](Self::reconcile) determines the outcome or an operator [resolves](Self::entry) it |
/// | larger than [`max_response_bytes`](Self::max_response_bytes), to be stored | it, streamed, once the limit is exceeded | 500 `answer-lost` |
/// | a stream of a status below 400, to be stored | it, streamed while it is recorded | 409 `request-running` with `Retry-After` until its end; then all of it: [streams](#streams) |
/// | 101, to be stored | it, streamed | 500 `answer-lost` |
/// | its body ends with an error | the part before the error, and the error | by [`StatusPolicy::ambiguous`] |
/// | none: the handler panicked, the service failed | the panic, the error | by [`StatusPolicy::ambiguous`] |
///
/// In the two lines with `answer-lost` the request was done, and it is never done again; the observer gets
/// [`EventKind::Unsaved`](crate::observe::EventKind::Unsaved) with the reason.
///
/// gRPC sends its errors in trailers under status 200, so that a policy by status does not fit it:
/// [`GrpcLayer`](crate::grpc::GrpcLayer) reads them.
///
/// # Streams
///
/// A response of type `text/event-stream`, `multipart/x-mixed-replace` or one of [`stream_types`](Self::stream_types)
/// reaches its client at the speed of the handler, and is recorded meanwhile. A repeat gets all of it as one body, with
/// its length and the stored headers; server-sent events have the ids that they had.
///
/// Before the first byte leaves, the outcome in the record is unknown. A crash in the middle thus leaves it unknown, and
/// never starts the handler again. The record is not renewed during the stream, and is the same
/// after a crash: a repeat gets 409 `request-running` in both cases, at once, until `max_run` has passed. Where the
/// store does not confirm the record in time, [`on_unconfirmed`](Self::on_unconfirmed) decides whether the client gets
/// the stream or 503 `answer-unconfirmed`; the recording goes on in both cases. The end of the stream reaches the client before it
/// is stored: a repeat that comes at once may still get the 409.
///
/// | the stream | its client | the key, or a repeat |
/// |---|---|---|
/// | goes on | gets it as it comes | 409 `request-running`, with `Retry-After` |
/// | has ended | has it | the stored response |
/// | breaks off, or panics | gets the error, the panic | as that of a server that is killed |
/// | goes on when its client leaves | | is recorded to its end: the stored response |
/// | exceeds [`max_response_bytes`](Self::max_response_bytes), or [`max_run`](Self::max_run) | gets the rest as it comes | 500 `answer-lost` |
/// | has a server that is killed | is cut off | 409 `request-running` for `max_run`, then 500 `outcome-unknown` |
///
/// With a [`reconcile`](Self::reconcile) hook, and with [`StatusPolicy::ambiguous`] of [`KeyVerdict::Release`](super::KeyVerdict::Release), the
/// claim is held until the end of the stream instead: a repeat waits as for any running request, and after a crash the hook
/// decides, or the request is executed again. All servers of a layer have the hook, or none: the hook of one would be
/// called while another streams. Of a handler that answers after its lease the store must confirm the claim, as
/// `on_unconfirmed` says.
///
/// The handler has ended when its stream begins: a task that it has spawned records no [step](crate::step()) any more,
/// unless the claim is held.
///
/// A recorded stream is read at once: its handler does not wait for a slow client, whose unread part is in memory with
/// the recording, up to `max_response_bytes` for both. A stream counts as a [running](Self::max_running) handler until
/// it is stored, and a [shutdown](crate::Engine::shutdown) waits for it within its time. A stream that does not end by
/// itself (a subscription) is better not recorded: [`record_streams`](Self::record_streams). A browser's `EventSource`
/// is no client for either: it reconnects after each end and gets all events again, because `Last-Event-ID` does not
/// count, and gives up at a 500.
///
/// A stream of status 400 and above, and one of another type, is held back until it ends or is too large to be stored.
/// An operator may [resolve](crate::admin::Entry::resolve_response) or [reset](crate::admin::Entry::reset) a request
/// whose response is streamed: the answer of the operator stays; after a reset the stream is stored if it ends before
/// the next request, and after that request otherwise only if that has no answer.
///
/// # Settings of the calls
///
/// The layer has the setters of a [`Policy`](crate::Policy); an open setting is the engine's. For a request they mean:
///
/// | setting | here |
/// |---|---|
/// | [`ttl`](Self::ttl) | the life of a stored response; the draft recommends publishing it (section 2.3) |
/// | [`error_ttl`](Self::error_ttl) | the life of a stored response of status 400 and above |
/// | [`lease`](Self::lease) | the time after which a repeat of a request whose server has crashed is executed |
/// | [`max_run`](Self::max_run) | longer than the longest handler |
/// | [`on_running`](Self::on_running) | `Wait`: the repeat gets the response if that comes in this time, and after it 409 `request-running`; `Reject`: 409 at once, as in the draft (section 2.6), which has no wait. A [`StatusPolicy::draft`] does not change it |
/// | [`max_attempts`](Self::max_attempts) | after a crash of the last attempt repeats get 500 `attempts-exhausted`; 1: the handler starts at most once, and a released request (401, 429, …) uses its key up as well |
/// | [`count_errors`](Self::count_errors) | no, whatever the engine has; yes: a released request counts, and its key accepts no corrected one |
/// | [`on_duplicate`](Self::on_duplicate) | default `Replay`, whatever the engine has; `Reject`: 409 |
/// | [`on_outage`](Self::on_outage) | `Fail`: 503, and the handler does not run; `Run`: it runs without any protection |
/// | [`on_panic`](Self::on_panic) | default by [`StatusPolicy::ambiguous`], whatever the engine has |
/// | [`on_cancel`](Self::on_cancel) | a handler is dropped half-way only by the end of its runtime |
///
/// `Retry-After` of a 409 is the remaining lease, and 2 s at most, because the lease ends long after most handlers do. A
/// repeat that waits keeps its connection and its body, and no connection to the store. Its wait ends when its client
/// leaves. A time-out outside the layer that is shorter than the wait answers first, without `Retry-After`.
///
/// # Headers that are stored
///
/// The first response keeps all its headers, but for the `Transfer-Encoding` of a buffered one. **A replay has the headers on a list**, and a header of your own is on
/// it once [`store_header`](Self::store_header) has named it: a list of excluded headers would store every header that
/// it does not foresee. Such a header may stand for the body: a replay without `X-Accel-Redirect` is empty. The list is
///
/// - headers that describe the body: `Content-Type`, `Content-Encoding`, `Content-Language`, `Content-Location`,
///   `Content-Range` ([RFC 9110, sections 8 and 14](https://www.rfc-editor.org/rfc/rfc9110#section-8)),
///   `Content-Disposition` ([RFC 6266](https://www.rfc-editor.org/rfc/rfc6266)), `Content-Digest` and `Repr-Digest`
///   ([RFC 9530](https://www.rfc-editor.org/rfc/rfc9530)), `Preference-Applied`
///   ([RFC 7240](https://www.rfc-editor.org/rfc/rfc7240#section-3));
/// - headers for the client's next request: `Location`, `Retry-After`, `Allow`
///   ([RFC 9110, section 10.2](https://www.rfc-editor.org/rfc/rfc9110#section-10.2)), `ETag`, `Last-Modified`,
///   `Link` ([RFC 8288](https://www.rfc-editor.org/rfc/rfc8288)), `Accept-Patch`
///   ([RFC 5789](https://www.rfc-editor.org/rfc/rfc5789)), `Accept-Post`, `Stripe-Should-Retry`;
/// - headers that restrict its use, so that a replay is no laxer than the first response: `Cache-Control`, `Expires`,
///   `Vary` ([RFC 9111](https://www.rfc-editor.org/rfc/rfc9111)), `Content-Security-Policy`,
///   `X-Content-Type-Options`, `X-Frame-Options`, `Referrer-Policy`, `Permissions-Policy`,
///   `Cross-Origin-Embedder-Policy`, `Cross-Origin-Opener-Policy`, `Cross-Origin-Resource-Policy`.
///
/// [`store_only`](Self::store_only) sets another list, [`never_store`](Self::never_store) removes names from it. The
/// list also holds for trailers, and **when a record is read**: a record of an older version, of another layer, or of
/// an intruder in the store yields no header that this layer would not have stored. (It does yield status, body and the
/// headers on the list, unless answers are [encrypted](crate::EngineBuilder#method.encrypt).)
///
/// Never stored, also where a setting names them, which is a panic when the layer is made: `Set-Cookie`; credentials
/// and challenges (`Authorization`, `WWW-Authenticate`, `Authentication-Info` and their `Proxy-` forms); names of
/// tokens, keys and sessions (`X-Api-Key`, `Access-Token`, `Refresh-Token`, `X-Session-Token`, `X-Amz-Security-Token`,
/// `X-CSRF-Token`, every name that ends so, and their like); the answers to CORS (`Access-Control-…`), which are for
/// one origin; headers of the connection (`Connection`, `Keep-Alive`, `TE`, `Transfer-Encoding`, `Upgrade`: [RFC 9110,
/// section 7.6.1](https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1)); and those of one request (`Date`, `Age`,
/// `Server-Timing`, `X-Request-Id`, `Traceparent`, `RateLimit-…` and their like). Nor are headers that `Connection`
/// names, or values [marked as sensitive](::http::HeaderValue::set_sensitive). `Content-Length` and `Trailer` are
/// recomputed.
///
/// # Where it stands among layers
///
/// From the outside in: request ids, tracing, CORS, compression; **authentication**; the **rate limit**; **this
/// layer**; the **time-out** and the **concurrency limit** of the handler; transactions. Layers outside concern the
/// request at hand, and end with its client. Layers inside concern the effect, and bound a handler whose client has
/// left. [Inside or outside](super#inside-or-outside) describes the effects of a wrong position.
///
/// The handler runs in a task of its own. The current `tracing` span is propagated into it with the feature `tracing`;
/// task-locals of outer layers are not.
///
/// # Example
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use axum::{Router, body::Body, http::Request, routing::post};
/// use idem_runtime::{Engine, http::IdempotencyLayer, store::memory::MemoryStore};
/// use tower::ServiceExt as _;
///
/// let engine = Engine::new(MemoryStore::new());
/// let layer = IdempotencyLayer::scoped(engine, "shop.api", |request| {
///     // The authenticated caller; here, the tenant of a trusted gateway.
///     Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
/// });
/// let shop = Router::new().route("/orders", post(|order: String| async move { format!("ordered {order}") })).layer(layer);
///
/// let order = || {
///     Request::post("/orders")
///         .header("idempotency-key", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"")
///         .header("x-tenant", "acme")
///         .body(Body::from("two teapots"))
///         .unwrap()
/// };
/// let first = shop.clone().oneshot(order()).await.unwrap();
/// assert_eq!(first.status(), 200);
/// assert!(!first.headers().contains_key("idempotent-replayed"));
///
/// let again = shop.oneshot(order()).await.unwrap();
/// assert_eq!(again.status(), 200);
/// assert_eq!(again.headers()["idempotent-replayed"], "true");
/// # });
/// ```
///
/// [draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct IdempotencyLayer {
    settings: Arc<LayerSettings>,
}

impl IdempotencyLayer {
    fn new(engine: Engine, name: Cow<'static, str>, scope: CallerScope) -> Self {
        Self {
            settings: Arc::new(LayerSettings::new(engine, name, scope)),
        }
    }

    /// A layer whose keys belong to the owner that `scope` returns.
    ///
    /// The owner is the user, API client or tenant of a request. Answers are not shared between scopes. Derive it from
    /// authenticated data: a client that can choose the scope can read the answers of others. Of a token take the subject
    /// and never the text: a token that is renewed before the repeat would be another owner, and the handler would run
    /// again.
    ///
    /// If it returns no owner (`None`, or nothing but blanks) the request is refused with 403. It is called once for
    /// each request with a key, and must not block. Extensions of layers outside are in its `Parts`.
    ///
    /// `name` is the operation of every call, and a part of every key: keep it over releases. Layers and functions of
    /// one name share keys and answers.
    pub fn scoped<F>(engine: impl HasEngine, name: impl Into<Cow<'static, str>>, scope: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        Self::new(engine.engine(), name.into(), CallerScope::of(scope))
    }

    /// A layer whose keys are shared by all clients.
    ///
    /// A client that knows a key, and the request that it came with, gets its answer. For services without callers of
    /// their own, behind one gateway for example.
    pub fn public(engine: impl HasEngine, name: impl Into<Cow<'static, str>>) -> Self {
        Self::new(engine.engine(), name.into(), CallerScope::Public)
    }

    fn set(mut self, set: impl FnOnce(&mut LayerSettings)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets all that the rules of a partner fix; default [`Profile::default`].
    ///
    /// It replaces what setters of the layer that [`Profile`] has too, and those of its calls ([`ttl`](Self::ttl),
    /// [`on_running`](Self::on_running), …), have set before. Call those after it that are to differ. A closure of
    /// [`on_problem`](Self::on_problem) stays, and takes precedence over the profile's refusals.
    ///
    /// ```
    /// use idem_runtime::http::{IdempotencyLayer, Profile};
    /// use idem_runtime::{Engine, store::memory::MemoryStore};
    /// use std::time::Duration;
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api")
    ///     .profile(Profile::stripe_v1())
    ///     .ttl(Duration::from_secs(48 * 60 * 60));
    /// println!("{}", layer.as_profile());
    /// ```
    pub fn profile(self, profile: Profile) -> Self {
        self.set(|it| Arc::make_mut(&mut it.rules).profile = profile)
    }

    /// The layer's settings as a [`Profile`]: to print, or for another layer.
    pub fn as_profile(&self) -> &Profile {
        self.settings.profile()
    }

    /// The time for which a stored response is replayed at least.
    ///
    /// The shorter of [`ttl`](Self::ttl) and [`error_ttl`](Self::error_ttl), of the layer or of its engine, from the end
    /// of the first request on. For the documentation that the draft demands (section 2.3), and for a configuration that
    /// advertises it, with [`iso8601_duration`](super::iso8601_duration). A client that sends its last repeat at the end
    /// of this time is late by the way that the request takes: advertise less. A response whose life [`ttl_of`](Self::ttl_of)
    /// has chosen may end before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy) if a setting is out of its bounds, with which the
    /// layer refuses every request.
    ///
    /// ```
    /// use idem_runtime::http::{IdempotencyLayer, Profile, iso8601_duration};
    /// use idem_runtime::{Engine, store::memory::MemoryStore};
    /// use std::time::Duration;
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "catalog").profile(Profile::iceberg_rest());
    /// let grace = Duration::from_secs(5 * 60);
    /// assert_eq!(iso8601_duration(layer.life()? - grace), "PT30M");
    /// # Ok::<(), idem_runtime::Error>(())
    /// ```
    pub fn life(&self) -> Result<Duration, Error> {
        self.settings.life()
    }

    profile_setters!(|it| Arc::make_mut(&mut Arc::make_mut(&mut it.settings).rules).profile);

    settings!(
        policy_setters! { |it| Arc::make_mut(&mut Arc::make_mut(&mut it.settings).rules).profile.policy; }
    );

    /// Lets each stored response choose its life; default [`ttl`](Self::ttl) and [`error_ttl`](Self::error_ttl).
    ///
    /// The closure is called once for each response that is stored, with its status, headers and extensions, and must
    /// not block. `None`: the `ttl`, or from status 400 on the `error_ttl`. That is also the most that it can choose,
    /// and 1 s the least: a zero is a second.
    ///
    /// **After a shorter life a repeat is executed again so much sooner**, because nothing remains of the request.
    ///
    /// A panic of it does not lose the response, which is kept for the whole `ttl`; the observer gets a
    /// [`Warning`](crate::observe::EventKind::Warning). A response that an operator gives by
    /// [`Entry::resolve_response`](crate::admin::Entry::resolve_response) has the `ttl`.
    ///
    /// ```
    /// use idem_runtime::http::IdempotencyLayer;
    /// use idem_runtime::{Engine, store::memory::MemoryStore};
    /// use std::time::Duration;
    ///
    /// /// The handler knows how long its quote is valid, and puts this among the extensions of its response.
    /// #[derive(Clone)]
    /// struct ValidFor(Duration);
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api")
    ///     .ttl_of(|response| Some(response.extensions.get::<ValidFor>()?.0));
    /// # drop(layer);
    /// ```
    pub fn ttl_of<F>(self, choose: F) -> Self
    where
        F: Fn(&response::Parts) -> Option<Duration> + Send + Sync + 'static,
    {
        let life = ResponseLife(Arc::new(choose));
        self.set(|it| Arc::make_mut(&mut it.rules).life = Some(life))
    }

    /// The longest body of a request with a key; default 2 MiB.
    ///
    /// The body is in memory while its request is executed, which [`max_running`](Self::max_running) bounds. A longer
    /// one gets 413.
    pub fn max_body_bytes(self, max_body_bytes: usize) -> Self {
        self.set(|it| it.max_body_bytes = max_body_bytes)
    }

    /// The time limit for a keyed request's body; default 30 s.
    ///
    /// After it the request gets 408 `body-timeout`, with `Connection: close` over HTTP/1 ([RFC 9110, section
    /// 15.5.9](https://www.rfc-editor.org/rfc/rfc9110#section-15.5.9)). The body is read before the claim and before
    /// the limits: a slow client holds its connection and the bytes that it has sent, no key and no place.
    ///
    /// `Duration::MAX`: no time-out.
    pub fn body_timeout(self, body_timeout: Duration) -> Self {
        self.set(|it| it.body_timeout = body_timeout)
    }

    /// The limit of concurrently running handlers behind this layer; default none.
    ///
    /// A handler whose client hangs up continues, out of reach of every limit *outside* the layer: there the client's
    /// future is counted, and it is gone. **Without this setting or a concurrency limit inside the layer, one client
    /// that sends and hangs up starts handlers without bound, each with its body in memory.** A running handler is
    /// counted from before its claim until its response is stored or released, with or without its client, and so is a
    /// [recorded stream](Self#streams). The rest of a response that is passed on as it comes ends with its client, and
    /// does not count.
    ///
    /// At the limit a request that would be executed gets 503 `too-many-running` with `Retry-After: 1`, and nothing is
    /// claimed. A request whose response is stored gets it, in one round trip to the store; a repeat of a running
    /// request waits for its response as always, and takes no place.
    ///
    /// Clones of the layer made after this call, and the services of all of them, count together.
    ///
    /// # Panics
    ///
    /// If it is 0: no request would be executed.
    pub fn max_running(self, max_running: usize) -> Self {
        check_limit("max_running", max_running);
        self.set(|it| it.max_running = Some(RunLimit::new(max_running)))
    }

    /// The limit of concurrently running handlers of one scope; default none.
    ///
    /// It keeps one caller from taking all places of [`max_running`](Self::max_running), whose rules hold here too. In
    /// a [public](Self::public) layer all requests have one scope.
    ///
    /// # Panics
    ///
    /// If it is 0: no request would be executed.
    pub fn max_running_per_scope(self, max_running: usize) -> Self {
        check_limit("max_running_per_scope", max_running);
        self.set(|it| it.max_running_per_scope = Some(ScopeLimit::new(max_running)))
    }

    /// Limits the new records of a scope; default no limit.
    ///
    /// Each request that would be executed, and so write a record, calls `quota` once, before anything is written.
    ///
    /// `Err(retry_after)` refuses it with 429 `quota-exceeded` and `Retry-After` ([RFC 6585, section
    /// 4](https://www.rfc-editor.org/rfc/rfc6585#section-4)); [`on_problem_with`](Self::on_problem_with) can reword it.
    /// Replays and requests that wait for a running one do not call it. A grant of `quota` is used up, even if another
    /// server claims the key first.
    ///
    /// `quota` gets the scope that the layer's scope found (of more than 512 bytes: its hash; in a
    /// [public](Self::public) layer `""`) and the request without its body, with its [`IdempotencyKey`](super::IdempotencyKey) among the
    /// extensions. It must not block. The head of each request is copied for it, and a first request takes one round
    /// trip more, which determines whether it is a replay.
    ///
    /// # Panics
    ///
    /// A panic of `quota` goes to the client's connection, and nothing is written.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use axum::{Router, body::Body, http::Request, routing::post};
    /// use idem_runtime::{Engine, http::IdempotencyLayer, store::memory::MemoryStore};
    /// use std::{collections::HashMap, sync::Mutex, time::Duration};
    /// use tower::ServiceExt as _;
    ///
    /// /// Two records for each tenant; a keyed limiter, such as that of `governor`, in production.
    /// #[derive(Default)]
    /// struct Records(Mutex<HashMap<String, u32>>);
    ///
    /// impl Records {
    ///     fn check(&self, tenant: &str) -> Result<(), Duration> {
    ///         let mut records = self.0.lock().unwrap();
    ///         let count = records.entry(tenant.to_owned()).or_default();
    ///         *count += 1;
    ///         if *count <= 2 { Ok(()) } else { Err(Duration::from_secs(60)) }
    ///     }
    /// }
    ///
    /// let records = Records::default();
    /// let layer = IdempotencyLayer::scoped(Engine::new(MemoryStore::new()), "shop.api", |request| {
    ///     Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
    /// })
    /// .quota(move |tenant, _request| records.check(tenant));
    /// let shop: Router = Router::new().route("/orders", post(async || "ordered")).layer(layer);
    ///
    /// let order = |key: u32| {
    ///     let request = Request::post("/orders").header("idempotency-key", format!("\"{key}\""));
    ///     shop.clone().oneshot(request.header("x-tenant", "acme").body(Body::empty()).unwrap())
    /// };
    /// assert_eq!(order(1).await.unwrap().status(), 200);
    /// assert_eq!(order(2).await.unwrap().status(), 200);
    /// let refused = order(3).await.unwrap();
    /// assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"60".parse().unwrap()));
    /// // A replay is no new record.
    /// assert_eq!(order(2).await.unwrap().headers()["idempotent-replayed"], "true");
    /// # });
    /// ```
    pub fn quota<F>(self, quota: F) -> Self
    where
        F: Fn(&str, &Parts) -> Result<(), Duration> + Send + Sync + 'static,
    {
        self.set(|it| it.quota = Some(Arc::new(quota)))
    }

    /// A text for operators to recognize a request's record; default none.
    ///
    /// As the attribute's [`label`](macro@crate::idempotent#label): at most 64 bytes, stored **in plain text** with the
    /// attempts of a request whose response is not stored at once, and shown by
    /// [`Entry::label`](crate::admin::Entry::label) and the `idem` command. It is called once for each request with a
    /// valid key, before the record is looked up, and must not block. The request's
    /// [`IdempotencyKey`](super::IdempotencyKey) is among the extensions; another client may get the stored response
    /// with it, so show no more than its end.
    ///
    /// ```
    /// use idem_runtime::http::{IdempotencyKey, IdempotencyLayer};
    /// use idem_runtime::{Engine, key::redacted, store::memory::MemoryStore};
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api").label(|request| {
    ///     let key = request.extensions.get::<IdempotencyKey>()?;
    ///     Some(format!("{} {}", request.uri.path(), redacted(key.as_str(), 4)))
    /// });
    /// # drop(layer);
    /// ```
    pub fn label<F>(self, label: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.set(|it| it.label = Some(Arc::new(label)))
    }

    /// The largest stored response, in bytes; default 4 MiB.
    ///
    /// It counts status, headers and body as they are laid out, before they are compressed and encrypted. The default
    /// is [`max_value_bytes`](crate::EngineBuilder::max_value_bytes) where that is more; the limit is at most 64 MiB or
    /// that, and the store's limit (Redis: `max_record_bytes`, 8 MiB; MySQL and MariaDB: `max_allowed_packet` when the
    /// engine is built, less 8 KiB; a response beyond a limit that was lowered since leaves a tombstone).
    ///
    /// A response is in memory until it is stored, and is held back unless it is a [stream](Self#streams): up to this
    /// limit for each concurrent request. A larger one is passed on as soon as its declared length or the data received
    /// exceeds the limit. Its request was done and is not done again: a repeat gets 500 `answer-lost`.
    pub fn max_response_bytes(self, max_response_bytes: usize) -> Self {
        self.set(|it| Arc::make_mut(&mut it.rules).max_response_bytes = Some(max_response_bytes))
    }

    /// Media types of streams, besides `text/event-stream` and `multipart/x-mixed-replace`; default none.
    ///
    /// Their responses are [recorded while they are sent](Self#streams). Parameters of a type do not count.
    ///
    /// ```
    /// use idem_runtime::{Engine, http::IdempotencyLayer, store::memory::MemoryStore};
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api")
    ///     .stream_types(["application/x-ndjson"]);
    /// # drop(layer);
    /// ```
    ///
    /// # Panics
    ///
    /// If one of them is no media type without parameters.
    pub fn stream_types<T: Into<String>>(self, types: impl IntoIterator<Item = T>) -> Self {
        let types: Vec<String> = types.into_iter().map(Into::into).collect();
        for media_type in &types {
            assert!(
                is_media_type(media_type),
                "`{media_type}` in `stream_types` is no media type such as `application/x-ndjson`"
            );
        }
        self.set(|it| Arc::make_mut(&mut it.rules).stream_types = types)
    }

    /// Whether [streams](Self#streams) are recorded; default yes.
    ///
    /// Otherwise they are passed on as they come, at the speed of their clients and no longer than these stay, and a
    /// repeat gets 500 `answer-lost`: for streams that do not end by themselves.
    pub fn record_streams(self, record: bool) -> Self {
        self.set(|it| Arc::make_mut(&mut it.rules).passes_streams = !record)
    }

    /// Determines the outcome of an earlier attempt; default no hook.
    ///
    /// The handler of the attempt answered with an ambiguous status, panicked, or was killed. The hook runs before the
    /// repeat is refused as `outcome-unknown` or `attempts-exhausted`, or is executed after a crash, as the attribute's
    /// [`reconcile`](crate::idempotent#reconcile) does.
    ///
    /// | hook returns | the request | repeats |
    /// |---|---|---|
    /// | [`Reconciled::Landed`] | gets this response, with `idempotent-replayed: true`. It is stored, whatever its status | get it |
    /// | [`Reconciled::NotLanded`] | is executed | get the handler's response |
    /// | [`Reconciled::Unknown`], an `Err`, a panic, nothing within 10 s | gets 500 `outcome-unknown`, with `retryable: true` | run the hook again |
    ///
    /// It gets the request with its whole body, and its [`IdempotencyKey`](super::IdempotencyKey) among the extensions;
    /// [`Context::derive_key`] makes the key that the handler gave to a provider. `NotLanded` also means that the
    /// effect can no longer happen: the handler may run at once. At one time there is one hook for a key.
    ///
    /// ```
    /// use http::Response;
    /// use idem_runtime::{Engine, Reconciled, http::IdempotencyLayer, store::memory::MemoryStore};
    ///
    /// # async fn find_payment(_: &str) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// let engine = Engine::new(MemoryStore::new());
    /// let layer = IdempotencyLayer::public(engine, "shop.api").reconcile(|_request, context| async move {
    ///     // The handler gave this key to the provider, too.
    ///     let key = context.derive_key("provider");
    ///     Ok::<_, std::io::Error>(match find_payment(&key).await? {
    ///         Some(receipt) => Reconciled::Landed(Response::new(receipt)),
    ///         None => Reconciled::NotLanded,
    ///     })
    /// });
    /// # drop(layer);
    /// ```
    pub fn reconcile<H, F, R, T>(self, hook: H) -> Self
    where
        H: Fn(Request<Bytes>, Context) -> F + Send + Sync + 'static,
        F: Future<Output = R> + Send + 'static,
        R: IntoReconciled<Response<T>>,
        T: Into<Bytes>,
    {
        let hook = move |request, context| -> HookFuture {
            let found = hook(request, context);
            Box::pin(async move {
                match found.await.verdict() {
                    Reconciled::Landed(response) => Reconciled::Landed(response.map(Into::into)),
                    Reconciled::NotLanded => Reconciled::NotLanded,
                    Reconciled::Unknown => Reconciled::Unknown,
                }
            })
        };
        self.set(|it| it.reconcile = Some(Arc::new(hook)))
    }

    /// Address of the documentation of refusals: see [`Problem::documented_at`].
    pub fn documented_at(self, uri: impl Into<String>) -> Self {
        self.set(|it| it.documented_at = Some(uri.into()))
    }

    /// Converts a refusal into its response; default: in the wording of [`refusals`](Self::refusals).
    ///
    /// ```
    /// use http::Response;
    /// use idem_runtime::{Engine, http::IdempotencyLayer, store::memory::MemoryStore};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let layer = IdempotencyLayer::public(engine, "shop.api").on_problem(|problem| {
    ///     let mut response = Response::new(format!("error: {}", problem.code()));
    ///     *response.status_mut() = problem.status();
    ///     response
    /// });
    /// # drop(layer);
    /// ```
    pub fn on_problem<F, T>(self, on_problem: F) -> Self
    where
        F: Fn(Problem) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        let on_problem = move |problem| on_problem(problem).map(Into::into);
        self.set(|it| it.on_problem = Some(OnProblem::Plain(Arc::new(on_problem))))
    }

    /// As [`on_problem`](Self::on_problem), with the refused request, less its body.
    ///
    /// If a key was read, it is among the extensions as [`IdempotencyKey`](super::IdempotencyKey). The head of each request is copied for it.
    ///
    /// ```
    /// use idem_runtime::{Engine, http::{IdempotencyKey, IdempotencyLayer}, store::memory::MemoryStore};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let layer = IdempotencyLayer::public(engine, "shop.api").on_problem_with(|problem, request| {
    ///     let problem = match request.extensions.get::<IdempotencyKey>() {
    ///         // To the client that sent it, and nowhere else.
    ///         Some(key) => problem.member("idempotency_key", key.as_str()),
    ///         None => problem,
    ///     };
    ///     problem.into_response()
    /// });
    /// # drop(layer);
    /// ```
    pub fn on_problem_with<F, T>(self, on_problem: F) -> Self
    where
        F: Fn(Problem, &Parts) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        let on_problem =
            move |problem, request: &Parts| on_problem(problem, request).map(Into::into);
        self.set(|it| it.on_problem = Some(OnProblem::OfRequest(Arc::new(on_problem))))
    }

    /// The layer of another protocol, with its own refusals and headers.
    #[cfg(feature = "tonic")]
    pub(crate) fn over(
        self,
        protocol: impl Protocol + 'static,
        key: KeySource,
        refuse: fn(Problem) -> Response<Bytes>,
        names: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        self.set(|it| {
            let rules = Arc::make_mut(&mut it.rules);
            rules.profile.headers.all_or_own_and(names);
            rules.protocol = Some(Arc::new(protocol));
            rules.profile.source = key;
            it.on_problem = Some(OnProblem::Plain(Arc::new(refuse)));
        })
    }

    #[cfg(feature = "tonic")]
    pub(crate) fn shared(&self) -> Arc<LayerSettings> {
        Arc::clone(&self.settings)
    }

    pub(super) fn settings(&self) -> &LayerSettings {
        &self.settings
    }
}

/// Whether this is a type and a subtype (RFC 9110, section 8.3.1).
#[track_caller]
fn check_limit(name: &str, limit: usize) {
    assert!(
        limit > 0,
        "`{name}` is 0, and no request would be worked on; it must be at least 1"
    );
}

fn is_media_type(text: &str) -> bool {
    // A name of a header is a token too.
    let is_token = |part: &str| HeaderName::from_bytes(part.as_bytes()).is_ok();
    text.split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(Arc::clone(&self.settings), inner)
    }
}

debug_fields!(IdempotencyLayer { settings });
