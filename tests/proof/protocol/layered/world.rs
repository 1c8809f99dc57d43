//! Two stores, a key's callers, and the copies in transit.

use idem_runtime::store::author::{Header, State};
use idem_runtime::store::author::{is_final, supersedes};

use super::promise::Promise;
use super::step::Step;
use super::{EPOCHS, Faults, Flaw, Scenario};
use crate::caller::{owner, value};
use crate::journal::Log;
use crate::scenario::Flaw as StoreFlaw;
use crate::store::{Command, Ending, REQUESTS, Reply, Resolution, Sender, execute};
use crate::stored::Kept;

/// The place of a copy that is decided upon when it arrives.
const LATE: u8 = u8::MAX;
/// The owner of an operator's commands.
const HAND: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    Asking,
    Running,
    Completing,
    Overtaken,
    Waiting,
    /// It returned.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) phase: Phase,
    pub(super) round: u8,
    fence: u8,
    /// The epoch as its process knows it; `None` for a closed one.
    pub(super) known: Option<u8>,
    pub(super) fresh: bool,
    /// The epoch when it looked up a copy.
    place: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reset {
    None,
    Closed,
    Resolved,
    Returned,
    Dead,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) durable: Option<Kept>,
    pub(super) epoch: u8,
    pub(super) open: bool,
    pub(super) up: bool,
    pub(super) copies: [Option<Kept>; EPOCHS],
    pub(super) old: [Option<Kept>; EPOCHS],
    pub(super) callers: Vec<Caller>,
    pub(super) writes: Vec<(u8, Kept)>,
    pub(super) reset: Reset,
    seen: Option<Kept>,
    pub(super) faults: Faults,
    told: u8,
    pub(super) broken: Vec<Promise>,
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let caller = Caller {
            phase: Phase::Idle,
            round: 0,
            fence: 0,
            known: Some(0),
            fresh: true,
            place: Some(0),
        };
        Self {
            durable: None,
            epoch: 0,
            open: true,
            up: true,
            copies: [None; EPOCHS],
            old: [None; EPOCHS],
            callers: vec![caller; scenario.callers],
            writes: Vec::new(),
            reset: Reset::None,
            seen: None,
            faults: scenario.faults,
            told: 0,
            broken: Vec::new(),
        }
    }

    fn note(&mut self, promise: Promise, kept: bool) {
        if !kept && !self.broken.contains(&promise) {
            self.broken.push(promise);
        }
    }

    pub(super) fn somebody_waits(&self) -> bool {
        self.callers
            .iter()
            .any(|caller| caller.phase != Phase::Over)
    }

    /// Whether epochs do: without resets there is one.
    pub(super) fn faults_matter(&self) -> bool {
        self.faults.resets > 0 || self.reset != Reset::None
    }

    /// Whether the claim is one of a process that is alive.
    pub(super) fn is_renewed(&self) -> bool {
        let Some(kept) = &self.durable else {
            return false;
        };
        (0..).zip(&self.callers).any(|(number, caller)| {
            let holds = matches!(caller.phase, Phase::Running | Phase::Completing);
            holds && owner(number, caller.round) == kept.owner()
        })
    }

    /// The copy that a process would see.
    pub(super) fn visible(&self, caller: Caller) -> Option<Kept> {
        let epoch = caller.known.filter(|_| self.up && caller.fresh)?;
        self.copies[usize::from(epoch)]
    }

    pub(super) fn take(&mut self, scenario: &Scenario, step: Step) {
        let flaw = scenario.flaw;
        match step {
            Step::Look(number) => self.look(number, flaw),
            Step::Ask(number) => self.ask(number, flaw),
            Step::Return(number) => {
                self.callers[usize::from(number)].phase = Phase::Completing;
                if flaw == Flaw::CopiesBeforeCommit {
                    let caller = self.callers[usize::from(number)];
                    let ending = Ending::Value(value(number));
                    // As if it were stored already.
                    let mut there = self.durable;
                    let sender = sender(number, caller);
                    execute(
                        &mut there,
                        Command::Complete(ending),
                        sender,
                        (None, 0),
                        StoreFlaw::None,
                    );
                    self.copy(number, there, flaw);
                }
            }
            Step::Commit(number) => self.complete(number, Ending::Value(value(number)), flaw),
            Step::CommitLost(number) => {
                self.faults.lost -= 1;
                self.callers[usize::from(number)].phase = Phase::Over;
            }
            Step::Unknown(number) => {
                self.faults.unknown -= 1;
                self.complete(number, Ending::Unknown(Log::default()), flaw);
            }
            Step::Poll(number) => self.poll(number, flaw),
            Step::Hint(number) => {
                self.callers[usize::from(number)].place = self.callers[usize::from(number)].known;
                if let Some(kept) = self.durable {
                    self.write(number, kept, flaw);
                }
            }
            Step::LeaseLapses => {
                if let Some(mut kept) = self.durable {
                    if self.is_renewed() {
                        self.faults.zombies -= 1;
                    }
                    kept.lapse();
                    self.durable = Some(kept);
                }
            }
            Step::HintLapses(epoch) => self.copies[usize::from(epoch)] = None,
            Step::CopyArrives(write) => {
                let (place, copy) = self.writes.remove(usize::from(write));
                let epoch = if place == LATE { self.epoch } else { place };
                if self.up && (place != LATE || self.open) {
                    let there = &mut self.copies[usize::from(epoch)];
                    let wins = |there: Kept| supersedes(&copy.header(), &there.header());
                    if there.is_none_or(wins) {
                        *there = Some(copy);
                    }
                }
            }
            Step::Learn(number) => {
                let known = self.named();
                let caller = &mut self.callers[usize::from(number)];
                (caller.known, caller.fresh) = (known, true);
            }
            Step::Stale(number) => self.callers[usize::from(number)].fresh = false,
            Step::Down => {
                self.faults.flaps -= 1;
                self.up = false;
                self.copies = [None; EPOCHS];
            }
            Step::Up { empty } => {
                self.up = true;
                self.copies = if empty { [None; EPOCHS] } else { self.old };
            }
            Step::Snapshot => self.old = self.copies,
            step => self.take_back(step, flaw),
        }
    }

    /// A step of a reset.
    fn take_back(&mut self, step: Step, flaw: Flaw) {
        match step {
            Step::Close => {
                self.faults.resets -= 1;
                self.seen = self.durable;
                self.reset = Reset::Closed;
                if !matches!(flaw, Flaw::NoEpochs | Flaw::ResetsCloseNothing) {
                    self.epoch += 1;
                    self.open = false;
                }
            }
            Step::Resolve => {
                let hand = Sender {
                    owner: HAND,
                    fence: 0,
                    fingerprint: REQUESTS[0],
                    reconciles: false,
                    max_attempts: None,
                };
                let command = Command::Resolve(Resolution::Reset);
                let done = execute(
                    &mut self.durable,
                    command,
                    hand,
                    (self.seen, 0),
                    StoreFlaw::None,
                );
                assert_eq!(done, Reply::Stored, "an answer stays until it is reset");
                self.told = 0;
                self.reset = Reset::Resolved;
            }
            Step::Open => {
                if flaw == Flaw::ResetsCloseNothing {
                    self.epoch += 1;
                }
                self.open = true;
                if self.reset == Reset::Resolved {
                    self.reset = Reset::Returned;
                }
            }
            Step::ResetterDies => {
                self.faults.deaths -= 1;
                self.reset = Reset::Dead;
            }
            other => unreachable!("{other:?} is no step of a reset"),
        }
    }

    /// The epoch that a process learns.
    pub(super) fn named(&self) -> Option<u8> {
        self.open.then_some(self.epoch)
    }

    fn look(&mut self, number: u8, flaw: Flaw) {
        let caller = &mut self.callers[usize::from(number)];
        caller.place = caller.known;
        let caller = *caller;
        match self.visible(caller) {
            Some(copy) if hands_out(&copy, flaw) => return self.tell_copy(number, &copy),
            Some(copy) if flaw == Flaw::ClaimsInFront && copy.is_held() => {
                self.callers[usize::from(number)].phase = Phase::Waiting;
                return;
            }
            None if flaw == Flaw::ClaimsInFront && self.up => {
                let mut claimed = None;
                let sender = sender(number, caller);
                let reply = execute(
                    &mut claimed,
                    Command::Ask,
                    sender,
                    (None, 0),
                    StoreFlaw::None,
                );
                self.copies[usize::from(self.epoch)] = claimed;
                return self.hear_claim(number, reply, flaw);
            }
            _ => {}
        }
        self.callers[usize::from(number)].phase = Phase::Asking;
    }

    fn ask(&mut self, number: u8, flaw: Flaw) {
        let sender = sender(number, self.callers[usize::from(number)]);
        let reply = execute(
            &mut self.durable,
            Command::Ask,
            sender,
            (None, 0),
            StoreFlaw::None,
        );
        self.hear_claim(number, reply, flaw);
    }

    fn hear_claim(&mut self, number: u8, reply: Reply, flaw: Flaw) {
        let phase = match reply {
            Reply::Granted { fence, .. } => {
                self.callers[usize::from(number)].fence = fence;
                self.note(Promise::AnswersEndIt, self.told == 0);
                Phase::Running
            }
            Reply::Running => Phase::Waiting,
            Reply::Answer(answer) => {
                self.copy(number, self.durable, flaw);
                self.tell(answer);
                Phase::Over
            }
            // Of an unknown outcome.
            _ => Phase::Over,
        };
        self.callers[usize::from(number)].phase = phase;
    }

    fn complete(&mut self, number: u8, ending: Ending, flaw: Flaw) {
        let caller = &mut self.callers[usize::from(number)];
        caller.place = caller.known;
        let sender = sender(number, *caller);
        let command = Command::Complete(ending);
        let reply = execute(
            &mut self.durable,
            command,
            sender,
            (None, 0),
            StoreFlaw::None,
        );
        let mut phase = Phase::Over;
        match (reply, ending) {
            (Reply::Stored, Ending::Value(answer)) | (Reply::Answer(answer), _) => {
                self.copy(number, self.durable, flaw);
                self.tell(answer);
            }
            (Reply::Stored, _) => self.copy(number, self.durable, flaw),
            (Reply::Superseded, Ending::Value(_)) => phase = Phase::Overtaken,
            _ => {}
        }
        self.callers[usize::from(number)].phase = phase;
    }

    fn poll(&mut self, number: u8, flaw: Flaw) {
        let caller = self.callers[usize::from(number)];
        if let Some(copy) = self.visible(caller)
            && hands_out(&copy, flaw)
        {
            return self.tell_copy(number, &copy);
        }
        self.callers[usize::from(number)].place = caller.known;
        let answer = self.durable.and_then(|kept| kept.answer());
        let phase = if let Some(answer) = answer {
            self.copy(number, self.durable, flaw);
            self.tell(answer);
            Phase::Over
        } else if caller.round == 0 {
            self.callers[usize::from(number)].round = 1;
            Phase::Idle
        } else {
            Phase::Over
        };
        self.callers[usize::from(number)].phase = phase;
    }

    /// Sends a copy of the stored record, if one is needed.
    fn copy(&mut self, number: u8, stored: Option<Kept>, flaw: Flaw) {
        if let Some(stored) = stored.filter(|stored| hands_out(stored, flaw)) {
            self.write(number, stored, flaw);
        }
    }

    fn write(&mut self, number: u8, copy: Kept, flaw: Flaw) {
        let caller = &self.callers[usize::from(number)];
        let place = match flaw {
            Flaw::PlacesAreTakenLate => Some(LATE),
            _ => caller.place,
        };
        let Some(place) = place else { return };
        if !self.writes.contains(&(place, copy)) {
            self.writes.push((place, copy));
        }
    }

    fn tell_copy(&mut self, number: u8, copy: &Kept) {
        let is_true = self
            .durable
            .is_some_and(|kept| kept.answer() == copy.answer());
        self.note(Promise::CopiesAreTrue, is_true);
        if let Some(answer) = copy.answer() {
            self.tell(answer);
        }
        self.callers[usize::from(number)].phase = Phase::Over;
    }

    fn tell(&mut self, answer: u8) {
        self.note(Promise::EqualAnswers, self.told == 0 || self.told == answer);
        self.told = answer;
    }
}

fn sender(number: u8, caller: Caller) -> Sender {
    Sender {
        owner: owner(number, caller.round),
        fence: caller.fence,
        fingerprint: REQUESTS[0],
        reconciles: false,
        max_attempts: None,
    }
}

fn hands_out(copy: &Kept, flaw: Flaw) -> bool {
    let header: Header = copy.header();
    let done = matches!(header.state, State::Done { .. });
    is_final(&header) || flaw == Flaw::UnknownIsCopied && done
}
