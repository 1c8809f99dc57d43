//! What each operation does to a record: the state machine, as pure functions.
//!
//! ```text
//!                 claim (new owner, fence↑, attempts+1)
//!          ┌───────────────────────────────────────────────┐
//!     absent ──claim──▶ PENDING ──complete(owner)──▶ DONE ──ttl──▶ absent
//!          ▲              │ │ ▲                        ▲
//!          │   retention  │ │ └─ renew(owner)          │ late complete (nobody holds the claim)
//!          └──────────────┘ │                          │
//!                           └─release(owner)─▶ RELEASED ──claim──▶ PENDING
//! ```
//! An unknown outcome (and, for a caller that can find out, a lapsed claim) is *reconciled* first:
//!
//! ```text
//!     UNKNOWN, or PENDING lapsed, or RELEASED with attempts ──claim(reconciles)──▶ RECONCILING
//!     RECONCILING ──complete(owner)──▶ DONE (landed, or unknown again)
//!     RECONCILING ──claim(same owner, not reconciles)──▶ PENDING (attempts+1: it did not land)
//!     RECONCILING, given back or lapsed = UNKNOWN
//! ```
//!
//! A pending record whose lease is over may be claimed by anyone; as long as nobody does, its owner
//! may still renew and complete it.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::record::{Fence, Header, OutcomeKind, Owner, Record, State, Unreadable};

/// Who asks for a claim, and for how long.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The attempt that asks. The same while one claim is repeated or polled.
    pub owner: Owner,
    /// What is asked; [`Fingerprint::NONE`] switches the comparison off.
    pub fingerprint: Fingerprint,
    /// How long the claim lasts unless renewed. Whole milliseconds.
    pub lease: Duration,
    /// How long the record outlives its last write. At least twice the lease.
    pub retain: Duration,
    /// Attempts after which nobody is granted the claim; `None` for no limit.
    pub max_attempts: Option<NonZeroU16>,
    /// Whether the caller can find out if an earlier attempt had its effect. It is then asked to,
    /// instead of being refused, or granted the claim, where such an attempt exists. When it has
    /// found out that there was no effect, it claims once more without this.
    pub reconciles: bool,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimReply {
    /// The body is yours to run.
    Granted {
        /// The fence of this attempt.
        fence: Fence,
        /// Which attempt this is, starting at 1.
        attempt: u16,
    },
    /// It is yours to find out whether an earlier attempt had its effect.
    Reconcile {
        /// The fence of this claim.
        fence: Fence,
        /// How many attempts were started before and are not accounted for.
        attempts: u16,
    },
    /// Somebody else's body runs, or somebody finds out about an earlier one.
    Running {
        /// What is left of their lease.
        lease_left: Duration,
    },
    /// It was done before, or its outcome is unknown.
    Done {
        /// The answer; for a lapsed reconciliation, which means unknown, the record as it is.
        record: Record,
        /// How long it will still be kept.
        left: Duration,
    },
    /// The record belongs to a request with another fingerprint.
    Mismatch,
    /// No attempts are left.
    Exhausted {
        /// How many were started.
        attempts: u16,
    },
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReply {
    /// The answer is stored.
    Stored {
        /// The record was lost, or a later attempt had given it back or let its lease lapse.
        late: bool,
    },
    /// Another attempt stored its answer first; that one counts.
    Adopted {
        /// The answer that counts.
        record: Record,
        /// How long it will still be kept.
        left: Duration,
    },
    /// Another attempt holds the claim now.
    Superseded {
        /// What is left of its lease; zero when that has lapsed and the outcome is no success.
        lease_left: Duration,
    },
    /// The key was claimed by a request with another fingerprint in the meantime.
    Mismatch,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReply {
    /// The key is free (now, or since an earlier send of the same release).
    Released,
    /// Somebody else holds the key or finished; nothing was changed.
    Superseded,
    /// There is no record.
    Absent,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewReply {
    /// The lease starts again.
    Renewed,
    /// There was no record (lost in a failover); the claim was written again.
    Reasserted,
    /// The claim is somebody else's, or over.
    Lost,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveReply {
    /// The record was replaced (now, or by an earlier send of the same resolution).
    Resolved,
    /// The record is not the one that was seen any more; nothing was changed.
    Changed,
    /// Somebody holds the claim; nothing was changed.
    Running {
        /// What is left of their lease.
        lease_left: Duration,
    },
    /// There is no record.
    Absent,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// What a store holds under a key, read at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// The record.
    pub record: &'a Record,
    /// How long the store will still keep it.
    pub left: Duration,
}

/// Decides a claim. The second part is what the store must write, to live for `request.retain`.
#[must_use]
pub fn claim(
    current: Option<Current<'_>>,
    request: &ClaimRequest,
    now_us: u64,
) -> (ClaimReply, Option<Header>) {
    let (mut fence, mut attempts, mut again) = (Fence::default(), 0, false);
    let mut fingerprint = request.fingerprint;
    if let Some(Current { record, left }) = current {
        let header = &record.header;
        if !header.fingerprint.matches(request.fingerprint) {
            return (ClaimReply::Mismatch, None);
        }
        let mine = header.owner == request.owner;
        let lease_left = header.lease_left(left);
        if !mine && !lease_left.is_zero() {
            return (ClaimReply::Running { lease_left }, None);
        }
        (fence, attempts) = (header.fence, header.attempts);
        let unknown = match header.state {
            State::Done { outcome, .. } => outcome == OutcomeKind::Unknown,
            // One's own is no riddle: it goes on, or it was answered and the body may start.
            State::Reconciling { .. } => !mine,
            _ => false,
        };
        let reconciling = matches!(header.state, State::Reconciling { .. });
        if matches!(header.state, State::Done { .. }) || unknown {
            if !(unknown && request.reconciles) {
                let record = record.clone();
                return (ClaimReply::Done { record, left }, None);
            }
        }
        // Our own claim, sent again after its reply was lost.
        again = mine && matches!(header.state, State::Pending { .. });
        if !again && request.reconciles && (unknown || reconciling || attempts > 0) {
            if !(mine && reconciling) {
                fence = fence.next(now_us);
            }
            let header = Header {
                state: State::Reconciling {
                    lease: request.lease,
                },
                owner: request.owner,
                fence,
                attempts,
                retain: request.retain,
                fingerprint: known(header.fingerprint, fingerprint),
            };
            return (ClaimReply::Reconcile { fence, attempts }, Some(header));
        }
        if !again
            && request
                .max_attempts
                .is_some_and(|max| attempts >= max.get())
        {
            return (ClaimReply::Exhausted { attempts }, None);
        }
        fingerprint = known(header.fingerprint, fingerprint);
    }
    if !again {
        fence = fence.next(now_us);
        attempts = attempts.saturating_add(1);
    }
    let header = Header {
        state: State::Pending {
            lease: request.lease,
        },
        owner: request.owner,
        fence,
        attempts,
        retain: request.retain,
        fingerprint,
    };
    let reply = ClaimReply::Granted {
        fence,
        attempt: attempts,
    };
    (reply, Some(header))
}

/// The fingerprint that a record keeps: a caller that does not compare must not switch the
/// comparison off for others.
fn known(kept: Fingerprint, asked: Fingerprint) -> Fingerprint {
    if kept.is_none() { asked } else { kept }
}

/// Decides a completion with `done`, the header of the finished record. The second part is the
/// header that the store must write in front of the answer, to live for `done.retain`.
#[must_use]
pub fn complete(current: Option<Current<'_>>, done: &Header) -> (CompleteReply, Option<Header>) {
    let Some(Current { record, left }) = current else {
        // Lost or expired: what was done is still the truth.
        return (CompleteReply::Stored { late: true }, Some(*done));
    };
    let header = &record.header;
    let mine = header.owner == done.owner;
    if !header.fingerprint.matches(done.fingerprint) {
        return (CompleteReply::Mismatch, None);
    }
    match header.state {
        State::Done { .. } if mine => (CompleteReply::Stored { late: false }, None),
        // A success that exists is what everybody wanted to know.
        State::Done {
            outcome: OutcomeKind::Unknown,
            ..
        } if done.is_success() => (
            CompleteReply::Stored { late: true },
            Some(settled(header, done)),
        ),
        State::Done { .. } => {
            let record = record.clone();
            (CompleteReply::Adopted { record, left }, None)
        }
        State::Pending { .. } | State::Reconciling { .. }
            if !(mine || done.is_success() && header.lapsed(left)) =>
        {
            let lease_left = header.lease_left(left);
            (CompleteReply::Superseded { lease_left }, None)
        }
        // Ours; or given back by a later attempt; or a success whose successor's lease has lapsed.
        // Anybody may run the body once more in the last two cases, and a success that exists is
        // better than another run. An error is not: the successor may be alive and succeed.
        State::Pending { .. } | State::Reconciling { .. } | State::Released => (
            CompleteReply::Stored { late: !mine },
            Some(settled(header, done)),
        ),
    }
}

/// What is written where `done` takes the place of a record: the counter, the higher fence and the
/// known fingerprint stay.
fn settled(header: &Header, done: &Header) -> Header {
    Header {
        attempts: header.attempts,
        fence: header.fence.max(done.fence),
        fingerprint: known(header.fingerprint, done.fingerprint),
        ..*done
    }
}

/// Decides a release. The second part is what the store must write; the record keeps the life that
/// it has left.
#[must_use]
pub fn release(
    current: Option<Current<'_>>,
    owner: Owner,
    count: bool,
) -> (ReleaseReply, Option<Header>) {
    let Some(Current { record, .. }) = current else {
        return (ReleaseReply::Absent, None);
    };
    let header = &record.header;
    match header.state {
        _ if header.owner != owner => (ReleaseReply::Superseded, None),
        State::Released
        | State::Done {
            outcome: OutcomeKind::Unknown,
            schema: UNDECIDED,
        } => (ReleaseReply::Released, None),
        State::Done { .. } => (ReleaseReply::Superseded, None),
        // Whoever was to find out did not: nobody knows, as before.
        State::Reconciling { .. } => {
            let write = Header {
                state: State::Done {
                    outcome: OutcomeKind::Unknown,
                    schema: UNDECIDED,
                },
                ..*header
            };
            (ReleaseReply::Released, Some(write))
        }
        State::Pending { .. } => {
            let write = Header {
                state: State::Released,
                attempts: header.attempts.saturating_sub(u16::from(!count)),
                ..*header
            };
            (ReleaseReply::Released, Some(write))
        }
    }
}

/// Decides a renewal. `claim` is the header of the claim as it was granted. The second part is what
/// the store must write or keep, to live for `claim.retain`.
#[must_use]
pub fn renew(current: Option<Current<'_>>, claim: &Header) -> (RenewReply, Option<Header>) {
    let Some(Current { record, .. }) = current else {
        return (RenewReply::Reasserted, Some(*claim));
    };
    let header = &record.header;
    match header.state {
        State::Pending { .. } | State::Reconciling { .. } if header.owner == claim.owner => {
            (RenewReply::Renewed, Some(*header))
        }
        _ => (RenewReply::Lost, None),
    }
}

/// Decides a resolution: `new`, the header of a done or released record, takes the place of `seen`
/// if that still stands there and nobody holds its claim. The second part is what the store must
/// write in front of the answer, to live for `new.retain`.
#[must_use]
pub fn resolve(
    current: Option<Current<'_>>,
    seen: &Header,
    new: &Header,
) -> (ResolveReply, Option<Header>) {
    let Some(Current { record, left }) = current else {
        return (ResolveReply::Absent, None);
    };
    let header = &record.header;
    if header.owner == new.owner {
        // Sent again; the owner of a resolution is its own.
        return (ResolveReply::Resolved, None);
    }
    if header != seen {
        return (ResolveReply::Changed, None);
    }
    let lease_left = header.lease_left(left);
    if !lease_left.is_zero() {
        return (ResolveReply::Running { lease_left }, None);
    }
    let attempts = match new.state {
        // The key begins anew.
        State::Released => 0,
        _ => header.attempts,
    };
    let write = Header {
        attempts,
        ..settled(header, new)
    };
    (ResolveReply::Resolved, Some(write))
}

/// The cause of an unknown outcome that was to be reconciled and is as unknown as before.
pub const UNDECIDED: u32 = 4;
