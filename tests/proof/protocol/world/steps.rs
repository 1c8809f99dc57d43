//! The steps of a body: their runs, their records, and the promises about them.

use super::{Message, StepFacts, World};
use crate::caller::{Caller, Phase, Then, part, value};
use crate::journal::{Entry, Log};
use crate::promise::Promise;
use crate::scenario::{Fate, Flaw, Part, Scenario};
use crate::step::Step;
use crate::store::{Command, Reply, Resolution};
use crate::stored::Kept;

impl World {
    /// Applies an event within a step.
    pub(super) fn take_in_a_step(&mut self, scenario: &Scenario, event: Step) {
        match event {
            Step::PartEffect(caller) => self.step_effect(scenario, caller),
            Step::PartReturns(caller) => self.step_returns(caller),
            Step::PartFails(caller, fate) => {
                self.faults.fails -= 1;
                self.step_fails(scenario, caller, fate);
            }
            Step::BodyGoesOn(caller) => self.step_goes_on(scenario, caller),
            Step::PartLanded(caller) => self.step_landed(caller),
            Step::PartNotLanded(caller) => {
                if let Phase::Inquiring(step) = self.callers[usize::from(caller)].phase {
                    self.begin(caller, step);
                }
            }
            Step::PartUnknown(caller) => self.end(caller, Fate::Unknown),
            other => unreachable!("{other:?} is no event of a step"),
        }
    }

    /// The body comes to this step. Those that have ended are replayed.
    pub(super) fn reach(&mut self, scenario: &Scenario, caller: u8, mut step: u8) {
        loop {
            let Some(kind) = scenario.steps.get(usize::from(step)) else {
                return self.enter(caller, Phase::After);
            };
            let recorded = self.callers[usize::from(caller)].log.last(step);
            match (recorded, kind) {
                (Some(Entry::Value(value)), _) => {
                    self.tell_step(step, value);
                    step += 1;
                }
                (None | Some(Entry::Void | Entry::Begun), Part::Plain) => {
                    return self.enter(caller, Phase::InStep(step));
                }
                (Some(Entry::Begun), Part::Once) if scenario.flaw == Flaw::BegunIsRun => {
                    return self.enter(caller, Phase::InStep(step));
                }
                (None | Some(Entry::Void), _) if scenario.flaw == Flaw::BeginningsUnrecorded => {
                    return self.enter(caller, Phase::InStep(step));
                }
                (None | Some(Entry::Void), _) => {
                    return self.begin(caller, step);
                }
                (_, Part::Asked) => return self.enter(caller, Phase::Inquiring(step)),
                _ => return self.end(caller, Fate::Unknown),
            }
        }
    }

    /// The step runs once its beginning is acknowledged.
    fn begin(&mut self, caller: u8, step: u8) {
        self.add(caller, step, Entry::Begun);
        self.enter(caller, Phase::Beginning(step));
    }

    pub(super) fn add(&mut self, caller: u8, step: u8, entry: Entry) {
        self.callers[usize::from(caller)].log.add(step, entry);
    }

    fn step_effect(&mut self, scenario: &Scenario, caller: u8) {
        let Caller {
            phase,
            round,
            fence,
            ..
        } = self.callers[usize::from(caller)];
        let Phase::InStep(step) = phase else {
            unreachable!("{phase:?} has no effect")
        };
        let facts = &mut self.steps[usize::from(step)];
        let ended_before = facts.fence > 0 && facts.fence < fence;
        self.broken.note(Promise::StepsRunNoMore, !ended_before);
        if facts.effects == 0 {
            facts.truth = part(caller, round);
        }
        facts.effects += 1;
        if usize::from(step) + 1 == scenario.steps.len() {
            let request = scenario.request(caller);
            self.effects[request] += 1;
            if self.truth[request] == 0 {
                self.truth[request] = value(caller);
            }
        }
        let once = scenario.steps[usize::from(step)] != Part::Plain;
        let again = facts.effects > 1 && !facts.is_reset;
        self.broken.note(Promise::OnceIsOnce, !(once && again));
        self.enter(caller, Phase::BehindEffect(step));
    }

    /// The part of a step returns, and its value is recorded.
    fn step_returns(&mut self, caller: u8) {
        let Caller { phase, round, .. } = self.callers[usize::from(caller)];
        let Phase::BehindEffect(step) = phase else {
            unreachable!("{phase:?} does not return")
        };
        self.add(caller, step, Entry::Value(part(caller, round)));
        self.enter(caller, Phase::Recording(step, Then::Next));
    }

    /// The step's hook found its effect, and its value is recorded.
    fn step_landed(&mut self, caller: u8) {
        let Phase::Inquiring(step) = self.callers[usize::from(caller)].phase else {
            unreachable!("no hook runs")
        };
        let truth = self.steps[usize::from(step)].truth;
        self.add(caller, step, Entry::Value(truth));
        self.enter(caller, Phase::Recording(step, Then::Next));
    }

    /// The body goes on with its next step without an acknowledgement.
    fn step_goes_on(&mut self, scenario: &Scenario, caller: u8) {
        let Phase::Recording(step, Then::Next) = self.callers[usize::from(caller)].phase else {
            unreachable!("nothing is being recorded")
        };
        self.reach(scenario, caller, step + 1);
    }

    /// A step fails, and its body with it.
    fn step_fails(&mut self, scenario: &Scenario, caller: u8, fate: Fate) {
        let phase = self.callers[usize::from(caller)].phase;
        let kind = |step: u8| scenario.steps[usize::from(step)];
        match (phase, fate) {
            (Phase::InStep(step), Fate::Release) if kind(step) != Part::Plain => {
                self.add(caller, step, Entry::Void);
                self.enter(
                    caller,
                    Phase::Recording(step, Then::Fails(Fate::ReleaseBound)),
                );
            }
            (Phase::InStep(step) | Phase::BehindEffect(step), Fate::Unknown) => {
                self.add(caller, step, Entry::Unknown);
                self.enter(caller, Phase::Recording(step, Then::Fails(fate)));
            }
            (_, Fate::Release) => self.end(caller, Fate::ReleaseBound),
            _ => self.end(caller, fate),
        }
    }

    /// The store has replied to an append.
    pub(super) fn hear_append(
        &mut self,
        scenario: &Scenario,
        caller: u8,
        asked: Phase,
        reply: Reply,
    ) {
        let asking = &mut self.callers[usize::from(caller)];
        if reply == Reply::Lost {
            // The body ends with the error of its step. Unrecorded entries are not sent again.
            asking.forget_steps();
            return self.end(caller, Fate::ReleaseBound);
        }
        let (log, fence) = (asking.log, asking.fence);
        asking.inherit(log);
        if log.len() > self.acknowledged.len() {
            self.acknowledged = log;
        }
        for (step, entry) in log.entries() {
            if let Entry::Value(value) = entry {
                self.tell_step(step, value);
                let facts = &mut self.steps[usize::from(step)];
                if facts.fence == 0 {
                    facts.fence = fence;
                }
            }
        }
        match asked {
            Phase::Beginning(step) => self.enter(caller, Phase::InStep(step)),
            Phase::Recording(step, Then::Next) => self.reach(scenario, caller, step + 1),
            Phase::Recording(_, Then::Fails(fate)) => self.end(caller, fate),
            _ => unreachable!("{asked:?} appends nothing"),
        }
    }

    /// Sends entries that are not acknowledged, and awaits no reply.
    pub(super) fn send_steps(&mut self, caller: u8) {
        let sending = self.callers[usize::from(caller)];
        let command = Command::Append(sending.log);
        if sending.is_unsent() && !self.is_under_way(caller, sending.round, command) {
            self.send(caller, command);
        }
    }

    /// An attempt got this result of a step.
    fn tell_step(&mut self, step: u8, value: u8) {
        let told = &mut self.steps[usize::from(step)].told;
        let equal = told.is_none_or(|told| told == value);
        self.broken.note(Promise::EqualSteps, equal);
        *told = Some(value);
    }

    /// The key began anew, without its steps.
    pub(super) fn forget_steps(&mut self) {
        self.acknowledged = Log::default();
        for facts in &mut self.steps {
            *facts = StepFacts {
                effects: facts.effects,
                truth: facts.truth,
                is_reset: true,
                ..StepFacts::default()
            };
        }
    }

    /// Compares the record after a command with that before it.
    pub(super) fn check_steps(
        &mut self,
        message: Message,
        owner: u8,
        before: Option<Kept>,
        reply: Reply,
    ) {
        if let Reply::Granted { log, .. } | Reply::Reconcile { log, .. } = reply {
            let all = log.continues(self.acknowledged);
            self.broken.note(Promise::StepsAreHandedOver, all);
        }
        let (Some(before), Some(after)) = (before, self.kept) else {
            return;
        };
        if let Command::Append(_) = message.command {
            let own = before.owner() == owner && before.is_a_claim();
            self.broken.note(
                Promise::OwnSteps,
                own || before == after && reply == Reply::Lost,
            );
        }
        let dropped = matches!(
            message.command,
            Command::Resolve(Resolution::Reset | Resolution::Answer(_))
        );
        let ends = dropped || after.answer().is_some();
        self.broken.note(
            Promise::StepsStay,
            ends || after.log().continues(before.log()),
        );
        if after.answer().is_some() {
            // It replaces them.
            self.acknowledged = Log::default();
        }
    }
}
