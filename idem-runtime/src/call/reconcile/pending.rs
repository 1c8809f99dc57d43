//! A reconciliation that is due: the earlier attempt, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use crate::call::core::Core;
use crate::call::step_log::StepStop;
use crate::env::lock::Lock;
use crate::error::Error;
use crate::record::Record;
use crate::record::transition::{ClaimRequest, Needs};

/// An earlier attempt to reconcile, and the result.
pub(crate) struct PendingReconcile {
    pub(super) core: Arc<Core>,
    /// The claim to run the body after `NotLanded`.
    pub(super) request: ClaimRequest,
    stop: Lock<Option<Stop>>,
}

/// Why a body must not run after all.
pub(crate) enum Stop {
    /// The outcome stays unknown.
    Undecided,
    /// A step of the body cannot be decided.
    Step(StepStop),
    /// Nothing landed, and the claim to run was refused.
    Refused(Error),
    /// Another attempt has answered meanwhile.
    Answered { record: Record, left: Duration },
}

impl PendingReconcile {
    /// `request` is the claim that was granted for the reconciliation.
    pub(crate) fn new(core: &Arc<Core>, mut request: ClaimRequest) -> Self {
        request.reconciles = false;
        request.needs = Needs::Verdict;
        Self {
            core: Arc::clone(core),
            request,
            stop: Lock::new(None),
        }
    }

    /// Takes the reason to drop the body, if there is one.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.stop.lock().take()
    }

    /// Records why the body must not run.
    pub(super) fn set(&self, stop: Stop) {
        *self.stop.lock() = Some(stop);
    }
}

debug_fields!(PendingReconcile {});
