//! The report of a run: a row for each store, and the whole history of a key that went wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use idem_tests::checker::journal::{self, Entry};
use idem_tests::checker::{Faults, Findings, What};

/// Keys whose history is printed.
const PRINTED: usize = 5;

/// A store's row, and the details below the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) calls: usize,
    pub(crate) keys: usize,
    pub(crate) faults: BTreeMap<String, usize>,
    pub(crate) findings: Findings,
    pub(crate) took: Duration,
}

pub(crate) const HEAD: &str = "\
| store | calls | keys | bodies | faults | second starts | unstored success | forgotten | lost | differing | unexplained | other | time | seed |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

impl Row {
    pub(crate) fn line(&self) -> String {
        let columns = [
            &[What::Lost, What::StartedAfterAnswer, What::LateSuccess][..],
            &[What::Differing, What::Stale, What::Payload],
            &[What::Unexplained, What::Twice, What::StartedAfterUnknown],
        ];
        let violations = &self.findings.violations;
        let [lost, differing, unexplained] = columns.map(|kinds| {
            violations
                .iter()
                .filter(|one| kinds.contains(&one.what))
                .count()
        });
        let other = violations.len() - lost - differing - unexplained;
        let second: usize = self.findings.second_starts.values().sum();
        format!(
            "| {} | {} | {} | {} | {} | {second} | {} | {} | {lost} | {differing} | {unexplained} | {other} | {} s | {} |",
            self.store,
            self.calls,
            self.keys,
            self.findings.starts,
            self.count_of_faults(),
            self.findings.unstored,
            self.findings.forgotten,
            self.took.as_secs(),
            self.seed,
        )
    }

    fn count_of_faults(&self) -> usize {
        let faults = self.faults.iter();
        let made = faults.filter(|(kind, _)| *kind != "machine-stall");
        made.map(|(_, count)| count).sum()
    }

    /// The details of the numbers of the row.
    pub(crate) fn details(&self) -> String {
        let list = |counts: &BTreeMap<String, usize>| {
            let words = counts.iter().map(|(what, count)| format!("{count} {what}"));
            words.collect::<Vec<_>>().join(", ")
        };
        let mut kinds = BTreeMap::new();
        for violation in &self.findings.violations {
            *kinds.entry(format!("{:?}", violation.what)).or_default() += 1;
        }
        let mut text = format!(
            "{}: faults: {}\n  second starts: {}\n  remembered by their records: {}\n  callers were told: {}\n",
            self.store,
            list(&self.faults),
            list(&self.findings.second_starts),
            list(&self.findings.recorded),
            list(&self.findings.told),
        );
        if !kinds.is_empty() {
            writeln!(text, "  VIOLATIONS: {}", list(&kinds)).expect("a string takes anything");
        }
        text
    }

    /// Violations; the first of each kind has the history of its key.
    pub(crate) fn violations(&self, dir: &Path, faults: &Faults) -> String {
        let mut text = String::new();
        let (mut printed, mut seen) = (0, BTreeSet::new());
        for violation in &self.findings.violations {
            let (what, key, why) = (violation.what, &violation.key, &violation.why);
            if seen.insert(what) || printed < PRINTED {
                printed += 1;
                let story = story(dir, key, faults);
                writeln!(text, "{what:?}: {key}: {why}\n{story}").expect("a string takes anything");
            }
        }
        text
    }
}

/// All lines about a key, with the faults that were near.
fn story(dir: &Path, key: &str, faults: &Faults) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut digest = String::new();
    let mut events: Vec<(u64, String, String)> = Vec::new();
    let read = journal::read(dir, |process, line| {
        let Some(entry) = Entry::parse(line) else {
            return;
        };
        let (word, time, rest) = (entry.word, entry.time, entry.rest);
        if word == "event" {
            let line = format!("{process}: event {rest}");
            events.push((time, entry.key.to_owned(), line));
        } else if entry.key == key {
            if word == "start" {
                entry.second().clone_into(&mut digest);
            }
            lines.push((time, format!("{process}: {word} {} {rest}", entry.call)));
        }
    });
    if let Err(error) = read {
        lines.push((0, format!("{}: {error}", dir.display())));
    }
    events.retain(|(_, of, _)| *of == digest);
    lines.extend(events.into_iter().map(|(time, _, line)| (time, line)));
    lines.sort();
    let (from, to) = match &lines[..] {
        [first, .., last] => (
            first.0.saturating_sub(3_000_000),
            last.0.min(first.0 + 30_000_000),
        ),
        _ => (0, 0),
    };
    for fault in faults.within(from, to) {
        let (kind, target, millis) = (&fault.kind, fault.target, (fault.to - fault.from) / 1_000);
        lines.push((
            fault.from,
            format!("FAULT {kind} {target:?} for {millis} ms"),
        ));
    }
    lines.sort();
    let mut text = String::new();
    let first = lines.first().map_or(0, |line| line.0);
    for (time, line) in lines {
        let millis = (time - first) / 1_000;
        writeln!(text, "  {millis:>8} ms  {line}").expect("a string takes anything");
    }
    text
}
