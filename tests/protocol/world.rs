//! A key, its callers, what is on its way between them, and all that can happen next.

use crate::promise::{Broken, Promise};
use crate::scenario::{Fate, Faults, Flaw, Scenario};
use crate::store::{Command, Ending, Kept, Reply, Sender, execute};

/// The sender of what is done by hand.
const HAND: u8 = u8::MAX;
/// The answer that is given by hand.
const BY_HAND: u8 = 99;

/// What a caller is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    /// Somebody else holds the claim.
    Waiting,
    /// Its hook is asked.
    Finding,
    /// Nothing landed, when this many bodies had started; it claims once more.
    Starting(u8),
    /// The body runs and has not had its effect.
    Before,
    /// It has.
    After,
    Completing(Ending),
    /// Somebody else took the key over; it waits for their answer by completing again.
    Overtaken(Ending),
    Releasing {
        count: bool,
    },
    /// It returned, or is gone.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Caller {
    phase: Phase,
    /// Each claim that is not a repetition has an owner of its own.
    round: u8,
    fence: u8,
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    from: u8,
    round: u8,
    fence: u8,
    command: Command,
}

/// One thing that happens. A number is a caller, or a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Call(u8),
    AskAgain(u8),
    SendAgain(u8),
    GiveUp(u8),
    Deliver(u8),
    LoseRequest(u8),
    LoseReply(u8),
    RunTwice(u8),
    HookSaysLanded(u8),
    HookSaysNotLanded(u8),
    HookCannotSay(u8),
    Effect(u8),
    Return(u8),
    Fail(u8, Fate),
    Drop(u8, Fate),
    Crash(u8),
    LeaseLapses,
    Renew(u8),
    ByHand(Option<u8>),
}

/// A state. All that the promises look at is part of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    kept: Option<Kept>,
    callers: Vec<Caller>,
    /// Sorted: in which order things were sent does not matter, since any of them may come first.
    net: Vec<Message>,
    /// What was seen by whoever resolves by hand.
    seen: Option<Kept>,
    faults: Faults,
    bodies: u8,
    /// Bodies since the key last began anew.
    starts: u8,
    effects: u8,
    /// The answer of the first effect.
    truth: u8,
    /// The stored answer that somebody was told; zero for none.
    told: u8,
    /// The highest fence of all claims.
    highest: u8,
    /// Whether the outcome is unknown, or was when somebody began to find out.
    unknown: bool,
    pub(crate) broken: Broken,
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let caller = Caller {
            phase: Phase::Idle,
            round: 0,
            fence: 0,
        };
        Self {
            kept: None,
            callers: vec![caller; scenario.callers.len()],
            net: Vec::new(),
            seen: None,
            faults: scenario.faults,
            bodies: 0,
            starts: 0,
            effects: 0,
            truth: 0,
            told: 0,
            highest: 0,
            unknown: false,
            broken: Broken::default(),
        }
    }

    /// All that can happen next.
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
        if faults.hands > 0 {
            steps.extend([Step::ByHand(None), Step::ByHand(Some(BY_HAND))]);
        }
    }

    fn steps_of(&self, caller: u8, scenario: &Scenario, steps: &mut Vec<Step>) {
        let Caller { phase, round, .. } = self.callers[usize::from(caller)];
        let faults = self.faults;
        let held = self.kept.as_ref().is_some_and(Kept::is_held);
        match phase {
            // Those that are alike may as well call in this order.
            Phase::Idle if self.is_next(caller, scenario) => steps.push(Step::Call(caller)),
            Phase::Waiting if !held && round + 1 < scenario.rounds => {
                steps.push(Step::AskAgain(caller));
            }
            Phase::Overtaken(_) if !held => steps.push(Step::SendAgain(caller)),
            Phase::Finding => {
                steps.push(Step::HookCannotSay(caller));
                if self.effects > 0 {
                    steps.push(Step::HookSaysLanded(caller));
                }
                // An effect that can still come makes this a lie.
                let before = |caller: &Caller| caller.phase == Phase::Before;
                let nothing = self.effects == 0 && !self.callers.iter().any(before);
                if nothing || scenario.flaw == Flaw::HookLies {
                    steps.push(Step::HookSaysNotLanded(caller));
                }
            }
            Phase::Before => steps.push(Step::Effect(caller)),
            Phase::After => steps.push(Step::Return(caller)),
            _ => {}
        }
        if let Some(command) = phase.awaits() {
            if !self.is_under_way(caller, round, command) {
                steps.extend([Step::SendAgain(caller), Step::GiveUp(caller)]);
            } else if faults.late > 0 {
                steps.push(Step::GiveUp(caller));
            }
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
        if (phase.holds() || phase == Phase::Asking) && faults.crashes > 0 {
            steps.push(Step::Crash(caller));
        }
        if phase.holds() && faults.renewals > 0 {
            steps.push(Step::Renew(caller));
        }
    }

    fn is_next(&self, caller: u8, scenario: &Scenario) -> bool {
        let caller = usize::from(caller);
        (0..caller).all(|earlier| {
            scenario.callers[earlier] != scenario.callers[caller]
                || self.callers[earlier].phase != Phase::Idle
        })
    }

    fn is_under_way(&self, from: u8, round: u8, command: Command) -> bool {
        let same = |message: &Message| {
            (message.from, message.round, message.command) == (from, round, command)
        };
        self.net.iter().any(same)
    }

    /// Whether the claim is one of a process that is alive and knows of it.
    fn is_renewed(&self, kept: &Kept) -> bool {
        let owner = kept.owner();
        (0..).zip(&self.callers).any(|(number, caller)| {
            caller.phase.holds() && self::owner(number, caller.round) == owner
        })
    }

    /// What becomes of the world when this happens.
    pub(crate) fn take(&mut self, scenario: &Scenario, step: Step) {
        let faults = &mut self.faults;
        match step {
            Step::Call(caller) => self.enter(caller, Phase::Asking),
            Step::AskAgain(caller) => {
                self.callers[usize::from(caller)].round += 1;
                self.enter(caller, Phase::Asking);
            }
            Step::SendAgain(caller) => {
                let phase = match self.callers[usize::from(caller)].phase {
                    Phase::Overtaken(ending) => Phase::Completing(ending),
                    phase => phase,
                };
                self.enter(caller, phase);
            }
            Step::GiveUp(caller) => self.give_up(caller),
            Step::Deliver(message) => {
                let message = self.net.remove(usize::from(message));
                let reply = self.execute(scenario, message);
                self.hear(scenario, message, reply);
            }
            Step::LoseRequest(message) => {
                faults.lost -= 1;
                self.net.remove(usize::from(message));
            }
            Step::LoseReply(message) => {
                faults.lost -= 1;
                let message = self.net.remove(usize::from(message));
                self.execute(scenario, message);
            }
            Step::RunTwice(message) => {
                faults.twice -= 1;
                self.execute(scenario, self.net[usize::from(message)]);
            }
            Step::HookSaysLanded(caller) => {
                self.enter(caller, Phase::Completing(Ending::Value(self.truth)));
            }
            Step::HookSaysNotLanded(caller) => self.enter(caller, Phase::Starting(self.bodies)),
            Step::HookCannotSay(caller) => self.enter(caller, Phase::Completing(Ending::Unknown)),
            Step::Effect(caller) => {
                self.effects += 1;
                self.broken.note(Promise::OneEffect, self.effects == 1);
                if self.truth == 0 {
                    self.truth = value(caller);
                }
                self.enter(caller, Phase::After);
            }
            Step::Return(caller) => {
                self.enter(caller, Phase::Completing(Ending::Value(value(caller))));
            }
            Step::Fail(caller, fate) => {
                faults.fails -= 1;
                self.end(caller, fate);
            }
            Step::Drop(caller, fate) => {
                faults.drops -= 1;
                let phase = self.callers[usize::from(caller)].phase;
                // What has ended goes on behind the back of whoever dropped it.
                let ends = matches!(phase, Phase::Before | Phase::After);
                let finds = matches!(phase, Phase::Finding | Phase::Starting(_));
                if ends {
                    self.end(caller, fate);
                } else if finds {
                    self.end(caller, Fate::Release);
                }
                self.callers[usize::from(caller)].phase = Phase::Over;
            }
            Step::Crash(caller) => {
                faults.crashes -= 1;
                self.callers[usize::from(caller)].phase = Phase::Over;
            }
            Step::LeaseLapses => {
                if let Some(mut kept) = self.kept {
                    if self.is_renewed(&kept) {
                        self.faults.zombies -= 1;
                    }
                    kept.lapse();
                    self.kept = Some(kept);
                }
            }
            Step::Renew(caller) => {
                faults.renewals -= 1;
                self.send(caller, Command::Renew);
            }
            Step::ByHand(answer) => {
                faults.hands -= 1;
                let round = faults.hands;
                self.seen = self.kept;
                self.post(Message {
                    from: HAND,
                    round,
                    fence: 0,
                    command: Command::Resolve(answer),
                });
            }
        }
    }

    /// The caller goes on to this phase, and sends what belongs to it.
    fn enter(&mut self, caller: u8, phase: Phase) {
        self.callers[usize::from(caller)].phase = phase;
        if let Some(command) = phase.awaits() {
            self.send(caller, command);
        }
    }

    fn send(&mut self, from: u8, command: Command) {
        let Caller { round, fence, .. } = self.callers[usize::from(from)];
        self.post(Message {
            from,
            round,
            fence,
            command,
        });
    }

    fn post(&mut self, message: Message) {
        let at = self.net.partition_point(|other| *other < message);
        self.net.insert(at, message);
    }

    fn give_up(&mut self, caller: u8) {
        let Caller { phase, round, .. } = self.callers[usize::from(caller)];
        let under_way = |command| self.is_under_way(caller, round, command);
        if phase.awaits().is_some_and(under_way) {
            self.faults.late -= 1;
        }
        let next = match phase {
            // Nobody waits for the reply to this release.
            Phase::Asking => {
                self.send(caller, Command::Release { count: false });
                Phase::Over
            }
            Phase::Starting(_) => return self.enter(caller, Phase::Releasing { count: false }),
            _ => Phase::Over,
        };
        self.callers[usize::from(caller)].phase = next;
    }

    /// A body ended without a value.
    fn end(&mut self, caller: u8, fate: Fate) {
        let phase = match fate {
            Fate::Keep => Phase::Completing(Ending::Error(value(caller) + 10)),
            Fate::Unknown => Phase::Completing(Ending::Unknown),
            Fate::Release => Phase::Releasing { count: false },
            Fate::ReleaseCounted => Phase::Releasing { count: true },
            Fate::Hold => Phase::Over,
        };
        self.enter(caller, phase);
    }

    /// The store carries a command out.
    fn execute(&mut self, scenario: &Scenario, message: Message) -> Reply {
        let before = self.kept;
        let by_hand = message.from == HAND;
        let sender = Sender {
            owner: if by_hand {
                HAND - message.round
            } else {
                owner(message.from, message.round)
            },
            fence: message.fence,
            reconciles: !by_hand && scenario.callers[usize::from(message.from)] == b'h',
            max_attempts: scenario.max_attempts,
        };
        let reply = execute(
            &mut self.kept,
            message.command,
            sender,
            self.seen,
            scenario.flaw,
        );
        let resolves = matches!(message.command, Command::Resolve(_));
        let resolved = resolves && self.kept != before;
        let Some(before) = before else { return reply };
        let after = self.kept.expect("no record is taken away");
        let mine = before.owner() == sender.owner;
        if before.is_held() && !mine {
            let stays = after.owner() == before.owner() && after.is_held();
            self.broken.note(Promise::OneClaim, stays);
        }
        if before.answer().is_some() {
            let seen = resolved
                && self
                    .seen
                    .is_some_and(|seen| seen.answer() == before.answer());
            let stays = after.answer() == before.answer();
            self.broken.note(Promise::DoneIsFinal, stays || seen);
        }
        if let Reply::Granted { .. } = reply {
            let found_out = mine && message.command == Command::Start;
            self.broken
                .note(Promise::UnknownWaits, !self.unknown || found_out);
            let gone = mine && before.is_released();
            self.broken.note(Promise::GoneIsGone, !gone);
            self.unknown = false;
        }
        if resolved {
            self.told = 0;
            self.starts = 0;
        }
        // Until somebody knows.
        self.unknown |= after.is_unknown() || after.is_reconciling();
        self.unknown &= !resolved && after.answer().is_none();
        reply
    }

    /// The sender has the reply, if it still waits for it.
    fn hear(&mut self, scenario: &Scenario, message: Message, reply: Reply) {
        if let (Command::Resolve(Some(answer)), Reply::Stored) = (message.command, reply) {
            return self.tell(answer);
        }
        let Some(caller) = self.callers.get_mut(usize::from(message.from)) else {
            return;
        };
        if caller.phase.awaits() != Some(message.command) || caller.round != message.round {
            return;
        }
        let asked = caller.phase;
        caller.phase = Phase::Over;
        match (asked, reply) {
            (Phase::Asking, Reply::Reconcile { fence }) => {
                caller.phase = Phase::Finding;
                caller.fence = fence;
                self.fence(fence);
            }
            (Phase::Asking | Phase::Starting(_), Reply::Granted { fence }) => {
                caller.phase = Phase::Before;
                caller.fence = fence;
                self.fence(fence);
                if let Phase::Starting(bodies) = asked {
                    self.broken
                        .note(Promise::FreshVerdict, bodies == self.bodies);
                }
                self.bodies += 1;
                self.starts += 1;
                self.broken.note(Promise::AnswersEndIt, self.told == 0);
                let allowed = scenario
                    .max_attempts
                    .is_none_or(|max| u16::from(self.starts) <= max);
                self.broken.note(Promise::AttemptsEnd, allowed);
            }
            (Phase::Asking, Reply::Running) => caller.phase = Phase::Waiting,
            // Refused after all.
            (Phase::Starting(_), _) => {
                self.enter(message.from, Phase::Releasing { count: false });
            }
            (Phase::Completing(Ending::Value(answer) | Ending::Error(answer)), Reply::Stored)
            | (Phase::Asking | Phase::Completing(_), Reply::Answer(answer)) => self.tell(answer),
            (Phase::Completing(ending), Reply::Superseded) => {
                caller.phase = Phase::Overtaken(ending);
            }
            _ => {}
        }
    }

    fn fence(&mut self, fence: u8) {
        self.broken.note(Promise::FencesGrow, fence > self.highest);
        self.highest = fence;
    }

    /// Somebody was told that this is the stored answer.
    fn tell(&mut self, answer: u8) {
        let equal = self.told == 0 || self.told == answer;
        self.broken.note(Promise::EqualAnswers, equal);
        self.told = answer;
    }
}

impl Phase {
    /// What was sent, while its reply is waited for.
    fn awaits(self) -> Option<Command> {
        match self {
            Self::Asking => Some(Command::Ask),
            Self::Starting(_) => Some(Command::Start),
            Self::Completing(ending) => Some(Command::Complete(ending)),
            Self::Releasing { count } => Some(Command::Release { count }),
            _ => None,
        }
    }

    /// Whether it believes that it has a claim.
    fn holds(self) -> bool {
        !matches!(self, Self::Idle | Self::Asking | Self::Waiting | Self::Over)
    }
}

fn owner(caller: u8, round: u8) -> u8 {
    1 + caller * 16 + round
}

/// The answer of a caller's own body.
fn value(caller: u8) -> u8 {
    1 + caller
}
