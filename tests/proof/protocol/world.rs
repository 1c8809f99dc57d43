//! The state of the model: a key, its callers, and the messages between them.

use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::author::Remains;

use crate::caller::{Caller, Phase, author, owner, value};
use crate::journal::{Entry, Log};
use crate::promise::{Broken, Promise};
use crate::scenario::{Fate, Faults, Flaw, Scenario};
use crate::step::Step;
use crate::store::{Command, Ending, REQUESTS, Reply, Resolution, Sender, execute};
use crate::stored::Kept;

mod steps;

/// The sender of an operator's commands.
pub(crate) const HAND: u8 = u8::MAX;
/// The answer of an operator's resolution.
pub(crate) const BY_HAND: u8 = 99;

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    pub(crate) from: u8,
    pub(crate) round: u8,
    fence: u8,
    pub(crate) command: Command,
}

/// A state. It includes everything that the promises check.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) kept: Option<Kept>,
    pub(crate) callers: Vec<Caller>,
    /// Sorted: in which order things were sent does not matter, since any of them may come first.
    pub(crate) net: Vec<Message>,
    /// The record that the operator saw.
    seen: Option<Kept>,
    pub(crate) faults: Faults,
    bodies: u8,
    /// Bodies since the key last began anew.
    starts: u8,
    /// Of each request.
    pub(crate) effects: [u8; REQUESTS.len()],
    /// The answer of the first effect of each.
    truth: [u8; REQUESTS.len()],
    /// The stored answer that a caller last received; zero for none.
    told: u8,
    /// The highest fence of all claims.
    highest: u8,
    /// The last fence of the record that has expired: the store's clock is beyond it.
    expired: u8,
    /// Whether the outcome is unknown, or was when a reconcile began.
    unknown: bool,
    /// Of each step of the body.
    pub(crate) steps: [StepFacts; MAX_STEPS],
    /// The longest journal that the store acknowledged since the key's last beginning.
    acknowledged: Log,
    pub(crate) broken: Broken,
}

/// The most steps of a body.
const MAX_STEPS: usize = 2;

/// The events of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct StepFacts {
    pub(crate) effects: u8,
    /// The value of the first effect.
    pub(crate) truth: u8,
    /// The value from the journal, or the last acknowledged one.
    told: Option<u8>,
    /// The fence of the attempt whose result was acknowledged; zero for none.
    fence: u8,
    /// The key was reset without its steps: the effect of this one may happen once more.
    is_reset: bool,
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let caller = Caller {
            phase: Phase::Idle,
            round: 0,
            fence: 0,
            started: false,
            fresh: false,
            log: Log::default(),
            known: 0,
        };
        Self {
            kept: None,
            callers: vec![caller; scenario.callers.len()],
            net: Vec::new(),
            seen: None,
            faults: scenario.faults,
            bodies: 0,
            starts: 0,
            effects: [0; REQUESTS.len()],
            truth: [0; REQUESTS.len()],
            told: 0,
            highest: 0,
            expired: 0,
            unknown: false,
            steps: Default::default(),
            acknowledged: Log::default(),
            broken: Broken::default(),
        }
    }

    /// Applies a step to the world.
    #[allow(
        clippy::too_many_lines,
        reason = "one arm for each event; they read best side by side"
    )]
    pub(crate) fn take(&mut self, scenario: &Scenario, step: Step) {
        let faults = &mut self.faults;
        match step {
            Step::Call(caller) => self.enter(caller, scenario.asks()),
            Step::AskAgain(caller) => {
                self.callers[usize::from(caller)].round += 1;
                self.enter(caller, scenario.asks());
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
                let truth = self.truth[scenario.request(caller)];
                self.enter(caller, Phase::Completing(Ending::Value(truth)));
            }
            Step::HookSaysNotLanded(caller) => self.enter(caller, Phase::Starting(self.bodies)),
            Step::HookCannotSay(caller) => {
                let log = self.callers[usize::from(caller)].log;
                self.enter(caller, Phase::Completing(Ending::Unknown(log)));
            }
            Step::Effect(caller) => {
                let request = scenario.request(caller);
                self.effects[request] += 1;
                self.broken
                    .note(Promise::OneEffect, self.effects[request] == 1);
                if self.truth[request] == 0 {
                    self.truth[request] = value(caller);
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
                // An ended body goes on after its caller was dropped.
                let ends = phase.is_body();
                let finds = matches!(phase, Phase::Finding | Phase::Starting(_));
                if ends && fate == Fate::Release {
                    self.end(caller, Fate::ReleaseBound);
                } else if ends {
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
            Step::ReleaseExpires => self.expired = self.kept.take().map_or(0, |kept| kept.fence()),
            Step::Renew(caller) => {
                faults.renewals -= 1;
                let Caller { log, known, .. } = self.callers[usize::from(caller)];
                self.send(
                    caller,
                    match known {
                        0 => Command::Renew,
                        _ => Command::Append(log.first(known)),
                    },
                );
            }
            Step::ByHand(resolution) => {
                faults.hands -= 1;
                let round = faults.hands;
                self.seen = self.kept;
                self.post(Message {
                    from: HAND,
                    round,
                    fence: 0,
                    command: Command::Resolve(resolution),
                });
            }
            step => self.take_in_a_step(scenario, step),
        }
    }

    /// Moves the caller to this phase, and sends the phase's command.
    fn enter(&mut self, caller: u8, phase: Phase) {
        let entering = &mut self.callers[usize::from(caller)];
        entering.phase = phase;
        if let Some(command) = entering.awaits() {
            self.send(caller, command);
        }
        if !phase.is_body() && !matches!(phase, Phase::Finding | Phase::Starting(_)) {
            self.callers[usize::from(caller)].forget_steps();
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
        let awaits = self.callers[usize::from(caller)].awaits();
        let under_way = |command| self.is_under_way(caller, round, command);
        if awaits.is_some_and(under_way) {
            self.faults.late -= 1;
        }
        let next = match phase {
            // No caller waits for the reply to this release.
            Phase::Offering | Phase::Asking => {
                self.send(caller, Command::Release(Remains::Request));
                Phase::Over
            }
            Phase::Starting(_) => return self.enter(caller, Phase::Releasing(Remains::Request)),
            Phase::Beginning(_) | Phase::Recording(..) => {
                return self.end(caller, Fate::ReleaseBound);
            }
            _ => Phase::Over,
        };
        self.enter(caller, next);
    }

    /// A body ended without a value.
    fn end(&mut self, caller: u8, fate: Fate) {
        if let Phase::Beginning(step) = self.callers[usize::from(caller)].phase {
            // The store may have its beginning all the same.
            self.add(caller, step, Entry::Void);
        }
        let Caller {
            started,
            fresh,
            log,
            ..
        } = &mut self.callers[usize::from(caller)];
        *started &= fate != Fate::Release;
        let (fresh, log) = (*fresh, *log);
        if !matches!(fate, Fate::Keep | Fate::Unknown) {
            self.send_steps(caller);
        }
        let phase = match fate {
            Fate::Keep => Phase::Completing(Ending::Error(value(caller) + 10)),
            Fate::Unknown => Phase::Completing(Ending::Unknown(log)),
            Fate::Release if fresh => Phase::Releasing(Remains::Nothing),
            Fate::Release | Fate::ReleaseBound => Phase::Releasing(Remains::Request),
            Fate::ReleaseCounted => Phase::Releasing(Remains::Attempt),
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
            fingerprint: if by_hand {
                Fingerprint::NONE
            } else {
                REQUESTS[scenario.request(message.from)]
            },
            reconciles: !by_hand && scenario.has_hook(message.from),
            max_attempts: scenario.max_attempts,
        };
        let reply = execute(
            &mut self.kept,
            message.command,
            sender,
            (self.seen, self.expired),
            scenario.flaw,
        );
        let by_resolution = matches!(message.command, Command::Resolve(_));
        let resolved = by_resolution && self.kept != before;
        self.check_steps(message, sender.owner, before, reply);
        if let Reply::Granted { .. } = reply {
            let request = scenario.request(message.from);
            let others = (0..)
                .zip(&self.callers)
                .any(|(other, caller)| caller.started && scenario.request(other) != request);
            self.broken.note(Promise::RequestStays, !others);
        }
        let Some(before) = before else { return reply };
        let after = self.kept.expect("no command takes a record away");
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
        let keeps = message.command == Command::Resolve(Resolution::ResetKeepingSteps)
            && before.answer().is_none();
        if resolved && !keeps && !scenario.steps.is_empty() {
            self.forget_steps();
        }
        if resolved {
            self.told = 0;
            self.starts = 0;
            for caller in &mut self.callers {
                caller.started = false;
            }
        }
        // Unknown until it is resolved or answered.
        self.unknown |= after.is_unknown() || after.is_reconciling();
        self.unknown &= !resolved && after.answer().is_none();
        reply
    }

    /// Delivers the reply to the sender, if it still waits for it.
    fn hear(&mut self, scenario: &Scenario, message: Message, reply: Reply) {
        if let (Command::Resolve(Resolution::Answer(answer)), Reply::Stored) =
            (message.command, reply)
        {
            return self.tell(answer);
        }
        let Some(caller) = self.callers.get_mut(usize::from(message.from)) else {
            return;
        };
        if caller.awaits() != Some(message.command) || caller.round != message.round {
            return;
        }
        let asked = caller.phase;
        caller.phase = Phase::Over;
        if matches!(asked, Phase::Beginning(_) | Phase::Recording(..)) {
            return self.hear_append(scenario, message.from, asked, reply);
        }
        if let Reply::Answer(answer) = reply {
            let own = answer == BY_HAND
                || scenario.request(author(answer)) == scenario.request(message.from);
            self.broken.note(Promise::OwnAnswers, own);
        }
        match (asked, reply) {
            (Phase::Offering, Reply::Undecided) => self.enter(message.from, Phase::Asking),
            (Phase::Asking, Reply::Reconcile { fence, log }) => {
                caller.phase = Phase::Finding;
                caller.fence = fence;
                caller.inherit(log);
                self.fence(fence);
            }
            (
                Phase::Offering | Phase::Asking | Phase::Starting(_),
                Reply::Granted { fence, fresh, log },
            ) => {
                caller.phase = Phase::Before;
                caller.fence = fence;
                caller.inherit(log);
                caller.started = scenario.is_mixed();
                let fresh = fresh && !matches!(asked, Phase::Starting(_));
                caller.fresh = caller.started && (fresh || scenario.flaw == Flaw::FreshUnasked);
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
                if !scenario.steps.is_empty() {
                    self.reach(scenario, message.from, 0);
                }
            }
            (Phase::Asking, Reply::Running) => caller.phase = Phase::Waiting,
            // Refused after all.
            (Phase::Starting(_), _) => {
                self.enter(message.from, Phase::Releasing(Remains::Request));
            }
            (Phase::Completing(Ending::Value(answer) | Ending::Error(answer)), Reply::Stored)
            | (Phase::Offering | Phase::Asking | Phase::Completing(_), Reply::Answer(answer)) => {
                self.tell(answer);
            }
            (Phase::Completing(ending), Reply::Superseded) => {
                caller.phase = Phase::Overtaken(ending);
            }
            _ => {}
        }
        let caller = &mut self.callers[usize::from(message.from)];
        if caller.phase == Phase::Over {
            caller.forget_steps();
        }
    }

    fn fence(&mut self, fence: u8) {
        self.broken.note(Promise::FencesGrow, fence > self.highest);
        self.highest = fence;
    }

    /// A caller received this stored answer.
    fn tell(&mut self, answer: u8) {
        let equal = self.told == 0 || self.told == answer;
        self.broken.note(Promise::EqualAnswers, equal);
        self.told = answer;
    }
}
