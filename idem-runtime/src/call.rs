//! From a call's arguments to its answer: the shell around a body.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::answer::Undecodable;
use crate::claim::{Claim, Settled, Stored};
use crate::context::Context;
use crate::engine::{Ask, Begun, Engine};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::{Fingerprint, FingerprintBuilder, ToFingerprint};
use crate::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, ToKey};
use crate::observer::EventKind;
use crate::on_error::{By, Classified, Keep, Release, Unknown};
use crate::operation::Operation;
use crate::outcome::{Codec, Outcome};
use crate::policy::{OnDuplicate, OnRunning, Overrides};
use crate::record::{OutcomeKind, State};

/// What identifies a call: operation, scope, key, fingerprint. Not generic, so that an expansion
/// costs little to compile.
#[derive(Debug)]
pub struct Inputs {
    operation: Operation,
    key: Key,
    asked: Option<FingerprintBuilder>,
}

#[derive(Debug)]
enum Key {
    /// No key yet; without one the fingerprint takes its place.
    Open(KeyBuilder),
    Given(Result<KeyDigest, KeyError>),
    /// Not what was meant, and why.
    Refused(&'static str),
}

const LATE: Key = Key::Refused("give the scope before the key");
const TWICE: Key = Key::Refused("give one key; of several parts make a tuple");

impl Inputs {
    /// The inputs of a call of this operation.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            key: Key::Open(KeyBuilder::new(operation.as_str(), DEFAULT_MAX_KEY_BYTES)),
            operation,
            asked: None,
        }
    }

    /// Whose key it is; before the key.
    pub fn scope<K: ToKey + ?Sized>(&mut self, scope: &K) {
        self.key = match std::mem::replace(&mut self.key, LATE) {
            Key::Open(builder) => Key::Open(builder.scope(scope)),
            Key::Given(_) => LATE,
            refused @ Key::Refused(_) => refused,
        };
    }

    /// Which call it is.
    pub fn key<K: ToKey + ?Sized>(&mut self, key: &K) {
        self.key = match std::mem::replace(&mut self.key, TWICE) {
            Key::Open(builder) => Key::Given(builder.key(key)),
            Key::Given(_) => TWICE,
            refused @ Key::Refused(_) => refused,
        };
    }

    /// Announces the arguments that take part in the fingerprint; as many [`arg`]s follow.
    pub fn fingerprint(&mut self, arguments: usize) {
        self.asked = Some(FingerprintBuilder::new(self.operation.as_str(), arguments));
    }

    fn request<T: ToFingerprint + ?Sized>(&mut self, request: &T) {
        self.asked = Some(FingerprintBuilder::value(self.operation.as_str(), request));
    }

    fn finish(self) -> Result<(Operation, KeyDigest, Fingerprint), Error> {
        let Self {
            operation,
            key,
            asked,
        } = self;
        let invalid = || Error::new(ErrorKind::InvalidKey, operation.clone());
        let asked = match asked.map(FingerprintBuilder::finish).transpose() {
            Ok(asked) => asked,
            Err(error) => return Err(invalid().because(error)),
        };
        let key = match (key, &asked) {
            (Key::Given(key), _) => key,
            (Key::Open(builder), Some(asked)) => builder.digest(asked),
            (Key::Open(_), None) => {
                return Err(invalid().detail("give a key, a fingerprint, or both"));
            }
            (Key::Refused(why), _) => return Err(invalid().detail(why)),
        };
        match key {
            Ok(key) => {
                let fingerprint = asked.map_or(Fingerprint::NONE, |asked| asked.fingerprint());
                Ok((operation, key, fingerprint))
            }
            Err(error) => Err(invalid().because(error)),
        }
    }
}

/// One argument of the fingerprint. A function, so that an expansion can name the written type and
/// have it blamed.
pub fn arg<T: ToFingerprint + ?Sized>(inputs: &mut Inputs, name: &'static str, value: &T) {
    if let Some(asked) = &mut inputs.asked {
        asked.arg(name, value);
    }
}

/// A call that is ready to run.
#[derive(Debug)]
pub struct Call<O, P> {
    inputs: Inputs,
    engine: Result<Engine, Error>,
    codec: Codec<O, P>,
    overrides: Overrides,
}

impl<O, P> Call<O, P> {
    /// A call on this engine; an error is what the caller will get.
    #[must_use]
    pub fn new(inputs: Inputs, engine: Result<Engine, Error>, codec: Codec<O, P>) -> Self {
        Self {
            inputs,
            engine,
            codec,
            overrides: Overrides::default(),
        }
    }

    /// The life of a value.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.overrides.ttl = Some(ttl);
        self
    }

    /// The life of a kept error.
    #[must_use]
    pub fn error_ttl(mut self, ttl: Duration) -> Self {
        self.overrides.error_ttl = Some(ttl);
        self
    }

    /// How long the claim lasts unless renewed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.overrides.lease = Some(lease);
        self
    }

    /// What a duplicate of the finished call gets.
    #[must_use]
    pub fn on_duplicate(mut self, on_duplicate: OnDuplicate) -> Self {
        self.overrides.on_duplicate = Some(on_duplicate);
        self
    }

    /// What a duplicate does while the call runs.
    #[must_use]
    pub fn on_running(mut self, on_running: OnRunning) -> Self {
        self.overrides.on_running = Some(on_running);
        self
    }
}

async fn begin(
    inputs: Inputs,
    engine: Result<Engine, Error>,
    overrides: Overrides,
) -> Result<(Engine, Begun), Error> {
    let operation = inputs.operation.clone();
    let engine = match engine {
        Ok(engine) => engine,
        Err(error) => {
            // Known only now which operation it is that found no engine.
            return Err(Error::new(error.kind().clone(), operation));
        }
    };
    let core = &engine.core;
    let ask = inputs
        .finish()
        .and_then(|(operation, digest, fingerprint)| {
            let policy = overrides.over(&core.defaults).map_err(|detail| {
                Error::new(ErrorKind::InvalidPolicy, operation.clone()).detail(detail)
            })?;
            Ok(Ask {
                operation,
                digest,
                fingerprint,
                policy,
            })
        });
    let begun = match ask {
        Ok(ask) => core.begin(ask).await?,
        Err(error) => {
            core.refused(&error);
            return Err(error);
        }
    };
    Ok((engine, begun))
}

/// Answers the call from its record, or runs `body` under a claim and stores its result.
///
/// On a replay `body` is not polled, so nothing of it has run.
pub async fn run<O, P, F>(call: Call<O, P>, body: Pin<&mut F>) -> O
where
    F: Future<Output = O>,
{
    let Call {
        inputs,
        engine,
        codec,
        overrides,
    } = call;
    // Boxed: they are much larger than the body of most calls, which the future holds besides.
    match Box::pin(begin(inputs, engine, overrides)).await {
        Err(error) => codec.refuse(error),
        Ok((engine, Begun::Done(stored))) => replay(&engine, &codec, &stored),
        Ok((engine, Begun::Claimed(claim))) => execute(engine, &codec, claim, body).await,
    }
}

async fn execute<O, P, F>(engine: Engine, codec: &Codec<O, P>, claim: Claim, body: Pin<&mut F>) -> O
where
    F: Future<Output = O>,
{
    let output = match claim.context().scope(unwind(body)).await {
        Ok(output) => output,
        Err(panic) => {
            Box::pin(claim.panicked()).await;
            resume_unwind(panic)
        }
    };
    let operation = claim.operation().clone();
    let encoded = codec.encode(&output, engine.core.limits.max_value_bytes);
    match Box::pin(claim.settle(encoded)).await {
        Settled::Own => output,
        Settled::Adopted(record) => match record.header.state {
            State::Done {
                outcome: OutcomeKind::Value | OutcomeKind::Error,
                ..
            } => {
                let left = record.header.retain;
                let stored = Stored {
                    operation,
                    record,
                    left,
                };
                replay(&engine, codec, &stored)
            }
            State::Done {
                outcome: OutcomeKind::Unknown,
                ..
            } => codec.refuse(Error::new(
                ErrorKind::Unknown {
                    since: engine.core.clock.calendar(),
                },
                operation,
            )),
            _ => codec.refuse(Error::new(ErrorKind::NotStored, operation)),
        },
        Settled::Unread(error) => codec.refuse(error),
        Settled::Overtaken(retry_after) => codec.refuse(
            Error::new(ErrorKind::Running { retry_after }, operation)
                .detail("another attempt took the key over, and its answer will count"),
        ),
    }
}

/// Polls the body; a panic becomes a value, so that the claim can be given back first.
async fn unwind<F: Future>(mut body: Pin<&mut F>) -> Result<F::Output, Box<dyn Any + Send>> {
    std::future::poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(cx))) {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

fn replay<O, P>(engine: &Engine, codec: &Codec<O, P>, stored: &Stored) -> O {
    codec.decode(&stored.record).unwrap_or_else(|undecodable| {
        let error = undecodable_error(codec, stored, undecodable);
        engine.core.refused(&error);
        codec.refuse(error)
    })
}

fn undecodable_error<O, P>(codec: &Codec<O, P>, stored: &Stored, error: Undecodable) -> Error {
    let State::Done { outcome, schema } = stored.record.header.state else {
        return Error::new(ErrorKind::UnknownRecord, stored.operation.clone());
    };
    let [value, failure] = codec.schemas();
    let expected = if outcome == OutcomeKind::Error {
        failure
    } else {
        value
    };
    let which = if schema == expected {
        "the type has changed, or the record is damaged"
    } else {
        "it was written for a type of another name"
    };
    Error::new(ErrorKind::Undecodable, stored.operation.clone()).detail(format!(
        "{which}; stored {:?} of schema {schema:08x}, expected {expected:08x}, failed at byte {}",
        outcome, error.at
    ))
}

/// A call that is being described: see [`Engine::operation`].
#[derive(Debug)]
#[must_use = "a call does nothing until it is run"]
pub struct CallBuilder<P> {
    engine: Engine,
    inputs: Inputs,
    overrides: Overrides,
    on_error: P,
}

impl CallBuilder<Classified> {
    pub(crate) fn new(engine: Engine, operation: Operation) -> Self {
        Self {
            engine,
            inputs: Inputs::new(operation),
            overrides: Overrides::default(),
            on_error: Classified,
        }
    }
}

impl<P> CallBuilder<P> {
    /// Whose key it is: tenant, credential, user. Two scopes never see each other's answers.
    /// Given before the key.
    pub fn scope<K: ToKey + ?Sized>(mut self, scope: &K) -> Self {
        self.inputs.scope(scope);
        self
    }

    /// Which call it is. Without a key, the fingerprint is the key.
    pub fn key<K: ToKey + ?Sized>(mut self, key: &K) -> Self {
        self.inputs.key(key);
        self
    }

    /// What is asked: the same key with another fingerprint is refused as
    /// [`ErrorKind::Mismatch`]. Without one nothing is compared.
    pub fn fingerprint<T: ToFingerprint + ?Sized>(mut self, request: &T) -> Self {
        self.inputs.request(request);
        self
    }

    /// The life of a stored value; 1 s to 10 years.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.overrides.ttl = Some(ttl);
        self
    }

    /// The life of a kept error; default that of a value.
    pub fn error_ttl(mut self, ttl: Duration) -> Self {
        self.overrides.error_ttl = Some(ttl);
        self
    }

    /// How long the claim lasts unless renewed; 100 ms to 24 h.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.overrides.lease = Some(lease);
        self
    }

    /// What a duplicate of a finished call gets.
    pub fn on_duplicate(mut self, on_duplicate: OnDuplicate) -> Self {
        self.overrides.on_duplicate = Some(on_duplicate);
        self
    }

    /// What a duplicate does while the first call runs.
    pub fn on_running(mut self, on_running: OnRunning) -> Self {
        self.overrides.on_running = Some(on_running);
        self
    }

    fn on_error<Q>(self, on_error: Q) -> CallBuilder<Q> {
        CallBuilder {
            engine: self.engine,
            inputs: self.inputs,
            overrides: self.overrides,
            on_error,
        }
    }

    /// Every error gives the key back (`on_error = release`).
    pub fn release_errors(self) -> CallBuilder<Release> {
        self.on_error(Release)
    }

    /// Every error is kept as an answer (`on_error = keep`).
    pub fn keep_errors(self) -> CallBuilder<Keep> {
        self.on_error(Keep)
    }

    /// After any error the outcome is unknown (`on_error = unknown`).
    pub fn errors_are_unknown(self) -> CallBuilder<Unknown> {
        self.on_error(Unknown)
    }

    /// A function of the error decides (`on_error = path`).
    pub fn classify_errors<F>(self, class: F) -> CallBuilder<By<F>> {
        self.on_error(By(class))
    }

    /// Answers the call from its record, or runs `body` under a claim and stores its result.
    ///
    /// # Errors
    ///
    /// What the body returns, what is stored of an earlier call, or an [`Error`] turned into `O`'s
    /// error.
    ///
    /// # Panics
    ///
    /// With the body; the key is given back first, and the attempt counts.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the body starts: nothing has happened. Dropped while the body runs: the claim
    /// lapses with its lease and the attempt counts. Dropped after: the answer is stored all the
    /// same.
    pub async fn run<O, B, F>(self, body: B) -> O
    where
        O: Outcome<P>,
        B: FnOnce(Context) -> F,
        F: Future<Output = O>,
    {
        let codec = Codec::new(self.on_error);
        let call = Call {
            inputs: self.inputs,
            engine: Ok(self.engine),
            codec,
            overrides: self.overrides,
        };
        // The context is there as soon as the body runs, and only then.
        let body = async move { body(crate::context::context()).await };
        run(call, pin!(body)).await
    }

    /// Asks for the claim and leaves body and completion to the caller.
    ///
    /// # Errors
    ///
    /// Whatever keeps the body from running: see [`ErrorKind`].
    ///
    /// # Cancel safety
    ///
    /// A claim that was under way is given back.
    pub async fn begin(self) -> Result<Begun, Error> {
        let (_, begun) = begin(self.inputs, Ok(self.engine), self.overrides).await?;
        Ok(begun)
    }
}

impl Operation {
    /// The default name of a method's operation.
    pub(crate) fn of_method<S: ?Sized>(function: &str) -> Self {
        let name = format!("{}::{function}", std::any::type_name::<S>());
        Self::new(Cow::Owned(name))
    }
}

impl crate::engine::Core {
    fn refused(&self, error: &Error) {
        self.observer.observe(&crate::observer::Event {
            operation: error.operation(),
            key: None,
            kind: EventKind::Refused { error },
        });
    }
}

impl Claim {
    fn operation(&self) -> &Operation {
        self.key().operation()
    }
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer cannot be read at byte {}", self.at)
    }
}
