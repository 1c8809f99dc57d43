//! Manual resolution of a request's record.

use std::sync::Arc;

use ::http::{Method, Response};
use bytes::Bytes;

use super::domain::KeyDomain;
use super::exchange::{Rules, SCHEMA, is_final};
use super::layer::IdempotencyLayer;
use super::profile::Profile;
use super::wire;
use crate::call::entry;
use crate::call::inspect::Entry;
use crate::error::{Error, ErrorKind};
use crate::outcome::codec::{Encoded, Unencodable, schema_of};
use crate::outcome::stored::StoredAnswer;
use crate::record::{AnswerTypes, OutcomeKind};

impl IdempotencyLayer {
    /// Reads the record under a key of this layer.
    ///
    /// For inspection, and to resolve an unknown outcome with [`Entry::resolve_response`].
    ///
    /// `scope` is the value that the layer's scope returns for a request of this caller, `None` for a
    /// [public](Self::public) layer; `key` is the text of the header, without its quotation marks. Where a path is a part
    /// of the key ([`key_domain`](Self::key_domain)), [`entry_at`](Self::entry_at) takes it.
    /// [`Engine::entry`](crate::Engine::entry) finds the same record by the digest that an event names, with the
    /// layer's name as operation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidKey`] for a scope that no request of this layer has: `None` where the layer has scopes, one
    /// where it has none, a blank one; or if the layer's domain has paths. Else as [`CallBuilder::entry`](crate::CallBuilder::entry).
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    ///
    /// # Example
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use axum::{Router, body::Body, http::{Request, StatusCode}, routing::post};
    /// use idem_runtime::{Engine, admin::EntryState, http::IdempotencyLayer, store::memory::MemoryStore};
    /// use tower::ServiceExt as _;
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api");
    /// let timed_out = || async { StatusCode::GATEWAY_TIMEOUT };
    /// let shop: Router = Router::new().route("/payments", post(timed_out)).layer(layer.clone());
    /// let pay = || Request::post("/payments").header("idempotency-key", "\"order-7\"").body(Body::empty()).unwrap();
    /// assert_eq!(shop.clone().oneshot(pay()).await.unwrap().status(), 504);
    ///
    /// // The provider's dashboard shows the payment: the operator writes the response that the client has missed.
    /// let entry = layer.entry(None, "order-7").await.unwrap().expect("the request came");
    /// assert_eq!(entry.state(), EntryState::Unknown);
    /// let paid = http::Response::builder().status(201).header("location", "/payments/7");
    /// entry.resolve_response(paid.body(r#"{"id":7}"#).unwrap()).await.unwrap();
    ///
    /// let again = shop.oneshot(pay()).await.unwrap();
    /// assert_eq!((again.status().as_u16(), &again.headers()["location"]), (201, &"/payments/7".parse().unwrap()));
    /// assert_eq!(again.headers()["idempotent-replayed"], "true");
    /// # });
    /// ```
    pub async fn entry(&self, scope: Option<&str>, key: &str) -> Result<Option<Entry>, Error> {
        let settings = self.settings();
        if settings.profile().domain != KeyDomain::Caller {
            let error = Error::new(ErrorKind::InvalidKey, settings.operation());
            return Err(error.detail("a key of this layer is one of a path: `entry_at` takes it"));
        }
        self.entry_at(scope, &Method::POST, "/", key).await
    }

    /// Reads the record under a key with its method and path.
    ///
    /// In any [domain](Self::key_domain). The path is the client's, without its query; the rest of it does not count.
    /// Else as [`entry`](Self::entry).
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn entry_at(
        &self,
        scope: Option<&str>,
        method: &Method,
        path: &str,
        key: &str,
    ) -> Result<Option<Entry>, Error> {
        let settings = self.settings();
        let Ok(scope) = settings.scope.named(scope) else {
            let error = Error::new(ErrorKind::InvalidKey, settings.operation());
            return Err(error.detail("no request of this layer has this scope"));
        };
        let Profile { keys, domain, .. } = settings.profile();
        let key = keys.counted(key.to_owned());
        let key = domain.key(method, path, &key);
        let entry = entry(settings.named(scope.as_deref(), &key)).await?;
        Ok(entry.map(|mut entry| {
            entry.rules = Some(Arc::clone(&settings.rules) as _);
            entry
        }))
    }
}

impl Entry {
    /// Whether its calls are requests of an [`IdempotencyLayer`], and its answers responses.
    ///
    /// Then [`resolve_response`](Self::resolve_response) settles it. Not known of a record that was reset, and not yet
    /// claimed again.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.types() == AnswerTypes::of([schema_of(SCHEMA); 2])
    }

    /// Resolves the request as done with this response.
    ///
    /// Every repeat gets it, with `idempotent-replayed: true`. For records of an [`IdempotencyLayer`]; see
    /// [`IdempotencyLayer::entry`].
    ///
    /// It is stored as the response of a handler is: with the [headers that are
    /// stored](IdempotencyLayer#headers-that-are-stored), for the `ttl` of the layer or, from status 400 on, its
    /// `error_ttl`, and at least for as long as the record that it resolves was to be kept. An entry that was found by
    /// its digest ([`Engine::entry`](crate::Engine::entry)) has no access to the layer's settings: then the engine's
    /// `ttl`, the default limit of 4 MiB and the default list of headers apply.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotStored`] if it is of gRPC, and the entry not of a `GrpcLayer`; if it is larger than [`max_response_bytes`](IdempotencyLayer::max_response_bytes), or
    /// of a status below 200, which answers no request. Else as [`resolve`](Self::resolve).
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_response<B: Into<Bytes>>(
        self,
        response: Response<B>,
    ) -> Result<(), Error> {
        let rules = self.rules.clone();
        let rules = rules.and_then(|rules| rules.downcast::<Rules>().ok());
        let rules = rules.unwrap_or_default();
        if rules.protocol.is_none() && response.headers().contains_key("grpc-status") {
            let why = "a response of gRPC has its status in trailers: resolve the entry of `GrpcLayer::entry`";
            return Err(self.unchanged(ErrorKind::NotStored, why));
        }
        let (mut parts, body) = response.into_parts();
        let body = rules.collected(&mut parts.headers, body.into());
        let encoded = if is_final(parts.status) {
            let response = Response::from_parts(parts, ());
            let status = rules.status_of(&response, &body);
            rules.encode(&response, status, &body, self.format())
        } else {
            Encoded::empty(OutcomeKind::Tombstone, Some(Unencodable::Stream))
        };
        self.answer(encoded, "Response").await
    }
}

impl StoredAnswer {
    /// The stored response of a request to an [`IdempotencyLayer`].
    ///
    /// `None` for any other answer, and for an unreadable one.
    #[must_use]
    pub fn response(&self) -> Option<Response<Bytes>> {
        let opened = self.open().ok()?;
        let stored = wire::read(opened.own().ok()?).ok()?;
        let mut response = Response::new(stored.body.data);
        *response.status_mut() = stored.status;
        *response.headers_mut() = stored.headers;
        Some(response)
    }
}
