//! The rules that hold however processes were interrupted. They know nothing of the model.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::{Fleet, Said};
use crate::parallel::MANY;

const FIVE: [&str; 5] = ["charge", "mail", "label", "stock", "ship"];

/// The treatment of a step that was interrupted, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Plain,
    Once,
    Asked,
}

fn manner(key: &str, step: &str) -> Manner {
    match step {
        "mail" => Manner::Once,
        "label" => Manner::Asked,
        _ => match step
            .strip_prefix('s')
            .and_then(|number| number.parse::<u32>().ok())
        {
            Some(number) if number % 4 == 2 && key.starts_with("once") => Manner::Once,
            Some(number) if number % 4 > 1 => Manner::Asked,
            _ => Manner::Plain,
        },
    }
}

/// What processes returned for a step, in the order in which they said so: process and value.
type Results<'f> = BTreeMap<(&'f str, &'f str), Vec<(usize, u64)>>;

/// The steps of a call.
fn steps(key: &str) -> Vec<String> {
    if key.starts_with('k') {
        return FIVE.map(str::to_owned).to_vec();
    }
    if key.parse::<u64>().is_ok() {
        return ["charge", "book", "ship"].map(str::to_owned).to_vec();
    }
    (0..MANY).map(|number| format!("s{number}")).collect()
}

/// Checks all of the rules. `stalls`: the number of stalls of a call, each of which may have one effect more. Returns
/// the number of repeated effects.
pub(crate) fn check(fleet: &Fleet, stalls: usize) -> usize {
    let mut wrong = Vec::new();
    let mut results = Results::new();
    let mut ends: BTreeMap<&str, Vec<&Said>> = BTreeMap::new();
    for (process, key, said) in &fleet.said {
        match said {
            Said::Kept(step, value) | Said::Read(step, value) => {
                let of_step = results.entry((key, step)).or_default();
                of_step.push((*process, *value));
            }
            Said::Answer(_) => ends.entry(key).or_default().push(said),
            Said::End(kind) if kind == "Unknown" => ends.entry(key).or_default().push(said),
            Said::End(kind) if !["Running", "TransactionAborted"].contains(&&**kind) => {
                wrong.push(format!("{key} ended as {kind}"));
            }
            _ => {}
        }
    }
    let effects = fleet.ledger.effects();
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
        if let Some(again) = had
            .iter()
            .find(|process| first.is_some_and(|first| **process > first))
        {
            wrong.push(format!(
                "{key}: {step}, recorded in {first:?}, ran again in {again}"
            ));
        }
    }
    for ((key, step), had) in &effects {
        let most = match manner(key, step) {
            Manner::Once => 1,
            Manner::Asked => 1 + stalls,
            Manner::Plain => continue,
        };
        if had.len() > most {
            wrong.push(format!("{key}: {step} had its effect in each of {had:?}"));
        }
    }
    for (key, ends) in &ends {
        if ends.iter().any(|end| *end != ends[0]) {
            wrong.push(format!("{key} has several ends: {ends:?}"));
        }
        if let Said::Answer(answer) = ends[0] {
            for part in answer.split(',').skip(1) {
                let (step, value) = part.split_once('=').expect("a step and its value");
                let returned = results.get(&(*key, step)).map(|results| results[0].1);
                if Some(value.to_owned()) != returned.map(|value| value.to_string()) {
                    wrong.push(format!("{key}: {step} returned {returned:?}: {answer}"));
                }
            }
        }
        let unfinished = steps(key).into_iter();
        let mut unfinished = unfinished.filter(|step| !results.contains_key(&(*key, &**step)));
        let is_right = match ends[0] {
            Said::Answer(_) => unfinished.next().is_none(),
            _ => unfinished.any(|step| manner(key, &step) == Manner::Once),
        };
        if !is_right {
            wrong.push(format!("{key} ended as {:?} with {results:#?}", ends[0]));
        }
    }
    let keys: BTreeSet<_> = fleet.said.iter().map(|(_, key, _)| &**key).collect();
    for key in keys {
        if !ends.contains_key(key) {
            wrong.push(format!("{key} has not ended"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    effects.values().map(|had| had.len() - 1).sum()
}
