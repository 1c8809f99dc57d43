//! Under which of two names a record stands, while the secret of its digests is changed.
//!
//! Processes that claim under different names exclude each other as two processes with a flag each do (Dekker's
//! algorithm): each writes its own claim first, and then looks at the other's name. Of two claims at least one sees
//! the other, and gives way.

use std::mem::swap;
use std::pin::pin;
use std::time::Duration;

use super::{Begin, Grant};
use crate::backoff::Backoff;
use crate::clock::deadline;
use crate::context::is_held;
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::operation::RecordKey;
use crate::orphan::Orphan;
use crate::record::State;
use crate::store::ReadReply;
use crate::transition::{ReleaseReply, Remains};

impl Begin {
    pub(super) fn has_two_names(&self) -> bool {
        (self.name.keyed.as_ref()).is_some_and(|keyed| keyed.other.is_some())
    }

    /// Before a claim: turns to the other name if the record stands there. Then the call begins again.
    pub(super) async fn is_elsewhere(&mut self) -> Result<bool, Error> {
        self.looked = true;
        let Some(other) = self.other() else {
            return Ok(false);
        };
        if !says_something(&self.read(&other).await?) {
            return Ok(false);
        }
        if is_held(self.core().id, &other) {
            return Err(Error::new(ErrorKind::Reentered, other.operation().clone()));
        }
        self.turn(other);
        Ok(true)
    }

    /// After a claim: keeps it if nothing stands under the other name, and gives it back otherwise. `None`: the call
    /// begins again.
    pub(super) async fn confirm(&mut self, grant: Grant) -> Result<Option<Grant>, Error> {
        let Some(other) = self.other() else {
            return Ok(Some(grant));
        };
        let mut orphan = Orphan::new(self.core(), &self.name.key, grant.request.owner);
        // Dropped from here on, the claim is given back.
        orphan.arm(Duration::ZERO).sent();
        let found = self.read(&other).await?;
        let in_time = self.core().clock.now() < grant.sent + grant.request.lease;
        if in_time && !excludes(&found) {
            orphan.disarm();
            return Ok(Some(grant));
        }
        if self.give_back(&grant).await {
            orphan.disarm();
        }
        drop(orphan);
        drop(grant.ticket);
        self.looked = false;
        self.pause(grant.request.lease).await?;
        Ok(None)
    }

    /// Where the record stands, if not under the name of this call.
    fn other(&self) -> Option<RecordKey> {
        let other = self.name.keyed.as_ref()?.other?;
        let operation = self.name.key.operation().clone();
        Some(self.core().record_key(operation, other.digest))
    }

    fn turn(&mut self, mut other: RecordKey) {
        swap(&mut self.name.key, &mut other);
        if let Some(identity) = (self.name.keyed.as_mut()).and_then(|keyed| keyed.other.as_mut()) {
            identity.digest = *other.digest();
            swap(&mut identity.fingerprint, &mut self.fingerprint);
        }
        // That was of the other name.
        self.permit = None;
    }

    async fn read(&self, key: &RecordKey) -> Result<ReadReply, Error> {
        let core = self.core();
        core.patiently(key.operation(), || core.read(key)).await
    }

    /// Whether the store has replied to the release.
    async fn give_back(&self, grant: &Grant) -> bool {
        let (core, key) = (self.core(), &self.name.key);
        let remains = if grant.fresh {
            Remains::Nothing
        } else {
            Remains::Request
        };
        let moment = core.clock.now() + core.limits.claim_deadline;
        let release = core.store.release(key, &grant.request.owner, remains);
        let reply = deadline(&*core.clock, moment, pin!(release)).await;
        matches!(
            reply,
            Ok(Ok(ReleaseReply::Released
                | ReleaseReply::Superseded
                | ReleaseReply::Absent))
        )
    }

    /// Two callers that gave way to each other do not meet again at once.
    async fn pause(&mut self, lease: Duration) -> Result<(), Error> {
        let now = self.core().clock.now();
        let until = self
            .patience()
            .max(self.now + self.core().limits.claim_deadline);
        if now >= until {
            let retry_after = lease;
            let error = ErrorKind::Running { retry_after };
            return Err(Error::new(error, self.name.key.operation().clone()));
        }
        let owner = self.core().store.new_owner(&self.name.key);
        let pause = self
            .backoff
            .get_or_insert_with(|| Backoff::new(&owner))
            .poll();
        self.core().clock.sleep_until(until.min(now + pause)).await;
        Ok(())
    }
}

/// Whether a record holds anything that the next call has to know.
fn says_something(found: &ReadReply) -> bool {
    match found {
        ReadReply::Absent => false,
        ReadReply::Found { record, .. } => {
            let header = &record.header;
            header.state != State::Released
                || header.attempts > 0
                || header.fingerprint != Fingerprint::NONE
        }
        ReadReply::Unreadable(_) => true,
    }
}

/// Whether a body may run, or may have run, under a record.
fn excludes(found: &ReadReply) -> bool {
    match found {
        ReadReply::Absent => false,
        ReadReply::Found { record, .. } => record.header.state != State::Released,
        ReadReply::Unreadable(_) => true,
    }
}
