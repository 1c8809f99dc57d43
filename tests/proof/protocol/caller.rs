//! A caller: the model of an engine's work for one call.

use idem_runtime::store::Remains;

use crate::store::{Command, Ending};

/// The phase of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// It claims without a script, which grants a new key and answers from a finished one.
    Offering,
    /// It claims by the script, because the plain claim was undecided or is not used.
    Asking,
    /// Another caller holds the claim.
    Waiting,
    /// Its hook runs.
    Finding,
    /// Nothing landed, when this many bodies had started; it claims once more.
    Starting(u8),
    /// The body runs and has not had its effect.
    Before,
    /// It has.
    After,
    Completing(Ending),
    /// Another caller took the key over; this one waits for that answer by completing again.
    Overtaken(Ending),
    Releasing(Remains),
    /// It returned, or is gone.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) phase: Phase,
    /// Each claim that is not a repetition has an owner of its own.
    pub(crate) round: u8,
    pub(crate) fence: u8,
    /// Its body started, and has not reported that nothing happened. Only where requests differ.
    pub(crate) started: bool,
    /// Its claim brought the request. Only where requests differ.
    pub(crate) fresh: bool,
}

impl Phase {
    /// The command whose reply it waits for.
    pub(crate) fn awaits(self) -> Option<Command> {
        match self {
            Self::Offering => Some(Command::Offer),
            Self::Asking => Some(Command::Ask),
            Self::Starting(_) => Some(Command::Start),
            Self::Completing(ending) => Some(Command::Complete(ending)),
            Self::Releasing(remains) => Some(Command::Release(remains)),
            _ => None,
        }
    }

    /// Whether it believes that it has a claim.
    pub(crate) fn holds(self) -> bool {
        !matches!(
            self,
            Self::Idle | Self::Offering | Self::Asking | Self::Waiting | Self::Over
        )
    }
}

pub(crate) fn owner(caller: u8, round: u8) -> u8 {
    1 + caller * 16 + round
}

/// The caller whose body gave this answer, or this error.
pub(crate) fn author(answer: u8) -> u8 {
    (answer - 1) % 10
}

/// The answer of a caller's own body.
pub(crate) fn value(caller: u8) -> u8 {
    1 + caller
}
