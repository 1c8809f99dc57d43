//! Reconciles an earlier attempt before the body may run again.

mod hook;
pub(crate) mod pending;

use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use crate::call::acquire::UnackedClaim;
use crate::call::context::{context, try_context};
use crate::call::lease::Lease;
use crate::call::reconcile::pending::{PendingReconcile, Stop};
use crate::call::refusal::refusal;
use crate::env::catch_unwind::unwind;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::ErrorKind;
use crate::outcome::reconciled::Reconciled;
use crate::record::transition::ClaimReply;
use crate::record::{Header, State};

pub use self::hook::{Called, Given, HookCall, HookFn, IntoHookFuture, Never, NoType, given, hook};

/// How long a hook may take before the outcome stays unknown.
const DEADLINE: Duration = Duration::from_secs(10);

/// Whether the running body must reconcile an earlier attempt first.
#[must_use]
pub fn unsettled() -> bool {
    try_context().is_some_and(|cx| cx.reconcile().is_some())
}

/// Awaits the hook, and acts on its verdict.
///
/// `Some` is the answer of the call; `None`: the body may start. Otherwise this does not return, and the body is
/// dropped.
pub async fn reconciled<T>(hook: impl Future<Output = Reconciled<T>>) -> Option<T> {
    let cx = context();
    let (reconcile, lease) = (cx.reconcile()?, cx.lease()?);
    let core = &reconcile.core;
    let moment = core.clock.now() + DEADLINE;
    let verdict_or_panic = deadline(&*core.clock, moment, pin!(unwind(pin!(hook)))).await;
    let (verdict, why) = match verdict_or_panic {
        Ok(Ok(verdict)) => (verdict, "the hook cannot say"),
        Ok(Err(_)) => (Reconciled::Unknown, "the hook panicked"),
        Err(_) => (Reconciled::Unknown, "the hook took longer than 10 s"),
    };
    let emit = |verdict, why| core.emit(&lease.key, EventKind::Reconciled { verdict, why });
    let stop = match verdict {
        Reconciled::Landed(value) => {
            emit(Reconciled::Landed(()), None);
            return Some(value);
        }
        Reconciled::NotLanded => {
            emit(Reconciled::NotLanded, None);
            match start(reconcile, lease).await {
                Ok(()) => return None,
                Err(stop) => stop,
            }
        }
        Reconciled::Unknown => {
            emit(Reconciled::Unknown, Some(why));
            Stop::Undecided
        }
    };
    reconcile.set(stop);
    // The body is dropped here.
    pending().await
}

/// Claims the right to run the body.
async fn start(reconcile: &PendingReconcile, lease: &Lease) -> Result<(), Stop> {
    let (core, request) = (&reconcile.core, &reconcile.request);
    let operation = lease.key.operation();
    let overtaken = |retry_after| {
        operation
            .error(ErrorKind::Running { retry_after })
            .detail("another attempt took the key over while this one was reconciled")
    };
    // A lost lease is never renewed.
    if lease.is_lost() {
        return Err(Stop::Refused(overtaken(Duration::ZERO)));
    }
    let mut unacked = UnackedClaim::new(core, &lease.key, request.owner);
    let reply = unacked.send(request, core.clock.now()).await;
    // The settlement of the claim releases it.
    unacked.disarm();
    let reply = reply.map_err(Stop::Refused)?;
    match reply.reply {
        ClaimReply::Granted { fence, attempt, .. } => {
            let claim = Header {
                state: State::Pending {
                    lease: request.lease,
                },
                fence,
                attempts: attempt,
                ..lease.claim()
            };
            lease.regranted(claim, reply.sent);
            if lease.is_lost() {
                return Err(Stop::Refused(overtaken(Duration::ZERO)));
            }
            core.emit(&lease.key, EventKind::Claimed { attempt, fence });
            Ok(())
        }
        ClaimReply::Running { lease_left } => Err(Stop::Refused(overtaken(lease_left))),
        ClaimReply::Absent => Err(Stop::Refused(overtaken(Duration::ZERO))),
        ClaimReply::Done { record, left } => Err(Stop::Answered { record, left }),
        reply => Err(Stop::Refused(refusal(operation, &reply))),
    }
}
