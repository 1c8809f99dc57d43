//! Writes `docs/mutants.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::list::{FOLDERS, List, Mutant};
use crate::programs::{End, PROGRAMS};
use crate::run::{Outcome, read};

const START: &str = include_str!("report.md");

/// A cell of a table, as code.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// How the first program that finds a mutant ends.
fn found<'a>(mutant: &Mutant, outcomes: &'a [Outcome]) -> Option<&'a Outcome> {
    let with = |name: &str| {
        let found = |outcome: &&Outcome| {
            outcome.mutant == mutant.number && outcome.program == name && outcome.end != End::Passes
        };
        outcomes.iter().find(found)
    };
    PROGRAMS.iter().find_map(|program| with(program.name))
}

/// The program and the first test that find a mutant, or why none does.
fn result(mutant: &Mutant, outcomes: &[Outcome]) -> String {
    if let Some(outcome) = found(mutant, outcomes) {
        let test = outcome
            .tests
            .first()
            .map(|test| format!(": {}", code(test)));
        let how = match outcome.end {
            End::Hangs => ", hangs",
            End::Aborts => ", aborts",
            End::Fails | End::Passes => "",
        };
        return format!("{}{how}{}", outcome.program, test.unwrap_or_default());
    }
    let ran = |name: &str, number| {
        outcomes
            .iter()
            .find(|outcome| outcome.mutant == number && outcome.program == name)
    };
    let (mut passed, mut open) = (0, 0);
    for program in &PROGRAMS {
        let reaches = ran(program.name, 0).is_none_or(|base| base.reached.contains(&mutant.number));
        let passes = ran(program.name, mutant.number).is_some();
        passed += usize::from(passes);
        open += usize::from(reaches && !passes);
    }
    let how = match (passed, open) {
        (0, 0) => "**not found**: no program reaches it".to_owned(),
        (_, 0) => format!("**not found**: {passed} programs pass"),
        _ => format!("**not found yet**: {passed} programs pass, {open} not run"),
    };
    let judged = if mutant.judged.is_empty() { "" } else { ". " };
    format!("{how}{judged}{}", mutant.judged)
}

pub(crate) fn report(results: &[&str]) {
    let list = List::read();
    let outcomes: Vec<_> = results
        .iter()
        .flat_map(|path| read(Path::new(path)))
        .collect();
    let mut text = START.to_owned();
    let row = |text: &mut String, name: &str, mutants: &[&Mutant]| {
        let mut programs = BTreeMap::new();
        for outcome in mutants.iter().filter_map(|mutant| found(mutant, &outcomes)) {
            *programs.entry(&outcome.program).or_insert(0) += 1;
        }
        let count = |name: &str| {
            programs
                .get(&name.to_owned())
                .map(|count| format!("{name} {count}"))
        };
        let by: Vec<_> = PROGRAMS
            .iter()
            .filter_map(|program| count(program.name))
            .collect();
        let sum = programs.values().sum::<usize>();
        writeln!(
            text,
            "| {name} | {} | {sum} | {} |",
            mutants.len(),
            by.join(", ")
        )
        .expect("a string");
    };
    for folder in FOLDERS {
        let here: Vec<_> = list
            .mutants
            .iter()
            .filter(|mutant| mutant.folder() == folder)
            .collect();
        row(&mut text, &code(folder), &here);
    }
    row(&mut text, "all", &list.mutants.iter().collect::<Vec<_>>());
    text += "\n## Each mutant\n\n| | file | change | found by |\n|--:|---|---|---|\n";
    for mutant in &list.mutants {
        let file = mutant.file.trim_start_matches("idem-runtime/src/");
        let (file, change) = (code(file), code(&mutant.change));
        let result = result(mutant, &outcomes);
        writeln!(text, "| {} | {file} | {change} | {result} |", mutant.number).expect("a string");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mutants.md");
    fs::write(path, text).expect("the page is written");
}
