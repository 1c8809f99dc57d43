//! Calls: from the arguments to the answer, around a body.

mod builder;
mod drive;
#[cfg(feature = "_sql")]
mod in_tx;
#[cfg(feature = "_sql")]
mod lent;
mod overtaken;
#[cfg(feature = "http")]
mod replays;
mod run;
#[cfg(feature = "_sql")]
mod within;
#[cfg(not(feature = "_sql"))]
mod without_sql;

use std::borrow::Cow;
use std::num::NonZeroU16;
use std::time::Duration;

pub use self::builder::CallBuilder;
#[cfg(feature = "_sql")]
pub use self::in_tx::CallInTx;
#[cfg(feature = "_sql")]
pub use self::lent::{Lent, lend};
#[cfg(feature = "http")]
pub(crate) use self::replays::Replays;
pub use self::run::{Run, finish, run};
#[cfg(feature = "_sql")]
pub use self::within::{InTx, TxEnd, TxScope, TxTurn, begin_in_tx};
#[cfg(not(feature = "_sql"))]
pub use self::without_sql::{InTx, Lent, TxEnd, TxScope, TxTurn, begin_in_tx, lend};
use crate::engine::Engine;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::call_id::{CallKey, Inputs, KeyInScope, KeyOfSubject, Named};
use crate::identity::digest_key::Identity;
use crate::identity::fingerprint::ToFingerprint;
use crate::identity::key::ToKey;
use crate::identity::operation::Operation;
use crate::lifecycle::admit::Entry;
use crate::lifecycle::begin::Ask;
use crate::lifecycle::core::{Core, Protection};
use crate::lifecycle::run_limit::Gate;
use crate::outcome::AnyOutput;
use crate::outcome::codec::Undecodable;
use crate::outcome::on_error::Classified;
use crate::outcome::stored::StoredAnswer;
use crate::policy::{
    Attempts, OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning,
    OnUnconfirmed, Overrides,
};
use crate::record::{AnswerTypes, OutcomeKind, State};

/// The description of a call: its identity and its settings.
///
/// Not generic, so that the expansion of the attribute costs little to compile.
#[derive(Debug)]
pub struct Call {
    inputs: Inputs,
    /// `None`: the current engine at the time the call begins.
    engine: Option<Engine>,
    overrides: Overrides,
    gate: Option<Box<Gate>>,
}

impl Call {
    /// A call of this operation.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            inputs: Inputs::new(operation),
            engine: None,
            overrides: Overrides::default(),
            gate: None,
        }
    }

    /// Sets the owner of the key; before the key.
    pub fn scope<K: ToKey + ?Sized>(&mut self, scope: &K) {
        self.inputs.scope(scope);
    }

    /// Shares one namespace among all callers; before the key.
    pub fn public(&mut self) {
        self.inputs.public();
    }

    /// Sets the key.
    pub fn key<K: CallKey + ?Sized>(&mut self, key: &K) {
        self.inputs.key(key);
    }

    /// Sets the key of a call that has a scope.
    pub fn key_in_scope<K: KeyInScope + ?Sized>(&mut self, key: &K) {
        self.inputs.key(key);
    }

    /// Sets the key of a call without a scope, made of a client's values.
    pub fn key_of_subject<K: KeyOfSubject + ?Sized>(&mut self, key: &K) {
        self.inputs.key(key);
    }

    /// Announces the arguments that take part in the fingerprint; as many [`arg`]s follow.
    pub fn fingerprint(&mut self, arguments: usize) {
        self.inputs.fingerprint(arguments);
    }

    /// Sets the engine of the call.
    pub fn engine(&mut self, engine: Engine) {
        self.engine = Some(engine);
    }

    /// Sets the types of the output, and whether it exposes its age.
    fn told_by(mut self, output: &dyn AnyOutput) -> Self {
        self.overrides.ageless = !output.tells_age();
        self.overrides.types = AnswerTypes::of(output.schemas());
        #[cfg(feature = "http")]
        Replays::called();
        self
    }

    /// The life of a value.
    pub fn ttl(&mut self, ttl: Duration) {
        self.overrides.ttl = Some(ttl);
    }

    /// The life of a kept error.
    pub fn error_ttl(&mut self, ttl: Duration) {
        self.overrides.error_ttl = Some(ttl);
    }

    /// The life of the claim unless renewed.
    pub fn lease(&mut self, lease: Duration) {
        self.overrides.lease = Some(lease);
    }

    /// Reply to a duplicate of the finished call.
    pub fn on_duplicate(&mut self, on_duplicate: OnDuplicate) {
        self.overrides.on_duplicate = Some(on_duplicate);
    }

    /// Behaviour of a duplicate while the call runs.
    pub fn on_running(&mut self, on_running: OnRunning) {
        self.overrides.on_running = Some(on_running);
    }

    /// Treatment of a key whose body was dropped half-way.
    pub fn on_cancel(&mut self, on_cancel: OnCancel) {
        self.overrides.on_cancel = Some(on_cancel);
    }

    /// Treatment of a key whose body panicked.
    pub fn on_panic(&mut self, on_panic: OnPanic) {
        self.overrides.on_panic = Some(on_panic);
    }

    /// Treatment of a body whose lease is lost.
    pub fn on_lease_lost(&mut self, on_lease_lost: OnLeaseLost) {
        self.overrides.on_lease_lost = Some(on_lease_lost);
    }

    /// Reply to a caller whose answer the store has not confirmed.
    pub fn on_unconfirmed(&mut self, on_unconfirmed: OnUnconfirmed) {
        self.overrides.on_unconfirmed = Some(on_unconfirmed);
    }

    /// Behaviour while the store cannot be reached.
    pub fn on_outage(&mut self, on_outage: OnOutage) {
        self.overrides.on_outage = Some(on_outage);
    }

    /// Reply where the record is of a function with answers of another type.
    pub fn on_other_type(&mut self, on_other_type: OnOtherType) {
        self.overrides.on_other_type = Some(on_other_type);
    }

    /// The limit of abandoned attempts.
    pub fn max_attempts(&mut self, max_attempts: u16) {
        self.overrides.max_attempts = Some(Attempts(NonZeroU16::new(max_attempts)));
    }

    /// Removes the limit of abandoned attempts.
    pub fn unlimited_attempts(&mut self) {
        self.overrides.max_attempts = Some(Attempts(None));
    }

    /// Whether an attempt that ended with a system error counts.
    pub fn count_errors(&mut self, count_errors: bool) {
        self.overrides.count_errors = Some(count_errors);
    }

    /// The time for which the lease is renewed.
    pub fn max_run(&mut self, max_run: Duration) {
        self.overrides.max_run = Some(max_run);
    }

    /// The body starts with a reconcile hook, if there is an outcome to reconcile.
    pub fn reconciles(&mut self) {
        self.overrides.reconciles = true;
    }
}

/// Adds one argument of the fingerprint. A function, so that an expansion can name the written type and the compiler
/// reports errors there.
pub fn arg<T: ToFingerprint + ?Sized>(call: &mut Call, name: &'static str, value: &T) {
    call.inputs.arg(name, value);
}

/// The engine of a call and its claim request; the engine's observer receives an error.
fn describe(call: Call) -> Result<(Engine, Ask), Error> {
    let Call {
        inputs,
        engine,
        overrides,
        gate,
    } = call;
    let Some(engine) = engine.or_else(Engine::current) else {
        return Err(Error::new(ErrorKind::NoEngine, inputs.operation));
    };
    let core = &engine.core;
    let ask = inputs
        .finish()
        .and_then(|named| ask(core, named, overrides, gate));
    match ask {
        Ok(ask) => Ok((engine, ask)),
        Err(error) => {
            core.refused(&error);
            Err(error)
        }
    }
}

fn ask(
    core: &Core,
    named: Named,
    overrides: Overrides,
    gate: Option<Box<Gate>>,
) -> Result<Ask, Error> {
    let Named {
        operation,
        digest,
        fingerprint,
        token,
    } = named;
    let refuse =
        |detail: String| Error::new(ErrorKind::InvalidPolicy, operation.clone()).detail(detail);
    let mut policy = overrides.over(&core.defaults).map_err(refuse)?;
    let mut expired = false;
    if let Some(token) = &token {
        let now = core.clock.calendar();
        let life = core.tokens.life_of(token, &core.prefix, &operation, now)?;
        expired = life.is_none();
        policy = match life {
            // A record that expires before its token would allow a second use.
            Some(life) => policy.for_at_least(life),
            None => policy.that_starts_nothing(),
        };
    }
    if expired && core.protection != Protection::On {
        // There is no stored answer to replay.
        return Err(Error::new(ErrorKind::TokenExpired, operation));
    }
    policy.kept_by(core.store.keeps_forever()).map_err(refuse)?;
    let plain = Identity {
        digest,
        fingerprint,
    };
    let former = core.former_digests.as_ref();
    let former = former.map(|digests| Box::new(digests.identify(plain)));
    Ok(Ask {
        operation,
        own: core.digests.identify(plain),
        former,
        policy,
        expired,
        gate,
    })
}

/// Reads the record of a call.
///
/// # Errors
///
/// As [`CallBuilder::entry`].
pub async fn entry(call: Call) -> Result<Option<crate::lifecycle::inspect::Entry>, Error> {
    let (engine, ask) = describe(call)?;
    let core = &engine.core;
    if let Some(former) = ask.former {
        let entry = core
            .entry(&ask.operation, former.identity, &ask.policy)
            .await?;
        if entry.is_some() {
            return Ok(entry);
        }
    }
    core.entry(&ask.operation, ask.own.identity, &ask.policy)
        .await
}

/// Admits a call, or returns its known answer.
fn enter(call: Call) -> Result<(Engine, Entry), Error> {
    let (engine, ask) = describe(call)?;
    let entry = engine.core.enter(ask)?;
    Ok((engine, entry))
}

/// Replaces the output by the stored answer.
fn replay(engine: &Engine, output: &mut dyn AnyOutput, stored: &StoredAnswer) {
    let read = output.read(stored);
    #[cfg(feature = "http")]
    if read.is_ok() {
        Replays::replayed();
    }
    if let Err(undecodable) = read {
        let error = undecodable_error(output.schemas(), stored, undecodable);
        engine.core.refused(&error);
        output.refuse(error);
    }
}

fn undecodable_error(schemas: [u32; 2], stored: &StoredAnswer, error: Undecodable) -> Error {
    let State::Done { outcome, schema } = stored.record.header.state else {
        return Error::new(ErrorKind::UnknownRecord, stored.operation.clone());
    };
    if !matches!(error, Undecodable::Mistyped { .. }) {
        let kind = ErrorKind::Undecodable;
        return Error::new(kind, stored.operation.clone()).detail(error.to_string());
    }
    let [value, failure] = schemas;
    let expected = if outcome == OutcomeKind::Error {
        failure
    } else {
        value
    };
    let detail = if schema == expected {
        // The type has the same name; no other difference is recorded.
        format!(
            "{error}: its serialized form does not bring this value back (a field that is \
             skipped when written and required when read), the type has changed under its name, or the record is \
             damaged; if no version reads it, reset its entry to run the call again"
        )
    } else {
        format!(
            "it was written for a type of another name; stored {outcome:?} of schema {schema:08x}, expected \
             {expected:08x}, {error}"
        )
    };
    Error::new(ErrorKind::Undecodable, stored.operation.clone()).detail(detail)
}

impl Operation {
    /// The default name of a method's operation.
    pub(crate) fn of_method<S: ?Sized>(function: &str) -> Self {
        let name = format!("{}::{function}", std::any::type_name::<S>());
        Self::new(Cow::Owned(name))
    }
}

impl Core {
    fn refused(&self, error: &Error) {
        self.observer.observe(&crate::env::observer::Event {
            operation: error.operation(),
            key: None,
            kind: EventKind::Refused { error },
        });
    }
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
        CallBuilder::new(self.clone(), Operation::new(name))
    }
}

#[cfg(test)]
mod tests;
