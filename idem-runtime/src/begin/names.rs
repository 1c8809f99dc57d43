//! Under which name a record stands, after the secret of the digests was changed.
//!
//! No process claims a key under its former name that has no record there. So what a look finds there stays, until
//! it expires, and what it does not find does not come into being.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Begin, Grant};
use crate::clock::deadline;
use crate::context::is_held;
use crate::digest_key::Identity;
use crate::engine::Core;
use crate::error::{Error, ErrorKind};
use crate::observer::EventKind;
use crate::operation::{Operation, RecordKey};
use crate::orphan::Orphan;
use crate::record::State;
use crate::store::ReadReply;
use crate::transition::{ReleaseReply, Remains};

impl Core {
    /// The former name of a call, if its record stands there.
    pub(crate) async fn stands_under(
        self: &Arc<Self>,
        operation: &Operation,
        former: Identity,
    ) -> Result<Option<RecordKey>, Error> {
        let key = self.record_key(operation.clone(), former.digest);
        let found = self.patiently(operation, || self.read(&key)).await?;
        Ok(says_something(&found).then_some(key))
    }

    /// The same for a call that is to go on there.
    pub(crate) async fn goes_on_under(
        self: &Arc<Self>,
        operation: &Operation,
        former: Identity,
    ) -> Result<Option<RecordKey>, Error> {
        let key = self.stands_under(operation, former).await?;
        if let Some(key) = &key {
            if is_held(self.id, key) {
                return Err(Error::new(ErrorKind::Reentered, operation.clone()));
            }
            self.tell(key, EventKind::FormerDigestKey);
        }
        Ok(key)
    }
}

impl Begin {
    pub(super) fn has_former_name(&self) -> bool {
        (self.name.keyed.as_ref()).is_some_and(|keyed| keyed.former.is_some())
    }

    /// Takes the former name if the record stands there, and the own one if not.
    pub(super) async fn choose_name(&mut self) -> Result<(), Error> {
        let former = self.name.keyed.as_ref().and_then(|keyed| keyed.former);
        let (Some(former), Some(own)) = (former, self.own) else {
            return Ok(());
        };
        let operation = self.name.key.operation().clone();
        let stands = self.core().goes_on_under(&operation, former).await?;
        self.is_former = stands.is_some();
        let identity = if self.is_former { former } else { own };
        if self.name.key.digest() != &identity.digest {
            // That was of the other name.
            self.permit = None;
            self.name.key =
                stands.unwrap_or_else(|| self.core().record_key(operation, identity.digest));
            self.fingerprint = identity.fingerprint;
        }
        Ok(())
    }

    /// Whether a claim took over the record that was found under the former name. It gives back what it made anew
    /// there: the record has expired in between.
    pub(super) async fn takes_over(&self, grant: &Grant) -> bool {
        if !self.is_former || !grant.fresh || grant.attempts > 1 {
            return true;
        }
        let (core, key, owner) = (self.core(), &self.name.key, &grant.request.owner);
        // Dropped from here on, the claim is given back in the background.
        let mut orphan = Orphan::new(core, key, *owner);
        orphan.arm(Duration::ZERO).sent();
        let moment = core.clock.now() + core.limits.claim_deadline;
        let release = core.store.release(key, owner, Remains::Nothing);
        let reply = deadline(&*core.clock, moment, pin!(release)).await;
        if let Ok(Ok(ReleaseReply::Released | ReleaseReply::Superseded | ReleaseReply::Absent)) =
            reply
        {
            orphan.disarm();
        }
        false
    }
}

/// Whether a record holds anything that the next call has to know.
fn says_something(found: &ReadReply) -> bool {
    match found {
        ReadReply::Absent => false,
        ReadReply::Found { record, .. } => {
            let header = &record.header;
            header.state != State::Released || header.attempts > 0 || !header.fingerprint.is_none()
        }
        ReadReply::Unreadable(_) => true,
    }
}
