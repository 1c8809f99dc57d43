//! Claims that find the database file locked.
//!
//! SQLite has one lock for all writers of a file, and an uncommitted claim is visible in its own transaction only. So a
//! locked file shows that a transaction is open, but not of which key. The engine keeps a list of the keys of its own
//! transactions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::call::claimed_keys::Holder;
use crate::call::core::Core;
use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::error::{Error, ErrorKind};
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::record::transition::{self, ClaimReply, ClaimRequest, Current};
use crate::store::ReadReply;

/// The wait for the commit after a body, under `reject` too.
const COMMIT: Duration = Duration::from_millis(100);
/// The retry hint of a refused call.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

impl Holder {
    /// The time that a claim waits for the lock.
    fn limit(self, wait: Duration, claim_deadline: Duration) -> Duration {
        match self {
            Self::Running => wait,
            Self::Ended => wait.max(COMMIT),
            // The other transaction may still be of this key.
            Self::Other => wait + claim_deadline,
        }
    }

    /// The error of a claim that has waited for that time.
    fn refusal(self, key: &RecordKey) -> Error {
        let operation = key.operation().clone();
        match self {
            Self::Running | Self::Ended => {
                Error::new(ErrorKind::Running { retry_after: AGAIN }, operation)
                    .detail("another transaction of this engine holds its key")
            }
            Self::Other => Error::new(ErrorKind::StoreUnavailable, operation)
                .worth_repeating(Some(AGAIN))
                .detail(
                    "another transaction holds the file's lock for writing; keep transactions short, or allow a \
                     longer `claim_deadline`",
                ),
        }
    }
}

/// A claimed key in the engine's list, for repeats.
pub(super) struct ClaimedKey {
    core: Arc<Core>,
    key: KeyDigest,
    id: u64,
    /// Whether the claim outlasts the body in the caller's transaction.
    is_claimed: bool,
}

impl ClaimedKey {
    pub(super) fn new(core: &Arc<Core>, key: &RecordKey, own: bool) -> Self {
        let digest = *key.digest();
        Self {
            id: core.claimed_keys.begin(digest),
            core: Arc::clone(core),
            key: digest,
            is_claimed: !own,
        }
    }

    /// Marks the claim as undone.
    pub(super) fn undone(&mut self) {
        self.is_claimed = false;
    }
}

impl Drop for ClaimedKey {
    fn drop(&mut self) {
        let keys = &self.core.claimed_keys;
        keys.end(self.key, self.id, self.is_claimed);
    }
}

/// A claim that waits for the lock.
pub(super) struct Queued<'a> {
    core: &'a Arc<Core>,
    key: &'a RecordKey,
    request: &'a ClaimRequest,
    wait: Duration,
    since: Duration,
    backoff: Backoff,
}

impl<'a> Queued<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        wait: Duration,
    ) -> Self {
        Self {
            core,
            key,
            request,
            wait,
            since: core.clock.now(),
            backoff: Backoff::new(&request.owner),
        }
    }

    /// Pauses until the next try. `Some`: a committed record answers the call, which takes no lock.
    pub(super) async fn pause(&mut self) -> Result<Option<ClaimReply>, Error> {
        let reply = self.committed().await;
        if reply.is_some() {
            return Ok(reply);
        }
        let holder = self.core.claimed_keys.holder(self.key.digest());
        let limit = holder.limit(self.wait, self.core.limits.claim_deadline);
        let now = self.core.clock.now();
        let left = (self.since + limit).saturating_sub(now);
        if left.is_zero() {
            return Err(holder.refusal(self.key));
        }
        let pause = self.backoff.lock().min(left);
        self.core.clock.sleep_until(now + pause).await;
        Ok(None)
    }

    /// The reply to the claim, if it involves no write. A failed read is left to the next try.
    async fn committed(&self) -> Option<ClaimReply> {
        let clock = &*self.core.clock;
        let moment = clock.now() + self.core.limits.claim_deadline;
        let read = pin!(self.core.read(self.key));
        match deadline(clock, moment, read).await {
            Ok(Ok(ReadReply::Found { record, left })) => {
                let record = &record;
                let current = Some(Current { record, left });
                // No fence is granted here.
                let (reply, write) = transition::claim(current, self.request, 0);
                write.is_none().then_some(reply)
            }
            Ok(Ok(ReadReply::Unreadable(error))) => Some(ClaimReply::Unreadable(error)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::claimed_keys::ClaimedKeys;

    const A: KeyDigest = KeyDigest::from_bytes([1; 32]);
    const B: KeyDigest = KeyDigest::from_bytes([2; 32]);

    #[test]
    fn a_key_is_listed_until_another_claim_is_granted() {
        let keys = ClaimedKeys::default();
        assert_eq!(keys.holder(&A), Holder::Other);
        let a = keys.begin(A);
        assert_eq!(
            (keys.holder(&A), keys.holder(&B)),
            (Holder::Running, Holder::Other)
        );
        keys.end(A, a, true);
        assert_eq!(keys.holder(&A), Holder::Ended);
        let b = keys.begin(B);
        assert_eq!(
            (keys.holder(&A), keys.holder(&B)),
            (Holder::Other, Holder::Running)
        );
        // Undone, or in a transaction that idem has ended.
        keys.end(B, b, false);
        assert_eq!(keys.holder(&B), Holder::Other);
    }

    #[test]
    fn a_body_without_its_transaction_takes_no_other_claim_off_the_list() {
        let keys = ClaimedKeys::default();
        let (early, late) = (keys.begin(A), keys.begin(A));
        keys.end(A, early, true);
        assert_eq!(keys.holder(&A), Holder::Running);
        keys.end(A, late, true);
        assert_eq!(keys.holder(&A), Holder::Ended);
    }

    #[test]
    fn an_inner_call_leaves_the_outer_one_on_the_list() {
        let keys = ClaimedKeys::default();
        let outer = keys.begin(A);
        let inner = keys.begin(B);
        keys.end(B, inner, true);
        assert_eq!(
            (keys.holder(&A), keys.holder(&B)),
            (Holder::Running, Holder::Ended)
        );
        keys.end(A, outer, true);
        assert_eq!(
            (keys.holder(&A), keys.holder(&B)),
            (Holder::Ended, Holder::Ended)
        );
    }
}
