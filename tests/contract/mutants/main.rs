//! The conformance kit can fail: stores with one flaw each, and what finds them.

mod store;
mod table;

use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use idem_conformance::{cases, sequences};
use tokio::runtime::{Builder, Runtime};

use store::Flawed;
use table::{At, By, FLAWS};

/// More seeds than the cases have: a memory store is fast.
const SEEDS: u64 = 250;

/// The first named case that finds this flaw, and a history's verdict.
fn found(runtime: &Runtime, at: At) -> (Option<&'static str>, bool) {
    let store = || Arc::new(Flawed::new(at, 1_000_000));
    let fails = |case: &idem_conformance::Case| {
        let run = AssertUnwindSafe(|| runtime.block_on((case.run)(store())));
        panic::catch_unwind(run).is_err()
    };
    let mut named = cases().into_iter().filter(|case| case.rule > 0);
    let case = named.find(fails).map(|case| case.name);
    let run = AssertUnwindSafe(|| runtime.block_on(sequences(store(), 0..SEEDS)));
    let history = panic::catch_unwind(run).map_or(true, |outcome| outcome.is_err());
    (case, history)
}

#[test]
fn every_flaw_is_found_by_what_its_row_says() {
    // Hundreds of panics are expected; their messages would hide the unexpected ones.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let runtime = Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime starts");
    let none = found(&runtime, At::Nowhere);
    let mut wrong = Vec::new();
    for (rule, name, stated, at) in FLAWS {
        let (case, history) = found(&runtime, *at);
        let by = match (case, history) {
            (Some(_), true) => Some(By::Both),
            (Some(_), false) => Some(By::Cases),
            (None, true) => Some(By::Sequences),
            (None, false) => None,
        };
        eprintln!("rule {rule:>2}: {name}: {by:?}, {case:?}");
        if by != Some(*stated) {
            wrong.push((name, stated, by));
        }
    }
    panic::set_hook(hook);
    assert_eq!(none, (None, false), "a store without a flaw");
    assert!(
        wrong.is_empty(),
        "the table says another thing of {wrong:?}"
    );
}

#[test]
fn every_rule_has_a_case_and_a_flaw() {
    let cases: BTreeSet<_> = cases().iter().map(|case| case.rule).collect();
    let flaws: BTreeSet<_> = FLAWS.iter().map(|(rule, ..)| *rule).collect();
    assert!(cases.into_iter().eq(0..=18));
    assert!(flaws.into_iter().eq(1..=18));
}
