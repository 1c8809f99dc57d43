//! Counts calls without a claim, for which a shutdown waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::env::striped::Lane;
use crate::identity::digest_key::CallName;
use crate::lifecycle::claim::Claim;
use crate::lifecycle::context::{Context, runs_in};
use crate::lifecycle::core::Core;
use crate::lifecycle::run_limit::{Full, Gate, RunPermit};
use crate::record::Header;

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

    /// With the permit to run its body.
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
