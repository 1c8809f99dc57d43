//! Release of an unacknowledged claim.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::identity::operation::RecordKey;
use crate::lifecycle::core::Core;
use crate::record::Owner;
use crate::record::transition::{ReleaseReply, Remains};
use crate::store::Admission;

/// Drop guard that releases a claim whose reply was never received.
pub(crate) struct UnackedClaim<'a> {
    core: &'a Arc<Core>,
    key: &'a RecordKey,
    owner: Owner,
    armed: bool,
    /// One of the guard's claims was sent.
    was_sent: bool,
    /// Of the claim in flight.
    admission: Admission,
}

impl<'a> UnackedClaim<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, key: &'a RecordKey, owner: Owner) -> Self {
        Self {
            core,
            key,
            owner,
            armed: false,
            was_sent: false,
            admission: Admission::new(Duration::ZERO),
        }
    }

    /// Notes a claim in flight, whose caller waits this long for the reply.
    pub(crate) fn arm(&mut self, time_left: Duration) -> &Admission {
        self.armed = true;
        self.was_sent |= self.admission.was_sent();
        self.admission = Admission::new(time_left);
        &self.admission
    }

    /// Notes that the claim has its reply.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for UnackedClaim<'_> {
    fn drop(&mut self) {
        // A claim that was never sent has nothing to release.
        if !self.armed || !(self.was_sent || self.admission.was_sent()) {
            return;
        }
        let (core, key, owner) = (Arc::clone(self.core), self.key.clone(), self.owner);
        self.core.background.spawn_awaited(async move {
            // Once: a claim that arrives after the release blocks the key for one lease, never longer.
            let moment = core.clock.now() + core.limits.claim_deadline;
            // Another attempt may have had the key before.
            let release = core.store.release(&key, &owner, Remains::Request);
            if let Ok(Ok(ReleaseReply::Released)) =
                deadline(&*core.clock, moment, pin!(release)).await
            {
                core.emit(&key, EventKind::Released { counted: false });
            }
        });
    }
}
