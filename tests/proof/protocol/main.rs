//! The protocol, explored: every order of all events of one key and its callers, with the faults of each scenario. The
//! store decides with the transitions of `idem-runtime` themselves, so the explored code is the running one, not a
//! copy. The callers act like engines, each in a process of its own, and learn of a lost lease only from the store, in
//! the reply to another command. Time is whether a lease is over, and whether a release of which nothing remains has
//! expired, which it does when all commands of its owner have arrived. Not in it: other records that expire or get
//! lost, calls that share a claim in one process.
//!
//! The hook knows the outcome, but not always: it may answer that it cannot decide. It answers that nothing
//! landed only when there was no effect, and no other body runs that may still have one.
//!
//! A body with steps has no effect of its own. Its journal is a list of numbers, which the store passes on unread.
//! The engine does not look at its clock before a step, so that a paused process does all that it may do.
//!
//! Each scenario is a row of the table that is printed: `holds`, `·` where nothing is promised, or the
//! number of steps of the shortest way to break the promise, which is printed below.

mod caller;
mod journal;
mod layered;
mod promise;
mod scenario;
mod scenarios;
mod search;
mod step;
mod store;
mod stored;
mod table;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use promise::{PROMISES, Promise};
use scenario::{Flaw, Scenario};
use scenarios::{FLAWED, FLAWED_STEPS, SOUND, SOUND_STEPS};
use search::search;
use step::Step;
use world::World;

/// The findings of a scenario.
type Found = search::Found<Promise, Step>;

/// Explores one scenario.
fn explore_one(scenario: &Scenario) -> Found {
    search(
        World::new(scenario),
        |world, steps| world.steps(scenario, steps),
        |world, step| world.take(scenario, step),
        |world, _, report| {
            let broken =
                |promise: &Promise| world.broken.has(*promise) && scenario.promises(*promise);
            PROMISES.into_iter().filter(broken).for_each(report);
        },
    )
}

/// Explores the scenarios on one thread per core, and prints the table.
fn explore(scenarios: &[Scenario]) -> Vec<Found> {
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(number) else {
                        return;
                    };
                    let row = (number, explore_one(scenario));
                    rows.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(number, _)| *number);
    let found: Vec<_> = rows.into_iter().map(|(_, found)| found).collect();
    eprintln!(
        "{}in {:?}",
        table::table(scenarios, &found),
        start.elapsed()
    );
    assert_eq!(found.len(), scenarios.len());
    found
}

#[test]
fn the_promises_hold() {
    for sound in [
        SOUND.to_vec(),
        SOUND.iter().copied().map(Scenario::offering).collect(),
        SOUND_STEPS.to_vec(),
    ] {
        holds(&sound);
    }
}

fn holds(sound: &[Scenario]) {
    for (scenario, found) in sound.iter().zip(explore(sound)) {
        for promise in PROMISES {
            let way = found.way(promise);
            assert!(way.is_none(), "{}: {promise:?}: {way:?}", scenario.name);
        }
    }
}

#[test]
fn each_flaw_is_found() {
    let all: Vec<_> = FLAWED.iter().chain(FLAWED_STEPS).collect();
    let flawed: Vec<_> = all.iter().map(|(scenario, _)| *scenario).collect();
    for ((scenario, breaks), found) in all.iter().zip(explore(&flawed)) {
        for promise in PROMISES {
            let broken = found.way(promise).is_some();
            assert_eq!(
                broken,
                breaks.contains(&promise),
                "{}: {promise:?}",
                scenario.name
            );
        }
    }
    for promise in PROMISES {
        let broken = all.iter().any(|(_, breaks)| breaks.contains(&promise));
        assert!(broken, "nothing shows that {promise:?} can be broken");
    }
}

/// So that each of them is found by its flaw alone.
#[test]
fn without_its_flaw_the_same_holds() {
    let all = FLAWED.iter().chain(FLAWED_STEPS);
    let mended = all.map(|(scenario, _)| Scenario {
        flaw: Flaw::None,
        ..*scenario
    });
    let mended: Vec<_> = mended.collect();
    for (scenario, found) in mended.iter().zip(explore(&mended)) {
        assert!(found.broken.is_empty(), "{}", scenario.name);
    }
}
