//! The description of a call: its identity and its settings.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

#[cfg(feature = "http")]
use super::replay_count::ReplayCount;
use crate::call::admission::CallRequest;
use crate::call::call_watch::refused_at_once;
use crate::call::core::{Core, Protection};
use crate::call::engine::Engine;
use crate::call::inspect::Entry;
use crate::call::run_limit::Gate;
use crate::env::call_span::CallSpan;
use crate::error::{Error, ErrorKind};
use crate::identity::call_id::{CallDigests, CallKey, Inputs, KeyInScope, KeyOfSubject};
use crate::identity::fingerprint::ToFingerprint;
use crate::identity::key::{KeyDigest, ToKey};
use crate::identity::operation::Operation;
use crate::outcome::AnyOutput;
use crate::policy::{
    EffectivePolicy, OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning,
    OnUnconfirmed, Policy, settings,
};
use crate::record::AnswerTypes;
use crate::record::label::KeyLabel;

/// The description of a call: its identity and its settings.
///
/// Not generic, so that the expansion of the attribute costs little to compile.
#[derive(Debug)]
pub struct Call {
    inputs: Inputs,
    /// `None`: the current engine at the time the call begins.
    engine: Option<Engine>,
    pub(crate) policy: Policy,
    reconciles: bool,
    /// The types of its answers, and whether they expose their age.
    types: AnswerTypes,
    tells_age: bool,
    gate: Option<Box<Gate>>,
    label: Option<KeyLabel>,
    /// It is to be made, and not only described: a refusal is its end.
    is_made: bool,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, $name: $ty) {
            self.policy.$name = Some($name);
        })*
    };
}

impl Call {
    /// A call of this operation.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            inputs: Inputs::new(operation),
            engine: None,
            policy: Policy::new(),
            reconciles: false,
            types: AnswerTypes::UNKNOWN,
            tells_age: true,
            gate: None,
            label: None,
            is_made: true,
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

    /// Sets the key of a call without a scope.
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
    pub(super) fn answered_by(mut self, output: &dyn AnyOutput) -> Self {
        self.tells_age = output.tells_age();
        self.types = AnswerTypes::of(output.schemas());
        #[cfg(feature = "http")]
        ReplayCount::called();
        self
    }

    settings!(setters! {});

    /// Sets the text by which an operator recognizes the record.
    pub fn label<L: fmt::Display + ?Sized>(&mut self, label: &L) {
        self.label = KeyLabel::new(label);
    }

    /// The body starts with a reconcile hook.
    pub fn reconciles(&mut self) {
        self.reconciles = true;
    }

    /// Adds one argument of the fingerprint.
    fn arg<T: ToFingerprint + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.inputs.arg(name, value);
    }

    /// Sets a one-time token as the key.
    #[cfg(feature = "tokens")]
    pub(super) fn token<K: ToKey + ?Sized>(&mut self, text: &str, subject: &K) {
        self.inputs.token(text, subject);
    }

    /// Sets the request that the key stands for.
    pub(crate) fn request<T: ToFingerprint + ?Sized>(&mut self, request: &T) {
        self.inputs.request(request);
    }

    /// The check that the call must pass before its claim.
    #[cfg(feature = "http")]
    pub(crate) fn gate(&mut self, gate: Option<Box<Gate>>) {
        self.gate = gate;
    }
}

/// Adds one argument of the fingerprint. A function, so that an expansion can name the written type and the compiler
/// reports errors there.
pub fn arg<T: ToFingerprint + ?Sized>(call: &mut Call, name: &'static str, value: &T) {
    call.arg(name, value);
}

/// The given or current engine, or `NoEngine`.
fn engine_of(given: Option<Engine>, operation: &Operation) -> Result<Engine, Error> {
    let engine = given.or_else(Engine::current);
    engine.ok_or_else(|| operation.error(ErrorKind::NoEngine))
}

/// The engine of a call and its claim request; the engine's observer receives an error.
pub(super) fn describe(mut call: Call) -> Result<(Engine, CallRequest), Error> {
    let engine = engine_of(call.engine.take(), &call.inputs.operation)?;
    let (core, is_made) = (&engine.core, call.is_made);
    match call_request(core, call) {
        Ok(request) => Ok((engine, request)),
        Err(error) => {
            core.refused(&error);
            if is_made && core.wants.any() {
                refused_at_once(core, &CallSpan::none(), None, &error);
            }
            Err(error)
        }
    }
}

fn call_request(core: &Core, call: Call) -> Result<CallRequest, Error> {
    let CallDigests {
        operation,
        key,
        fingerprint,
        token,
    } = call.inputs.finish()?;
    let invalid = |why: String| operation.error(ErrorKind::InvalidPolicy).detail(why);
    let mut policy = EffectivePolicy::of_call(call.policy, &core.defaults).map_err(invalid)?;
    policy.reconciles = call.reconciles;
    policy.types = call.types;
    policy.tells_age = call.tells_age;
    // An engine that records no attempts has none.
    policy.label = call.label.filter(|_| core.recorder.is_some());
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
    policy
        .kept_by(core.store.keeps_forever())
        .map_err(invalid)?;
    let former = core.former_digests.as_ref();
    let plain = (key, fingerprint);
    let former = former.map(|digests| Box::new(core.name(digests, operation.clone(), plain)));
    Ok(CallRequest {
        name: core.name(&core.digests, operation, plain),
        former,
        policy,
        expired,
        gate: call.gate,
    })
}

/// The digest that names the record of a call.
pub(super) fn key_digest(call: Call) -> Result<KeyDigest, Error> {
    let engine = engine_of(call.engine, &call.inputs.operation)?;
    let plain = call.inputs.finish()?.key;
    Ok(engine.core.digests.name(&plain))
}

/// Reads the record of a call.
///
/// # Errors
///
/// As [`CallBuilder::entry`](crate::CallBuilder::entry).
pub async fn entry(mut call: Call) -> Result<Option<Entry>, Error> {
    call.is_made = false;
    let (engine, request) = describe(call)?;
    for name in request
        .former
        .map(|former| *former)
        .into_iter()
        .chain([request.name])
    {
        let plain = Some(*name.plain());
        let read = Entry::read(
            &engine.core,
            name.key,
            name.fingerprint,
            plain,
            &request.policy,
        );
        let entry = read.await?;
        if entry.is_some() {
            return Ok(entry);
        }
    }
    Ok(None)
}
