//! The layer and its settings.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderName, Method, Response};
use bytes::Bytes;
use tonic::Status;
use tower_layer::Layer;

use super::methods::{Methods, Treatment};
use super::service::GrpcIdempotency;
use super::wire::{Grpc, message, needed};
use crate::call::inspect::Entry;
use crate::error::Error;
use crate::http::{
    Fingerprinter, IDEMPOTENCY_KEY, IdempotencyLayer, KeySource, KeyVerdict, Problem,
};

/// Layer that makes the unary calls of a tonic server idempotent.
///
/// It is an [`IdempotencyLayer`] that reads and writes gRPC: engine, scope, keys, limits, time-outs and all settings of
/// a call are set there, and [`unary`](Self::unary) lists the methods. The first call with a key runs its method in a
/// task of its own and so to its end, even if its client disconnects or its deadline passes. Its message, its metadata
/// and its status are stored, and every repeat gets them, with `idempotent-replayed: true` in the metadata.
///
/// Two calls are the same if their method and the bytes of their message are equal. Metadata do not count, nor does a
/// deadline.
///
/// # Methods
///
/// Whether a method is unary or a stream is not in the request, so it is a setting:
///
/// | method | with a key | without a key |
/// |---|---|---|
/// | listed by [`unary`](Self::unary), itself or its service | is protected | `INVALID_ARGUMENT` `KEY_MISSING`, or passes: [`optional`](IdempotencyLayer::optional) |
/// | listed by [`pass`](Self::pass) | passes | passes |
/// | not listed | `INVALID_ARGUMENT` `METHOD_NOT_LISTED`, or passes: [`pass_unlisted`](Self::pass_unlisted) | passes |
///
/// A method that streams and is listed as unary by mistake does not run a second time. With none or several messages in
/// its request it is refused as `UNIMPLEMENTED` `NOT_UNARY`, before it runs. A method whose *responses* are a stream has
/// run by the time of the second message: its client gets the stream, which was held back until then, its record is that
/// of a call done without a stored answer, and every repeat gets `DATA_LOSS` `ANSWER_LOST`, as an HTTP response that is a
/// stream does.
///
/// # Statuses
///
/// The [`StatusPolicy`](crate::http::StatusPolicy) of the [`IdempotencyLayer`] decides by the HTTP status that a code
/// stands for. With the default, [`careful`](crate::http::StatusPolicy::careful):
///
/// | code | as | the key | why |
/// |---|---|---|---|
/// | `OK` | 200 | store | it was done |
/// | `ALREADY_EXISTS`, `FAILED_PRECONDITION` | 409, 424 | store | a business answer ("sold out", "balance too low") |
/// | `INVALID_ARGUMENT`, `OUT_OF_RANGE` | 400 | release | not valid, and nothing was done: the client corrects it |
/// | `UNAUTHENTICATED`, `PERMISSION_DENIED` | 401, 403 | release | the caller was not let in |
/// | `NOT_FOUND` | 404 | release | now, and perhaps not later |
/// | `RESOURCE_EXHAUSTED`, `UNAVAILABLE` | 429, 503 | release | the service states that it did not try |
/// | `UNIMPLEMENTED` | 501 | release | the service does not have the method, or not the compression |
/// | `CANCELLED`, `DEADLINE_EXCEEDED` | 408, 504 | **unknown** | the call was cut off half-way |
/// | `ABORTED`, `UNKNOWN`, `INTERNAL`, `DATA_LOSS`, any other | 500 | **unknown** | ambiguous: it may have been done |
/// | none: a panic, an error of the service, a response that breaks off | | **unknown** | ambiguous |
///
/// **A code that releases the key is a promise here**: that nothing was done. A service that hands on the status of another
/// service which it called (`?` on a client's call) makes no such promise: a client library also reports a connection that
/// was lost after the request as `UNAVAILABLE`, a response that is too large as `OUT_OF_RANGE`, and one in an encoding that
/// it does not know as `UNIMPLEMENTED`. The service maps it to `UNKNOWN`, or [`sort`](Self::sort) does.
///
/// An error in the trailers of a response that has begun promises nothing: the method has returned, and what would release
/// the key leaves the outcome unknown. So does a message that is larger than `max_encoding_message_size`.
///
/// A handler with better knowledge sets the [`KeyVerdict`] of an answer by `response.extensions_mut().insert(…)`; a
/// `Status` has no place for one, and [`sort`](Self::sort) decides by its code, message, details and metadata. A response
/// of another HTTP status than 200, from a layer inside, is treated as HTTP's.
///
/// Sources: [`google.rpc.Code`](https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto), with its
/// mapping to HTTP (the exceptions: `FAILED_PRECONDITION` is 400 there, `ABORTED` 409, `CANCELLED` 499);
/// [AIP-193](https://google.aip.dev/193) and [AIP-194](https://google.aip.dev/194), by which a client repeats `UNAVAILABLE`
/// alone; gRPC's [status codes](https://grpc.io/docs/guides/status-codes/) and
/// [A6](https://github.com/grpc/proposal/blob/master/A6-client-retries.md).
///
/// # The message
///
/// - **A repeat sends the same bytes.** Protobuf is not canonical: the order of fields and of the entries of a `map`
///   may differ between languages, versions, and for a `HashMap` of prost between two clients of one version. A repeat
///   with other bytes is `FAILED_PRECONDITION` `KEY_REUSED`, and nothing runs. One client binary without maps (or with
///   prost's `btree_map`) writes the same bytes; where that cannot be promised, [`fingerprint`](Self::fingerprint) takes
///   the fields that count.
/// - A compressed request counts as it is compressed. Encoders of one version write the same bytes; a client that
///   turns compression on or off, or changes the encoder, between a call and its repeat gets `KEY_REUSED`.
/// - **The response of a protected call is not compressed**: its method does not see `grpc-accept-encoding`, so that the
///   stored message can be replayed to any client. Calls that pass keep it.
/// - Up to [`max_body_bytes`](IdempotencyLayer::max_body_bytes) (2 MiB) of a request, then `RESOURCE_EXHAUSTED`
///   `BODY_TOO_LARGE`; up to [`max_response_bytes`](IdempotencyLayer::max_response_bytes) (4 MiB) of a response, then it
///   is streamed and not stored, and its repeats get `DATA_LOSS` `ANSWER_LOST`.
///
/// # Metadata
///
/// All metadata of a response are stored, leading and trailing, because the service names each of them. Left out is what
/// an `IdempotencyLayer` [never stores](IdempotencyLayer#headers-that-are-stored): credentials, tokens, cookies, ids of
/// requests and traces, rate limits, headers of the connection. [`never_store`](IdempotencyLayer::never_store) excludes
/// more; [`store_only`](IdempotencyLayer::store_only) lists the metadata that are stored besides the status.
///
/// # Deadlines
///
/// With `grpc-timeout` a call waits for a running one, and for the rest of its own request, no longer than nine tenths
/// of its time (1 s less, of a time over 10 s), so that `UNAVAILABLE` `REQUEST_RUNNING` reaches the client within it. A
/// time that is shorter than the wait of [`on_running`](IdempotencyLayer::on_running) shortens it, a longer one does not
/// lengthen it. A claim in a store without a reply is not cut short by it. Put the layer into the
/// [`Server`](https://docs.rs/tonic/latest/tonic/transport/struct.Server.html#method.layer), whose own time-out is then
/// outside: it ends the wait of the client, and not the method.
///
/// # Settings of the `IdempotencyLayer` that have no effect
///
/// [`methods`](IdempotencyLayer::methods), [`key_source`](IdempotencyLayer::key_source),
/// [`store_header`](IdempotencyLayer::store_header) (unless after `store_only`),
/// `on_problem` and `on_problem_with`. A [`reconcile`](IdempotencyLayer::reconcile) hook returns a
/// [`reply`](super::reply).
///
/// # Example
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, grpc::GrpcLayer, http::IdempotencyLayer, store::memory::MemoryStore};
/// use std::convert::Infallible;
/// use tonic::{Request, Response, Status, client, server};
/// use tonic_prost::ProstCodec;
/// use tower::{Layer as _, service_fn};
///
/// /// The owner of a call's key: the caller that a layer outside has authenticated.
/// #[derive(Clone)]
/// struct Caller(String);
///
/// let layer = IdempotencyLayer::scoped(Engine::new(MemoryStore::new()), "shop.grpc", |call| {
///     Some(call.extensions.get::<Caller>()?.0.clone())
/// });
/// let layer = GrpcLayer::new(layer).unary(["shop.v1.Payments/Charge"]);
///
/// // With a server: `Server::builder().layer(authentication).layer(layer).add_service(payments)`.
/// let charge = |order: Request<String>| async move { Ok::<_, Status>(Response::new(format!("charged {}", order.get_ref()))) };
/// let payments = layer.layer(service_fn(move |call| async move {
///     let codec = ProstCodec::<String, String>::default();
///     Ok::<_, Infallible>(server::Grpc::new(codec).unary(service_fn(charge), call).await)
/// }));
///
/// let mut client = client::Grpc::new(payments);
/// for is_replay in [false, true] {
///     client.ready().await.unwrap();
///     let mut order = Request::new("two teapots".to_owned());
///     order.metadata_mut().insert("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324".parse().unwrap());
///     order.extensions_mut().insert(Caller("acme".to_owned()));
///     let path = "/shop.v1.Payments/Charge".parse().unwrap();
///     let charged = client.unary(order, path, ProstCodec::<String, String>::default()).await.unwrap();
///     assert_eq!(charged.get_ref(), "charged two teapots");
///     assert_eq!(charged.metadata().contains_key("idempotent-replayed"), is_replay);
/// }
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct GrpcLayer {
    http: IdempotencyLayer,
    /// The name of the metadata that has the key.
    key: HeaderName,
    grpc: Grpc,
    methods: Methods,
    passes_unlisted: bool,
}

impl GrpcLayer {
    /// A layer with the settings of this one; it protects no method until [`unary`](Self::unary) lists it.
    pub fn new(layer: IdempotencyLayer) -> Self {
        Self {
            http: layer,
            key: IDEMPOTENCY_KEY,
            grpc: Grpc::default(),
            methods: Methods::default(),
            passes_unlisted: false,
        }
    }

    fn list<N: AsRef<str>>(
        mut self,
        names: impl IntoIterator<Item = N>,
        as_this: Treatment,
    ) -> Self {
        for name in names {
            self.methods.list(name.as_ref(), as_this);
        }
        self
    }

    /// Protects these methods: `shop.v1.Payments/Charge`, or all of a service, `shop.v1.Payments`.
    ///
    /// All of them must be [unary](Self#methods). A method that is listed itself comes before its service; of two
    /// listings of the same name the later one applies.
    ///
    /// # Panics
    ///
    /// If no method or service can have one of these names.
    pub fn unary<N: AsRef<str>>(self, methods: impl IntoIterator<Item = N>) -> Self {
        self.list(methods, Treatment::Protected)
    }

    /// Passes the calls of these methods or services unprotected.
    ///
    /// With or without a key. For streams, and for methods that only read.
    ///
    /// # Panics
    ///
    /// As [`unary`](Self::unary).
    pub fn pass<N: AsRef<str>>(self, methods: impl IntoIterator<Item = N>) -> Self {
        self.list(methods, Treatment::Passed)
    }

    /// Passes calls with a key of methods that are not listed, unprotected.
    ///
    /// Default: they are refused. A client whose key is ignored believes that a repeat is safe.
    pub fn pass_unlisted(mut self) -> Self {
        self.passes_unlisted = true;
        self
    }

    /// The name of the metadata that has the key; default `idempotency-key`.
    ///
    /// The value is as in HTTP, in quotation marks or without: [`KeyRules`](crate::http::KeyRules).
    ///
    /// # Panics
    ///
    /// If no metadata can have this name, or if it ends with `-bin`: that value is base64, in which one key has several
    /// texts. It also panics for a name that gRPC itself has, `grpc-…`.
    pub fn key_name(mut self, name: &str) -> Self {
        let parsed = name.parse().ok();
        let is_text = |name: &HeaderName| {
            let name = name.as_str();
            !name.ends_with("-bin") && !name.starts_with("grpc-")
        };
        let Some(parsed) = parsed.filter(is_text) else {
            panic!(
                "no metadata of a key can have the name {name:?}; write it without colon and blanks, and without `grpc-` \
                 before and `-bin` after it"
            );
        };
        self.key = parsed;
        self
    }

    /// Decides about the key after an error of a call.
    ///
    /// It gets the whole `Status`, with its details and its metadata, once for each error, and must not block. `None`: [as
    /// the code says](Self#statuses).
    ///
    /// ```
    /// use idem_runtime::{Engine, grpc::GrpcLayer, http::{IdempotencyLayer, KeyVerdict}, store::memory::MemoryStore};
    /// use tonic::Code;
    ///
    /// let layer = GrpcLayer::new(IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.grpc")).sort(|status| {
    ///     match status.code() {
    ///         // Of a transaction that was rolled back.
    ///         Code::Aborted => Some(KeyVerdict::Release),
    ///         // From the payment provider, which may have got the request.
    ///         Code::Unavailable => Some(KeyVerdict::Unknown),
    ///         _ => None,
    ///     }
    /// });
    /// # drop(layer);
    /// ```
    pub fn sort<F>(mut self, sort: F) -> Self
    where
        F: Fn(&Status) -> Option<KeyVerdict> + Send + Sync + 'static,
    {
        self.grpc.sort = Some(Arc::new(sort));
        self
    }

    /// Replaces the bytes of a message in the comparison of two calls.
    ///
    /// It gets the head of the request and the message, and must not block. `None` means that the bytes count as they
    /// are. Two calls for which it returns the same bytes are equal, so every field that the method acts on must be part
    /// of them. A compressed message counts as it is, without the rule. It replaces a
    /// [`Fingerprinter`](IdempotencyLayer::fingerprint).
    pub fn fingerprint<F>(mut self, rule: F) -> Self
    where
        F: Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    {
        let rule = move |call: &Parts, body: &[u8]| rule(call, message(body)?);
        self.http = self.http.fingerprint(Fingerprinter::new().of(rule));
        self
    }

    /// Reads the record under a key of this layer: see [`IdempotencyLayer::entry`].
    ///
    /// [`Entry::resolve_response`] settles it with a [`reply`](super::reply).
    ///
    /// # Errors
    ///
    /// As [`IdempotencyLayer::entry`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn entry(&self, scope: Option<&str>, key: &str) -> Result<Option<Entry>, Error> {
        self.over_grpc().entry(scope, key).await
    }

    /// Reads the record under a key with its method.
    ///
    /// The path of the method is `/shop.v1.Payments/Charge`. See [`IdempotencyLayer::entry_at`].
    ///
    /// # Errors
    ///
    /// As [`IdempotencyLayer::entry`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn entry_at(
        &self,
        scope: Option<&str>,
        path: &str,
        key: &str,
    ) -> Result<Option<Entry>, Error> {
        let layer = self.over_grpc();
        layer.entry_at(scope, &Method::POST, path, key).await
    }

    /// The layer that reads and writes gRPC.
    fn over_grpc(&self) -> IdempotencyLayer {
        let refuse = |problem: Problem| -> Response<Bytes> { Status::from(problem).into_http() };
        let http = self.http.clone();
        http.over(
            self.grpc.clone(),
            KeySource::metadata(self.key.clone()),
            refuse,
            needed(),
        )
    }
}

impl<S> Layer<S> for GrpcLayer {
    type Service = GrpcIdempotency<S>;

    fn layer(&self, inner: S) -> GrpcIdempotency<S> {
        GrpcIdempotency {
            settings: self.over_grpc().shared(),
            key: self.key.clone(),
            methods: Arc::new(self.methods.clone()),
            passes_unlisted: self.passes_unlisted,
            inner,
        }
    }
}

debug_fields!(GrpcLayer {
    http,
    key,
    grpc,
    methods,
    passes_unlisted
});
