//! Runs each mutant with its test, and searches another where that passes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::list::{Finder, Mutant};
use crate::programs::{Built, End, PROGRAMS, execute};

/// Whether a test passes without the mutant, and does not with it.
fn finds(built: &Built, mutant: usize, test: &str) -> bool {
    execute(built, 0, Some(test)) == End::Passes
        && execute(built, mutant, Some(test)) != End::Passes
}

/// The first test that finds a mutant, fast programs first.
fn search(programs: &BTreeMap<&str, Built>, mutant: usize) -> Option<Finder> {
    PROGRAMS.iter().find_map(|(program, _)| {
        let built = &programs[program];
        let test = match execute(built, mutant, None) {
            End::Passes => return None,
            End::Found(test) if finds(built, mutant, &test) => test,
            // A busy machine fails tests too.
            End::Found(_) => return None,
            End::Aborts => String::new(),
        };
        let program = (*program).to_owned();
        Some(Finder { program, test })
    })
}

/// Whether the mutant is found, or was found by no test before.
fn judge(programs: &BTreeMap<&str, Built>, mutant: &mut Mutant, searches: bool) -> bool {
    let was_found = mutant.found_by.is_some();
    if let Some(Finder { program, test }) = &mutant.found_by {
        let built = programs.get(&**program);
        if built.is_some_and(|built| match &**test {
            "" => execute(built, mutant.number, None) == End::Aborts,
            test => finds(built, mutant.number, test),
        }) {
            return true;
        }
        println!("{}: no longer found by {program} {test}", mutant.number);
    }
    if !searches {
        return !was_found;
    }
    mutant.found_by = search(programs, mutant.number);
    match &mutant.found_by {
        Some(Finder { program, test }) => println!("{}: found by {program} {test}", mutant.number),
        None => println!("{}: not found", mutant.number),
    }
    mutant.found_by.is_some() || !was_found
}

/// Judges mutants, two at once, and returns whether each is still found.
pub(crate) fn run(
    programs: &BTreeMap<&str, Built>,
    mutants: &mut [Mutant],
    is_chosen: impl Fn(usize) -> bool,
    searches: bool,
) -> bool {
    let is_kept = AtomicBool::new(true);
    let chosen = mutants.iter_mut().filter(|mutant| is_chosen(mutant.number));
    let chosen = Mutex::new(chosen.collect::<Vec<_>>().into_iter());
    let work = || {
        loop {
            let Some(mutant) = chosen.lock().expect("no panic").next() else {
                return;
            };
            if !judge(programs, mutant, searches) {
                is_kept.store(false, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    is_kept.into_inner()
}
