//! The description of a server under test.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};

use crate::fixture::BoxFuture;

use super::operation::Operation;

/// Something that the tests do to a server beside its requests.
#[derive(Clone)]
pub(super) struct ServerHook<A>(Arc<dyn Fn(A) -> BoxFuture<'static, ()> + Send + Sync>);

impl<A> ServerHook<A> {
    fn new<F>(hook: impl Fn(A) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |argument| Box::pin(hook(argument))))
    }

    pub(super) async fn call(&self, argument: A) {
        (self.0)(argument).await;
    }
}

impl<A> fmt::Debug for ServerHook<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerHook")
    }
}

/// The payment for a target without [`Target::payment`]: a server in test mode accepts it.
const PAYMENT: &str = r#"{"x402Version":2,"accepted":{"scheme":"exact","network":"eip155:84532","amount":"10000",
"asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
"maxTimeoutSeconds":60,"extra":{}},"payload":{"signature":"0x{number}","authorization":{"nonce":"0x{number}"}}}"#;

/// A server under test, and its abilities.
///
/// One operation is enough. Each further setting lets more rows of a table be tested; the rows that lack it are
/// [`NotChecked`](super::RowResult::NotChecked), and name it.
///
/// The server should have no other clients meanwhile, if [`effects`](Self::effects) are counted. Nothing is undone: a
/// run makes some dozens of requests that the server takes for real.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use idem_conformance::http::{Operation, Target};
///
/// let of = |token| HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static(token))]);
/// let order = Operation::post("/orders").json(r#"{"items": ["tea", "cake"], "quantity": {number}}"#);
/// let target = Target::new("https://shop.example".parse()?, order)
///     .caller(of("Bearer one"))
///     .other_caller(of("Bearer two"))
///     .elsewhere(Operation::post("/refunds").json(r#"{"quantity": {number}}"#))
///     .effects("GET /orders".parse()?, "/total");
/// # let _ = target;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a target does nothing until it is checked"]
pub struct Target {
    pub(super) base: Uri,
    pub(super) operation: Operation,
    pub(super) also: Vec<Operation>,
    pub(super) caller: HeaderMap,
    pub(super) other_caller: Option<HeaderMap>,
    pub(super) elsewhere: Option<Operation>,
    pub(super) slow: Option<Operation>,
    pub(super) streamed: Option<Operation>,
    pub(super) release: Option<(Duration, ServerHook<()>)>,
    pub(super) rejected: Option<Operation>,
    pub(super) invalid: Option<Operation>,
    pub(super) failing: Option<Operation>,
    pub(super) effects: Option<(Operation, String)>,
    pub(super) clock: Option<(Duration, ServerHook<Duration>)>,
    pub(super) outage: Option<ServerHook<bool>>,
    pub(super) config: Option<Operation>,
    pub(super) payment: String,
    pub(super) patience: Duration,
}

impl Target {
    /// A server at this address, with an operation protected by keys.
    ///
    /// The address has a scheme (`http`, `https`) and a host, and may have a path, which the path of each operation is
    /// added to. The operation has an effect, answers with 2xx, and should give each effect an answer of its own, such
    /// as one with an id.
    pub fn new(base: Uri, operation: Operation) -> Self {
        Self {
            base,
            operation,
            also: Vec::new(),
            caller: HeaderMap::new(),
            other_caller: None,
            elsewhere: None,
            slow: None,
            streamed: None,
            release: None,
            rejected: None,
            invalid: None,
            failing: None,
            effects: None,
            clock: None,
            outage: None,
            config: None,
            payment: PAYMENT.to_owned(),
            patience: Duration::from_secs(30),
        }
    }

    /// Headers of every request: the credentials of its caller.
    pub fn caller(mut self, headers: HeaderMap) -> Self {
        self.caller = headers;
        self
    }

    /// The credentials of another caller, in place of those of [`caller`](Self::caller).
    pub fn other_caller(mut self, headers: HeaderMap) -> Self {
        self.other_caller = Some(headers);
        self
    }

    /// A further operation, of another method: `PATCH`, `PUT` or `DELETE`.
    pub fn also(mut self, operation: Operation) -> Self {
        self.also.push(operation);
        self
    }

    /// A protected operation at another path.
    pub fn elsewhere(mut self, operation: Operation) -> Self {
        self.elsewhere = Some(operation);
        self
    }

    /// A protected operation that takes a few seconds.
    ///
    /// Two requests for it are sent at once: the later one arrives while the first is running.
    pub fn slow(mut self, operation: Operation) -> Self {
        self.slow = Some(operation);
        self
    }

    /// A protected operation whose response is a stream, such as `text/event-stream`, that takes a few seconds.
    ///
    /// A repeat is sent when the response has begun.
    pub fn streamed(mut self, operation: Operation) -> Self {
        self.streamed = Some(operation);
        self
    }

    /// A function that ends the running request of [`slow`](Self::slow), and the response of
    /// [`streamed`](Self::streamed). By default they end by themselves.
    ///
    /// It is called once for two requests: after the first response, or after this time, because a server may let the
    /// later request wait. A later request with the same number must end by itself.
    pub fn release<F>(
        mut self,
        after: Duration,
        release: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.release = Some((after, ServerHook::new(move |()| release())));
        self
    }

    /// A protected operation that is done and answers with 4xx: a declined card.
    pub fn rejected(mut self, operation: Operation) -> Self {
        self.rejected = Some(operation);
        self
    }

    /// The operation with parameters that it refuses with 4xx before any effect.
    pub fn invalid(mut self, operation: Operation) -> Self {
        self.invalid = Some(operation);
        self
    }

    /// A protected operation that answers with 5xx: each time with another body, unless a retry succeeds.
    pub fn failing(mut self, operation: Operation) -> Self {
        self.failing = Some(operation);
        self
    }

    /// A request for the effects' number or list, at this JSON pointer.
    pub fn effects(mut self, operation: Operation, pointer: impl Into<String>) -> Self {
        self.effects = Some((operation, pointer.into()));
        self
    }

    /// A server in a test, whose clock can be moved forward: the life of its keys, and the function that moves it.
    pub fn clock<F>(
        mut self,
        life: Duration,
        advance: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.clock = Some((life, ServerHook::new(advance)));
        self
    }

    /// A server in a test, whose store can be made unreachable: a function that begins (`true`) and ends an outage.
    pub fn outage<F>(mut self, outage: impl Fn(bool) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.outage = Some(ServerHook::new(outage));
        self
    }

    /// The request of the configuration of an Iceberg catalog: `GET /v1/config`.
    pub fn config(mut self, operation: Operation) -> Self {
        self.config = Some(operation);
        self
    }

    /// The x402 payment of a request: a JSON object, in which `{number}` is the number of the payment.
    ///
    /// The tests add the identifier. Default: a payment of the scheme `exact` whose signature is none.
    pub fn payment(mut self, payment: impl Into<String>) -> Self {
        self.payment = payment.into();
        self
    }

    /// The time limit of a request; default 30 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}
