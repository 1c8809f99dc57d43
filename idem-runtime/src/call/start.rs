//! The states of a call after its admission, and after the reply of the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::call::claim::Claim;
use crate::call::context::{Context, runs_in};
use crate::call::core::Core;
use crate::call::reconcile::pending::PendingReconcile;
use crate::call::run_limit::{Full, Gate, RunPermit};
use crate::env::striped::Lane;
use crate::error::Error;
use crate::identity::digest_key::CallName;
use crate::outcome::stored::StoredAnswer;
use crate::policy::EffectivePolicy;
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
    /// The store has to be queried.
    Acquire(Pending),
}

/// The answer of a call that runs nothing: a replay, or a refusal.
pub(crate) type Answered = Result<StoredAnswer, Error>;

/// The future of a call that queries the store. Boxed: it is much larger than the body of most calls, which the
/// caller holds besides.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The reply of the store, or of another call.
pub(crate) struct Reply {
    pub(crate) start: Result<Start, Error>,
    /// The time for which the call waited for the body of another; zero where no observer wants to know of calls.
    pub(crate) waited: Duration,
}

/// The start of a call after the reply of the store.
pub(crate) enum Start {
    /// It runs the body, and reconciles an earlier attempt first if there is one.
    Run(Claim, Option<PendingReconcile>),
    /// It runs the body without protection.
    Unprotected(Box<Unleased>),
    /// It has its answer.
    Replay(StoredAnswer),
}

/// The result of beginning a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired {
    /// The caller runs the body.
    Run(Claim),
    /// The call was done before; this is its answer.
    Replay(StoredAnswer),
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

    /// Joins the claim counter before leaving this one, so that a shutdown never sees neither.
    pub(crate) fn arrive(mut self, claim: impl FnOnce(Arc<Core>) -> Claim) -> Claim {
        let core = self.core.take();
        let claim = claim(core.expect("only this takes it, once"));
        claim.held().core.has_entered(self.lane);
        claim
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            core.has_entered(self.lane);
        }
    }
}

/// A call that runs its body without a lease: without protection, or in a transaction.
pub(crate) struct Unleased {
    core: Arc<Core>,
    pub(crate) name: CallName,
    max_run: Duration,
    /// The permit to run its body, where the number of running bodies is limited.
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

    /// The context of the body, with the claim of a call in a transaction.
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

impl Core {
    /// Takes a permit for one more body. `None`: nothing limits it.
    pub(crate) fn take_run_permit(
        &self,
        gate: Option<&Gate>,
    ) -> Result<Option<Box<RunPermit>>, Full> {
        RunPermit::take(self.running.as_ref(), || runs_in(self.id), gate)
    }

    fn has_entered(&self, lane: Lane) {
        self.entering.down(lane);
        self.left();
    }

    /// Notifies a shutdown that one call fewer is left.
    pub(crate) fn left(&self) {
        if self.closing.load(Ordering::SeqCst) {
            self.background.idle().notify_waiters();
        }
    }
}
