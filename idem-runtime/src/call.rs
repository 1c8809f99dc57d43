//! From a call's arguments to its answer: the shell around a body.

mod builder;
mod execute;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod in_tx;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod lent;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod within;
#[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
mod without_sql;

use std::borrow::Cow;
use std::num::NonZeroU16;
use std::time::Duration;

pub use self::builder::CallBuilder;
pub use self::execute::{finish, run};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use self::in_tx::CallInTx;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use self::lent::{Lent, lend};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use self::within::{InTx, TxEnd, TxScope, TxTurn, begin_in_tx};
#[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub use self::without_sql::{InTx, Lent, TxEnd, TxScope, TxTurn, begin_in_tx, lend};
use crate::answer::Undecodable;
use crate::begin::Ask;
use crate::engine::{Core, Engine, Protection};
use crate::enter::Entry;
use crate::error::{Error, ErrorKind};
use crate::inputs::{Inputs, Named};
use crate::observer::EventKind;
use crate::operation::Operation;
use crate::outcome::Codec;
use crate::policy::{
    Attempts, OnCancel, OnDuplicate, OnLeaseLost, OnOutage, OnPanic, OnRunning, Overrides,
};
use crate::record::{OutcomeKind, State};
use crate::stored::Stored;

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
        let overrides = Overrides {
            ageless: !codec.tells_age(),
            ..Overrides::default()
        };
        Self {
            inputs,
            engine,
            codec,
            overrides,
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

    /// What becomes of a key whose body was dropped half-way.
    #[must_use]
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.overrides.on_cancel = Some(on_cancel);
        self
    }

    /// What becomes of a key whose body panicked.
    #[must_use]
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.overrides.on_panic = Some(on_panic);
        self
    }

    /// What becomes of a body whose lease is lost.
    #[must_use]
    pub fn on_lease_lost(mut self, on_lease_lost: OnLeaseLost) -> Self {
        self.overrides.on_lease_lost = Some(on_lease_lost);
        self
    }

    /// What becomes of a call whose store cannot be asked.
    #[must_use]
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.overrides.on_outage = Some(on_outage);
        self
    }

    /// How many attempts may be abandoned.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u16) -> Self {
        self.overrides.max_attempts = Some(Attempts(NonZeroU16::new(max_attempts)));
        self
    }

    /// Any number of attempts may be abandoned.
    #[must_use]
    pub fn unlimited_attempts(mut self) -> Self {
        self.overrides.max_attempts = Some(Attempts(None));
        self
    }

    /// Whether an attempt that ended with a system error counts.
    #[must_use]
    pub fn count_errors(mut self, count_errors: bool) -> Self {
        self.overrides.count_errors = Some(count_errors);
        self
    }

    /// How long the lease is renewed.
    #[must_use]
    pub fn max_run(mut self, max_run: Duration) -> Self {
        self.overrides.max_run = Some(max_run);
        self
    }

    /// The body begins with finding out, where there is something to find out.
    #[must_use]
    pub fn reconciles(mut self) -> Self {
        self.overrides.reconciles = true;
        self
    }
}

/// The engine of a call and what it is to ask for; an error is told to the engine's observer.
fn describe(
    inputs: Inputs,
    engine: Result<Engine, Error>,
    overrides: Overrides,
) -> Result<(Engine, Ask), Error> {
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
        .and_then(|named| ask(core, named, overrides));
    match ask {
        Ok(ask) => Ok((engine, ask)),
        Err(error) => {
            core.refused(&error);
            Err(error)
        }
    }
}

fn ask(core: &Core, named: Named, overrides: Overrides) -> Result<Ask, Error> {
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
            // Gone before its token, a record would let that be used again.
            Some(life) => policy.for_at_least(life),
            None => policy.that_starts_nothing(),
        };
    }
    if expired && core.protection != Protection::On {
        // Nothing is stored that could be replayed.
        return Err(Error::new(ErrorKind::TokenExpired, operation));
    }
    policy.kept_by(&*core.store).map_err(refuse)?;
    Ok(Ask {
        operation,
        digest,
        fingerprint,
        policy,
        expired,
    })
}

/// Lets a call in, or says what is known of it already.
fn enter(
    inputs: Inputs,
    engine: Result<Engine, Error>,
    overrides: Overrides,
) -> Result<(Engine, Entry), Error> {
    let (engine, ask) = describe(inputs, engine, overrides)?;
    let entry = engine.core.enter(ask)?;
    Ok((engine, entry))
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

impl Core {
    fn refused(&self, error: &Error) {
        self.observer.observe(&crate::observer::Event {
            operation: error.operation(),
            key: None,
            kind: EventKind::Refused { error },
        });
    }
}
