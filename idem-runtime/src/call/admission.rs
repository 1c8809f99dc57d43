//! Admission of a call, and its answer if one is at hand.
//!
//! An admitted call is counted until it has its claim or its answer, so that a shutdown waits for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::call::answer::{Answered, answer};
use crate::call::call_watch::refused_at_once;
use crate::call::claim::Claim;
use crate::call::context::{Context, is_held, is_inside, runs_in};
use crate::call::core::{Core, Protection};
use crate::call::run_limit::{Full, Gate, RunPermit};
use crate::env::call_span::CallSpan;
use crate::env::observer::EventKind;
use crate::env::striped::Lane;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
use crate::local::cache::{Found, Permit};
use crate::outcome::stored::StoredAnswer;
use crate::policy::{EffectivePolicy, OnOutage};
use crate::record::Header;

/// The request of one call, ready to claim.
pub(crate) struct CallRequest {
    pub(crate) name: CallName,
    /// Its former name, under which the record is looked up first; that look-up begins none.
    pub(crate) former: Option<Box<CallName>>,
    pub(crate) policy: EffectivePolicy,
    /// Its token has expired: it gets an existing answer, and starts nothing.
    pub(crate) expired: bool,
    /// Limits that it passes before its claim, besides those of the engine.
    pub(crate) gate: Option<Box<Gate>>,
}

pub(crate) enum CallAdmission {
    /// The call has its answer.
    Replay(StoredAnswer),
    /// The call goes on, by [`acquire`](crate::call::acquire::acquire).
    Admitted(AdmittedCall),
}

/// A call without an answer in this process.
pub(crate) enum AdmittedCall {
    /// It claims its key.
    Protected {
        entered: Entered,
        now: Duration,
        /// The right to cache the store's answer.
        cache_permit: Option<Permit>,
    },
    /// It runs its body without protection.
    Unprotected(Box<Unleased>),
}

impl CallRequest {
    /// Admits the call, or answers it without a wait.
    ///
    /// A refusal has been reported to the observer.
    pub(crate) fn enter(&self, core: &Arc<Core>) -> Result<CallAdmission, Error> {
        // Held until the start is known: it may begin a body, which counts itself.
        let entered;
        let unprotected = match self.answer_here(core) {
            ControlFlow::Break(Ok(stored)) => return Ok(CallAdmission::Replay(stored)),
            ControlFlow::Break(Err(error)) => Err(error),
            ControlFlow::Continue((now, cache_permit)) => {
                // Counted before `closing` is read, so that a shutdown either sees this call or stops it.
                entered = Entered::new(core);
                match self.admit(core).transpose() {
                    Some(unprotected) => unprotected,
                    None => {
                        return Ok(CallAdmission::Admitted(AdmittedCall::Protected {
                            entered,
                            now,
                            cache_permit,
                        }));
                    }
                }
            }
        };
        let run_permit = || take_run_permit(core, self.gate.as_deref());
        let call = unprotected
            .or_else(|error| not_begun(core, &self.name, &self.policy, error, run_permit))?;
        Ok(CallAdmission::Admitted(AdmittedCall::Unprotected(call)))
    }

    /// The same in the span of the call. A refusal is reported as the end of the call.
    pub(crate) fn enter_watched(
        &self,
        core: &Arc<Core>,
        span: &CallSpan,
    ) -> Result<CallAdmission, Error> {
        let admission = span.in_scope(|| self.enter(core));
        if let Err(error) = &admission {
            refused_at_once(core, span, Some(self.name.key.digest()), error);
        }
        admission
    }

    /// The answer in this process, for a call that would be admitted; or the time, and the right to cache the store's
    /// reply.
    fn answer_here(&self, core: &Core) -> ControlFlow<Answered, (Duration, Option<Permit>)> {
        let Self { name, policy, .. } = self;
        let (key, fingerprint) = (&name.key, name.fingerprint);
        if core.protection != Protection::On || is_closed(core) || is_held(core.id, key) {
            return ControlFlow::Continue((core.clock.now(), None));
        }
        if let Some((record, left)) = core.store.at_hand(key, fingerprint) {
            return ControlFlow::Break(answer(core, key, record, left, policy, false, false));
        }
        let now = core.clock.now();
        match core.cached_answer(key, fingerprint, policy, now) {
            Found::Answer { record, left } => {
                ControlFlow::Break(answer(core, key, record, left, policy, false, true))
            }
            Found::Nothing(permit) => ControlFlow::Continue((now, permit)),
        }
    }

    /// Admits the call. `None`: the store has to be queried.
    fn admit(&self, core: &Arc<Core>) -> Result<Option<Box<Unleased>>, Error> {
        let Self { name, policy, .. } = self;
        if !self.lets_in(core)? {
            let call = Unleased::new(core, name.clone(), policy.max_run());
            return Ok(Some(Box::new(call)));
        }
        if let Err(error) = core.background.start() {
            let detail = format!("the thread that renews leases cannot be started: {error}");
            let error = name.key.error(ErrorKind::StoreUnavailable);
            return Err(error.detail(detail));
        }
        Ok(None)
    }

    /// Whether the call is to be protected. An error: it must not run at all.
    pub(crate) fn lets_in(&self, core: &Core) -> Result<bool, Error> {
        let (key, operation) = (&self.name.key, self.name.key.operation());
        let former = self.former.as_ref();
        if is_held(core.id, key) || former.is_some_and(|former| is_held(core.id, &former.key)) {
            return Err(operation.error(ErrorKind::Reentered));
        }
        if is_closed(core) {
            return Err(operation.error(ErrorKind::ShuttingDown));
        }
        match core.protection {
            Protection::On => Ok(true),
            Protection::Off => {
                let reason = "`Engine::disabled` in a debug build";
                core.emit(key, EventKind::Unprotected { reason });
                Ok(false)
            }
            Protection::Refused => Err(operation
                .error(ErrorKind::NoEngine)
                .detail("`Engine::disabled` has no effect in a release build")),
        }
    }
}

fn is_closed(core: &Core) -> bool {
    // A running body may finish, with all calls that it makes.
    core.closing.load(Ordering::SeqCst) && !is_inside()
}

/// Takes a permit for one more body. `None`: nothing limits it.
pub(crate) fn take_run_permit(
    core: &Core,
    gate: Option<&Gate>,
) -> Result<Option<Box<RunPermit>>, Full> {
    RunPermit::take(core.running.as_ref(), || runs_in(core.id), gate)
}

/// The unprotected body of a call refused with `error`, with its `run_permit`.
///
/// Or the refusal, of which the observer has been notified.
pub(crate) fn not_begun(
    core: &Arc<Core>,
    name: &CallName,
    policy: &EffectivePolicy,
    mut error: Error,
    run_permit: impl FnOnce() -> Result<Option<Box<RunPermit>>, Full>,
) -> Result<Box<Unleased>, Error> {
    let key = &name.key;
    if policy.on_outage() == OnOutage::Run && error.is_outage() {
        match run_permit() {
            Ok(permit) => {
                let reason = &error.to_string();
                core.emit(key, EventKind::Unprotected { reason });
                let call = Unleased::new(core, name.clone(), policy.max_run());
                return Ok(Box::new(call.with_run_permit(permit)));
            }
            Err(full) => error = full.error(key.operation()),
        }
    }
    let label = policy.label.as_ref();
    core.emit_labelled(key, label, EventKind::Refused { error: &error });
    Err(error)
}

/// A call on its way to its claim or its answer.
pub(crate) struct Entered {
    /// `None` once the call has its claim.
    core: Option<Arc<Core>>,
    lane: Lane,
}

impl Entered {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            lane: core.entering.up(),
            core: Some(Arc::clone(core)),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        let core = self.core.as_ref();
        core.expect("only arriving takes it, and nothing is left then")
    }

    /// Joins the claim counter before leaving this one: otherwise a shutdown sees neither.
    pub(crate) fn arrive(mut self, claim: impl FnOnce(Arc<Core>) -> Claim) -> Claim {
        let core = self.core.take();
        let claim = claim(core.expect("only this takes it, once"));
        self.leave(&claim.held().core);
        claim
    }

    fn leave(&self, core: &Core) {
        core.entering.down(self.lane);
        core.left();
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            self.leave(core);
        }
    }
}

/// A call that runs its body without a lease: without protection, or in a transaction.
pub(crate) struct Unleased {
    core: Arc<Core>,
    pub(crate) name: CallName,
    max_run: Duration,
    /// Permit of the run limits, if there are any.
    run_permit: Option<Box<RunPermit>>,
}

impl Unleased {
    pub(crate) fn new(core: &Arc<Core>, name: CallName, max_run: Duration) -> Self {
        core.unleased.fetch_add(1, Ordering::SeqCst);
        Self {
            core: Arc::clone(core),
            name,
            max_run,
            run_permit: None,
        }
    }

    pub(crate) fn with_run_permit(mut self, run_permit: Option<Box<RunPermit>>) -> Self {
        self.run_permit = run_permit;
        self
    }

    /// The body's context, with the claim of a call in a transaction.
    pub(crate) fn context(&self, within: Option<Header>) -> Context {
        Context::unleased(&self.core, self.name.clone(), within, self.max_run)
    }
}

impl Drop for Unleased {
    fn drop(&mut self) {
        self.core.unleased.fetch_sub(1, Ordering::SeqCst);
        self.core.left();
    }
}
