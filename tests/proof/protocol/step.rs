//! The possible next steps of a world.

use crate::caller::{self, Caller, Phase, Then};
use crate::scenario::{Fate, Flaw, Scenario};
use crate::store::{Command, Resolution};
use crate::stored::Kept;
use crate::world::{HAND, Message, World};

/// One event. A number is a caller, or a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Call(u8),
    /// Claims once more, as a new owner, after it waited.
    AskAgain(u8),
    SendAgain(u8),
    /// Waits no longer for a reply.
    GiveUp(u8),
    Deliver(u8),
    LoseRequest(u8),
    LoseReply(u8),
    /// The store runs it, and it is still on its way.
    RunTwice(u8),
    HookSaysLanded(u8),
    HookSaysNotLanded(u8),
    HookCannotSay(u8),
    Effect(u8),
    Return(u8),
    Fail(u8, Fate),
    Drop(u8, Fate),
    Crash(u8),
    PartEffect(u8),
    PartReturns(u8),
    PartFails(u8, Fate),
    /// The body goes on behind a step that was not acknowledged.
    BodyGoesOn(u8),
    /// The hook of a step found its effect.
    PartLanded(u8),
    /// It found that there was none.
    PartNotLanded(u8),
    /// It cannot say.
    PartUnknown(u8),
    LeaseLapses,
    /// The life of a release of which nothing remains is over. All commands of its owner have arrived.
    ReleaseExpires,
    Renew(u8),
    /// An operator reads the record and resolves it.
    ByHand(Resolution),
}

impl World {
    /// All possible next steps.
    pub(crate) fn steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        for caller in (0..).take(self.callers.len()) {
            self.steps_of(caller, scenario, steps);
        }
        let faults = self.faults;
        for message in (0..).take(self.net.len()) {
            steps.push(Step::Deliver(message));
            if faults.lost > 0 {
                steps.extend([Step::LoseRequest(message), Step::LoseReply(message)]);
            }
            if faults.twice > 0 {
                steps.push(Step::RunTwice(message));
            }
        }
        let Some(kept) = &self.kept else { return };
        if kept.is_held() && (faults.zombies > 0 || !self.is_renewed(kept)) {
            steps.push(Step::LeaseLapses);
        }
        let expires = kept.is_bare() || scenario.flaw == Flaw::ReleasesExpire;
        if kept.is_released() && expires && !self.is_from(kept.owner()) {
            steps.push(Step::ReleaseExpires);
        }
        if faults.hands > 0 {
            steps.extend(
                scenario
                    .hands
                    .iter()
                    .map(|resolution| Step::ByHand(*resolution)),
            );
        }
    }

    fn steps_of(&self, caller: u8, scenario: &Scenario, steps: &mut Vec<Step>) {
        let this = self.callers[usize::from(caller)];
        let Caller { phase, round, .. } = this;
        let faults = self.faults;
        let held = self.kept.as_ref().is_some_and(Kept::is_held);
        match phase {
            // Callers that are alike may as well call in this order.
            Phase::Idle if self.is_next(caller, scenario) => steps.push(Step::Call(caller)),
            Phase::Waiting if !held && round + 1 < scenario.rounds => {
                steps.push(Step::AskAgain(caller));
            }
            Phase::Overtaken(_) if !held => steps.push(Step::SendAgain(caller)),
            Phase::Finding => {
                steps.push(Step::HookCannotSay(caller));
                let request = scenario.request(caller);
                if self.effects[request] > 0 {
                    steps.push(Step::HookSaysLanded(caller));
                }
                // An effect that can still come makes this a lie.
                let comes = (0..).zip(&self.callers).any(|(other, caller)| {
                    let before = caller.phase == Phase::Before || caller.phase.is_in_a_step();
                    scenario.request(other) == request && before
                });
                let nothing = self.effects[request] == 0 && !comes;
                if nothing || scenario.flaw == Flaw::HookLies {
                    steps.push(Step::HookSaysNotLanded(caller));
                }
            }
            Phase::Inquiring(step) => {
                steps.push(Step::PartUnknown(caller));
                let comes = (self.callers.iter()).any(|other| other.phase == Phase::InStep(step));
                if self.steps[usize::from(step)].effects > 0 {
                    steps.push(Step::PartLanded(caller));
                } else if !comes {
                    steps.push(Step::PartNotLanded(caller));
                }
            }
            Phase::InStep(_) => steps.push(Step::PartEffect(caller)),
            Phase::BehindEffect(_) => steps.push(Step::PartReturns(caller)),
            Phase::Recording(_, Then::Next) if scenario.lenient => {
                steps.push(Step::BodyGoesOn(caller));
            }
            Phase::Before => steps.push(Step::Effect(caller)),
            Phase::After => steps.push(Step::Return(caller)),
            _ => {}
        }
        if let Some(command) = this.awaits() {
            if !self.is_under_way(caller, round, command) {
                steps.extend([Step::SendAgain(caller), Step::GiveUp(caller)]);
            } else if faults.late > 0 {
                steps.push(Step::GiveUp(caller));
            }
        }
        if matches!(phase, Phase::InStep(_) | Phase::BehindEffect(_)) && faults.fails > 0 {
            steps.extend(
                scenario
                    .on_fail
                    .iter()
                    .map(|fate| Step::PartFails(caller, *fate)),
            );
        }
        if matches!(phase, Phase::Before | Phase::After) && faults.fails > 0 {
            steps.extend(
                scenario
                    .on_fail
                    .iter()
                    .map(|fate| Step::Fail(caller, *fate)),
            );
        }
        if phase.holds() && faults.drops > 0 {
            steps.extend(
                scenario
                    .on_drop
                    .iter()
                    .map(|fate| Step::Drop(caller, *fate)),
            );
        }
        if (phase.holds() || matches!(phase, Phase::Offering | Phase::Asking)) && faults.crashes > 0
        {
            steps.push(Step::Crash(caller));
        }
        if phase.holds() && faults.renewals > 0 {
            steps.push(Step::Renew(caller));
        }
    }

    /// Whether all before it that are like it have called.
    fn is_next(&self, caller: u8, scenario: &Scenario) -> bool {
        let caller = usize::from(caller);
        (0..caller).all(|earlier| {
            scenario.callers[earlier] != scenario.callers[caller]
                || self.callers[earlier].phase != Phase::Idle
        })
    }

    pub(crate) fn is_under_way(&self, from: u8, round: u8, command: Command) -> bool {
        let same = |message: &Message| {
            (message.from, message.round, message.command) == (from, round, command)
        };
        self.net.iter().any(same)
    }

    /// Whether a command of this owner is on its way.
    fn is_from(&self, owner: u8) -> bool {
        let sent_by = |message: &Message| {
            message.from != HAND && caller::owner(message.from, message.round) == owner
        };
        self.net.iter().any(sent_by)
    }

    /// Whether the claim is known to its process, which is alive.
    pub(crate) fn is_renewed(&self, kept: &Kept) -> bool {
        let owner = kept.owner();
        (0..).zip(&self.callers).any(|(number, caller)| {
            caller.phase.holds() && caller::owner(number, caller.round) == owner
        })
    }
}
