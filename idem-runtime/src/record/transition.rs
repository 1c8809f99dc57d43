//! The state machine of a record: each operation as a pure function.
//!
//! ```text
//!                 claim (new owner, fence↑, attempts+1)
//!          ┌───────────────────────────────────────────────┐
//!     absent ──claim──▶ PENDING ──complete(owner)──▶ DONE ──ttl──▶ absent
//!          ▲              │ │ ▲                        ▲
//!          │   retention  │ │ └─ renew(owner)          │ late complete (no claim is held)
//!          └──────────────┘ │                          │
//!                           └─release(owner)─▶ RELEASED ──claim──▶ PENDING
//! ```
//! An unknown outcome (and, for a caller that can reconcile, a lapsed claim) is *reconciled* first:
//!
//! ```text
//!     UNKNOWN, or PENDING lapsed, or RELEASED with attempts ──claim(reconciles)──▶ RECONCILING
//!     RECONCILING ──complete(owner)──▶ DONE (landed, or unknown again)
//!     RECONCILING ──claim(same owner, not reconciles)──▶ PENDING (attempts+1: it did not land)
//!     RECONCILING, released or lapsed = UNKNOWN
//!     UNKNOWN ──complete(a success of any owner)──▶ DONE
//! ```
//!
//! A release that keeps nothing of the only attempt takes the fingerprint and the types of the answers off the record:
//! the next claim brings its own. Such a record refuses nothing to another owner, and lives for a lease only; see
//! [`release`]. A reset takes the types off as well.
//!
//! A pending record whose lease is over may be claimed by any other owner; until one does, its owner
//! may still renew and complete it. An owner that released its claim, or left it unknown, is granted
//! nothing any more: an earlier request of it may still be on its way.
//!
//! A journal is kept by every transition but a completion with an answer and a resolution: these bring their
//! own, if any. An unknown outcome keeps the longer of the record's and its own. A claim that takes over a lapsed one
//! adds to it, if requested, that the attempt has lapsed.

use std::time::Duration;

pub use super::reply::{
    AppendReply, ClaimReply, ClaimRequest, CompleteReply, Needs, ReadReply, ReleaseReply, Remains,
    RenewReply, ResolveReply,
};
pub use super::unknown_cause::UNDECIDED;
use crate::identity::fingerprint::Fingerprint;
use crate::record::{
    AnswerTypes, Fence, Header, Journal, JournalKind, OutcomeKind, Owner, Record, State, attempt,
};

/// The stored record of a key, read at one moment.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Current<'a> {
    /// The record.
    pub record: &'a Record,
    /// How long the store will still keep it.
    pub left: Duration,
}

impl<'a> Current<'a> {
    /// A record that the store will keep for `left`.
    #[must_use]
    pub const fn new(record: &'a Record, left: Duration) -> Self {
        Self { record, left }
    }
}

/// Decides a claim. The second part is the record that the store must write, to live for `request.retain`.
#[must_use]
pub fn claim(
    current: Option<Current<'_>>,
    request: &ClaimRequest,
    now_us: u64,
) -> (ClaimReply, Option<Record>) {
    let (mut fence, mut attempts) = (Fence::default(), 0);
    let (mut fingerprint, mut types) = (request.fingerprint, request.types);
    let (mut fresh, mut again) = (true, false);
    let mut journal = Journal::default();
    let mut state = State::Pending {
        lease: request.lease,
    };
    if let Some(Current { record, left }) = current {
        let header = &record.header;
        if !header.fingerprint.matches(fingerprint) {
            return (ClaimReply::Mismatch, None);
        }
        let mine = header.owner == request.owner;
        let lease_left = header.lease_left(left);
        // A verdict holds as long as no other attempt can have run since.
        let outdated = request.needs == Needs::Verdict
            && !(mine
                && matches!(
                    header.state,
                    State::Pending { .. } | State::Reconciling { .. }
                ));
        if outdated && !matches!(header.state, State::Done { .. }) {
            return (ClaimReply::Running { lease_left }, None);
        }
        // A claim that arrives after its own release, on a slower path, is granted nothing: its sender is gone.
        let burnt = mine && header.state == State::Released;
        if burnt || !mine && !lease_left.is_zero() {
            return (ClaimReply::Running { lease_left }, None);
        }
        // The owner's own record is not reconciled: its result is stored, or the owner is still reconciling.
        let unknown = !mine && header.is_unknown(left);
        let done = matches!(header.state, State::Done { .. }) || unknown;
        if done && !(unknown && request.reconciles) {
            let record = record.clone();
            return (ClaimReply::Done { record, left }, None);
        }
        // Two functions share the key: neither runs under a record of the other.
        if !mine && !request.any_type && !header.types.matches(request.types) {
            return (ClaimReply::OtherType, None);
        }
        (fence, attempts) = (header.fence, header.attempts);
        fingerprint = known(header.fingerprint, fingerprint);
        types = request.types.or(header.types);
        fresh = header.fingerprint.is_none();
        journal = record.journal();
        if request.records_attempts && !mine && matches!(header.state, State::Pending { .. }) {
            journal = attempt::lapsed(&journal, header, now_us);
        }
        let reconciling = matches!(header.state, State::Reconciling { .. });
        // The owner's own claim, sent again after its reply was lost. A claim for the body after a reconciliation is a
        // new one.
        again = mine && (!reconciling || request.reconciles);
        if request.reconciles && (reconciling || !again && (unknown || attempts > 0)) {
            state = State::Reconciling {
                lease: request.lease,
            };
        } else if !again
            && request
                .max_attempts
                .is_some_and(|max| attempts >= max.get())
        {
            return (ClaimReply::Exhausted { attempts }, None);
        }
    } else if request.needs != Needs::Nothing {
        return (ClaimReply::Absent, None);
    }
    if !again {
        fence = fence.next(now_us);
        attempts = match state {
            State::Reconciling { .. } => attempts,
            _ => attempts.saturating_add(1),
        };
    }
    let header = Header {
        state,
        owner: request.owner,
        fence,
        attempts,
        retain: request.retain,
        fingerprint,
        types,
        journal: JournalKind::None,
    };
    let write = Record::with_journal(header, &journal);
    let reply = match state {
        State::Reconciling { .. } => ClaimReply::Reconcile {
            fence,
            attempts,
            journal,
        },
        _ => ClaimReply::Granted {
            fence,
            attempt: attempts,
            fresh,
            journal,
        },
    };
    (reply, Some(write))
}

/// The fingerprint that a record keeps: a caller that does not compare must not switch the comparison off for
/// others.
fn known(kept: Fingerprint, asked: Fingerprint) -> Fingerprint {
    if kept.is_none() { asked } else { kept }
}

/// Decides a completion with `finished`. The second part is the record that the store must write, to live for the
/// `retain` of its header.
#[must_use]
pub fn complete(
    current: Option<Current<'_>>,
    finished: &Record,
) -> (CompleteReply, Option<Record>) {
    let Some(Current { record, left }) = current else {
        // Lost or expired: the outcome is true all the same.
        return (CompleteReply::Stored { late: true }, Some(finished.clone()));
    };
    let (header, done) = (&record.header, &finished.header);
    let mine = header.owner == done.owner;
    if !header.fingerprint.matches(done.fingerprint) {
        return (CompleteReply::Mismatch, None);
    }
    match header.state {
        // A success settles an unknown outcome.
        State::Done {
            outcome: OutcomeKind::Unknown,
            ..
        } if done.is_success() => (
            CompleteReply::Stored { late: !mine },
            Some(settled(record, finished)),
        ),
        State::Done { .. } if mine => (CompleteReply::Stored { late: false }, None),
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
        // The record is the owner's own; or a later attempt released it; or this is a success, and the lease of its
        // successor has lapsed. In the last two cases another attempt may run the body once more, and an existing
        // success is better than another run. An error is not: the successor may be alive and succeed.
        State::Pending { .. } | State::Reconciling { .. } | State::Released => (
            CompleteReply::Stored { late: !mine },
            Some(settled(record, finished)),
        ),
    }
}

/// The record by which `new` replaces another: the counter, the higher fence and the known fingerprint stay, and the
/// types of the answers where `new` has none. Without an answer, the steps stay as well.
fn settled(there: &Record, new: &Record) -> Record {
    let (header, done) = (&there.header, &new.header);
    let header = Header {
        attempts: header.attempts,
        fence: header.fence.max(done.fence),
        fingerprint: known(header.fingerprint, done.fingerprint),
        types: done.types.or(header.types),
        ..*done
    };
    let has_journal = !there.header.journal.is_none() && !there.header.is_answered();
    let keeps = !done.journal.is_none() || done.is_done_unknown() && has_journal;
    if keeps && !done.is_answered() {
        Record::with_journal(header, &longer(there, new))
    } else {
        new.clone().with_header(header)
    }
}

/// The journal of a record without an answer that replaces another. A reset brings its own.
///
/// A journal is only appended to, so the longer one has all that the shorter one has, except that a later attempt may
/// have released the record: then it had all that was acknowledged to the earlier one.
fn longer(there: &Record, new: &Record) -> Journal {
    let brought = new.journal();
    if there.header.is_answered() || new.header.state == State::Released {
        return brought;
    }
    let kept = there.journal();
    let is_later = there.header.state == State::Released && there.header.owner != new.header.owner;
    if is_later || kept.as_bytes().len() >= brought.as_bytes().len() {
        kept
    } else {
        brought
    }
}

/// The shortest life of a released record of which nothing remains: earlier requests may still be on their way for
/// as long as replies are awaited, however short the lease.
pub(crate) const RELEASED_AT_LEAST: Duration = Duration::from_secs(10);

/// Decides a release. The second part is the record to write, to live for [`released_life`].
///
/// A record with an attempt that counts, or with a request that it keeps ([`Remains::Request`]), keeps its remaining
/// life. One of which nothing remains serves one purpose: a late claim, release or renewal that the same owner sent
/// before finds it and is granted nothing. It lives for the lease of the claim from now on, and for 10 seconds at
/// least. Kept for longer, records of failed requests would fill the store.
#[must_use]
pub fn release(
    current: Option<Current<'_>>,
    owner: Owner,
    remains: Remains,
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
        // The reconciliation ended without a verdict: the outcome is unknown, as before.
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
            let uncounted = u16::from(!remains.counts());
            let attempts = header.attempts.saturating_sub(uncounted);
            let released = Header {
                state: State::Released,
                attempts,
                ..*header
            };
            let write = match released_life(header, remains) {
                Some(life) => Header {
                    retain: life,
                    fingerprint: Fingerprint::NONE,
                    types: AnswerTypes::UNKNOWN,
                    ..released
                },
                None => released,
            };
            (ReleaseReply::Released, Some(write))
        }
    }
}

/// Decides a [`release`] with the journal that the record keeps: whatever it has, `journal` has it all, or has what
/// counts of it.
///
/// `seen` is the journal from which an operator has made it, who is not the owner: if the owner has appended to it since,
/// nothing changes.
#[must_use]
pub fn release_with_journal(
    current: Option<Current<'_>>,
    owner: Owner,
    remains: Remains,
    journal: &Journal,
    seen: Option<&Journal>,
) -> (ReleaseReply, Option<Record>) {
    let (reply, write) = release(current, owner, remains);
    let is_seen = |current: Current<'_>| seen.is_none_or(|seen| current.record.journal() == *seen);
    if write.is_some() && !current.is_none_or(is_seen) {
        return (ReleaseReply::Superseded, None);
    }
    let write = write.map(|header| Record::with_journal(header, journal));
    (reply, write)
}

/// The life of a released record of which nothing remains. `None`: as long as it would have lived.
#[must_use]
pub fn released_life(claim: &Header, remains: Remains) -> Option<Duration> {
    match claim.state {
        // Finished steps belong to one request.
        State::Pending { lease }
            if remains == Remains::Nothing
                && claim.attempts <= 1
                && claim.journal != JournalKind::Steps =>
        {
            Some(lease.max(RELEASED_AT_LEAST))
        }
        _ => None,
    }
}

/// Decides a renewal. `claim` is the header of the claim as it was granted. The second part is what
/// the store must write or keep, to live for its `retain`.
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

/// Decides an append: `journal` has all entries of the owner of `claim`, after the journal of the grant. It is a
/// renewal as well. The second part is the record to write or keep, to live for its `retain`.
///
/// The owner only appends, and its requests may arrive in another order: so the longer of the two journals is right.
#[must_use]
pub fn append(
    current: Option<Current<'_>>,
    claim: &Header,
    journal: &Journal,
) -> (AppendReply, Option<(Header, Journal)>) {
    let (reply, mut header, mut written) = match current {
        None => (AppendReply::Reasserted, *claim, journal.clone()),
        Some(Current { record, .. }) => match record.header.state {
            State::Pending { .. } | State::Reconciling { .. }
                if record.header.owner == claim.owner =>
            {
                (AppendReply::Appended, record.header, record.journal())
            }
            _ => return (AppendReply::Lost, None),
        },
    };
    if written.as_bytes().len() < journal.as_bytes().len() {
        written = journal.clone();
    }
    header.journal = written.kind();
    (reply, Some((header, written)))
}

/// Decides a resolution: `new`, a done or released record, replaces the one with the header `seen` if that is still
/// stored and its claim is not held. A claim must also have the `journal` that was seen, if there is one. The second part is the record that the store must write, to live for the `retain`
/// of its header. The types are those of `new`: a reset drops them.
#[must_use]
pub fn resolve(
    current: Option<Current<'_>>,
    seen: &Header,
    journal: Option<&Journal>,
    new: &Record,
) -> (ResolveReply, Option<Record>) {
    let Some(Current { record, left }) = current else {
        return (ResolveReply::Absent, None);
    };
    let header = &record.header;
    if header.owner == new.header.owner {
        // Sent again: each resolution has an owner of its own.
        return (ResolveReply::Resolved, None);
    }
    if header != seen {
        return (ResolveReply::Changed, None);
    }
    let lease_left = header.lease_left(left);
    if !lease_left.is_zero() {
        return (ResolveReply::Running { lease_left }, None);
    }
    let is_claim = matches!(
        header.state,
        State::Pending { .. } | State::Reconciling { .. }
    );
    // The owner may be alive, and append.
    if is_claim && journal.is_some_and(|seen| *seen != record.journal()) {
        return (ResolveReply::Changed, None);
    }
    let write = settled(record, new);
    let attempts = match write.header.state {
        // The attempts are counted anew.
        State::Released => 0,
        _ => write.header.attempts,
    };
    let header = Header {
        attempts,
        types: new.header.types,
        ..write.header
    };
    (ResolveReply::Resolved, Some(write.with_header(header)))
}
