//! The store of the model: one record, and the transitions of `idem-runtime` themselves.

use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::Fingerprint;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Current, Fence, HEADER, Header, OutcomeKind, Owner,
    Record, ResolveReply, State, claim, complete, release, renew, resolve,
};

use crate::scenario::Flaw;

const LEASE: Duration = Duration::from_secs(1);
const RETAIN: Duration = Duration::from_secs(10);
const ASKED: Fingerprint = Fingerprint::from_bytes([1; 16]);

/// What stands in the store. Time is this much: the lease of a claim is over or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Kept {
    header: [u8; HEADER],
    /// The body of the record; zero for none.
    answer: u8,
    lapsed: bool,
}

/// What a caller or the operator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Command {
    /// A claim of somebody who has not found out anything.
    Ask,
    /// The claim of the same owner after its hook said that nothing landed.
    Start,
    Complete(Ending),
    Release {
        count: bool,
    },
    Renew,
    /// By hand: the key begins anew, or has this answer.
    Resolve(Option<u8>),
}

/// What a call ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    Value(u8),
    Error(u8),
    Unknown,
}

/// What a sender learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted {
        fence: u8,
    },
    Reconcile {
        fence: u8,
    },
    Running,
    /// This is the answer of the key.
    Answer(u8),
    Unknown,
    Refused,
    Stored,
    Superseded,
    /// Of a release, a renewal or a refused resolution: nobody acts upon it.
    Noted,
}

/// Who sends, and what a claim of it says.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) owner: u8,
    pub(crate) fence: u8,
    pub(crate) reconciles: bool,
    pub(crate) max_attempts: Option<u16>,
}

impl Kept {
    pub(crate) fn header(&self) -> Header {
        Header::decode(&self.header).expect("only headers are written")
    }

    /// The owner byte.
    pub(crate) fn owner(&self) -> u8 {
        self.header().owner.as_bytes()[0]
    }

    /// Whether somebody holds the claim.
    pub(crate) fn is_held(&self) -> bool {
        !self.header().lapsed(self.left())
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.header().is_unknown(self.left())
    }

    pub(crate) fn is_released(&self) -> bool {
        self.header().state == State::Released
    }

    pub(crate) fn is_reconciling(&self) -> bool {
        matches!(self.header().state, State::Reconciling { .. })
    }

    /// The answer, if the key has one.
    pub(crate) fn answer(&self) -> Option<u8> {
        (self.answer != 0).then_some(self.answer)
    }

    /// The claim is not renewed in time.
    pub(crate) fn lapse(&mut self) {
        self.lapsed = true;
    }

    fn left(&self) -> Duration {
        if self.lapsed { RETAIN - LEASE } else { RETAIN }
    }

    fn record(&self) -> Record {
        let mut bytes = self.header.to_vec();
        bytes.extend(self.answer());
        Record::decode(Bytes::from(bytes)).expect("only records are written")
    }

    fn write(header: &Header, answer: u8) -> Self {
        Self {
            header: header.encode(),
            answer,
            lapsed: false,
        }
    }
}

fn header(state: State, sender: Sender) -> Header {
    Header {
        state,
        owner: Owner::from_bytes([sender.owner; 16]),
        fence: Fence::new(sender.fence.into()),
        attempts: 1,
        retain: RETAIN,
        fingerprint: ASKED,
    }
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

/// Carries a command out. `seen` is the record that a resolution saw. A flaw is built in by lying to
/// the transitions about what stands there, or by changing what they write.
pub(crate) fn execute(
    kept: &mut Option<Kept>,
    command: Command,
    sender: Sender,
    seen: Option<Kept>,
    flaw: Flaw,
) -> Reply {
    let mut record = kept.as_ref().map(Kept::record);
    let mut owner = sender.owner;
    if let (Some(record), Some(kept)) = (&mut record, &kept) {
        let theirs = record.header.owner.as_bytes()[0] != owner;
        let claims = matches!(command, Command::Ask | Command::Start);
        let lapsed_finding = kept.is_reconciling() && kept.is_unknown();
        match flaw {
            Flaw::OwnersUnchecked if !claims => owner = record.header.owner.as_bytes()[0],
            Flaw::UnknownIsFree if claims && theirs && kept.is_unknown() => {
                record.header.state = State::Released;
            }
            Flaw::GivenBackIsGranted if claims && !theirs && kept.is_released() => {
                record.header.owner = Owner::from_bytes([0; 16]);
            }
            Flaw::LapsedFindingOutIsFree if claims && theirs && lapsed_finding => {
                record.header.state = State::Released;
            }
            Flaw::AnswersAreHealed if matches!(command, Command::Complete(_)) && theirs => {
                if let State::Done { .. } = record.header.state {
                    record.header.state = done(OutcomeKind::Unknown);
                }
            }
            Flaw::AnswersAreFree if claims && kept.answer().is_some() => {
                record.header.state = State::Released;
            }
            Flaw::FencesForgotten if claims && theirs => record.header.fence = Fence::default(),
            Flaw::AttemptsForgotten if claims && theirs => record.header.attempts = 0,
            _ => {}
        }
    }
    let sender = Sender { owner, ..sender };
    let current = record.as_ref().map(|record| Current {
        record,
        left: kept.map_or(RETAIN, |kept| kept.left()),
    });
    let (reply, write) = match command {
        Command::Ask | Command::Start => {
            let request = ClaimRequest {
                owner: Owner::from_bytes([owner; 16]),
                fingerprint: ASKED,
                lease: LEASE,
                retain: RETAIN,
                max_attempts: sender.max_attempts.and_then(NonZeroU16::new),
                reconciles: sender.reconciles && command == Command::Ask,
            };
            let (reply, write) = claim(current, &request, 0);
            let reply = match reply {
                ClaimReply::Granted { fence, .. } => Reply::Granted {
                    fence: number(fence),
                },
                ClaimReply::Reconcile { fence, .. } => Reply::Reconcile {
                    fence: number(fence),
                },
                ClaimReply::Running { .. } => Reply::Running,
                ClaimReply::Done { record, .. } => answer(&record),
                ClaimReply::Exhausted { .. } => Reply::Refused,
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
                other => panic!("{other:?} in answer to {command:?}"),
            };
            (reply, write.map(|header| Kept::write(&header, body)))
        }
        Command::Release { count } => {
            let owner = Owner::from_bytes([owner; 16]);
            let (_, write) = release(current, owner, count);
            let write = write.map(|mut header| {
                let finding = kept.is_some_and(|kept| kept.is_reconciling());
                if flaw == Flaw::FindingOutGivenBackIsFree && finding {
                    header.state = State::Released;
                }
                Kept {
                    lapsed: kept.is_some_and(|kept| kept.lapsed),
                    ..Kept::write(&header, 0)
                }
            });
            (Reply::Noted, write)
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
