//! The possible next steps of a world of two layers.

use idem_runtime::store::author::is_final;

use super::world::{Caller, Phase, Reset, World};
use super::{EPOCHS, Flaw, Scenario};
use crate::stored::Kept;

/// How often a call claims.
const ROUNDS: u8 = 2;

/// One event. A number is a caller, or a copy on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Looks up a copy, and takes note of the epoch.
    Look(u8),
    Ask(u8),
    /// The body has ended with an answer.
    Return(u8),
    /// The answer is stored, or another's adopted.
    Commit(u8),
    CommitLost(u8),
    /// The body ended with an unknown outcome.
    Unknown(u8),
    /// Finds an answer, or no running body.
    Poll(u8),
    /// Writes a hint for other callers that a body runs.
    Hint(u8),
    LeaseLapses,
    HintLapses(u8),
    CopyArrives(u8),
    /// Learns the epoch.
    Learn(u8),
    /// Has not learned the epoch for too long.
    Stale(u8),
    Down,
    Up {
        empty: bool,
    },
    Snapshot,
    /// An operator that saw the answer closes the epoch.
    Close,
    /// No process trusts the earlier copies, and the answer is taken back.
    Resolve,
    Open,
    /// The operator that resets the key is gone.
    ResetterDies,
}

impl World {
    pub(super) fn steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        for caller in (0..).take(self.callers.len()) {
            self.steps_of(caller, scenario, steps);
        }
        steps.extend((0..).take(self.writes.len()).map(Step::CopyArrives));
        let held = self.durable.as_ref().is_some_and(Kept::is_held);
        if held && (self.faults.zombies > 0 || !self.is_renewed()) {
            steps.push(Step::LeaseLapses);
        }
        let copies = (0..).zip(&self.copies);
        let hints = copies.filter(|(_, copy)| copy.is_some_and(|copy| copy.is_held()));
        steps.extend(hints.map(|(epoch, _)| Step::HintLapses(epoch)));
        if !self.up {
            steps.extend([Step::Up { empty: true }, Step::Up { empty: false }]);
        } else if self.faults.flaps > 0 {
            steps.push(Step::Down);
            if self.old != self.copies {
                steps.push(Step::Snapshot);
            }
        }
        if self.faults.deaths > 0 && matches!(self.reset, Reset::Closed | Reset::Resolved) {
            steps.push(Step::ResetterDies);
        }
        match self.reset {
            Reset::None
                if self.faults.resets > 0
                    && self.durable.is_some_and(|kept| is_final(&kept.header())) =>
            {
                steps.push(Step::Close);
            }
            Reset::Closed => {
                let hasty = [Flaw::ResetsDoNotWait, Flaw::ResetsCloseNothing];
                let at_once = hasty.contains(&scenario.flaw);
                let trusts =
                    |c: &Caller| c.fresh && c.known != Some(self.epoch) && c.known.is_some();
                if at_once || !self.callers.iter().any(trusts) {
                    steps.push(Step::Resolve);
                }
            }
            Reset::Resolved => steps.push(Step::Open),
            // Any process that notices it.
            Reset::Dead if !self.open => steps.push(Step::Open),
            _ => {}
        }
    }

    fn steps_of(&self, number: u8, scenario: &Scenario, steps: &mut Vec<Step>) {
        let caller = self.callers[usize::from(number)];
        let held = self.durable.as_ref().is_some_and(Kept::is_held);
        match caller.phase {
            Phase::Idle => steps.push(Step::Look(number)),
            Phase::Asking => steps.push(Step::Ask(number)),
            Phase::Running => {
                steps.push(Step::Return(number));
                if self.faults.unknown > 0 {
                    steps.push(Step::Unknown(number));
                }
            }
            Phase::Completing => {
                steps.push(Step::Commit(number));
                if self.faults.lost > 0 {
                    steps.push(Step::CommitLost(number));
                }
            }
            Phase::Overtaken if !held => steps.push(Step::Commit(number)),
            Phase::Waiting => {
                let copy = self.visible(caller);
                let free = !held && caller.round + 1 < ROUNDS;
                match copy {
                    Some(copy) if copy.is_held() => {}
                    Some(_) => steps.push(Step::Poll(number)),
                    None if free || !held => steps.push(Step::Poll(number)),
                    None if self.up && caller.fresh && caller.known.is_some() => {
                        steps.push(Step::Hint(number));
                    }
                    None => {}
                }
            }
            Phase::Overtaken | Phase::Over => {}
        }
        let over = matches!(caller.phase, Phase::Over);
        if !over && self.faults_matter() {
            if caller.fresh {
                steps.push(Step::Stale(number));
            }
            if !caller.fresh || caller.known != self.named() {
                steps.push(Step::Learn(number));
            }
        }
        debug_assert!(usize::from(self.epoch) < EPOCHS, "{scenario:?}");
    }
}
