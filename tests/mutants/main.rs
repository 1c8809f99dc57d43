//! Mutant schemata: seeded faults, all planted into one copy of the sources, each behind a switch of the environment.
//!
//! One build per fault would take days. Here `IDEM_MUTANT=7` switches on the seventh of one build (Untch, Offutt,
//! Harrold: "Mutation analysis using mutant schemata", 1993). `docs/mutants.md` has the commands and the results.

mod list;
mod plant;
mod programs;
mod report;
mod run;

use std::path::Path;

const USAGE: &str = "usage: idem-mutants COPY [--search] [N,M...]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [copy, rest @ ..] = &arguments[..] else {
        panic!("{USAGE}");
    };
    let (searches, numbers) = match rest {
        [option, rest @ ..] if option == "--search" => (true, rest),
        rest => (false, rest),
    };
    let numbers: Vec<usize> = match numbers {
        [] => Vec::new(),
        [numbers] => numbers
            .split(',')
            .map(|number| number.parse().expect(USAGE))
            .collect(),
        _ => panic!("{USAGE}"),
    };
    let (copy, mut mutants) = (Path::new(copy), list::read());
    plant::plant(
        Path::new("."),
        copy,
        &list::places(Path::new("."), &mutants),
    );
    let programs = programs::build(copy);
    let is_chosen = |number| numbers.is_empty() || numbers.contains(&number);
    let is_kept = run::run(&programs, &mut mutants, is_chosen, searches);
    if searches {
        list::write(&mutants);
        report::write(&mutants);
    }
    let found = mutants.iter().filter(|mutant| mutant.found_by.is_some());
    println!(
        "{} of {} mutants have a test that finds them",
        found.count(),
        mutants.len()
    );
    assert!(
        is_kept,
        "a mutant is no longer found: run again with --search, and add the case if no test finds it"
    );
}
