//! Admission of a call, and its answer where one is available without waiting.

use std::future::ready;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::{CallName, Identified};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::operation::{Operation, RecordKey};
use crate::lifecycle::claim_or_follow::ClaimOrFollow;
use crate::lifecycle::context::{is_held, is_inside};
use crate::lifecycle::core::{Core, Protection};
use crate::lifecycle::in_flight::{Entered, Unleased};
use crate::lifecycle::run_limit::{Full, Gate, RunPermit};
use crate::lifecycle::start::{Answered, CallAdmission, CallRequest, Reply, Start};
use crate::local::cache::{Found, Permit};
use crate::policy::{EffectivePolicy, OnOutage};

/// The state of a call that has no answer in this process.
struct Lookup {
    now: Duration,
    /// The right to cache the store's reply.
    permit: Option<Permit>,
}

impl Core {
    /// Admits a call, and answers it immediately if nothing has to be waited for.
    ///
    /// # Errors
    ///
    /// The call must not run; the observer has been notified.
    pub(crate) fn enter(self: &Arc<Self>, request: CallRequest) -> Result<CallAdmission, Error> {
        let CallRequest {
            operation,
            own,
            former,
            policy,
            expired,
            gate,
        } = request;
        let former = former.map(|former| Box::new(self.name(operation.clone(), *former)));
        let (name, fingerprint) = self.name(operation, own);
        let Lookup { now, permit } = match self.answer_here(&name.key, fingerprint, &policy) {
            ControlFlow::Break(Ok(stored)) => return Ok(CallAdmission::Replay(stored)),
            ControlFlow::Break(Err(error)) => {
                return self.start(&name, &policy, Err(error), gate.as_deref());
            }
            ControlFlow::Continue(lookup) => lookup,
        };
        // Counted before `closing` is read, so that a shutdown either sees this call or stops it.
        let entered = Entered::new(self);
        let former_key = former.as_ref().map(|former| &former.0.key);
        match self.admit(&name, former_key, &policy) {
            Ok(None) => {
                let request = (fingerprint, expired);
                let begin = ClaimOrFollow::new(entered, name, request, policy, now, (permit, gate));
                let begin = begin.with_former_name(former);
                Ok(CallAdmission::Acquire(begin.run()))
            }
            Ok(Some(start)) => self.start(&name, &policy, Ok(start), gate.as_deref()),
            Err(error) => self.start(&name, &policy, Err(error), gate.as_deref()),
        }
    }

    /// The name of a call, and the fingerprint of its request.
    fn name(&self, operation: Operation, call: Identified) -> (CallName, Fingerprint) {
        let Identified { identity, plain } = call;
        let key = self.record_key(operation, identity.digest);
        (CallName { key, plain }, identity.fingerprint)
    }

    /// The result of a call whose start is known without waiting.
    fn start(
        self: &Arc<Self>,
        name: &CallName,
        policy: &EffectivePolicy,
        start: Result<Start, Error>,
        gate: Option<&Gate>,
    ) -> Result<CallAdmission, Error> {
        let run_permit = || self.take_run_permit(gate);
        let start = start.or_else(|error| self.not_begun(name, policy, error, run_permit))?;
        Ok(CallAdmission::Acquire(Box::pin(ready(Reply {
            start: Ok(start),
            waited: Duration::ZERO,
        }))))
    }

    /// The answer in this process, for a call that would be admitted.
    fn answer_here(
        &self,
        key: &RecordKey,
        fingerprint: Fingerprint,
        policy: &EffectivePolicy,
    ) -> ControlFlow<Answered, Lookup> {
        if self.protection != Protection::On || self.is_closed() || is_held(self.id, key) {
            return ControlFlow::Continue(Lookup {
                now: self.clock.now(),
                permit: None,
            });
        }
        if let Some((record, left)) = self.store.at_hand(key, fingerprint) {
            return ControlFlow::Break(self.answer(key, record, left, policy, false, false));
        }
        let now = self.clock.now();
        match self.cached_answer(key, fingerprint, policy, now) {
            Found::Answer { record, left } => {
                ControlFlow::Break(self.answer(key, record, left, policy, false, true))
            }
            Found::Nothing(permit) => ControlFlow::Continue(Lookup { now, permit }),
        }
    }

    /// The start of a call that was refused with `error`. A body without protection takes a `run_permit` as well.
    pub(crate) fn not_begun(
        self: &Arc<Self>,
        name: &CallName,
        policy: &EffectivePolicy,
        mut error: Error,
        run_permit: impl FnOnce() -> Result<Option<Box<RunPermit>>, Full>,
    ) -> Result<Start, Error> {
        let key = &name.key;
        if policy.on_outage() == OnOutage::Run && error.is_outage() {
            match run_permit() {
                Ok(permit) => {
                    let reason = &error.to_string();
                    self.emit(key, EventKind::Unprotected { reason });
                    let call = Unleased::new(self, name.clone(), policy.max_run());
                    return Ok(Start::Unprotected(Box::new(call.with_run_permit(permit))));
                }
                Err(full) => error = full.error(key.operation()),
            }
        }
        let label = policy.label.as_ref();
        self.emit_labelled(key, label, EventKind::Refused { error: &error });
        Err(error)
    }

    /// Whether a call is to be protected.
    ///
    /// # Errors
    ///
    /// The call must not run at all.
    pub(crate) fn lets_in(
        &self,
        key: &RecordKey,
        former: Option<&RecordKey>,
    ) -> Result<bool, Error> {
        let operation = key.operation();
        if is_held(self.id, key) || former.is_some_and(|former| is_held(self.id, former)) {
            return Err(Error::new(ErrorKind::Reentered, operation.clone()));
        }
        if self.is_closed() {
            return Err(Error::new(ErrorKind::ShuttingDown, operation.clone()));
        }
        match self.protection {
            Protection::On => Ok(true),
            Protection::Off => {
                let reason = "`Engine::disabled` in a debug build";
                self.emit(key, EventKind::Unprotected { reason });
                Ok(false)
            }
            Protection::Refused => Err(Error::new(ErrorKind::NoEngine, operation.clone())
                .detail("`Engine::disabled` has no effect in a release build")),
        }
    }

    fn is_closed(&self) -> bool {
        // A running body may finish, with all calls that it makes.
        self.closing.load(Ordering::SeqCst) && !is_inside()
    }

    /// Admits a call. `None`: the store has to be queried.
    fn admit(
        self: &Arc<Self>,
        name: &CallName,
        former: Option<&RecordKey>,
        policy: &EffectivePolicy,
    ) -> Result<Option<Start>, Error> {
        let key = &name.key;
        if !self.lets_in(key, former)? {
            let call = Unleased::new(self, name.clone(), policy.max_run());
            return Ok(Some(Start::Unprotected(Box::new(call))));
        }
        if let Err(error) = self.background.start() {
            let detail = format!("the thread that renews leases cannot be started: {error}");
            let error = Error::new(ErrorKind::StoreUnavailable, key.operation().clone());
            return Err(error.detail(detail));
        }
        Ok(None)
    }
}
