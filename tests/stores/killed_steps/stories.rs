//! Calls that are interrupted at points of their five steps, one process after the other.

use std::collections::HashSet;

use idem_tests::seeded::Seeded;

use crate::fleet::{Fleet, Process, Said};
use crate::model::{Attempt, Point, World};
use crate::site::Leases;

/// What befalls a process whose calls stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    /// It goes on when the calls of the next process stop or have ended.
    Stall,
}

/// Where the calls of a key stop, in one attempt after the other.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// At these points.
    At(Vec<Point>),
    /// At each point, each once. `known`: where that leaves the outcome known.
    Each { known: bool, had: HashSet<Point> },
    /// At any point, in so many attempts.
    Random(usize),
}

/// A key, its plan, and what is expected of it.
#[derive(Debug)]
struct Story {
    key: String,
    plan: Plan,
    world: World,
    /// What has happened to it, for a message.
    told: Vec<String>,
    attempt: Attempt,
    /// The attempt of a stalled process.
    zombie: Option<Attempt>,
}

impl Plan {
    pub(crate) fn each(known: bool) -> Self {
        let had = HashSet::new();
        Self::Each { known, had }
    }

    /// Where the next attempt stops, which would pass these points.
    fn next(&mut self, ahead: &[Point], seeded: &mut Seeded) -> Option<Point> {
        match self {
            Self::At(points) if points.is_empty() => None,
            Self::At(points) => Some(points.remove(0)),
            Self::Each { known, had } => {
                let mut wanted = ahead
                    .iter()
                    .copied()
                    .filter(|point| !(had.contains(point) || *known && point.leaves_it_unknown()));
                let next = wanted.next();
                had.extend(next);
                next
            }
            Self::Random(0) => None,
            Self::Random(left) => {
                *left -= 1;
                let at = usize::try_from(seeded.below(ahead.len() as u64)).expect("a few points");
                ahead.get(at).copied()
            }
        }
    }
}

impl Story {
    fn check(&mut self, process: &mut Process, expected: &[Said]) {
        let said = process.said_of(&self.key);
        let number = process.number;
        assert_eq!(
            said, expected,
            "what process {number} said of {} (left) and should have said (right), after {:#?}\n{:?}",
            self.key, self.told, self.world
        );
    }
}

/// Interrupts the calls of each plan until none stops any more, with these faults in turn; then calls each key again,
/// in the last process and in one more. Returns the number of stops.
pub(crate) fn tell(
    fleet: &mut Fleet,
    plans: Vec<Plan>,
    faults: &[Fault],
    seeded: &mut Seeded,
) -> usize {
    let aged = fleet.leases == Leases::Aged;
    // Keys of their own: the fleet has had processes with other calls.
    let first = fleet.processes();
    let named = plans.into_iter().enumerate();
    let mut stories: Vec<_> = named
        .map(|(number, plan)| Story {
            key: format!("k{first}-{number}"),
            plan,
            world: World::default(),
            told: Vec::new(),
            attempt: Attempt::new(0),
            zombie: None,
        })
        .collect();
    let (mut stalled, mut stops) = (None, 0);
    for fault in faults.iter().cycle() {
        // Calls of a process that follows a stalled one wait until its leases have lapsed.
        let mut process = fleet.spawn(!aged && stalled.is_some());
        let stopped = call_all(fleet, &mut process, &mut stories, seeded);
        stops += stopped;
        if let Some(mut zombie) = stalled.take() {
            wake(fleet, &mut zombie, &mut stories);
        }
        if stopped == 0 {
            // Duplicates in the process that has the answers, and in one that does not.
            let mut other = fleet.spawn(false);
            for process in [&mut process, &mut other] {
                assert_eq!(call_all(fleet, process, &mut stories, seeded), 0);
            }
            break;
        }
        match fault {
            Fault::Kill => fleet.kill(&mut process),
            Fault::Stall => process.stall(),
        }
        for story in &mut stories {
            story.told.push(format!("{fault:?}"));
            // What it said before its end is what was expected: this is all.
            story.check(&mut process, &[]);
            story.world.age();
            let attempt = story.attempt.clone();
            story.zombie = (*fault == Fault::Stall && !attempt.has_ended).then_some(attempt);
        }
        if *fault == Fault::Stall {
            stalled = Some(process);
        }
        if aged {
            fleet.site.age();
        }
    }
    for story in &stories {
        let effects = fleet.ledger.effects();
        let of = |step: &str| effects.get(&(story.key.clone(), step.to_owned()));
        for (step, count) in story.world.counts() {
            let had = of(step).map_or(0, Vec::len) as u64;
            assert_eq!(
                had, count,
                "effects of {step} of {}, after {:#?}",
                story.key, story.told
            );
        }
    }
    stops
}

/// Calls each key. Returns the number of those that stop.
fn call_all(
    fleet: &mut Fleet,
    process: &mut Process,
    stories: &mut [Story],
    seeded: &mut Seeded,
) -> usize {
    let mut expected = Vec::new();
    for story in &mut *stories {
        story.attempt = Attempt::new(process.number);
        let ahead = story.attempt.ahead(&story.world);
        let stop = story.plan.next(&ahead, seeded);
        let said = story.attempt.run(&mut story.world, stop);
        let point = stop.map(|point| point.to_string()).unwrap_or_default();
        process.send(format!("call {} five 0 {point}", story.key).trim_end());
        story
            .told
            .push(format!("process {}: {said:?}", process.number));
        expected.push(said);
    }
    fleet.rests(process, stories.iter().map(|story| &story.key));
    for (story, said) in stories.iter_mut().zip(&expected) {
        story.check(process, said);
    }
    let stops = stories.iter().filter(|story| !story.attempt.has_ended);
    stops.count()
}

/// Wakes a stalled process up, lets its calls end, and kills it before it does anything in the background.
fn wake(fleet: &mut Fleet, zombie: &mut Process, stories: &mut [Story]) {
    zombie.wake();
    let mut expected = Vec::new();
    for story in &mut *stories {
        let Some(mut attempt) = story.zombie.take() else {
            continue;
        };
        if !attempt.is_cancelled(fleet.leases) {
            zombie.send(&format!("go {}", story.key));
        }
        let said = attempt.wake(&mut story.world, fleet.leases);
        story
            .told
            .push(format!("process {} wakes up: {said:?}", zombie.number));
        expected.push((story, said));
    }
    fleet.rests(zombie, expected.iter().map(|(story, _)| &story.key));
    for (story, said) in expected {
        story.check(zombie, &said);
    }
    fleet.kill(zombie);
}
