//! A caller: the model of an engine's work for one call.

use idem_runtime::store::author::Remains;

use crate::journal::Log;
use crate::scenario::Fate;
use crate::store::{Command, Ending};

/// The phase of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// It claims without a script: granting a new key, answering from a finished one.
    Offering,
    /// It claims by the script. The plain claim was undecided or is not used.
    Asking,
    /// Another caller holds the claim.
    Waiting,
    /// Its hook runs.
    Finding,
    /// Nothing landed, when this many bodies had started; it claims once more.
    Starting(u8),
    /// The body runs and has not had its effect.
    Before,
    /// It has; or all of its steps have ended.
    After,
    /// The beginning of this step of the body is being recorded.
    Beginning(u8),
    /// The hook of this step runs.
    Inquiring(u8),
    /// This step runs and has not had its effect.
    InStep(u8),
    /// It has.
    BehindEffect(u8),
    /// The end of this step is being recorded.
    Recording(u8, Then),
    Completing(Ending),
    /// Another caller took the key over; this one waits for that answer by completing again.
    Overtaken(Ending),
    Releasing(Remains),
    /// It returned, or is gone.
    Over,
}

/// The continuation of a body after a recorded end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    /// With its next step.
    Next,
    /// It fails, as the step did.
    Fails(Fate),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) phase: Phase,
    /// Each claim that is no repetition has its own owner.
    pub(crate) round: u8,
    pub(crate) fence: u8,
    /// Its body started, and has not reported that nothing happened. Only where requests differ.
    pub(crate) started: bool,
    /// Its claim brought the request. Only where requests differ.
    pub(crate) fresh: bool,
    /// The journal: the inherited entries, and those of this attempt. Empty while no body runs.
    pub(crate) log: Log,
    /// How many of its entries the store has acknowledged.
    pub(crate) known: u8,
}

impl Caller {
    /// The command whose reply it waits for.
    pub(crate) fn awaits(&self) -> Option<Command> {
        match self.phase {
            Phase::Offering => Some(Command::Offer),
            Phase::Asking => Some(Command::Ask),
            Phase::Starting(_) => Some(Command::Start),
            Phase::Beginning(_) | Phase::Recording(..) => Some(Command::Append(self.log)),
            Phase::Completing(ending) => Some(Command::Complete(ending)),
            Phase::Releasing(remains) => Some(Command::Release(remains)),
            _ => None,
        }
    }

    /// Takes over the journal of a grant.
    pub(crate) fn inherit(&mut self, log: Log) {
        self.known = u8::try_from(log.len()).expect("journals are short");
        self.log = log;
    }

    pub(crate) fn forget_steps(&mut self) {
        self.inherit(Log::default());
    }

    /// Whether the store has not acknowledged all of its journal.
    pub(crate) fn is_unsent(&self) -> bool {
        self.log.len() > usize::from(self.known)
    }
}

impl Phase {
    /// Whether a body runs in steps, or awaits the record of one.
    pub(crate) fn is_in_a_step(self) -> bool {
        matches!(
            self,
            Self::Beginning(_)
                | Self::Inquiring(_)
                | Self::InStep(_)
                | Self::BehindEffect(_)
                | Self::Recording(..)
        )
    }

    /// Whether a body runs.
    pub(crate) fn is_body(self) -> bool {
        matches!(self, Self::Before | Self::After) || self.is_in_a_step()
    }

    /// Whether it believes that it has a claim.
    pub(crate) fn holds(self) -> bool {
        !matches!(
            self,
            Self::Idle | Self::Offering | Self::Asking | Self::Waiting | Self::Over
        )
    }
}

/// The value of a step that this attempt gives it.
pub(crate) fn part(caller: u8, round: u8) -> u8 {
    caller * 4 + round
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
