//! The conformance suite can fail: stores with one flaw each, and the rule that each breaks.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "a test whose times do not fit panics, as it should"
)]

mod fixture;
mod flaw;
mod journals;
mod known;
mod listeners;
mod listings;
mod reconcile;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use idem_conformance::{Case, cases};
use tokio::runtime::{Builder, Runtime};

use flaw::{FLAWS, Flaw};
use store::Flawed;

/// The cases that a store with this flaw fails.
fn failing(runtime: &Runtime, flaw: Flaw) -> Vec<Case> {
    let fails = |case: &Case| {
        let fixture = Arc::new(Flawed::new(flaw));
        let case = AssertUnwindSafe(|| runtime.block_on((case.run)(fixture)));
        panic::catch_unwind(case).is_err()
    };
    cases().into_iter().filter(fails).collect()
}

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime starts")
}

#[test]
fn every_flaw_fails_a_case_of_the_rule_that_it_breaks() {
    // Hundreds of panics are expected; their messages would hide the unexpected ones.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let runtime = runtime();
    let found: Vec<_> = FLAWS
        .iter()
        .map(|&(rule, flaw)| (rule, flaw, failing(&runtime, flaw)))
        .collect();
    let sound = failing(&runtime, Flaw::None);
    panic::set_hook(hook);

    assert!(sound.is_empty(), "the store without a flaw fails {sound:?}");
    let mut missed = Vec::new();
    for (rule, flaw, cases) in found {
        let rules: BTreeSet<_> = cases.iter().map(|case| case.rule).collect();
        let first = cases.iter().find(|case| case.rule == rule);
        eprintln!(
            "rule {rule:>2}: {flaw:?} fails {} cases of rules {rules:?}, such as {}",
            cases.len(),
            first.map_or("none of the rule", |case| case.name)
        );
        if first.is_none() {
            missed.push((rule, flaw));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn every_rule_has_cases_and_flaws() {
    let mut names = BTreeSet::new();
    let mut rules = BTreeMap::new();
    for case in cases() {
        assert!(names.insert(case.name), "{} is there twice", case.name);
        *rules.entry(case.rule).or_insert(0) += 1;
    }
    let flaws: BTreeSet<_> = FLAWS.iter().map(|(rule, _)| *rule).collect();
    assert!(rules.keys().copied().eq(1..=18), "{rules:?}");
    assert!(flaws.into_iter().eq(1..=18));
    eprintln!("{} cases, by rule {rules:?}", names.len());
}
