//! The rules that hold however processes were interrupted.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::{Fleet, Said};
use crate::stories::MANY;

/// The steps of a call that run at most once.
pub(crate) fn once(key: &str) -> Vec<String> {
    if key.starts_with('k') {
        return vec!["mail".to_owned()];
    }
    let numbers = (0..MANY).filter(|number| key.starts_with("once") && number % 4 == 2);
    numbers.map(|number| format!("s{number}")).collect()
}

/// Whether a step is asked about before it runs again.
fn is_asked(step: &str) -> bool {
    let number = step
        .strip_prefix('s')
        .and_then(|number| number.parse().ok());
    step == "label" || number.is_some_and(|number: usize| number % 4 > 1)
}

/// The kills between a step's effect and result, and the stalls.
fn interruptions(fleet: &Fleet, key: &str, step: &str, stalls: usize) -> usize {
    let points = ["effect", "ending"].map(|place| format!("{step}/{place}"));
    let of_key = fleet.said.iter().filter(|(_, of, _)| of == key);
    of_key
        .filter(|(_, _, said)| match said {
            Said::At(point) => stalls > 0 || points.contains(point),
            _ => false,
        })
        .count()
}

/// Checks all of the rules. `stalls`: the number of stalls of a call, each of which may have one effect more.
pub(crate) fn check(fleet: &Fleet, stalls: usize) {
    let mut wrong = Vec::new();
    // What processes returned for a step, in the order in which they said so: process and value.
    let mut results: BTreeMap<(&str, &str), Vec<(usize, u64)>> = BTreeMap::new();
    let mut ends: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (process, key, said) in &fleet.said {
        let ends = ends.entry(key).or_default();
        match said {
            Said::Kept(step, value) | Said::Read(step, value) => {
                let of_step = results.entry((key, step)).or_default();
                of_step.push((*process, *value));
            }
            Said::End(kind) if kind == "Running" => {}
            Said::Answer(end) | Said::End(end) => drop(ends.insert(end.clone())),
            Said::At(_) | Said::Refused(..) => {}
        }
    }
    let effects = fleet.effects();
    for ((key, step), results) in &results {
        let (_, value) = results[0];
        if results.iter().any(|(_, other)| *other != value) {
            wrong.push(format!("{key}: {step} has several results: {results:?}"));
        }
        if *step == "book" {
            // Its effects are rows.
            continue;
        }
        let had = effects.get(&((*key).to_owned(), (*step).to_owned()));
        let had = had.map_or(&[][..], Vec::as_slice);
        if value == 0 || value > had.len() as u64 {
            wrong.push(format!("{key}: {step} has result {value} of {had:?}"));
        }
        // Processes are numbered in their order: a later one started after this result was recorded.
        let first = results.iter().map(|(process, _)| *process).min();
        if had.iter().any(|process| Some(*process) > first) {
            wrong.push(format!(
                "{key}: {step}, recorded in {first:?}, ran again: {had:?}"
            ));
        }
    }
    for ((key, step), had) in &effects {
        let most = if once(key).contains(step) {
            1
        } else if is_asked(step) {
            1 + stalls
        } else if key.starts_with('k') {
            1 + interruptions(fleet, key, step, stalls)
        } else {
            continue;
        };
        if had.len() > most {
            wrong.push(format!("{key}: {step} had its effect in each of {had:?}"));
        }
    }
    for (key, ends) in &ends {
        let has_result = |step: &String| results.contains_key(&(*key, step));
        let is_right = match ends.first().map(String::as_str) {
            None => false,
            Some("Unknown") => !once(key).iter().all(has_result),
            // An answer, with the name of the process that gave it.
            Some(end) => end.starts_with('p'),
        };
        if !is_right || ends.len() > 1 {
            wrong.push(format!("{key} ended as {ends:?} with {results:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
}
