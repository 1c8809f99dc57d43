//! A claim that may have been granted without anybody having seen the reply.

use std::pin::pin;
use std::sync::Arc;

use crate::clock::deadline;
use crate::engine::Core;
use crate::observer::EventKind;
use crate::operation::RecordKey;
use crate::record::Owner;
use crate::transition::ReleaseReply;

/// Gives a claim back that may have been granted without anybody having seen the reply.
pub(crate) struct Orphan<'a> {
    core: &'a Arc<Core>,
    key: &'a RecordKey,
    owner: Owner,
    armed: bool,
}

impl<'a> Orphan<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, key: &'a RecordKey, owner: Owner) -> Self {
        Self {
            core,
            key,
            owner,
            armed: false,
        }
    }

    /// A claim is under way.
    pub(crate) fn arm(&mut self) {
        self.armed = true;
    }

    /// Its reply is here.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (core, key, owner) = (Arc::clone(self.core), self.key.clone(), self.owner);
        self.core.keeper.hand_over(async move {
            // Once: a claim that lands behind it blocks the key for one lease, never longer.
            let moment = core.clock.now() + core.limits.claim_deadline;
            let release = core.store.release(&key, &owner, false);
            if let Ok(Ok(ReleaseReply::Released)) =
                deadline(&*core.clock, moment, pin!(release)).await
            {
                core.tell(&key, EventKind::Released { counted: false });
            }
        });
    }
}
