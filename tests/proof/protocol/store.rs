//! The store of the model: the transitions of `idem-runtime` themselves.

use std::num::NonZeroU16;

use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::author::{
    AppendReply, ClaimReply, ClaimRequest, CompleteReply, Current, Header, Needs, Owner, Record,
    Remains, ResolveReply, State, append, claim, complete, release, renew, resolve,
};
use idem_runtime::store::{Fence, OutcomeKind};

use crate::journal::Log;
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
    /// The owner's next claim after its hook answered that nothing landed.
    Start,
    Complete(Ending),
    Release(Remains),
    Renew,
    /// The whole journal of its sender.
    Append(Log),
    Resolve(Resolution),
}

/// The record that an operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resolution {
    /// The key begins anew.
    Reset,
    /// The same, with the steps of the record that the operator saw.
    ResetKeepingSteps,
    Answer(u8),
}

/// The ending of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    Value(u8),
    Error(u8),
    /// With the journal of the attempt.
    Unknown(Log),
}

/// The reply that a sender receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted {
        fence: u8,
        fresh: bool,
        log: Log,
    },
    Reconcile {
        fence: u8,
        log: Log,
    },
    Running,
    Appended,
    /// Of a plain claim: another record is stored, and nothing has changed.
    Undecided,
    /// This is the answer of the key.
    Answer(u8),
    Unknown,
    Refused,
    Stored,
    Superseded,
    /// Of an append: another attempt has the claim, or it is over.
    Lost,
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
#[allow(
    clippy::too_many_lines,
    reason = "one arm for each command; they read best side by side"
)]
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
    let log = record
        .as_ref()
        .map_or(Log::default(), |record| Log::read(&record.journal()));
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
                ClaimReply::Granted {
                    fence,
                    fresh,
                    journal,
                    ..
                } => Reply::Granted {
                    fence: number(fence),
                    fresh,
                    log: Log::read(&journal),
                },
                ClaimReply::Reconcile { fence, journal, .. } => Reply::Reconcile {
                    fence: number(fence),
                    log: Log::read(&journal),
                },
                ClaimReply::Running { .. } | ClaimReply::Absent => Reply::Running,
                ClaimReply::Done { record, .. } => answer(&record),
                ClaimReply::Exhausted { .. } | ClaimReply::Mismatch => Reply::Refused,
                other => panic!("{other:?} in answer to {command:?}"),
            };
            (
                reply,
                write.map(|record| Kept::write(&record.header, 0, log)),
            )
        }
        Command::Complete(ending) => {
            let (outcome, body) = match ending {
                Ending::Value(value) => (OutcomeKind::Value, value),
                Ending::Error(error) => (OutcomeKind::Error, error),
                Ending::Unknown(_) => (OutcomeKind::Unknown, 0),
            };
            let journal = match ending {
                Ending::Unknown(journal) => journal,
                _ => Log::default(),
            };
            let done = Kept::write(&header(done(outcome), sender), body, Log::default());
            let (reply, write) = complete(current, &done.with(journal).record());
            let reply = match reply {
                CompleteReply::Stored { .. } => Reply::Stored,
                CompleteReply::Adopted { record, .. } => answer(&record),
                CompleteReply::Superseded { .. } => Reply::Superseded,
                CompleteReply::Mismatch => Reply::Refused,
                other => panic!("{other:?} in answer to {command:?}"),
            };
            let write = write.map(|record| {
                let kept = Kept::of(&record);
                match (ending, flaw) {
                    (Ending::Unknown(_), Flaw::UnknownForgetsSteps) => kept.with(Log::default()),
                    (Ending::Unknown(journal), Flaw::UnknownBringsItsSteps) => kept.with(journal),
                    _ => kept,
                }
            });
            (reply, write)
        }
        Command::Release(remains) => {
            let (_, write) = release(current, owner, remains);
            (
                Reply::Noted,
                write.map(|header| Kept::write(&header, 0, log)),
            )
        }
        Command::Renew => {
            let pending = header(State::Pending { lease: LEASE }, sender);
            let (_, write) = renew(current, &pending);
            (
                Reply::Noted,
                write.map(|header| Kept::write(&header, 0, log)),
            )
        }
        Command::Append(journal) => {
            let pending = header(State::Pending { lease: LEASE }, sender);
            let (reply, write) = append(current, &pending, &journal.journal());
            let reply = match reply {
                AppendReply::Appended => Reply::Appended,
                AppendReply::Lost => Reply::Lost,
                other => panic!("{other:?} in answer to {command:?}"),
            };
            let write = write.map(|(header, written)| {
                let written = match flaw {
                    Flaw::ShorterJournalsWin => journal,
                    _ => Log::read(&written),
                };
                Kept::write(&header, 0, written)
            });
            (reply, write)
        }
        Command::Resolve(resolution) => {
            let (state, answer) = match resolution {
                Resolution::Answer(answer) => (done(OutcomeKind::Value), answer),
                _ => (State::Released, 0),
            };
            let seen = seen.expect("a resolution has seen a record");
            let journal = match resolution {
                Resolution::ResetKeepingSteps => seen.log(),
                _ => Log::default(),
            };
            let new = Kept::write(&header(state, sender), answer, Log::default()).with(journal);
            let looked = seen.log().journal();
            let seen = seen.header();
            let seen = match (flaw, current) {
                (Flaw::ResolvesBlindly, Some(current)) => current.record.header,
                _ => seen,
            };
            let looked = (flaw != Flaw::ResetsKeepWhatWasSeen).then_some(&looked);
            let (reply, write) = resolve(current, &seen, looked, &new.record());
            let reply = match reply {
                ResolveReply::Resolved => Reply::Stored,
                _ => Reply::Noted,
            };
            (reply, write.map(|record| Kept::of(&record)))
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
        Flaw::AppendersUnchecked if matches!(command, Command::Append(_)) => {
            return Sender {
                owner: kept.owner(),
                ..sender
            };
        }
        Flaw::TakeOversForgetSteps if claims && theirs => {
            *record = kept.with(Log::default()).record();
        }
        Flaw::VerdictsForgetSteps if command == Command::Start => {
            *record = kept.with(Log::default()).record();
        }
        Flaw::ReleasesForgetSteps if releases => *record = kept.with(Log::default()).record(),
        Flaw::RenewalsForgetSteps if command == Command::Renew => {
            *record = kept.with(Log::default()).record();
        }
        Flaw::FencesForgotten if claims && theirs => record.header.fence = Fence::default(),
        Flaw::AttemptsForgotten if claims && theirs => record.header.attempts = 0,
        _ => {}
    }
    sender
}
