//! One claim, sent until it has a reply.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::clock::deadline;
use crate::engine::Core;
use crate::error::{Error, ErrorKind};
use crate::operation::{Operation, RecordKey};
use crate::orphan::Orphan;
use crate::store::{StoreError, StoreErrorKind};
use crate::transition::{ClaimReply, ClaimRequest};

/// The reply to a claim.
pub(crate) struct Asked {
    pub(crate) reply: ClaimReply,
    /// When the claim was sent: a lease lasts from then on at the latest.
    pub(crate) sent: Duration,
}

impl Core {
    /// Sends the claim until it has a reply, for `claim_deadline` from `now` on.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        key: &RecordKey,
        request: &ClaimRequest,
        orphan: &mut Orphan<'_>,
        now: Duration,
    ) -> Result<Asked, Error> {
        let (clock, operation) = (&*self.clock, key.operation());
        let mut backoff = Backoff::new(&request.owner);
        let mut silent_until = now + self.limits.claim_deadline;
        let (mut failure, mut late) = (None, false);
        let mut sent = now;
        loop {
            if sent >= silent_until
                && let Some(error) = failure
            {
                return Err(unavailable(operation, error));
            }
            let (reply, waited) = {
                let admission = orphan.arm(silent_until.saturating_sub(sent));
                let reply = pin!(self.store.admit(key, request, admission));
                (
                    deadline(clock, silent_until, reply).await,
                    admission.waited(),
                )
            };
            // Its lease lasts from the moment at which it left the store's queue.
            if let Some(waited) = waited.filter(|waited| !waited.is_zero()) {
                sent = (sent + waited).min(clock.now());
            }
            let reply = match reply {
                Ok(Ok(reply)) => reply,
                Ok(Err(error)) => {
                    let now = clock.now();
                    // The store knows that more tries before the deadline are of no use.
                    let is_final = !error.is_transient() || error.retry_after().is_some();
                    if is_final || now >= silent_until {
                        return Err(unavailable(operation, error));
                    }
                    let pause = backoff.retry().min(silent_until.saturating_sub(now));
                    clock.sleep_until(now + pause).await;
                    failure = Some(error);
                    sent = clock.now();
                    continue;
                }
                Err(_) => {
                    // What the store said before it fell silent says more than the silence.
                    return Err(failure.map_or_else(
                        || self.silent(operation),
                        |error| unavailable(operation, error),
                    ));
                }
            };
            let is_grant = matches!(
                reply,
                ClaimReply::Granted { .. } | ClaimReply::Reconcile { .. }
            );
            let heard = if is_grant { clock.now() } else { sent };
            if heard >= sent + request.lease {
                // Nobody knows whose the claim is by now. Asking again tells, and renews it.
                if late && heard >= silent_until {
                    return Err(slow(operation));
                }
                if !late {
                    late = true;
                    silent_until = heard + self.limits.claim_deadline;
                }
                sent = heard;
                continue;
            }
            orphan.disarm();
            return Ok(Asked { reply, sent });
        }
    }

    fn silent(&self, operation: &Operation) -> Error {
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

/// Why a store gave no claim, for the person who reads the error.
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
