//! Mutant schemata: seeded faults, all planted into one copy of the sources, each behind a switch of the environment.
//!
//! One build per fault would take days. Here `IDEM_MUTANT=7` switches on the seventh of one build (Untch, Offutt,
//! Harrold: "Mutation analysis using mutant schemata", 1993). `docs/mutants.md` has the commands and the results.

mod draw;
mod list;
mod plant;
mod programs;
mod report;
mod run;

use std::path::Path;

use list::List;

const USAGE: &str = "usage: idem-mutants draw DIR | plant DIR | run DIR RESULTS [--only N,M] [--programs a,b] \
    [--jobs N] | report RESULTS...";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["draw", dir] => draw::draw(Path::new(dir)).write(),
        ["plant", dir] => {
            let (dir, list) = (Path::new(dir), List::read());
            plant::restore(dir);
            plant::plant(dir, &list.located(dir));
            let checked = plant::check(dir, list.mutants.len());
            assert!(checked.faults.is_empty(), "{:?}", checked.faults);
            for mutant in &list.mutants {
                if !checked.compiled.contains(&mutant.number) {
                    println!("not compiled: {} {}", mutant.number, mutant.change);
                }
            }
        }
        ["run", dir, results, ref options @ ..] => {
            run::run(Path::new(dir), Path::new(results), options);
        }
        ["report", ref results @ ..] if !results.is_empty() => report::report(results),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    }
}
