//! Profiles: the idempotency rules of a partner's API, as one value.

mod display;
mod presets;

use std::borrow::Cow;

use ::http::{HeaderName, Method};

use super::domain::KeyDomain;
use super::fingerprint::Fingerprinter;
use super::headers::{StoredHeaders, header_name};
use super::key::KeyRules;
use super::refusals::Refusals;
use super::source::KeySource;
use super::status::StatusPolicy;
use crate::policy::{OnDuplicate, Policy};

/// The idempotency rules of a partner's API, as one value.
///
/// [`IdempotencyLayer::profile`](super::IdempotencyLayer::profile) gives a layer all of its settings; a setter that is
/// called after it, of the layer or of the profile before, changes one of them. Everything else is the layer's: engine,
/// scope, limits of bodies and of running handlers, time-outs, hooks.
///
/// | | [`draft`](Self::draft) | [`stripe_v1`](Self::stripe_v1) | [`stripe_v2`](Self::stripe_v2) | [`acp`](Self::acp) | [`ucp`](Self::ucp) | [`x402`](Self::x402) | [`iceberg_rest`](Self::iceberg_rest) |
/// |---|---|---|---|---|---|---|---|
/// | [`methods`](Self::methods) | POST, PATCH | POST | POST, DELETE | POST | POST, PUT, PATCH, DELETE | GET, POST, PUT, PATCH, DELETE | POST, DELETE |
/// | [`key_source`](Self::key_source) | header | header | header | header | header | `PAYMENT-SIGNATURE` | header |
/// | without a key | 400 | passes | passes | 400 | passes | passes | passes |
/// | [`keys`](Self::keys) | a quoted string | any text, 255 | any text, 255 | any text, 255 | 22 to 255 | 16 to 128 of `A–Z a–z 0–9 - _` | a UUID of version 7 |
/// | [`key_domain`](Self::key_domain) | caller | caller | caller | path | method and path | caller | caller |
/// | [`fingerprint`](Self::fingerprint): the body | bytes | bytes | bytes | JSON by value | bytes | bytes, and the terms of the payment | JSON by value |
/// | [`status_policy`](Self::status_policy) | [`draft`](StatusPolicy::draft) | [`stripe`](StatusPolicy::stripe) | [`successes`](StatusPolicy::successes) | [`terminal`](StatusPolicy::terminal) | [`draft`](StatusPolicy::draft), 429 and 503 released | [`x402`](StatusPolicy::x402) | [`terminal`](StatusPolicy::terminal) |
/// | [`refusals`](Self::refusals) | [`problems`](Refusals::problems) | [`stripe`](Refusals::stripe) | [`stripe`](Refusals::stripe) | [`acp`](Refusals::acp) | [`ucp`](Refusals::ucp) | [`problems`](Refusals::problems), 409 for 422 | [`iceberg`](Refusals::iceberg) |
/// | still running | 409 at once | 409 at once | 409 at once | 409 at once | 5 s, 503 | 5 s, 409 | 5 s, 503 |
/// | `ttl` | the engine's | 24 h | 30 days | 24 h | 48 h | the engine's | 35 min |
/// | [`echo_key`](Self::echo_key) | no | yes | yes | yes | no | no | no |
///
/// Requirements outside the layer (authentication, transactions) are in each constructor's text. A repeat while a stored
/// response is streamed is refused as that of a running request.
///
/// A profile is printed (`Display`) with one line for each setting:
///
/// ```
/// use idem_runtime::{OnRunning, Policy};
/// use idem_runtime::http::{KeyDomain, Profile};
/// use std::time::Duration;
///
/// let profile = Profile::acp()
///     .key_domain(KeyDomain::MethodAndPath)
///     .policy(Policy::new().ttl(Duration::from_secs(48 * 60 * 60)));
/// let text = profile.to_string();
/// assert!(text.starts_with("profile: acp\nmethods: POST\nrequired: yes\n"), "{text}");
/// assert!(text.contains("\nkey_domain: caller, method and path\n"), "{text}");
/// assert!(text.contains("\nttl: 172800s\n"), "{text}");
/// assert!(text.contains("\non_running: Reject\n"), "{text}");
/// ```
///
/// A request under it needs no server to be tried:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use axum::{Router, body::Body, http::Request, routing::post};
/// use idem_runtime::{Engine, http::{IdempotencyLayer, Profile}, store::memory::MemoryStore};
/// use tower::ServiceExt as _;
///
/// let layer = IdempotencyLayer::scoped(Engine::new(MemoryStore::new()), "shop.checkouts", |request| {
///     Some(request.headers.get("x-agent")?.to_str().ok()?.to_owned())
/// })
/// .profile(Profile::acp());
/// let checkout = post(async |body: String| body);
/// let shop: Router = Router::new().route("/checkout_sessions", checkout).layer(layer);
///
/// let send = |body: &'static str| {
///     let request = Request::post("/checkout_sessions").header("x-agent", "acme").header("idempotency-key", "cart 7");
///     let request = request.header("content-type", "application/json").body(Body::from(body)).unwrap();
///     shop.clone().oneshot(request)
/// };
/// let first = send(r#"{"amount":10,"item":"tea"}"#).await.unwrap();
/// assert_eq!((first.status().as_u16(), &first.headers()["idempotency-key"]), (200, &"cart 7".parse().unwrap()));
/// // The same value of JSON is the same request.
/// let again = send(r#"{"item": "tea", "amount": 10.0}"#).await.unwrap();
/// assert_eq!(again.headers()["idempotent-replayed"], "true");
/// // Another one is refused, in the words of the protocol.
/// let other = send(r#"{"item": "tea", "amount": 11}"#).await.unwrap();
/// assert_eq!(other.status(), 422);
/// # });
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until a layer has it"]
pub struct Profile {
    name: Cow<'static, str>,
    pub(super) methods: Vec<Method>,
    pub(super) required: bool,
    pub(super) source: KeySource,
    pub(super) keys: KeyRules,
    pub(super) domain: KeyDomain,
    pub(super) fingerprinter: Fingerprinter,
    pub(super) status: StatusPolicy,
    pub(super) refusals: Refusals,
    pub(super) headers: StoredHeaders,
    pub(super) echoes_key: bool,
    /// The header of a response that has the life of a key.
    pub(super) life_header: Option<HeaderName>,
    pub(super) policy: Policy,
}

/// The setters of profile and layer; `|it| place`: the profile within `it`.
macro_rules! profile_setters {
    (|$it:ident| $profile:expr) => {
        profile_setters! { |$it| $profile;
            /// Refuses a request without a key with 400, which is the default.
            required() |it| { it.required = true }

            /// Lets a request without a key pass, unprotected; default: 400.
            ///
            /// A request with an invalid key is refused either way.
            optional() |it| { it.required = false }

            /// The protected methods; default `POST` and `PATCH`.
            ///
            /// Others pass, with or without a key. With `GET` name `HEAD`: a router of axum calls the handler of `GET`
            /// for it.
            methods(methods: impl IntoIterator<Item = Method>) |it| {
                it.methods = methods.into_iter().collect();
            }

            /// The source of the key; default the header `Idempotency-Key`.
            key_source(source: KeySource) |it| { it.source = source }

            /// The rules for keys; default [`KeyRules::default`](super::KeyRules).
            ///
            /// They replace those of a profile, its form of keys too.
            keys(keys: KeyRules) |it| { it.keys = keys }

            /// The namespace of a key within its scope; default [`KeyDomain::Caller`].
            ///
            /// [`entry_at`](super::IdempotencyLayer::entry_at) finds the record of a request in another domain.
            key_domain(domain: KeyDomain) |it| { it.domain = domain }

            /// Rules by which two requests are equal.
            ///
            /// Default [`Fingerprinter::new`]: method, path, query and body, byte by byte.
            fingerprint(fingerprinter: Fingerprinter) |it| { it.fingerprinter = fingerprinter }

            /// The policy of storing responses; default [`StatusPolicy::careful`].
            status_policy(policy: StatusPolicy) |it| { it.status = policy }

            /// The wording of refusals; default [`Refusals::problems`].
            ///
            /// It sets status, body and headers by the code of the [`Problem`](super::Problem).
            /// A closure of [`on_problem`](super::IdempotencyLayer::on_problem) or
            /// [`on_problem_with`](super::IdempotencyLayer::on_problem_with) takes precedence.
            ///
            /// ```
            /// use http::StatusCode;
            /// use idem_runtime::{Engine, http::{IdempotencyLayer, Refusal, Refusals}, store::memory::MemoryStore};
            ///
            /// let refusals = Refusals::problems().on("key-reused", Refusal::new(StatusCode::CONFLICT).code("key-conflict"));
            /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api").refusals(refusals);
            /// # drop(layer);
            /// ```
            refusals(refusals: Refusals) |it| { it.refusals = refusals }

            /// Stores this response header as well.
            ///
            /// It is added to the [default list](super::IdempotencyLayer#headers-that-are-stored), or to that of
            /// [`store_only`](Self::store_only).
            ///
            /// ```
            /// use idem_runtime::{Engine, http::IdempotencyLayer, store::memory::MemoryStore};
            ///
            /// let engine = Engine::new(MemoryStore::new());
            /// let layer = IdempotencyLayer::public(engine, "shop.api").store_header("x-order-id");
            /// # drop(layer);
            /// ```
            ///
            /// # Panics
            ///
            /// If no header can have this name, or if it is [never
            /// stored](super::IdempotencyLayer#headers-that-are-stored).
            store_header(name: impl AsRef<str>) |it| { it.headers.store(name.as_ref()) }

            /// Stores only these response headers.
            ///
            /// They replace the [default list](super::IdempotencyLayer#headers-that-are-stored). Without `content-type`
            /// among them a replay has none.
            ///
            /// # Panics
            ///
            /// As [`store_header`](Self::store_header).
            store_only(names: impl IntoIterator<Item = impl AsRef<str>>) |it| {
                it.headers.only();
                for name in names {
                    it.headers.store(name.as_ref());
                }
            }

            /// Excludes response headers from the list.
            ///
            /// It does not matter which comes first, this or [`store_header`](Self::store_header).
            ///
            /// # Panics
            ///
            /// If no header can have one of these names.
            never_store(names: impl IntoIterator<Item = impl AsRef<str>>) |it| {
                for name in names {
                    it.headers.never(name.as_ref());
                }
            }

            /// Whether responses to requests with a key have it; default no.
            ///
            /// It has it in the header that the request had it in, as it was written there, quotation marks included: a
            /// first response, a replay and a refusal. A key that was refused itself is not echoed, nor is one from
            /// elsewhere than a header.
            echo_key(echo: bool) |it| { it.echoes_key = echo }

            /// Adds the life of a key to responses; default no header.
            ///
            /// In every response to a request with a key: the [life](super::IdempotencyLayer::life) from the end
            /// of its first request on, as an [ISO 8601 duration](super::iso8601_duration) such as `PT24H`. There is none
            /// of a life [for ever](crate::FOREVER), nor where responses choose their lives
            /// ([`ttl_of`](super::IdempotencyLayer::ttl_of)).
            ///
            /// # Panics
            ///
            /// If no header can have this name.
            echo_life(header: impl AsRef<str>) |it| {
                it.life_header = Some(header_name(header.as_ref()));
            }
        }
    };
    (|$it:ident| $profile:expr; $($(#[$doc:meta])* $name:ident($($argument:ident: $ty:ty)?) |$inner:ident| $set:block)*) => {
        $($(#[$doc])*
        pub fn $name(self $(, $argument: $ty)?) -> Self {
            let mut $it = self;
            let $inner = &mut $profile;
            $set;
            $it
        })*
    };
}
pub(super) use profile_setters;

impl Profile {
    /// The defaults of a layer under a name, for your own rules.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            methods: vec![Method::POST, Method::PATCH],
            required: true,
            source: KeySource::default(),
            keys: KeyRules::default(),
            domain: KeyDomain::Caller,
            fingerprinter: Fingerprinter::new(),
            status: StatusPolicy::careful(),
            refusals: Refusals::problems(),
            headers: StoredHeaders::default(),
            echoes_key: false,
            life_header: None,
            // A released request may be corrected, whatever the engine counts.
            policy: Policy::new()
                .on_duplicate(OnDuplicate::Replay)
                .count_errors(false),
        }
    }

    /// The name, which settings do not change.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    profile_setters!(|it| it);

    /// All settings that the policy has; the others stay as they are.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.or(self.policy);
        self
    }
}

/// The profile of a layer without settings.
impl Default for Profile {
    fn default() -> Self {
        Self::new("none")
    }
}
