//! Sends a claim until it has a reply.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::call::core::Core;
use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::{Operation, RecordKey};
use crate::record::Owner;
use crate::record::transition::{ClaimReply, ClaimRequest, ReleaseReply, Remains};
use crate::store::{Admission, Reach, StoreError, StoreErrorKind};

/// A reply to a claim, with the send time of the claim.
pub(crate) struct TimedReply {
    pub(crate) reply: ClaimReply,
    /// When the claim was sent: the lease is counted from then on, not from the reply.
    pub(crate) sent: Duration,
}

impl Core {
    /// Sends the claim until it has a reply.
    ///
    /// It is retried for `claim_deadline` from `now` on, or for a part of that in an
    /// [outage](crate::call::outage).
    pub(crate) async fn send_claim(
        self: &Arc<Self>,
        key: &RecordKey,
        request: &ClaimRequest,
        unacked: &mut UnackedClaim<'_>,
        now: Duration,
    ) -> Result<TimedReply, Error> {
        let (clock, operation) = (&*self.clock, key.operation());
        let mut backoff = Backoff::new(&request.owner);
        let mut reply_deadline = now + self.limits.claim_deadline;
        // After an error the claim is sent again until then, and once more in any case.
        let mut retry_until = now + self.outage.retry_time(now, self.limits.claim_deadline);
        let (mut failure, mut late) = (None::<Box<StoreError>>, false);
        let mut sent = now;
        loop {
            if sent >= reply_deadline
                && let Some(error) = failure
            {
                return Err(self.give_up(operation, *error, sent));
            }
            let (reply, waited) = {
                let admission = unacked.arm(reply_deadline.saturating_sub(sent));
                let reply = pin!(self.store.admit(key, request, admission));
                (
                    deadline(clock, reply_deadline, reply).await,
                    admission.waited(),
                )
            };
            // The lease lasts from the moment at which the claim left the store's queue.
            if let Some(waited) = waited.filter(|waited| !waited.is_zero()) {
                sent = (sent + waited).min(clock.now());
            }
            let error = match reply {
                Ok(Ok(reply)) => {
                    self.outage.end();
                    let is_grant = matches!(
                        reply,
                        ClaimReply::Granted { .. } | ClaimReply::Reconcile { .. }
                    );
                    let received = if is_grant { clock.now() } else { sent };
                    self.outage.record_reply(received);
                    if received < sent + request.lease {
                        unacked.disarm();
                        return Ok(TimedReply { reply, sent });
                    }
                    // The claim may have lapsed, and be another owner's by now. Sending it again finds out, and renews
                    // it.
                    if late && received >= reply_deadline {
                        return Err(slow(operation));
                    }
                    if !late {
                        late = true;
                        reply_deadline = received + self.limits.claim_deadline;
                        retry_until = reply_deadline;
                    }
                    sent = received;
                    continue;
                }
                Ok(Err(error)) => {
                    let now = clock.now();
                    if error.reach() == Reach::Answered {
                        self.outage.record_reply(now);
                    }
                    // The store has stated that further tries before the deadline are of no use.
                    if !error.is_transient() || error.retry_after().is_some() {
                        let is_outage = self.is_outage(Some(error.reach()), now);
                        return Err(unavailable(operation, error).outage(is_outage));
                    }
                    let is_last = failure.is_some() && now >= retry_until;
                    if is_last || now >= reply_deadline {
                        return Err(self.give_up(operation, error, now));
                    }
                    sent = now;
                    Box::new(error)
                }
                Err(_) => {
                    // An earlier error of the store explains more than its silence.
                    let error = failure.map_or_else(
                        || self.no_reply(operation),
                        |error| unavailable(operation, *error),
                    );
                    return Err(error.outage(self.is_outage(None, clock.now())));
                }
            };
            failure = Some(error);
            let until = Some(retry_until).filter(|until| sent < *until);
            let until = until.unwrap_or(reply_deadline);
            clock.sleep_until(until.min(sent + backoff.retry())).await;
            sent = clock.now();
        }
    }

    /// Records that the store failed for all tries of a claim.
    fn give_up(&self, operation: &Operation, error: StoreError, now: Duration) -> Error {
        self.outage.record_failure(now, self.limits.claim_deadline);
        let is_outage = self.is_outage(Some(error.reach()), now);
        unavailable(operation, error).outage(is_outage)
    }

    fn is_outage(&self, reach: Option<Reach>, now: Duration) -> bool {
        self.outage
            .is_outage(reach, now, self.limits.claim_deadline)
    }

    fn no_reply(&self, operation: &Operation) -> Error {
        Error::new(ErrorKind::StoreUnavailable, operation.clone()).detail(format!(
            "no reply to a claim within {:?}",
            self.limits.claim_deadline
        ))
    }
}

fn slow(operation: &Operation) -> Error {
    Error::new(ErrorKind::StoreUnavailable, operation.clone())
        .detail("the store takes longer to grant the claim than its lease lasts")
}

/// Maps a store error to the error of a call that got no claim.
pub(crate) fn unavailable(operation: &Operation, error: StoreError) -> Error {
    let kind = match error.kind() {
        StoreErrorKind::TooLarge => ErrorKind::TooLarge,
        StoreErrorKind::Unsupported => ErrorKind::Unsupported,
        StoreErrorKind::InvalidCursor => ErrorKind::InvalidCursor,
        _ => ErrorKind::StoreUnavailable,
    };
    let (permanent, retry_after) = (!error.is_transient(), error.retry_after());
    Error::new(kind, operation.clone())
        .permanent(permanent)
        .worth_repeating(retry_after)
        .because(error)
}

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
