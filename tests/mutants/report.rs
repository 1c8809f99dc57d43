//! Writes `docs/mutants.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::list::{FOLDERS, Mutant};
use crate::programs::PROGRAMS;

const START: &str = include_str!("report.md");

/// A cell of a table, as code.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// The row of a folder: how many of its mutants are found, and by which programs.
fn summary(name: &str, mutants: &[&Mutant]) -> String {
    let mut found = BTreeMap::new();
    for finder in mutants.iter().filter_map(|mutant| mutant.found_by.as_ref()) {
        *found.entry(&*finder.program).or_insert(0) += 1;
    }
    let by: Vec<_> = PROGRAMS
        .iter()
        .filter_map(|(program, _)| Some(format!("{program} {}", found.get(program)?)))
        .collect();
    let sum: usize = found.values().sum();
    format!(
        "| {name} | {} | {sum} | {} |\n",
        mutants.len(),
        by.join(", ")
    )
}

pub(crate) fn write(mutants: &[Mutant]) {
    let mut text = START.to_owned();
    for folder in FOLDERS {
        let here: Vec<_> = mutants
            .iter()
            .filter(|mutant| mutant.folder() == folder)
            .collect();
        text += &summary(&code(folder), &here);
    }
    text += &summary("all", &mutants.iter().collect::<Vec<_>>());
    text += "\n## Each mutant\n\n| | file | change | found by |\n|--:|---|---|---|\n";
    for mutant in mutants {
        let file = code(mutant.file.trim_start_matches("idem-runtime/src/"));
        let found = match &mutant.found_by {
            Some(finder) if finder.test.is_empty() => format!("{} aborts", finder.program),
            Some(finder) => format!("{}: {}", finder.program, code(&finder.test)),
            None => format!("**not found**. {}", mutant.judged),
        };
        let (number, change) = (mutant.number, code(&mutant.change));
        writeln!(text, "| {number} | {file} | {change} | {found} |").expect("a string");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mutants.md");
    fs::write(path, text).expect("the page is written");
}
