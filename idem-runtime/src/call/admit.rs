//! Admission of a call, and its answer where one is available without waiting.

use std::future::ready;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::call::claim_or_follow::ClaimOrFollow;
use crate::call::context::{is_held, is_inside};
use crate::call::core::{Core, Protection};
use crate::call::run_limit::{Full, RunPermit};
use crate::call::start::{Answered, CallAdmission, CallRequest, Entered, Reply, Start, Unleased};
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
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
        // Held until the start is known: it may begin a body, which counts itself.
        let entered;
        let start = match self.answer_here(&request) {
            ControlFlow::Break(Ok(stored)) => return Ok(CallAdmission::Replay(stored)),
            ControlFlow::Break(Err(error)) => Err(error),
            ControlFlow::Continue(Lookup { now, permit }) => {
                // Counted before `closing` is read, so that a shutdown either sees this call or stops it.
                entered = Entered::new(self);
                match self.admit(&request).transpose() {
                    None => {
                        let begin = ClaimOrFollow::new(entered, request, now, permit);
                        return Ok(CallAdmission::Acquire(begin.run()));
                    }
                    Some(start) => start,
                }
            }
        };
        // The start is known without waiting.
        let run_permit = || self.take_run_permit(request.gate.as_deref());
        let start = start
            .or_else(|error| self.not_begun(&request.name, &request.policy, error, run_permit))?;
        Ok(CallAdmission::Acquire(Box::pin(ready(Reply {
            start: Ok(start),
            waited: Duration::ZERO,
        }))))
    }

    /// The answer in this process, for a call that would be admitted.
    fn answer_here(
        &self,
        CallRequest { name, policy, .. }: &CallRequest,
    ) -> ControlFlow<Answered, Lookup> {
        let (key, fingerprint) = (&name.key, name.fingerprint);
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
        CallRequest { name, former, .. }: &CallRequest,
    ) -> Result<bool, Error> {
        let (key, operation) = (&name.key, name.key.operation());
        let former = former.as_ref();
        if is_held(self.id, key) || former.is_some_and(|former| is_held(self.id, &former.key)) {
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
    fn admit(self: &Arc<Self>, request: &CallRequest) -> Result<Option<Start>, Error> {
        let CallRequest { name, policy, .. } = request;
        if !self.lets_in(request)? {
            let call = Unleased::new(self, name.clone(), policy.max_run());
            return Ok(Some(Start::Unprotected(Box::new(call))));
        }
        if let Err(error) = self.background.start() {
            let detail = format!("the thread that renews leases cannot be started: {error}");
            let error = Error::new(ErrorKind::StoreUnavailable, name.key.operation().clone());
            return Err(error.detail(detail));
        }
        Ok(None)
    }
}
