//! The store of the model: the transitions of `idem-runtime` themselves.

use std::num::NonZeroU16;

use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Current, Fence, Header, Needs, OutcomeKind, Owner,
    Record, Remains, ResolveReply, State, claim, complete, release, renew, resolve,
};

use crate::scenario::Flaw;
use crate::stored::{Kept, LEASE, RETAIN};

/// The requests of the callers.
pub(crate) const REQUESTS: [Fingerprint; 2] = [
    Fingerprint::from_bytes([1; 16]),
    Fingerprint::from_bytes([2; 16]),
];

/// A command of a caller or of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Command {
    /// A plain claim: `SET … NX GET`.
    Offer,
    /// A claim of a caller that has not reconciled anything.
    Ask,
    /// The claim of the same owner after its hook answered that nothing landed.
    Start,
    Complete(Ending),
    Release(Remains),
    Renew,
    /// By hand: the key begins anew, or has this answer.
    Resolve(Option<u8>),
}

/// The ending of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    Value(u8),
    Error(u8),
    Unknown,
}

/// The reply that a sender receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted {
        fence: u8,
        fresh: bool,
    },
    Reconcile {
        fence: u8,
    },
    Running,
    /// Of a plain claim: another record is stored, and nothing has changed.
    Undecided,
    /// This is the answer of the key.
    Answer(u8),
    Unknown,
    Refused,
    Stored,
    Superseded,
    /// Of a release, a renewal or a refused resolution: no sender acts upon it.
    Noted,
}

/// The sender of a command, and the fields of its claim.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) owner: u8,
    pub(crate) fence: u8,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) reconciles: bool,
    pub(crate) max_attempts: Option<u16>,
}

fn header(state: State, sender: Sender) -> Header {
    let mut header = Header::new(
        state,
        Owner::from_bytes([sender.owner; 16]),
        Fence::new(sender.fence.into()),
        RETAIN,
    );
    header.fingerprint = sender.fingerprint;
    header
}

fn done(outcome: OutcomeKind) -> State {
    State::Done { outcome, schema: 0 }
}

fn number(fence: Fence) -> u8 {
    u8::try_from(fence.get()).expect("few claims are made")
}

fn answer(record: &Record) -> Reply {
    record
        .body()
        .first()
        .map_or(Reply::Unknown, |answer| Reply::Answer(*answer))
}

/// Carries a command out. `seen` is the record that a resolution saw, `expired` the last fence of the record that has
/// expired.
pub(crate) fn execute(
    kept: &mut Option<Kept>,
    command: Command,
    sender: Sender,
    (seen, expired): (Option<Kept>, u8),
    flaw: Flaw,
) -> Reply {
    let is_open = |kept: &Kept| kept.answer().is_none();
    if command == Command::Offer && kept.as_ref().is_some_and(is_open) {
        if flaw != Flaw::OffersReplace {
            return Reply::Undecided;
        }
        *kept = None;
    }
    let mut record = kept.as_ref().map(Kept::record);
    let sender = match (&mut record, &kept) {
        (Some(record), Some(kept)) => lie(record, kept, command, sender, flaw),
        _ => sender,
    };
    let owner = Owner::from_bytes([sender.owner; 16]);
    let current = record
        .as_ref()
        .map(|record| Current::new(record, kept.map_or(RETAIN, |kept| kept.left())));
    let (reply, write) = match command {
        Command::Offer | Command::Ask | Command::Start => {
            let mut request = ClaimRequest::new(owner, LEASE, RETAIN);
            request.fingerprint = sender.fingerprint;
            request.max_attempts = sender.max_attempts.and_then(NonZeroU16::new);
            request.reconciles = sender.reconciles && command != Command::Start;
            request.needs = if command == Command::Start && flaw != Flaw::StaleVerdictsStart {
                Needs::Verdict
            } else {
                Needs::Nothing
            };
            let (reply, write) = claim(current, &request, u64::from(expired) + 1);
            let reply = match reply {
                ClaimReply::Granted { fence, fresh, .. } => Reply::Granted {
                    fence: number(fence),
                    fresh,
                },
                ClaimReply::Reconcile { fence, .. } => Reply::Reconcile {
                    fence: number(fence),
                },
                ClaimReply::Running { .. } | ClaimReply::Absent => Reply::Running,
                ClaimReply::Done { record, .. } => answer(&record),
                ClaimReply::Exhausted { .. } | ClaimReply::Mismatch => Reply::Refused,
                other => panic!("{other:?} in answer to {command:?}"),
            };
            (reply, write.map(|header| Kept::write(&header, 0)))
        }
        Command::Complete(ending) => {
            let (outcome, body) = match ending {
                Ending::Value(value) => (OutcomeKind::Value, value),
                Ending::Error(error) => (OutcomeKind::Error, error),
                Ending::Unknown => (OutcomeKind::Unknown, 0),
            };
            let (reply, write) = complete(current, &header(done(outcome), sender));
            let reply = match reply {
                CompleteReply::Stored { .. } => Reply::Stored,
                CompleteReply::Adopted { record, .. } => answer(&record),
                CompleteReply::Superseded { .. } => Reply::Superseded,
                CompleteReply::Mismatch => Reply::Refused,
                other => panic!("{other:?} in answer to {command:?}"),
            };
            (reply, write.map(|header| Kept::write(&header, body)))
        }
        Command::Release(remains) => {
            let (_, write) = release(current, owner, remains);
            (Reply::Noted, write.map(|header| Kept::write(&header, 0)))
        }
        Command::Renew => {
            let pending = header(State::Pending { lease: LEASE }, sender);
            let (_, write) = renew(current, &pending);
            (Reply::Noted, write.map(|header| Kept::write(&header, 0)))
        }
        Command::Resolve(answer) => {
            let state = answer.map_or(State::Released, |_| done(OutcomeKind::Value));
            let new = header(state, sender);
            let seen = seen.expect("a resolution has seen a record").header();
            let seen = match (flaw, current) {
                (Flaw::ResolvesBlindly, Some(current)) => current.record.header,
                _ => seen,
            };
            let (reply, write) = resolve(current, &seen, &new);
            let reply = match reply {
                ResolveReply::Resolved => Reply::Stored,
                _ => Reply::Noted,
            };
            (
                reply,
                write.map(|header| Kept::write(&header, answer.unwrap_or(0))),
            )
        }
    };
    if write.is_some() {
        *kept = write;
    }
    reply
}

/// Builds a flaw in: alters the record and the sender that the transitions see.
fn lie(record: &mut Record, kept: &Kept, command: Command, sender: Sender, flaw: Flaw) -> Sender {
    let theirs = kept.owner() != sender.owner;
    let claims = matches!(command, Command::Offer | Command::Ask | Command::Start);
    let releases = matches!(command, Command::Release(_));
    let lapsed_finding = kept.is_reconciling() && kept.is_unknown();
    match flaw {
        Flaw::OwnersUnchecked if !claims => {
            return Sender {
                owner: kept.owner(),
                ..sender
            };
        }
        Flaw::UnknownIsFree if claims && theirs && kept.is_unknown() => {
            record.header.state = State::Released;
        }
        Flaw::GivenBackIsGranted if claims && !theirs && kept.is_released() => {
            record.header.owner = Owner::from_bytes([0; 16]);
        }
        Flaw::LapsedFindingOutIsFree if claims && theirs && lapsed_finding => {
            record.header.state = State::Released;
        }
        Flaw::FindingOutGivenBackIsFree if releases && kept.is_reconciling() => {
            record.header.state = State::Pending { lease: LEASE };
        }
        Flaw::AnswersAreHealed if matches!(command, Command::Complete(_)) && theirs => {
            if let State::Done { .. } = record.header.state {
                record.header.state = done(OutcomeKind::Unknown);
            }
        }
        Flaw::AnswersAreFree if claims && kept.answer().is_some() => {
            record.header.state = State::Released;
        }
        Flaw::RequestsForgotten if claims && !kept.is_held() && kept.answer().is_none() => {
            record.header.fingerprint = Fingerprint::NONE;
        }
        Flaw::AnswersUncompared if claims && kept.answer().is_some() => {
            record.header.fingerprint = Fingerprint::NONE;
        }
        Flaw::FencesForgotten if claims && theirs => record.header.fence = Fence::default(),
        Flaw::AttemptsForgotten if claims && theirs => record.header.attempts = 0,
        _ => {}
    }
    sender
}
