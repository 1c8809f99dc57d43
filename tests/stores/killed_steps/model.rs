//! What a call with five steps does from point to point, whatever interrupts it: the expectation of each trial.

use std::fmt::{self, Write as _};

use crate::fleet::Said;
use crate::site::Leases;

/// The treatment of a step that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Plain,
    Once,
    Asked,
}

const STEPS: [(&str, Manner); 5] = [
    ("charge", Manner::Plain),
    ("mail", Manner::Once),
    ("label", Manner::Asked),
    ("stock", Manner::Plain),
    ("ship", Manner::Plain),
];

/// The number of steps.
const COUNT: usize = STEPS.len();

/// The step that runs at most once.
const MAIL: usize = 1;

/// A point of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Before its beginning is sent to the store.
    Beginning,
    /// Its beginning is recorded, and the reply is on its way.
    Begun,
    /// In its hook, before the question.
    Asked,
    /// Before its effect.
    Part,
    /// After its effect.
    Effect,
    /// Before its result is sent to the store.
    Ending,
    /// Its result is recorded, and the reply is on its way.
    Appended,
    /// It has returned, and the next step has not begun.
    Recorded,
}

/// A point of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    Claiming,
    Claimed,
    Start,
    In(usize, Place),
    Completing,
    Completed,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(step, place) => {
                let place = format!("{place:?}").to_lowercase();
                write!(f, "{}/{place}", STEPS[*step].0)
            }
            _ => f.write_str(&format!("{self:?}").to_lowercase()),
        }
    }
}

impl Point {
    /// Whether a call that is interrupted here has an unknown outcome.
    pub(crate) fn leaves_it_unknown(self) -> bool {
        let places = [Place::Begun, Place::Part, Place::Effect, Place::Ending];
        matches!(self, Self::In(MAIL, place) if places.contains(&place))
    }

    /// The points of an attempt that is not interrupted, from the claim on.
    pub(crate) fn all() -> Vec<Self> {
        let (mut world, mut attempt) = (World::default(), Attempt::new(1));
        attempt.points(&mut world)
    }

    /// The point in the hook, after the effect.
    pub(crate) fn asked() -> [Self; 2] {
        [Place::Effect, Place::Asked].map(|place| Self::In(2, place))
    }
}

/// What a journal has of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    Begun,
    Value(u64),
}

/// The store and the ledger, of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    journal: [Known; COUNT],
    pub(crate) effects: [u64; COUNT],
    /// The process that holds the claim, and whether its lease lasts.
    owner: Option<usize>,
    leased: bool,
    /// How the call has ended.
    pub(crate) answer: Option<Said>,
}

impl World {
    /// The lease is over.
    pub(crate) fn age(&mut self) {
        self.leased = false;
    }

    fn holds(&self, process: usize) -> bool {
        self.answer.is_none() && self.owner == Some(process)
    }

    /// The names of the steps, and the numbers of their effects.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = STEPS.iter().map(|(name, _)| *name);
        names.zip(self.effects)
    }
}

/// A call in a process.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    process: usize,
    at: Option<Point>,
    /// The reply to its claim, if that was an end of the call.
    refused: Option<Said>,
    /// Its own journal.
    memory: [Known; COUNT],
    /// What the part or the hook of the current step returned.
    value: u64,
    results: [Option<u64>; COUNT],
    /// It knows that its lease is lost, or over: no step starts.
    is_lost: bool,
    is_unknown: bool,
    pub(crate) has_ended: bool,
}

fn running() -> Said {
    Said::End("Running".to_owned())
}

impl Attempt {
    pub(crate) fn new(process: usize) -> Self {
        Self {
            process,
            at: None,
            refused: None,
            memory: [Known::Nothing; COUNT],
            value: 0,
            results: [None; COUNT],
            is_lost: false,
            is_unknown: false,
            has_ended: false,
        }
    }

    /// The points up to its end.
    fn points(&mut self, world: &mut World) -> Vec<Point> {
        let mut points = Vec::new();
        while let Some(point) = self.next(world, &mut Vec::new()) {
            points.push(point);
        }
        points
    }

    /// The points that it would pass now.
    pub(crate) fn ahead(&self, world: &World) -> Vec<Point> {
        self.clone().points(&mut world.clone())
    }

    /// Goes on, to this point if it passes it, and to its end otherwise. Returns what it says.
    pub(crate) fn run(&mut self, world: &mut World, stop: Option<Point>) -> Vec<Said> {
        let mut said = Vec::new();
        while let Some(point) = self.next(world, &mut said) {
            if stop == Some(point) {
                said.push(Said::At(point.to_string()));
                break;
            }
        }
        said
    }

    /// Whether it ends by itself when it wakes up after its lease, because its body is cancelled.
    pub(crate) fn is_cancelled(&self, leases: Leases) -> bool {
        let in_body = matches!(self.at, Some(Point::Start | Point::In(..)));
        leases == Leases::LapseAndCancel && in_body
    }

    /// Wakes up, and goes on to its end. Returns what it says.
    pub(crate) fn wake(&mut self, world: &mut World, leases: Leases) -> Vec<Said> {
        if leases != Leases::Aged {
            self.is_lost = true;
            let granted = self.at == Some(Point::Claimed) && self.refused.is_none();
            // A claim whose lease is over is not one, and is made again.
            if granted || self.is_cancelled(leases) {
                self.has_ended = true;
                return vec![world.answer.clone().unwrap_or_else(running)];
            }
        }
        self.run(world, None)
    }

    fn end(&mut self, end: Said, said: &mut Vec<Said>) -> Option<Point> {
        self.has_ended = true;
        said.push(end);
        None
    }

    /// What happens up to the next point; none: the call has ended.
    fn next(&mut self, world: &mut World, said: &mut Vec<Said>) -> Option<Point> {
        let next = match self.at {
            None => Some(Point::Claiming),
            Some(Point::Claiming) => {
                self.claim(world);
                if self.refused == Some(running()) {
                    return self.end(running(), said);
                }
                Some(Point::Claimed)
            }
            Some(Point::Claimed) => match self.refused.take() {
                Some(refused) => self.end(refused, said),
                None => Some(Point::Start),
            },
            Some(Point::Start) => self.enter(0, said),
            Some(Point::In(step, place)) => self.within(step, place, world, said),
            Some(Point::Completing) => {
                let own = self.own_end();
                if world.holds(self.process) {
                    (world.answer, world.owner) = (Some(own), None);
                    Some(Point::Completed)
                } else {
                    let end = world.answer.clone().unwrap_or_else(running);
                    self.end(end, said)
                }
            }
            Some(Point::Completed) => {
                let own = self.own_end();
                self.end(own, said)
            }
        };
        self.at = next;
        next
    }

    fn claim(&mut self, world: &mut World) {
        if let Some(answer) = &world.answer {
            self.refused = Some(answer.clone());
        } else if world.leased {
            self.refused = Some(running());
        } else {
            self.memory = world.journal;
            (world.owner, world.leased) = (Some(self.process), true);
        }
    }

    /// The first point of a step.
    fn enter(&mut self, step: usize, said: &mut Vec<Said>) -> Option<Point> {
        let Some((name, manner)) = STEPS.get(step) else {
            if self.results.contains(&None) {
                return self.end(running(), said);
            }
            return Some(Point::Completing);
        };
        if self.is_lost {
            return self.refuse(step, said);
        }
        match (self.memory[step], manner) {
            (Known::Value(value), _) => {
                said.push(Said::Read((*name).to_owned(), value));
                self.results[step] = Some(value);
                Some(Point::In(step, Place::Recorded))
            }
            (Known::Begun, Manner::Once) => {
                self.is_unknown = true;
                Some(Point::Completing)
            }
            (Known::Begun, Manner::Asked) => Some(Point::In(step, Place::Asked)),
            (_, Manner::Plain) => Some(Point::In(step, Place::Part)),
            (_, Manner::Once | Manner::Asked) => Some(Point::In(step, Place::Beginning)),
        }
    }

    /// The step is refused, and so is each later one.
    fn refuse(&mut self, step: usize, said: &mut Vec<Said>) -> Option<Point> {
        self.is_lost = true;
        said.push(Said::Refused(
            STEPS[step].0.to_owned(),
            "Running".to_owned(),
        ));
        self.enter(step + 1, said)
    }

    fn within(
        &mut self,
        step: usize,
        place: Place,
        world: &mut World,
        said: &mut Vec<Said>,
    ) -> Option<Point> {
        let next = match place {
            Place::Beginning => {
                if !world.holds(self.process) {
                    return self.refuse(step, said);
                }
                world.leased = true;
                (world.journal[step], self.memory[step]) = (Known::Begun, Known::Begun);
                Place::Begun
            }
            Place::Asked if world.effects[step] > 0 => {
                self.value = world.effects[step];
                Place::Ending
            }
            // Its beginning stands. The lease is renewed, so that it starts only if the claim is held.
            Place::Asked => {
                if !world.holds(self.process) {
                    return self.refuse(step, said);
                }
                world.leased = true;
                Place::Part
            }
            Place::Begun => Place::Part,
            Place::Part => {
                world.effects[step] += 1;
                self.value = world.effects[step];
                Place::Effect
            }
            Place::Effect => Place::Ending,
            Place::Ending => {
                if !world.holds(self.process) {
                    return self.refuse(step, said);
                }
                world.leased = true;
                world.journal[step] = Known::Value(self.value);
                Place::Appended
            }
            Place::Appended => {
                said.push(Said::Kept(STEPS[step].0.to_owned(), self.value));
                self.results[step] = Some(self.value);
                Place::Recorded
            }
            Place::Recorded => return self.enter(step + 1, said),
        };
        Some(Point::In(step, next))
    }

    /// The end of its call, if that counts.
    fn own_end(&self) -> Said {
        if self.is_unknown {
            return Said::End("Unknown".to_owned());
        }
        let mut answer = format!("p{}", self.process);
        for ((name, _), value) in STEPS.iter().zip(self.results) {
            let value = value.unwrap_or_default();
            write!(answer, ",{name}={value}").expect("a string takes anything");
        }
        Said::Answer(answer)
    }
}
