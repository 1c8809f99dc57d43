//! Calls without the attribute, by the same steps as its expansion.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU16;
use std::pin::pin;
use std::time::Duration;

use super::description::{Call, describe, entry, key_digest};
#[cfg(feature = "_sql")]
use super::in_tx::CallInTx;
use super::run::{run, run_in_task};
use crate::call::acquire::{Acquisition, Start, acquire};
use crate::call::admission::CallAdmission;
use crate::call::call_watch::{CallWatch, answered, call_span};
use crate::call::claim::Acquired;
use crate::call::context::{Context, context};
use crate::call::engine::Engine;
use crate::call::inspect::Entry;
use crate::call::reconcile::{reconciled, unsettled};
use crate::env::call_end::CallOutcome;
use crate::error::{Error, ErrorKind};
use crate::identity::call_id::CallKey;
use crate::identity::fingerprint::ToFingerprint;
use crate::identity::key::{KeyDigest, ToKey};
use crate::identity::operation::Operation;
use crate::outcome::chosen_life::{IntoLife, LifeOf, NeedsNoBody, OpenLife, TtlOf};
use crate::outcome::on_error::Classified;
use crate::outcome::reconciled::IntoReconciled;
use crate::outcome::{Outcome, Output};
use crate::policy::{
    OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning, OnUnconfirmed,
    policy_setters, settings,
};

/// A call under construction: see [`Engine::operation`].
#[derive(Debug)]
#[must_use = "a call does nothing until it is run"]
pub struct CallBuilder<P = Classified, L = OpenLife> {
    call: Call,
    on_error: P,
    life: L,
}

impl Engine {
    /// Begins a call of this operation, as `#[idempotent]` does. Calls of one name share keys and answers, wherever
    /// they are made: give each operation a name of its own.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, store::memory::MemoryStore};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let pay = || engine.operation("payments.pay").key(&("shop-1", 7)).fingerprint(&1_250);
    /// let first = pay().run(|cx| async move { Ok::<_, Error>(cx.attempt()) }).await?;
    /// let again = pay().run(|_| async { unreachable!("the answer is replayed") }).await;
    /// assert_eq!(Ok::<_, Error>(first), again);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn operation(&self, name: impl Into<Cow<'static, str>>) -> CallBuilder<Classified> {
        let mut call = Call::new(Operation::new(name));
        call.engine(self.clone());
        CallBuilder {
            call,
            on_error: Classified,
            life: OpenLife,
        }
    }
}

impl<P, L> CallBuilder<P, L> {
    /// Sets the owner of the key: tenant, credential, user. Answers are not shared between scopes. Given before the
    /// key.
    pub fn scope<K: ToKey + ?Sized>(mut self, scope: &K) -> Self {
        self.call.scope(scope);
        self
    }

    /// Shares one namespace among all callers: the attribute's `scope = public`. Given before the key.
    ///
    /// A key that the client chose (`http::IdempotencyKey`) needs this or a [`scope`](Self::scope): without one the
    /// call is refused as [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy).
    pub fn public(mut self) -> Self {
        self.call.public();
        self
    }

    /// Sets the key. Without a key, the fingerprint is the key.
    ///
    /// A number differs from its text: of a function with `key = "{id}"` the key is `&id.to_string()`, with `key = id`
    /// it is `&id`; with `key = "{tenant}/{id}"` it is a [`FormatKey`](crate::key::FormatKey). The attribute's
    /// [`entry`](macro@crate::idempotent#entry) builds it from the same arguments as the function.
    pub fn key<K: CallKey + ?Sized>(mut self, key: &K) -> Self {
        self.call.key(key);
        self
    }

    /// Sets a one-time token as the key.
    ///
    /// `text` comes with the request and must have been issued for this `subject`. See
    /// [`TokenIssuer`](crate::token::TokenIssuer).
    #[cfg(feature = "tokens")]
    pub fn token<K: ToKey + ?Sized>(mut self, text: &str, subject: &K) -> Self {
        self.call.token(text, subject);
        self
    }

    /// Sets the request that the key stands for.
    ///
    /// The same key with another fingerprint is refused as [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch). After a
    /// system error of which nothing remains the key takes another one. Without a fingerprint nothing is compared. The
    /// names of a struct's fields take part.
    pub fn fingerprint<T: ToFingerprint + ?Sized>(mut self, request: &T) -> Self {
        self.call.request(request);
        self
    }

    /// Sets a text by which an operator recognizes the record: `order …4711` in place of a digest alone.
    ///
    /// The attribute's [`label`](macro@crate::idempotent#label), with the same bounds: 64 bytes, stored **in plain text**
    /// with the attempts of a call that does not succeed at once, and shown by [`Entry::label`]. Of a value that its
    /// readers must not know whole, [`redacted`](crate::key::redacted) keeps the end. Calls in transactions record no
    /// attempts, and so no label.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, key::redacted, store::memory::MemoryStore};
    ///
    /// # enum PayError { TimedOut, Idem(Error) }
    /// # impl From<Error> for PayError { fn from(error: Error) -> Self { Self::Idem(error) } }
    /// let engine = Engine::new(MemoryStore::new());
    /// let order = "ord-20261124-4711";
    /// let pay = || engine.operation("payments.pay").key(order).on_error(idem_runtime::on_error::Unknown);
    /// let label = format!("order {}", redacted(order, 4));
    /// let paid = pay().label(&label).run(|_| async { Err::<u64, _>(PayError::TimedOut) });
    /// assert!(paid.await.is_err());
    ///
    /// let entry = pay().entry().await?.expect("there is a record");
    /// assert_eq!(entry.label().as_deref(), Some("order …4711"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn label<D: fmt::Display + ?Sized>(mut self, label: &D) -> Self {
        self.call.label(label);
        self
    }

    settings!(policy_setters! { |it| it.call.policy; });

    /// The treatment of errors; default [`Classified`].
    ///
    /// [`Release`](crate::on_error::Release): every error releases the key (`on_error = release`).
    /// [`Keep`](crate::on_error::Keep): every error is kept as an answer (`on_error = keep`).
    /// [`Unknown`](crate::on_error::Unknown): after any error the outcome is unknown (`on_error = unknown`).
    /// [`By`](crate::on_error::By): a function of the error decides (`on_error = path`).
    pub fn on_error<Q>(self, on_error: Q) -> CallBuilder<Q, L> {
        CallBuilder {
            call: self.call,
            on_error,
            life: self.life,
        }
    }

    /// Lets each value choose its life: a quote as long as it is valid, a decline for a minute.
    ///
    /// The closure is called once, with a reference to the value that the body has returned, before it is stored; its
    /// parameter needs its type. It returns a `Duration` or an `Option` of it; `None`: the [`ttl`](Self::ttl). That is
    /// also the most that it can choose, and 1 s the least: a zero is a second. Errors have their
    /// [`error_ttl`](Self::error_ttl); a value that could not be stored, and an unknown outcome, have the `ttl`.
    ///
    /// **After a shorter life a repeat runs the body again so much sooner**, because nothing remains of the first call.
    ///
    /// It must not block. A panic of it does not lose the answer, whose effect has happened: the answer is kept for the
    /// `ttl`, and the observer gets a [`Warning`](crate::observe::EventKind::Warning). The record of a
    /// [one-time token](macro@crate::idempotent#one-time-tokens-key--token) lives as long as its token in any case.
    /// A call with this has no [`begin`](CallBuilder::begin), which runs no body: begin without it, and give the life to
    /// [`Claim::complete_for`](crate::claim::Claim::complete_for).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::clock::ManualClock;
    /// use idem_runtime::{Engine, Error, store::memory::MemoryStore};
    /// use std::time::Duration;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Quote {
    ///     cents: u64,
    ///     valid_secs: u64,
    /// }
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clone()).build();
    /// let engine = Engine::builder(store).clock(clock.clone()).build()?;
    /// let ask = async |cents| {
    ///     let call = engine.operation("quotes.ask").key("EUR/USD");
    ///     let call = call.ttl_of(|quote: &Quote| Duration::from_secs(quote.valid_secs));
    ///     call.run(|_| async move { Ok::<_, Error>(Quote { cents, valid_secs: 30 }) }).await
    /// };
    /// assert_eq!(ask(108).await?.cents, 108);
    /// clock.advance(Duration::from_secs(29));
    /// assert_eq!(ask(109).await?.cents, 108);
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(ask(110).await?.cents, 110);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn ttl_of<T, R, F>(self, choose: F) -> CallBuilder<P, TtlOf<F, T>>
    where
        F: Fn(&T) -> R,
        R: IntoLife,
    {
        CallBuilder {
            call: self.call,
            on_error: self.on_error,
            life: TtlOf::new(choose),
        }
    }

    /// Replays the stored answer, or runs `body` and stores its result.
    ///
    /// # Errors
    ///
    /// The error that the body returns, the stored error of an earlier call, or an [`Error`] converted into `O`'s
    /// error.
    ///
    /// # Panics
    ///
    /// With the body; the key is released first, and the attempt counts.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the body starts: nothing has happened. Dropped while the body runs: the claim lapses with its
    /// lease and the attempt counts. Dropped after the body has ended: the answer is still stored.
    pub async fn run<O, B, F>(self, body: B) -> O
    where
        O: Outcome<P>,
        L: LifeOf<O>,
        B: FnOnce(Context) -> F,
        F: Future<Output = O>,
    {
        // The context exists only while the body runs.
        let body = async move { body(context()).await };
        let (call, output) = self.into_call();
        run(call, output, pin!(Some(body))).await
    }

    /// As [`run`](Self::run), but the body survives its caller (`on_cancel = finish`).
    ///
    /// It runs to its end in a task of its own.
    ///
    /// Needs a tokio runtime; without one the body runs in the caller's place.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`ErrorKind::ShuttingDown`](crate::ErrorKind::ShuttingDown) when the
    /// runtime is shut down while the body runs.
    ///
    /// # Panics
    ///
    /// With the body.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the body starts: nothing has happened. Dropped later: the body continues, and its answer is
    /// stored. [`Engine::shutdown`] waits for it.
    pub async fn finish<O, B, F>(self, body: B) -> O
    where
        O: Outcome<P> + Send + 'static,
        P: Send + Sync + 'static,
        L: LifeOf<O> + Send + Sync + 'static,
        B: FnOnce(Context) -> F + Send + 'static,
        F: Future<Output = O> + Send + 'static,
    {
        let body = async move { body(context()).await };
        let (call, output) = self.into_call();
        run_in_task(call, output, body).await
    }

    /// As [`run`](Self::run), with a reconcile hook.
    ///
    /// Before the body of an abandoned or unknown key may run again, `hook` determines whether an earlier attempt had
    /// its effect.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, Reconciled, store::memory::MemoryStore};
    ///
    /// #[derive(Debug, PartialEq)]
    /// enum PayError {
    ///     TimedOut,
    ///     Idem(Error),
    /// }
    ///
    /// impl From<Error> for PayError {
    ///     fn from(error: Error) -> Self {
    ///         Self::Idem(error)
    ///     }
    /// }
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let pay = || engine.operation("payments.pay").key("order-7").on_error(idem_runtime::on_error::Unknown);
    /// // The provider may have got the request.
    /// let first = pay().run(|_| async { Err::<u64, _>(PayError::TimedOut) }).await;
    /// assert_eq!(first, Err(PayError::TimedOut));
    /// // The next call asks the provider, and has the answer without a second charge.
    /// let ask = |_| async { Reconciled::Landed(1_250) };
    /// let second: Result<u64, PayError> =
    ///     pay().run_reconciled(ask, |_| async { unreachable!("it landed") }).await;
    /// assert_eq!(second, Ok(1_250));
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) where the hook cannot decide, fails, or
    /// takes longer than 10 s.
    ///
    /// # Panics
    ///
    /// With the body. A panic of the hook counts as undecided.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run). Dropped while the hook runs: the outcome stays unknown.
    pub async fn run_reconciled<T, E, H, G, R, B, F>(self, hook: H, body: B) -> Result<T, E>
    where
        Result<T, E>: Outcome<P>,
        L: LifeOf<Result<T, E>>,
        H: FnOnce(Context) -> G,
        G: Future<Output = R>,
        R: IntoReconciled<T>,
        B: FnOnce(Context) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let body = async move {
            let cx = context();
            if unsettled() {
                // The hook is called inside the future, where its panics are caught.
                let hook = async { hook(cx.clone()).await.verdict() };
                if let Some(landed) = reconciled(hook).await {
                    return Ok(landed);
                }
            }
            body(cx).await
        };
        let (mut call, output) = self.into_call();
        call.reconciles();
        run(call, output, pin!(Some(body))).await
    }

    /// The call inside a transaction: see [`CallInTx`](crate::CallInTx).
    #[cfg(feature = "_sql")]
    pub fn in_tx<T>(self, tx: &mut T) -> CallInTx<'_, T, P, L>
    where
        T: crate::store::sql::SqlTransaction + ?Sized,
    {
        CallInTx::new(self.call, (self.on_error, self.life), tx)
    }

    pub(super) fn into_call<O: Outcome<P>>(self) -> (Call, Output<O, (P, L)>)
    where
        L: LifeOf<O>,
    {
        (self.call, Output::new(self.on_error, self.life))
    }

    /// The digest in the record's name, as events and listings show it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey) and
    /// [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy) as in a call with this key.
    pub fn key_digest(self) -> Result<KeyDigest, Error> {
        key_digest(self.call)
    }

    /// Reads the record of this call: for inspection, and to resolve an unknown outcome.
    ///
    /// The fingerprint is not compared. For a call of an annotated function there is the attribute's
    /// [`entry`](macro@crate::idempotent#entry).
    ///
    /// `None`: nothing is stored under this operation, scope and key, each of which must equal that of the call; `7`
    /// and `"7"` are two keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StoreUnavailable`](crate::ErrorKind::StoreUnavailable) if the store cannot be queried,
    /// [`ErrorKind::UnknownRecord`](crate::ErrorKind::UnknownRecord) if the stored value is not a record,
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey) and
    /// [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy) as in a call.
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn entry(self) -> Result<Option<Entry>, Error> {
        entry(self.call).await
    }

    /// Claims the key and leaves body and completion to the caller.
    ///
    /// # Errors
    ///
    /// Every error that keeps the body from running: see [`ErrorKind`](crate::ErrorKind).
    ///
    /// # Cancel safety
    ///
    /// A claim in progress is released.
    pub async fn begin(self) -> Result<Acquired, Error>
    where
        L: NeedsNoBody,
    {
        // Consumed by every call, see `Drive::poll_start`.
        tokio::task::consume_budget().await;
        // Without a body nothing can run unprotected.
        let mut call = self.call;
        call.on_outage(OnOutage::Fail);
        let (engine, request) = describe(call)?;
        let core = &engine.core;
        let span = call_span(core, &request.name.key);
        let call = match request.enter_watched(core, &span)? {
            CallAdmission::Admitted(call) => call,
            CallAdmission::Replay(stored) => {
                let outcome = CallOutcome::Replayed(stored.outcome().into());
                answered(core, &span, &stored, outcome);
                return Ok(Acquired::Replay(stored));
            }
        };
        let mut watch = CallWatch::begin(core, span.clone(), &request.name.key);
        let Acquisition { start, waited } = span.instrument(acquire(request, call)).await;
        watch.note(|times| {
            times.acquired(waited);
            match &start {
                Ok(Start::Replay(stored)) => {
                    let outcome = CallOutcome::Replayed(stored.outcome().into());
                    times.set_answered(stored, outcome);
                }
                Err(error) => times.set(CallOutcome::refused(error)),
                Ok(_) => {}
            }
        });
        match start? {
            Start::Run(claim, None) => Ok(Acquired::Run(claim.with_watch(watch))),
            // A body would run over an unknown outcome; the panic releases the claim.
            Start::Run(_, Some(_)) => unreachable!("only a call with a hook is to reconcile"),
            Start::Replay(stored) => Ok(Acquired::Replay(stored)),
            Start::Unprotected(call) => {
                let error = call.name.key.error(ErrorKind::NoEngine);
                watch.note(|times| times.set(CallOutcome::refused(&error)));
                Err(error.detail("a disabled engine grants no claims; use `run`"))
            }
        }
    }
}
