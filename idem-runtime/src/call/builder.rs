//! A call without the attribute: what it expands to, for everybody.

use std::pin::pin;
use std::time::Duration;

use super::{Call, begin, run};
use crate::begin::Begun;
use crate::context::Context;
use crate::engine::Engine;
use crate::error::Error;
use crate::fingerprint::ToFingerprint;
use crate::inputs::Inputs;
use crate::key::ToKey;
use crate::on_error::{By, Classified, Keep, Release, Unknown};
use crate::operation::Operation;
use crate::outcome::{Codec, Outcome};
use crate::policy::{OnDuplicate, OnRunning, Overrides};

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
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch). Without one nothing is compared.
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
    /// Whatever keeps the body from running: see [`ErrorKind`](crate::ErrorKind).
    ///
    /// # Cancel safety
    ///
    /// A claim that was under way is given back.
    pub async fn begin(self) -> Result<Begun, Error> {
        let (_, begun) = begin(self.inputs, Ok(self.engine), self.overrides).await?;
        Ok(begun)
    }
}
