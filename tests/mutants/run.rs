//! Runs the programs with each mutant until one finds it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{self, Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::list::List;
use crate::programs::{End, OWN_MODULE, PROGRAMS, Program, build, execute};

/// A program with a mutant, or with none (0).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) mutant: usize,
    pub(crate) program: String,
    pub(crate) end: End,
    /// The tests that failed, and failed again alone.
    pub(crate) tests: Vec<String>,
    pub(crate) seconds: u64,
    /// Without a mutant: the mutants whose places the program runs through.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) reached: BTreeSet<usize>,
}

pub(crate) fn read(path: &Path) -> Vec<Outcome> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of results"))
        .collect()
}

/// The program with a mutant. What fails once is run again, alone, because a busy machine fails tests too.
fn outcome(
    program: &Program,
    built: &(PathBuf, PathBuf),
    mutant: usize,
    own: &str,
    limit: Duration,
    log: Option<&Path>,
) -> Outcome {
    let begun = Instant::now();
    let filter = program
        .filter
        .map_or("", |filter| if filter == OWN_MODULE { own } else { filter });
    let (mut end, mut tests) = execute(filter, built, mutant, None, limit, log);
    let seconds = begun.elapsed().as_secs();
    if end == End::Fails {
        tests.retain(|test| {
            execute(filter, built, mutant, Some(test), limit, None).0 != End::Passes
        });
        if tests.is_empty() {
            end = End::Passes;
        }
    } else if end == End::Aborts {
        (end, tests) = execute(filter, built, mutant, None, limit, None);
    }
    Outcome {
        mutant,
        program: program.name.to_owned(),
        end,
        tests,
        seconds,
        reached: BTreeSet::new(),
    }
}

pub(crate) fn run(dir: &Path, results: &Path, options: &[&str]) {
    let option = |name| {
        options
            .iter()
            .skip_while(move |option| **option != name)
            .nth(1)
    };
    let is_in = |name, one: &str| {
        option(name).is_none_or(|all: &&str| all.split(',').any(|other| other == one))
    };
    let jobs = option("--jobs").map_or(2, |jobs| jobs.parse().expect("a number of jobs"));
    let results = path::absolute(results).expect("a path");
    let list = List::read();
    let built = build(dir);
    let done = Mutex::new(read(&results));
    let mut file = File::options();
    let file = file.create(true).append(true).open(&results);
    let mut file = file.expect("a file of results");
    let mut write = |outcome: Outcome| {
        let line = serde_json::to_string(&outcome).expect("JSON") + "\n";
        file.write_all(line.as_bytes())
            .expect("a result is written");
        let Outcome {
            mutant,
            program,
            end,
            tests,
            seconds,
            ..
        } = &outcome;
        println!("{mutant} {program}: {end:?} {tests:?} {seconds} s");
        done.lock().expect("no panic").push(outcome);
    };
    for program in PROGRAMS
        .iter()
        .filter(|program| is_in("--programs", program.name))
    {
        let built = &built[program.name];
        let is_done = |mutant| {
            let mut done = done.lock().expect("no panic").clone().into_iter();
            done.find(|outcome| outcome.mutant == mutant && outcome.program == program.name)
        };
        let base = is_done(0).unwrap_or_else(|| {
            let log = results.with_extension("reached");
            drop(fs::remove_file(&log));
            let mut base = outcome(program, built, 0, "", Duration::from_secs(600), Some(&log));
            let numbers = fs::read(&log).unwrap_or_default();
            let number = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            base.reached = numbers.chunks_exact(2).map(number).collect();
            write(base.clone());
            base
        });
        if base.end != End::Passes {
            println!("{} fails without a mutant: {:?}", program.name, base.tests);
            continue;
        }
        let open = |number: &usize| {
            let done = done.lock().expect("no panic");
            let is_found = done
                .iter()
                .any(|other| other.mutant == *number && other.end != End::Passes);
            !is_found && is_in("--only", &number.to_string())
        };
        let open: Vec<_> = base
            .reached
            .iter()
            .copied()
            .filter(open)
            .filter(|number| is_done(*number).is_none())
            .collect();
        let (next, write) = (Mutex::new(open.into_iter()), Mutex::new(&mut write));
        let limit = Duration::from_secs(60 + 4 * base.seconds);
        let work = || {
            loop {
                let Some(number) = next.lock().expect("no panic").next() else {
                    return;
                };
                let own = list.mutants[number - 1].module();
                let outcome = outcome(program, built, number, &own, limit, None);
                write.lock().expect("no panic")(outcome);
            }
        };
        thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    }
}
