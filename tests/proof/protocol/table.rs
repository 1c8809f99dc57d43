//! The results as a table, for people.

use std::fmt::Write as _;

use crate::Found;
use crate::promise::PROMISES;
use crate::scenario::Scenario;

/// A row per scenario, a column per promise, and the counterexamples.
pub(crate) fn table(scenarios: &[Scenario], found: &[Found]) -> String {
    let mut table = format!("\n{:31}{:>9}", "", "states");
    for promise in PROMISES {
        write_to(&mut table, format_args!(" {promise:?}"));
    }
    let rows = || scenarios.iter().zip(found);
    for (scenario, found) in rows() {
        write_to(
            &mut table,
            format_args!("\n{:31}{:>9}", scenario.name, found.states),
        );
        for promise in PROMISES {
            let cell = match found.way(promise) {
                Some(way) => way.len().to_string(),
                None if scenario.promises(promise) => "holds".to_owned(),
                None => "·".to_owned(),
            };
            let width = format!("{promise:?}").len();
            write_to(&mut table, format_args!(" {cell:>width$}"));
        }
    }
    for (scenario, found) in rows() {
        for (promise, way) in &found.broken {
            let name = scenario.name;
            write_to(&mut table, format_args!("\n{name}: {promise:?}: {way:?}"));
        }
    }
    table.push('\n');
    table
}

fn write_to(table: &mut String, text: std::fmt::Arguments<'_>) {
    table.write_fmt(text).expect("a string takes all");
}
