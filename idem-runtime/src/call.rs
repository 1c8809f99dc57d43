//! From a call's arguments to its answer: the shell around a body.

mod builder;

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

pub use self::builder::CallBuilder;
use crate::answer::{How, Undecodable};
use crate::begin::{Ask, Begun};
use crate::claim::{Claim, Stored};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::inputs::Inputs;
use crate::observer::EventKind;
use crate::operation::Operation;
use crate::outcome::Codec;
use crate::policy::{OnDuplicate, OnRunning, Overrides};
use crate::record::{OutcomeKind, State};
use crate::settle::Settled;

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
    let mut output = match claim.context().scope(unwind(body)).await {
        Ok(output) => output,
        Err(panic) => {
            Box::pin(claim.panicked()).await;
            resume_unwind(panic)
        }
    };
    let operation = claim.operation().clone();
    codec.annotate(&mut output, How::Executed, claim.attempt(), Duration::ZERO);
    let encoded = codec.encode(&output, &engine.core.format);
    match Box::pin(claim.settle(encoded)).await {
        Settled::Own => output,
        Settled::Adopted(stored) => match stored.outcome() {
            OutcomeKind::Value | OutcomeKind::Error => replay(&engine, codec, &stored),
            OutcomeKind::Unknown => codec.refuse(Error::new(
                ErrorKind::Unknown {
                    since: engine.core.clock.calendar(),
                },
                operation,
            )),
            OutcomeKind::Tombstone => codec.refuse(Error::new(ErrorKind::NotStored, operation)),
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
    codec.decode(stored).unwrap_or_else(|undecodable| {
        let error = undecodable_error(codec, stored, undecodable);
        engine.core.refused(&error);
        codec.refuse(error)
    })
}

fn undecodable_error<O, P>(codec: &Codec<O, P>, stored: &Stored, error: Undecodable) -> Error {
    let State::Done { outcome, schema } = stored.record.header.state else {
        return Error::new(ErrorKind::UnknownRecord, stored.operation.clone());
    };
    if !matches!(error, Undecodable::Mistyped { .. }) {
        let kind = ErrorKind::Undecodable;
        return Error::new(kind, stored.operation.clone()).detail(error.to_string());
    }
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
        "{which}; stored {outcome:?} of schema {schema:08x}, expected {expected:08x}, {error}"
    ))
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
