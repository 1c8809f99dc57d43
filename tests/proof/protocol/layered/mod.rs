//! Two layers, explored: one key, its callers in processes of their own, a durable store that decides with the
//! transitions themselves, and a fast one that goes down and comes back empty or old while copies are on their way to
//! it. The running code decides about a call's use of a copy, and about the replacement of copies. Each step is atomic;
//! other steps may come between two of them.

mod promise;
mod step;
mod world;

use std::time::Instant;

use self::promise::Promise;
use self::step::Step;
use self::world::World;
use crate::search::search;

/// One before the reset, one after.
const EPOCHS: usize = 2;

/// A flaw. Every one of them has to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The fast store grants claims while it is up.
    ClaimsInFront,
    /// Copies are made before the answer is stored.
    CopiesBeforeCommit,
    /// Unknown outcomes are copied and replayed.
    UnknownIsCopied,
    /// Copies keep their name when a key is reset.
    NoEpochs,
    /// A reset does not wait until no process trusts the earlier copies.
    ResetsDoNotWait,
    /// A reset begins an epoch at its end, and closes none before.
    ResetsCloseNothing,
    /// The epoch is read at a copy's making, not before its record.
    PlacesAreTakenLate,
}

/// How often each event may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Faults {
    /// The fast store goes down.
    flaps: u8,
    /// A commit is lost, and its caller receives an error.
    lost: u8,
    /// A lease is over while its owner goes on.
    zombies: u8,
    /// A body ends with an unknown outcome.
    unknown: u8,
    /// An operator resets the answered key.
    resets: u8,
    /// The operator dies half-way through the reset.
    deaths: u8,
}

const NONE: Faults = Faults {
    flaps: 0,
    lost: 0,
    zombies: 0,
    unknown: 0,
    resets: 0,
    deaths: 0,
};

#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    callers: usize,
    faults: Faults,
    flaw: Flaw,
}

/// A scenario by name, number of callers, and limits of events.
macro_rules! scenarios {
    ($($scenario:ident $name:literal $callers:literal [$($fault:ident $times:literal),*];)*) => {
        $(const $scenario: Scenario = Scenario {
            name: $name,
            callers: $callers,
            faults: Faults { $($fault: $times,)* ..NONE },
            flaw: Flaw::None,
        };)*
        const SOUND: &[Scenario] = &[$($scenario),*];
    };
}

scenarios! {
    FLAPS "flaps, lost commits" 3 [flaps 2, lost 1];
    UNKNOWN "zombies, unknown outcomes" 3 [flaps 1, zombies 1, unknown 1];
    RESETS "resets" 2 [flaps 1, resets 1, deaths 1];
    THREE "resets, three callers" 3 [resets 1, deaths 1];
}

const FLAWED: [(Flaw, Scenario, Promise); 7] = [
    (Flaw::ClaimsInFront, FLAPS, Promise::AnswersEndIt),
    (Flaw::CopiesBeforeCommit, FLAPS, Promise::CopiesAreTrue),
    (Flaw::UnknownIsCopied, UNKNOWN, Promise::CopiesAreTrue),
    (Flaw::NoEpochs, RESETS, Promise::CopiesAreTrue),
    (Flaw::ResetsDoNotWait, RESETS, Promise::CopiesAreTrue),
    (Flaw::ResetsCloseNothing, RESETS, Promise::CopiesAreTrue),
    (Flaw::PlacesAreTakenLate, RESETS, Promise::CopiesAreTrue),
];

/// Promises that were broken, each with the shortest way there.
fn explore(scenario: &Scenario) -> Vec<(Promise, Vec<Step>)> {
    let start = Instant::now();
    let found = search(
        World::new(scenario),
        |world, steps| world.steps(scenario, steps),
        |world, step| world.take(scenario, step),
        |world, steps, report| {
            world.broken.iter().copied().for_each(&mut *report);
            if steps.is_empty() && world.somebody_waits() {
                report(Promise::NobodyIsKeptOut);
            }
        },
    );
    let (name, flaw, states) = (scenario.name, scenario.flaw, found.states);
    eprintln!("{name}, {flaw:?}: {states} states in {:?}", start.elapsed());
    for (promise, way) in &found.broken {
        eprintln!("  {promise:?} broken in {} steps: {way:?}", way.len());
    }
    found.broken
}

#[test]
fn every_fault_of_the_fast_store_leaves_one_answer() {
    for scenario in SOUND {
        let found = explore(scenario);
        assert!(found.is_empty(), "{}", scenario.name);
    }
}

#[test]
fn layers_that_are_flawed_are_found() {
    for (flaw, scenario, promise) in FLAWED {
        let found = explore(&Scenario { flaw, ..scenario });
        let broken = found.iter().any(|(broken, _)| *broken == promise);
        assert!(broken, "{flaw:?} does not break {promise:?}");
    }
}
