//! The protocol, explored: every order of everything that can happen to one key and two or three
//! callers, with the faults of each scenario. The store decides with the transitions of
//! `idem-runtime` itself, so what is checked is the code that runs.

mod promise;
mod scenario;
mod search;
mod store;
mod world;

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use promise::{PROMISES, Promise};
use scenario::{Fate, Faults, Flaw, Scenario};
use search::{Found, search};

const NONE: Faults = Faults { lost: 0, twice: 0, late: 0, fails: 0, drops: 0, crashes: 0, zombies: 0, renewals: 0, hands: 0 };

const SOUND: &[Scenario] = &[
    Scenario::new("lost and late", b"---", Faults { lost: 1, late: 1, twice: 1, ..NONE }),
    Scenario { on_fail: &[Fate::Release, Fate::Keep], ..Scenario::new("error", b"---", Faults { fails: 1, lost: 1, late: 1, ..NONE }) },
    Scenario::new("crash, zombie", b"---", Faults { crashes: 1, zombies: 1, renewals: 1, ..NONE }),
    Scenario { on_drop: &[Fate::Hold, Fate::Release, Fate::Unknown], ..Scenario::new("drop", b"--h", Faults { drops: 1, late: 1, zombies: 1, ..NONE }) },
    Scenario { on_fail: &[Fate::Unknown], on_drop: &[Fate::Hold], ..Scenario::new("unknown, mixed", b"-hh", Faults { fails: 1, drops: 1, zombies: 1, lost: 1, ..NONE }) },
    Scenario { max_attempts: Some(1), on_fail: &[Fate::Unknown, Fate::Keep, Fate::ReleaseCounted], besides: &[Promise::AttemptsEnd, Promise::OneEffect],
        ..Scenario::new("one attempt", b"---", Faults { fails: 1, lost: 1, late: 1, crashes: 1, zombies: 1, ..NONE }) },
    Scenario { max_attempts: Some(2), on_fail: &[Fate::Unknown, Fate::ReleaseCounted], on_drop: &[Fate::Unknown], besides: &[Promise::AttemptsEnd, Promise::OneEffect],
        ..Scenario::new("hook, two attempts", b"hhh", Faults { fails: 1, crashes: 1, zombies: 1, late: 1, ..NONE }) },
    Scenario { on_fail: &[Fate::Unknown, Fate::ReleaseCounted], besides: &[Promise::OneEffect],
        ..Scenario::new("hook", b"hhh", Faults { fails: 1, crashes: 1, zombies: 1, ..NONE }) },
    Scenario { on_fail: &[Fate::Unknown], ..Scenario::new("by hand", b"-h", Faults { hands: 1, fails: 1, zombies: 1, twice: 1, late: 1, ..NONE }) },
];

const FLAWED: &[(Scenario, Promise)] = &[
    (Scenario { flaw: Flaw::HookLies, besides: &[Promise::OneEffect], on_fail: &[Fate::Unknown], ..Scenario::new("hook lies", b"hh", Faults { fails: 1, ..NONE }) }, Promise::OneEffect),
];

fn explore(scenarios: &[Scenario]) -> Vec<Found> {
    let left = Mutex::new(scenarios.iter().enumerate());
    let found = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| loop {
                let Some((number, scenario)) = left.lock().unwrap().next() else { break };
                let start = Instant::now();
                let outcome = search(scenario);
                eprintln!("{:20} {:>9} {:?} {}", scenario.name, outcome.states, start.elapsed(),
                    outcome.broken.iter().map(|(p, w)| format!("{p:?}: {} {w:?}", w.len())).collect::<Vec<_>>().join("\n   "));
                found.lock().unwrap().push((number, outcome));
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, found)| found).collect()
}

#[test]
fn what_is_promised_holds() {
    for found in explore(SOUND) { assert!(found.broken.is_empty()); }
}
