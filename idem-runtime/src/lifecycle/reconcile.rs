//! Reconciles an earlier attempt before the body may run again.

mod hook;

use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::env::catch_unwind::unwind;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::lifecycle::context::{context, try_context};
use crate::lifecycle::core::Core;
use crate::lifecycle::interpret::refusal;
use crate::lifecycle::lease::Lease;
use crate::lifecycle::unacked_claim::Orphan;
use crate::outcome::reconciled::Reconciled;
use crate::record::transition::{ClaimReply, ClaimRequest, Needs};
use crate::record::{Header, Record, State};

pub use self::hook::{Asking, Called, Given, Hook, Never, NoType, Says, given, hook};

/// How long a hook may take before the outcome stays unknown.
const DEADLINE: Duration = Duration::from_secs(10);

/// An earlier attempt to reconcile, and the result.
pub(crate) struct Riddle {
    core: Arc<Core>,
    /// The claim to run the body, sent after the verdict that nothing landed.
    request: ClaimRequest,
    stop: Mutex<Option<Stop>>,
}

/// Why a body must not run after all.
pub(crate) enum Stop {
    /// The outcome stays unknown.
    Undecided,
    /// Nothing landed, and the claim to run was refused.
    Refused(Error),
    /// Another attempt has answered meanwhile.
    Answered { record: Record, left: Duration },
}

impl Riddle {
    /// `request` is the claim that was granted for the reconciliation.
    pub(crate) fn new(core: &Arc<Core>, mut request: ClaimRequest) -> Self {
        request.reconciles = false;
        request.needs = Needs::Verdict;
        Self {
            core: Arc::clone(core),
            request,
            stop: Mutex::new(None),
        }
    }

    /// Takes the reason to drop the body, if there is one.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn set(&self, stop: Stop) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
    }
}

/// Whether the running body must reconcile an earlier attempt first.
#[must_use]
pub fn unsettled() -> bool {
    try_context().is_some_and(|cx| cx.riddle().is_some())
}

/// Awaits the hook, and acts on its verdict.
///
/// `Some` is the answer of the call; `None`: the body may start. Otherwise this does not return, and the body is
/// dropped.
pub async fn reconciled<T>(hook: impl Future<Output = Reconciled<T>>) -> Option<T> {
    let cx = context();
    let (riddle, lease) = (cx.riddle()?, cx.lease()?);
    let core = &riddle.core;
    let moment = core.clock.now() + DEADLINE;
    let heard = deadline(&*core.clock, moment, pin!(unwind(pin!(hook)))).await;
    let (verdict, why) = match heard {
        Ok(Ok(verdict)) => (verdict, "the hook cannot say"),
        Ok(Err(_)) => (Reconciled::Unknown, "the hook panicked"),
        Err(_) => (Reconciled::Unknown, "the hook took longer than 10 s"),
    };
    let tell = |verdict, why| core.tell(&lease.key, EventKind::Reconciled { verdict, why });
    let stop = match verdict {
        Reconciled::Landed(value) => {
            tell(Reconciled::Landed(()), None);
            return Some(value);
        }
        Reconciled::NotLanded => {
            tell(Reconciled::NotLanded, None);
            match start(riddle, lease).await {
                Ok(()) => return None,
                Err(stop) => stop,
            }
        }
        Reconciled::Unknown => {
            tell(Reconciled::Unknown, Some(why));
            Stop::Undecided
        }
    };
    riddle.set(stop);
    // The body is dropped here.
    pending().await
}

/// Claims the right to run the body.
async fn start(riddle: &Riddle, lease: &Lease) -> Result<(), Stop> {
    let (core, request) = (&riddle.core, &riddle.request);
    let operation = lease.key.operation();
    let overtaken = |retry_after| {
        Error::new(ErrorKind::Running { retry_after }, operation.clone())
            .detail("another attempt took the key over while this one was reconciled")
    };
    // A lost lease is never renewed.
    if lease.is_lost() {
        return Err(Stop::Refused(overtaken(Duration::ZERO)));
    }
    let mut orphan = Orphan::new(core, &lease.key, request.owner);
    let asked = core
        .ask(&lease.key, request, &mut orphan, core.clock.now())
        .await;
    // The settlement of the claim releases it.
    orphan.disarm();
    let asked = asked.map_err(Stop::Refused)?;
    match asked.reply {
        ClaimReply::Granted { fence, attempt, .. } => {
            let claim = Header {
                state: State::Pending {
                    lease: request.lease,
                },
                fence,
                attempts: attempt,
                ..lease.claim()
            };
            lease.regranted(claim, asked.sent);
            if lease.is_lost() {
                return Err(Stop::Refused(overtaken(Duration::ZERO)));
            }
            core.tell(&lease.key, EventKind::Claimed { attempt, fence });
            Ok(())
        }
        ClaimReply::Running { lease_left } => Err(Stop::Refused(overtaken(lease_left))),
        ClaimReply::Absent => Err(Stop::Refused(overtaken(Duration::ZERO))),
        ClaimReply::Done { record, left } => Err(Stop::Answered { record, left }),
        reply => Err(Stop::Refused(refusal(operation, &reply))),
    }
}

impl fmt::Debug for Riddle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Riddle").finish_non_exhaustive()
    }
}
